"""How many replicas of one setup serve a goal best. More of them are never slower, and each costs the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.planning.nouns import Goal
from infcalc.planning.replicas import least_kept

if TYPE_CHECKING:
    from collections.abc import Callable

_ALIKE = 1e-9
"""Difference of two times, as a share, that counts for none."""


def best_number(
    goal: Goal,
    *,
    kept: Callable[[int], bool],
    delay_s: Callable[[int], float],
    most: int,
    paced: bool,
) -> int | None:
    """Return the number of replicas, up to ``most``, that serves ``goal`` best among those with all limits kept.

    None where no number keeps them. ``delay_s`` is the time of a request, ``paced`` says that requests come at a rate,
    whatever the replicas do: throughput is then theirs. By law, which the tests hold the model to: with more replicas
    each has less to do, so that no time grows, a replica answers no more than before, and all together no less. Hence

    - cost, and goodput per USD, are best with the fewest that keep the limits;
    - throughput of clients who wait, and latency, with the most; of numbers alike in latency the least is taken.
    """
    match goal:
        case Goal.COST | Goal.GOODPUT:
            return least_kept(kept, 1, most)
        case Goal.THROUGHPUT:
            if paced:
                return least_kept(kept, 1, most)
            return most if most > 0 and kept(most) else None
        case Goal.LATENCY:
            if most < 1 or not kept(most):
                return None
            enough_s = delay_s(most) * (1 + _ALIKE)
            return least_kept(lambda number: kept(number) and delay_s(number) <= enough_s, 1, most)
        case _:
            assert_never(goal)


def order_of(goal: Goal, *, usd_per_hour: float, tokens_per_s: float, delay_s: float) -> tuple[float, float, float]:
    """Return what plans are sorted by for a goal, the best first; ties go to the quicker, then to the cheaper.

    >>> order_of(Goal.GOODPUT, usd_per_hour=2.0, tokens_per_s=1000.0, delay_s=3.0)
    (-500.0, 3.0, 2.0)
    """
    match goal:
        case Goal.COST:
            return usd_per_hour, delay_s, -tokens_per_s
        case Goal.THROUGHPUT:
            return -tokens_per_s, usd_per_hour, delay_s
        case Goal.LATENCY:
            return delay_s, usd_per_hour, -tokens_per_s
        case Goal.GOODPUT:
            return -tokens_per_s / usd_per_hour, delay_s, usd_per_hour
        case _:
            assert_never(goal)
