"""What no machine of that kind can beat: the floor of each time, and the ceiling of each rate, of a load.

A floor is max(FLOP / peak, bytes / bandwidth) of the work that must be done, at 100 % of both, without messages between
GPUs, launches, scheduling or waiting. Routed experts count as many as are expected to be touched by even routing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from infcalc.frozen import frozen
from infcalc.lowering.ops import ops_of, templates
from infcalc.lowering.tensors import inventory
from infcalc.lowering.work import Linear, Sequences
from infcalc.lowering.work import Load as StepLoad
from infcalc.memory.offload import link_time_s
from infcalc.roofline.price import compute_precision
from infcalc.roofline.step import step_time

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.api.deployment import Deployment
    from infcalc.lowering.ops import StepShape, Template
    from infcalc.lowering.work import Driver
    from infcalc.roofline.step import StepTime
    from infcalc.spec.kv import KvFormat

_GAUSS = ((5 / 18, 0.5 - 0.5 * math.sqrt(0.6)), (8 / 18, 0.5), (5 / 18, 0.5 + 0.5 * math.sqrt(0.6)))
_UNBOUNDED = 1e12
_MOST_REMEMBERED = 20_000


@frozen
class Floors:
    """Floors of one load, in seconds, and the most requests per second that its work allows.

    ``tpot_s`` is that of the sequences in decode together, ``alone_s`` that of one sequence: no token is sooner.
    """

    ttft_s: float
    tpot_s: float
    alone_s: float
    e2e_s: float
    requests_per_s: float


@frozen
class Work:
    """What a load asks of one replica, as floors need it."""

    prompt_tokens: float
    """To compute."""
    cached_tokens: float
    answer_tokens: float
    num_decodes: float
    """Sequences in decode, over the replica."""
    num_most: float
    """Most of them at once."""
    num_prompts: float = 1.0
    """Prompts that are all done before the first token counts: those of a static batch."""
    num_clients: float | None = None
    """Requests under way, where no more can be."""
    num_held: float = 0.0
    """Requests under way at least, on average over all of them, with those that wait or think."""
    think_s: float = 0.0
    """Of what is under way, the time that a client thinks after each answer."""


class FloorClock:
    """Floors of the steps of one deployment.

    Raises:
        UsageError: the GPU states no peak that could serve.

    """

    __slots__ = ("_gpu", "_known", "_link_s", "_stages", "_summed")

    def __init__(self, deployment: Deployment, form: KvFormat, *, offload_s: float = 0.0) -> None:
        self._gpu, self._link_s = deployment.gpu, offload_s
        tensors = inventory(deployment.model, deployment.quantization)
        pp = deployment.parallelism.pp
        self._stages = tuple(
            tuple(
                (template, compute_precision(deployment.gpu, template.precision)[1])
                for template in templates(
                    deployment.model, parallelism=deployment.parallelism, kv=form, tensors=tensors, stage=stage
                )
            )
            for stage in (range(pp) if pp > 1 else (None,))
        )
        self._summed = tuple(_summed(stage) for stage in self._stages)
        self._known: dict[tuple[int, int, int], tuple[tuple[float, float], ...]] = {}

    def stages(self, shape: StepShape) -> tuple[StepTime, ...]:
        """Return the step on one rank of each stage, op by op, at 100 % of peak and bandwidth."""
        return tuple(step_time(ops_of((template for template, _ in stage), shape), self._gpu) for stage in self._stages)

    def stages_s(self, num_sequences: int, new_tokens: int, context_tokens: int) -> tuple[tuple[float, float], ...]:
        """Return what computing and what moving the bytes of a step takes on one rank of each stage.

        Each of ``num_sequences`` computes ``new_tokens`` of its prompt after ``context_tokens``; 0: decodes one token.
        Experts meet the tokens of one attention-DP rank at least: what others bring may come at other times.
        """
        key = (num_sequences, new_tokens, context_tokens)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found = self._known[key] = tuple(self._priced(_load(*key)))
        return found

    def _priced(self, load: StepLoad) -> Iterator[tuple[float, float]]:
        bandwidth = self._gpu.bandwidth_bytes_per_s
        for sums, others in self._summed:
            work = [(template.work(load), peak) for template, peak in others]
            compute_s = sum(float(one.flop) / peak for one, peak in work)
            moved = sum(
                float(one.weight_bytes + one.activation_bytes + one.kv_read_bytes + one.kv_write_bytes)
                for one, _ in work
                if one.tokens
            )
            for one in sums:
                more_s, more = one.at(load)
                compute_s, moved = compute_s + more_s, moved + more
            yield compute_s, moved / bandwidth

    def decode_s(self, num_sequences: float, context_tokens: float) -> float:
        """Return the floor of one decode step of ``num_sequences`` on a lane, through all stages."""
        return self._through_s(self.stages_s(*_decode(num_sequences, context_tokens)))

    def prefill_s(self, new_tokens: float, cached_tokens: float = 0.0, num_sequences: float = 1.0) -> float:
        """Return the floor of prompts computed together, through all stages."""
        return self._through_s(self.stages_s(*_prefill(new_tokens, cached_tokens, num_sequences)))

    def step_s(self, shape: StepShape) -> float:
        """Return the floor of one step through all stages."""
        return self._through_s(tuple(self._priced(shape.load(1))))

    def _through_s(self, stages: tuple[tuple[float, float], ...]) -> float:
        return sum(max(compute_s, memory_s, self._link_s) for compute_s, memory_s in stages)

    def answer_step_s(self, num_sequences: float, start_tokens: float, answer_tokens: float) -> float:
        """Return the mean floor of the steps of an answer, while its context grows."""
        return sum(
            share * self.decode_s(num_sequences, start_tokens + place * answer_tokens) for share, place in _GAUSS
        )


class _Sum(NamedTuple):
    """What ops that grow with the same items of a step compute and move together."""

    driver: Driver
    item_s: float
    item_bytes: float
    once_bytes: float
    sequence_bytes: float

    def at(self, load: StepLoad) -> tuple[float, float]:
        """Return the seconds of computing and the bytes moved in a step."""
        items = float(getattr(load, self.driver))
        if not items:
            return 0.0, 0.0
        moved = self.once_bytes + self.item_bytes * items + self.sequence_bytes * float(load.num_sequences)
        return self.item_s * items, moved


def _summed(
    stage: tuple[tuple[Template, float], ...],
) -> tuple[tuple[_Sum, ...], tuple[tuple[Template, float], ...]]:
    """Return the sums of ops whose work is in proportion to items, and the other ops."""
    sums: dict[Driver, _Sum] = {}
    others = []
    for template, peak in stage:
        law = template.law
        if not isinstance(law, Linear) or law.routed is not None:
            others.append((template, peak))
            continue
        one = sums.get(law.driver, _Sum(law.driver, 0.0, 0.0, 0.0, 0.0))
        sums[law.driver] = _Sum(
            law.driver,
            one.item_s + law.item_flop / peak,
            one.item_bytes + law.item_weight_bytes + law.item_activation_bytes,
            one.once_bytes + law.weight_bytes,
            one.sequence_bytes + 2 * law.sequence_state_bytes,
        )
    return tuple(sums.values()), tuple(others)


def floors_of(clock: FloorClock, work: Work, *, num_lanes: int, num_stages: int) -> Floors:
    """Return the floors of a load."""
    start = work.prompt_tokens + work.cached_tokens
    steps = max(0.0, work.answer_tokens - 1)
    tpot_s = clock.answer_step_s(work.num_decodes / num_lanes, start, work.answer_tokens)
    alone_s = clock.answer_step_s(1, start, work.answer_tokens)
    own_s = clock.prefill_s(work.prompt_tokens, work.cached_tokens)
    ttft_s = own_s
    if work.num_prompts > num_lanes:
        ttft_s = clock.prefill_s(work.prompt_tokens, work.cached_tokens, work.num_prompts / num_lanes)
    least_s = own_s + steps * alone_s
    most_per_s = _most_per_s(clock, work, num_lanes=num_lanes, num_stages=num_stages)
    return Floors(
        ttft_s=ttft_s,
        tpot_s=tpot_s,
        alone_s=alone_s,
        # What is always under way takes at least as long as it takes to answer that many (Little 1961).
        e2e_s=max(
            ttft_s + steps * (tpot_s if work.num_prompts > 1 else alone_s), work.num_held / most_per_s - work.think_s
        ),
        requests_per_s=min(most_per_s, _UNBOUNDED if work.num_clients is None else work.num_clients / least_s),
    )


def held(num_clients: float, num_requests: float | None) -> float:
    """Return how many requests a closed loop has under way at least, on average: all but at the end of a finite run.

    Until the last ``num_clients`` of them are left, none of the clients is idle.

    >>> held(100, None), held(100, 1000), held(100, 50)
    (100, 90.0, 0.0)
    """
    return num_clients if num_requests is None else num_clients * max(0.0, 1 - num_clients / num_requests)


def _most_per_s(clock: FloorClock, work: Work, *, num_lanes: int, num_stages: int) -> float:
    """Return the requests per second at which the busiest stage is never idle."""
    start = work.prompt_tokens + work.cached_tokens
    steps = max(0.0, work.answer_tokens - 1)
    each = max(1.0, work.num_most / num_lanes)
    prompt = clock.stages_s(*_prefill(work.prompt_tokens, work.cached_tokens))
    # Of a step at its start: no later one does less.
    decode = clock.stages_s(*_decode(math.ceil(each), start))
    most = math.ceil(each)
    seconds = [
        max(first_s + steps * compute_s / most, steps * memory_s / most)
        for (first_s, _), (compute_s, memory_s) in zip(prompt, decode, strict=True)
    ]
    return num_lanes / num_stages / max(*seconds, 1 / _UNBOUNDED)


def _decode(num_sequences: float, context_tokens: float) -> tuple[int, int, int]:
    return max(1, int(num_sequences)), 0, max(0, round(context_tokens))


def _prefill(new_tokens: float, cached_tokens: float, num_sequences: float = 1.0) -> tuple[int, int, int]:
    return max(1, int(num_sequences)), max(1, int(new_tokens)), max(0, int(cached_tokens))


def _load(num_sequences: int, new_tokens: int, context_tokens: int) -> StepLoad:
    """Return what the laws of a step need, as of the :class:`StepShape` with one kind of sequences."""
    tokens = num_sequences * (new_tokens or 1)
    alike = (Sequences(num_sequences, new_tokens or 1, context_tokens),)
    return StepLoad(
        prefills=alike if new_tokens else (),
        decodes=() if new_tokens else alike,
        num_tokens=tokens,
        num_sequences=num_sequences,
        num_sampled=num_sequences,
        routed_tokens=tokens,
        expanded_tokens=tokens + (num_sequences * context_tokens if new_tokens else 0),
    )


def offload_step_s(deployment: Deployment) -> float:
    """Return the least time of a step that reads offloaded weights over the link to the host; 0 without any."""
    if not deployment.cpu_offload_bytes:
        return 0.0
    from infcalc.memory.offload import offloaded_weights  # noqa: PLC0415 - only with an offload

    link = host_link_bytes_per_s(deployment)
    if link is None:
        return 0.0
    moved = offloaded_weights(
        deployment.model,
        deployment.parallelism,
        deployment.quantization,
        allowance_bytes=deployment.cpu_offload_bytes,
    )
    return link_time_s(max(stage.moved_bytes for stage in moved), link)


def host_link_bytes_per_s(deployment: Deployment) -> float | None:
    """Return the bandwidth between a GPU and its host: that of NVLink-C2C where there is one, else of PCIe."""
    link = deployment.gpu.scale_up
    if link is not None and "C2C" in link.name:
        return link.bytes_per_s
    return deployment.gpu.pcie_bytes_per_s
