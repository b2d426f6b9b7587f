"""How fast: time to first token, time per token and throughput of a deployment under a load."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from infcalc.api.sizing import deployment_budgets
from infcalc.api.users import Traffic, requests_in
from infcalc.engines.pace import kernel_factor
from infcalc.frozen import frozen
from infcalc.roofline.stand_in import Overhead, StepClock, curves_of
from infcalc.serving.server import Server
from infcalc.spec.layers import LatentAttention, MoeFeedForward
from infcalc.workload.lengths import Constant, mean_tokens, quantile_tokens

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.deployment import Ask, Deployment
    from infcalc.engines.pace import Pace
    from infcalc.serving.times import Clock
    from infcalc.spec.kv import KvFormat
    from infcalc.roofline.stand_in import GpuEfficiency
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


def estimate(ask: Ask | None = None, offer: Offer | None = None, *, explain: bool = False) -> Answer[EstimateResult]:
    """Return how fast each asked deployment answers the offered load.

    Raises:
        InfcalcError: any of its kinds; does-not-fit is a result with exit code 3.

    """
    raise NotImplementedError
