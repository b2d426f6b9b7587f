"""How fast: time to first token, time per token and throughput of a deployment under a load."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from infcalc.api.sizing import deployment_budgets
from infcalc.api.users import Pool, Traffic, service
from infcalc.engines.pace import kernel_factor
from infcalc.frozen import frozen
from infcalc.roofline.stand_in import Overhead, StepClock
from infcalc.serving.server import Server
from infcalc.spec.layers import LatentAttention, MoeFeedForward
from infcalc.workload.lengths import Constant, mean_tokens, quantile_tokens

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.deployment import Ask, Deployment
    from infcalc.engines.pace import Pace
    from infcalc.serving.times import Clock
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.model import Model
    from infcalc.workload.lengths import Lengths, Node


class LoadKind(StrEnum):
    """How requests reach the server."""

    BATCH = "batch"
    """All at once, none follows: a static batch."""
    CONCURRENCY = "concurrency"
    """Closed loop: so many clients, each sends its next request when it has the answer."""
    RATE = "rate"
    """Open loop: requests arrive at random at a mean rate, whatever the server does."""
    MAXIMUM = "maximum"
    """More than the server can take: as many run as memory and the engine's cap admit."""


class Basis(StrEnum):
    """What a figure rests on."""

    CALIBRATED = "calibrated"
    """Efficiencies of this GPU's architecture were measured."""
    MODELLED = "modelled"
    """Efficiencies were inherited from a relative."""
    UNCALIBRATED = "uncalibrated"
    """Efficiencies are a guess by kind."""


@frozen
class Figure:
    """A modelled time or rate: ``low``..``high`` is meant to hold 80 % of measurements."""

    value: float
    low: float
    high: float
    basis: Basis


@frozen
class Offer:
    """The load that is offered: at most one of ``batch``, ``concurrency`` and ``requests_per_s``.

    None of them: the maximum throughput that memory admits. ``input_tokens`` and ``output_tokens`` are numbers or
    distributions as :mod:`infcalc.workload.lengths` reads them. ``num_requests`` makes it a finite run, whose start and
    end count (all at once where nothing paces them); None: the steady state. ``prefix_hit_fraction`` of the prompt's
    tokens is found in the prefix cache.
    """

    input_tokens: str | int | float | None = None
    output_tokens: str | int | float | None = None
    batch: int | None = None
    concurrency: int | None = None
    requests_per_s: float | None = None
    num_requests: int | None = None
    think_time_s: float = 0.0
    prefix_hit_fraction: float = 0.0


@frozen
class EstimateResult:
    """How fast one deployment answers one load; times are means over its requests.

    ``batch`` is the mean number of requests in decode over the whole replica; ``bound_by`` says in words what limits
    the throughput; ``stable`` is False where requests arrive faster than they can be answered: times then grow for as
    long as the load lasts, and those of a finite run are given where its length is known, else infinite.
    """

    model: str
    gpu: str
    num_gpus: int
    engine: str
    engine_version: str
    kv_dtype: str
    load: LoadKind
    input_tokens: float
    """Mean of the prompts."""
    output_tokens: float
    """Mean of the answers."""
    ttft_s: Figure
    """From sending a request to its first token: front end, queue, prefill."""
    tpot_s: Figure
    """Of each token after the first, interference of other requests' prefill included."""
    e2e_s: Figure
    output_tokens_per_s: Figure
    """Of the replica, all requests together; of a finite run over its makespan."""
    output_tokens_per_s_per_user: Figure
    """1 / TPOT: what one user sees while an answer streams."""
    requests_per_s: Figure
    queue_s: float
    """Part of the time to first token that is waiting for a place."""
    batch: float
    max_batch: float
    """Requests that memory and the engine's cap let run at once."""
    stable: bool
    bound_by: str
    warnings: tuple[str, ...] = ()


# Deployment and load -> server -------------------------------------------------------------------------------------

_SLICES = 24


