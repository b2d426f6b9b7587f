"""From a deployment to the server it makes: its clock, its room for requests, its engine's pace."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Unpack

from infcalc.api.sizing import deployment_budgets
from infcalc.api.users import Traffic, requests_in
from infcalc.engines.pace import compute_shares, kernel_factor, num_front_ends, stretched
from infcalc.engines.verdicts import cache_kind, is_widened
from infcalc.frozen import frozen
from infcalc.roofline.clock import Overhead, StepClock
from infcalc.roofline.curves import curves_of
from infcalc.serving.server import Server
from infcalc.spec.efficiency import with_compute_shares
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import LatentAttention, MoeFeedForward
from infcalc.workload.lengths import Constant, mean_tokens, quantile_tokens

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.engines.pace import Pace
    from infcalc.roofline.clock import Batch, StepPart
    from infcalc.spec.efficiency import GpuEfficiency
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.workload.lengths import Lengths
    from infcalc.workload.quadrature import Node

_SLICES = 24
_MOST_REMEMBERED = 20_000
_NUMBERS = (int, float)
_PLAIN_BITS = 16
LIBRARIES = {"vllm": "vllm", "sglang": "vllm", "tensorrt-llm": "tensorrt-llm"}
"""Whose collectives an engine calls: SGLang has those of vLLM."""


@lru_cache(maxsize=256)
def answer_nodes(lengths: Lengths, most_tokens: float | None = None) -> tuple[Node, ...]:
    """Return slices of equal weight of the answers' lengths, none above ``most_tokens``, with their mean kept.

    Slices rather than the nodes of :mod:`infcalc.workload.lengths`: what counts is when answers end, not their moments.
    """
    if isinstance(lengths, Constant):
        return ((1.0, lengths.value_tokens),)
    mean = mean_tokens(lengths)
    cuts = [(index + 0.5) / _SLICES for index in range(_SLICES)]
    values = [quantile_tokens(lengths, cut) for cut in cuts]
    scale, least, most = mean * _SLICES / sum(values), 1.0, most_tokens or math.inf
    if least < mean < most and (values[0] * scale < least or values[-1] * scale > most):
        # What is cut off at one end is made up for by the others.
        low, high = scale * 1e-6, scale * 1e6
        for _ in range(60):
            scale = math.sqrt(low * high)
            if sum(min(max(value * scale, least), most) for value in values) < mean * _SLICES:
                low = scale
            else:
                high = scale
    return tuple((1 / _SLICES, min(max(value * scale, least), most)) for value in values)


class LaneClock:
    """The steps of one lane, at the pace of a pipeline's slowest stage.

    ``factor`` is how much longer an engine's steps take than those of the kernels that were measured: of whole steps,
    with what the engine adds and with messages, for it was found of whole steps.

    In a full pipeline each micro-batch waits for the slowest stage at every hop; a lone batch passes at its own pace.
    """

    __slots__ = ("_beyond_tokens", "_clock", "_factor", "_floor_s", "_full", "_known", "_whole")

    def __init__(
        self, clock: StepClock, factor: float, *, full: bool, floor_s: float = 0.0, beyond_tokens: float = math.inf
    ) -> None:
        self._clock, self._factor, self._full = clock, factor, full
        self._floor_s, self._beyond_tokens = floor_s, beyond_tokens
        self._known: dict[tuple[tuple[str, float], ...], float] = {}
        self._whole: LaneClock | None = None

    @property
    def factor(self) -> float:
        """How much longer the engine's own kernels take than those that were timed."""
        return self._factor

    def step_s(self, **step: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        """Return the seconds of one step: no less than launching its kernels takes where that is done one by one.

        Steps of plain numbers are remembered: a planner asks for the same ones again and again.
        """
        if not all(type(value) in _NUMBERS for value in step.values()):
            return self._priced_s(**step)
        key = tuple(step.items())
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _MOST_REMEMBERED:
                self._known.clear()
            found = self._known[key] = float(self._priced_s(**step))
        return found

    def _priced_s(self, **step: Any) -> Any:  # noqa: ANN401
        clock = self._clock
        pure_s = self._factor * (clock.num_stages * clock.slowest_s(**step) if self._full else clock.step_s(**step))
        if not self._floor_s:
            return pure_s
        if self._beyond_tokens < 0:
            return self._all_eager_s(pure_s)
        decodes, context = step["num_decodes"], step["context_tokens"]
        if isinstance(decodes, int | float) and isinstance(context, int | float):
            return max(pure_s, self._floor_s) if decodes > 0 and context > self._beyond_tokens else pure_s
        import numpy as np  # noqa: PLC0415 - only where a clock runs

        eager = (np.asarray(decodes) > 0) & (np.asarray(context) > self._beyond_tokens)
        return np.maximum(pure_s, np.where(eager, self._floor_s, 0.0))

    def _all_eager_s(self, pure_s: Any) -> Any:  # noqa: ANN401
        if isinstance(pure_s, int | float):
            return max(pure_s, self._floor_s) if pure_s else pure_s
        import numpy as np  # noqa: PLC0415 - only where a clock runs

        return np.where(pure_s > 0, np.maximum(pure_s, self._floor_s), 0.0)

    def parts(self, **batch: Unpack[Batch]) -> tuple[StepPart, ...]:
        """Return what a step is made of, through all stages."""
        found = self._clock.parts(**batch)
        if self._factor == 1:
            return found
        return tuple(
            replace(
                part,
                time_s=part.time_s * self._factor,
                compute_s=part.compute_s * self._factor,
                memory_s=part.memory_s * self._factor,
                link_s=part.link_s * self._factor,
                latency_s=part.latency_s * self._factor,
            )
            for part in found
        )

    def full(self) -> LaneClock:
        """Return the clock of the same lane in a full pipeline."""
        if self._clock.num_stages == 1:
            return self
        if self._whole is None:
            self._whole = LaneClock(
                self._clock, self._factor, full=True, floor_s=self._floor_s, beyond_tokens=self._beyond_tokens
            )
        return self._whole


def paced_on(steps: Pace, efficiency: GpuEfficiency, engine: str) -> Pace:
    """Return the pace of ``engine`` on a machine whose ``efficiency`` may know how much longer it takes there."""
    if efficiency.calibration is None:
        return steps
    known = efficiency.calibration
    own, source = known.of_engine(engine), known.source or "the calibration of the catalog"
    if known.date:
        source = f"{source}, {known.date}"
    return stretched(steps, step_factor=own.step_factor, front_end_factor=own.front_end_factor, source=source)


def clock_of(
    deployment: Deployment, form: KvFormat, steps: Pace, efficiency: GpuEfficiency, engine: str | None = None
) -> LaneClock:
    """Return the step clock of one lane of a deployment; ``engine`` where its kernels are not those of its rules."""
    gpu, named = deployment.gpu, engine or deployment.rules.engine
    version = deployment.rules.version if engine in {None, deployment.rules.engine} else None
    reached = with_compute_shares(efficiency, compute_shares(named, version, architecture=gpu.architecture))
    factor = kernel_factor(
        named,
        version,
        latent_experts=_latent_experts(deployment.model),
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        num_sms=gpu.num_sms,
    )
    layers = sum(run.num_layers for run in deployment.model.layers)
    parallelism = deployment.parallelism
    launched_s = steps.eager_floor_s(num_layers=layers, num_gpus=max(parallelism.tp, parallelism.ep))
    return LaneClock(
        _clock(deployment, form, steps, reached, attended_format(deployment, form, named, version)),
        factor,
        full=False,
        floor_s=0.0 if math.isinf(steps.eager_beyond_tokens) else launched_s,
        beyond_tokens=steps.eager_beyond_tokens,
    )


def _latent_experts(model: Model) -> bool:
    return any(
        isinstance(run.layer.mixer, LatentAttention) and isinstance(run.layer.feed_forward, MoeFeedForward)
        for run in model.layers
    )


def attended_format(deployment: Deployment, form: KvFormat, engine: str, version: str | None) -> KvFormat:
    """Return the format of whose cache attention takes the time: 16 bits where software converts a narrow one."""
    if form.element_bits >= _PLAIN_BITS:
        return form
    cache = cache_kind(deployment.model)
    widened = is_widened(engine, version, deployment.gpu, form.name, cache=cache)
    return KV_FORMATS["bf16"] if widened else form


def _clock(
    deployment: Deployment, form: KvFormat, steps: Pace, efficiency: GpuEfficiency, attended: KvFormat
) -> StepClock:
    return StepClock(
        deployment.model,
        curves_of(deployment.gpu, efficiency),
        parallelism=deployment.parallelism,
        quantization=deployment.quantization,
        kv=form,
        attended=attended,
        library=LIBRARIES.get(deployment.rules.engine),
        overhead=Overhead(
            per_layer_s=steps.per_layer_s, per_step_s=steps.per_step_s, per_sequence_s=steps.per_sequence_s
        ),
    )


@frozen
class Rooms:
    """How many requests the KV pools of a deployment hold: what does not depend on the requests is made once."""

    deployment: Deployment
    form: KvFormat
    pool_bytes: tuple[float, ...]
    """Of each stage."""
    pool_high_bytes: tuple[float, ...]

    def requests(self, inputs: Lengths, outputs: Lengths) -> float:
        """Return how many such requests the pool of the scarcest stage holds at once, over the whole replica."""
        traffic = Traffic(inputs=inputs, outputs=outputs, think_time_s=0.0, service_time_s=None)
        found = requests_in(self.deployment, self.form, traffic, self.pool_bytes)
        if found >= self.deployment.parallelism.dp:
            return found
        # A server that runs has room for one request at least: where the value has none, the upper end counts.
        return requests_in(self.deployment, self.form, traffic, self.pool_high_bytes)


def rooms_of(deployment: Deployment, form: KvFormat) -> Rooms:
    """Return the pools of a deployment."""
    stages = deployment_budgets(deployment)
    return Rooms(
        deployment=deployment,
        form=form,
        pool_bytes=tuple(float(stage.least_pool_bytes) for stage in stages),
        pool_high_bytes=tuple(float(stage.least_pool_high_bytes) for stage in stages),
    )


def room_for(deployment: Deployment, form: KvFormat, inputs: Lengths, outputs: Lengths) -> float:
    """Return how many such requests the KV pool of the scarcest stage holds at once, over the whole replica."""
    return rooms_of(deployment, form).requests(inputs, outputs)


def server_of(deployment: Deployment, clock: LaneClock, steps: Pace, room: float) -> Server:
    """Return the server that a deployment makes, with room for ``room`` requests in memory."""
    parallelism, rules = deployment.parallelism, deployment.rules
    budget = float(steps.prefill_tokens or deployment.max_num_batched_tokens)
    return Server(
        clock=clock,
        full_clock=clock.full(),
        pace=steps,
        num_lanes=parallelism.dp * parallelism.pp,
        num_locked=parallelism.dp if deployment.model.has_experts else 1,
        num_stages=parallelism.pp,
        budget_tokens=budget,
        num_fitting=room,
        num_front_ends=num_front_ends(rules.engine, rules.version, parallelism.dp),
        num_places=max(
            1.0, min(room if math.isinf(room) else math.floor(room), float(deployment.max_num_seqs * parallelism.dp))
        ),
    )
