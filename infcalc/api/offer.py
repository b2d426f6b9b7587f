"""The words of a question about speed: how requests come, what a load offers, and a figure with its band."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.spec.efficiency import Basis


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


BURST_PER_S = 100.0
"""Rate from which on requests of a run come as good as all at once."""


def is_burst(*, num_requests: float | None, clients: float | None, requests_per_s: float | None) -> bool:
    """Return whether all requests come at once, or nearly, and nothing caps how many run.

    >>> is_burst(num_requests=1000, clients=None, requests_per_s=None)
    True
    """
    if clients is not None or num_requests is None:
        return False
    return requests_per_s is None or requests_per_s >= BURST_PER_S


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
    clients_option: str = "--concurrency"
    """The option that said ``concurrency``: errors name it."""