def answer_nodes(lengths: Lengths, most_tokens: float | None = None) -> tuple[Node, ...]:
    """Return slices of equal weight of the answers' lengths, none above ``most_tokens``, with their mean kept.

    Slices rather than the nodes of :mod:`infcalc.workload.lengths`: what counts is when answers end, not their moments.
    """
    if isinstance(lengths, Constant):
        return ((1.0, lengths.value_tokens),)
    mean = mean_tokens(lengths)
    cuts = [(index + 0.5) / _SLICES for index in range(_SLICES)]
    values = [quantile_tokens(lengths, cut) for cut in cuts]
    scale = mean * _SLICES / sum(values)
    values = [max(1.0, value * scale) for value in values]
    if most_tokens is not None and mean < most_tokens:
        low, high = 1.0, 1e6
        for _ in range(40):
            middle = math.sqrt(low * high)
            if sum(min(value * middle, most_tokens) for value in values) < mean * _SLICES:
                low = middle
            else:
                high = middle
        values = [min(value * low, most_tokens) for value in values]
    return tuple((1 / _SLICES, value) for value in values)


class _SlowedClock:
    """A clock whose steps take longer by one factor: kernels that are not those it was measured with."""

    __slots__ = ("_clock", "_factor")

    def __init__(self, clock: StepClock, factor: float) -> None:
        self._clock, self._factor = clock, factor

    def step_s(self, **step: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        """Return the seconds of one step."""
        return self._factor * self._clock.step_s(**step)


def clock_of(deployment: Deployment, form: KvFormat, steps: Pace, engine: str | None = None) -> Clock:
    """Return the step clock of one lane of a deployment; ``engine`` where its kernels are not those of its rules."""
    gpu, named = deployment.gpu, engine or deployment.rules.engine
    factor = kernel_factor(
        named,
        deployment.rules.version if engine in {None, deployment.rules.engine} else None,
        latent_experts=_latent_experts(deployment.model),
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
        num_sms=gpu.num_sms,
    )
    clock = _clock(deployment, form, steps)
    return clock if factor == 1 else _SlowedClock(clock, factor)


def _latent_experts(model: Model) -> bool:
    return any(
        isinstance(run.layer.mixer, LatentAttention) and isinstance(run.layer.feed_forward, MoeFeedForward)
        for run in model.layers
    )


def _clock(deployment: Deployment, form: KvFormat, steps: Pace) -> StepClock:
    return StepClock(
        deployment.model,
        deployment.gpu,
        parallelism=deployment.parallelism,
        quantization=deployment.quantization,
        kv=form,
        overhead=Overhead(
            per_layer_s=steps.per_layer_s, per_step_s=steps.per_step_s, per_sequence_s=steps.per_sequence_s
        ),
    )


def room_for(deployment: Deployment, form: KvFormat, inputs: Lengths, outputs: Lengths) -> float:
    """Return how many such requests the KV pool of the scarcest stage holds at once, over the whole replica."""
    pools = [
        Pool(value_bytes=stage.kv_pool_bytes, low_bytes=stage.kv_pool_low_bytes, high_bytes=stage.kv_pool_high_bytes)
        for stage in deployment_budgets(deployment)
    ]
    traffic = Traffic(inputs=inputs, outputs=outputs, think_time_s=0.0, service_time_s=None)
    found = service(deployment, form, pools, traffic)
    # A server that runs has room for one request at least: where the value has none, the upper end of its band counts.
    return float(found.requests if found.requests >= deployment.parallelism.dp else found.requests_high)


def server_of(deployment: Deployment, clock: Clock, steps: Pace, room: float) -> Server:
    """Return the server that a deployment makes, with room for ``room`` requests in memory."""
    parallelism = deployment.parallelism
    budget = float(steps.prefill_tokens or deployment.max_num_batched_tokens)
    return Server(
        clock=clock,
        pace=steps,
        num_lanes=parallelism.dp * parallelism.pp,
        budget_tokens=budget,
        max_running=max(1.0, min(room, float(deployment.max_num_seqs * parallelism.dp))),
    )


def estimate(ask: Ask | None = None, offer: Offer | None = None, *, explain: bool = False) -> Answer[EstimateResult]:
    """Return how fast each asked deployment answers the offered load.

    Raises:
        InfcalcError: any of its kinds; does-not-fit is a result with exit code 3.

    """
    raise NotImplementedError
