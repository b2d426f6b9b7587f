"""The bill of a load that rises and falls over the day, with replicas that follow it and without.

Exact for what is stated: a level holds until the next one, and begins again after the last. A replica that is needed
from a certain moment on was started ``startup_s`` before, and is paid from then on; one that would be started again
before it has been stopped keeps running. Nothing is known of demand that was not foreseen: a scaler that only reacts
also needs spare replicas.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.planning.money import HOUR_S
from infcalc.planning.spread import Spread
from infcalc.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from infcalc.workload.day_profile import DayProfile

_MOST_REPLICAS = 100_000
_SLACK = 1e-9
"""Of a replica: three thirds of a load are one load, whatever floating point says."""


@frozen
class Scaling:
    """How replicas follow the load: ``startup_s`` until one serves, and how many always run."""

    startup_s: float = 0.0
    num_least_replicas: int = 1


@frozen
class Bill:
    """What the load costs in a month, with all replicas of its peak kept running and with replicas that follow it.

    ``num_replicas`` is by level of the profile, ``num_starts`` in one period of it, ``replica_utilization_fraction``
    how much of the capacity that is paid for is used.
    """

    num_replicas: tuple[int, ...]
    num_peak_replicas: int
    num_mean_replicas: float
    num_starts: int
    month_fixed_usd: Spread
    month_scaled_usd: Spread
    saved_fraction: float
    fixed_utilization_fraction: float
    scaled_utilization_fraction: float


def replicas_for(demand: float, capacity: float, least: int = 1) -> int:
    """Return how many replicas of ``capacity`` serve a ``demand`` in the same unit.

    >>> replicas_for(10.0, 4.0), replicas_for(0.0, 4.0, least=0), replicas_for(0.3, 0.1)
    (3, 0, 3)
    """
    return max(least, math.ceil(demand / capacity - _SLACK))


def bill_of(
    profile: DayProfile, *, capacity: Spread, usd_per_hour: Spread, scaling: Scaling, demand_at_one: float = 1.0
) -> Bill:
    """Return the bill of a profile whose levels, times ``demand_at_one``, are in the unit of ``capacity``.

    ``capacity`` is of one replica, ``usd_per_hour`` what one costs.

    Raises:
        UsageError: the load needs more replicas than anyone has.

    """
    levels = tuple(level * demand_at_one for level in profile.levels)
    found = {}
    for end, size in (("value", capacity.value), ("low", capacity.high), ("high", capacity.low)):
        if max(levels) > _MOST_REPLICAS * size:
            raise UsageError(
                f"a peak of {max(levels):,.6g} is more than {_MOST_REPLICAS:,} replicas of {size:.4g} serve",
                place="--profile",
                hint="give the profile in the unit of the load",
            )
        numbers = tuple(replicas_for(level, size, scaling.num_least_replicas) for level in levels)
        found[end] = (numbers, *_paid(profile, numbers, scaling))
    hours = profile.period_s / HOUR_S
    numbers, paid_s, starts = found["value"]
    served_s = sum(level * length for level, length in zip(levels, profile.lengths_s, strict=True)) / capacity.value

    def month(end: str, hourly: float, *, fixed: bool) -> float:
        counts, seconds, _ = found[end]
        replica_hours = max(counts) * hours if fixed else seconds / HOUR_S
        return replica_hours / hours * HOURS_PER_MONTH * hourly

    def spread(*, fixed: bool) -> Spread:
        return Spread(
            value=month("value", usd_per_hour.value, fixed=fixed),
            low=month("low", usd_per_hour.low, fixed=fixed),
            high=month("high", usd_per_hour.high, fixed=fixed),
        )

    peak_s = max(numbers) * profile.period_s
    return Bill(
        num_replicas=numbers,
        num_peak_replicas=max(numbers),
        num_mean_replicas=paid_s / profile.period_s,
        num_starts=starts,
        month_fixed_usd=spread(fixed=True),
        month_scaled_usd=spread(fixed=False),
        saved_fraction=1 - paid_s / peak_s if peak_s else 0.0,
        fixed_utilization_fraction=served_s / peak_s if peak_s else 0.0,
        scaled_utilization_fraction=served_s / paid_s if paid_s else 0.0,
    )


def _paid(profile: DayProfile, numbers: tuple[int, ...], scaling: Scaling) -> tuple[float, int]:
    """Return the seconds of all replicas that are paid in one period, and how often one is started.

    The n-th replica runs wherever n or more are needed, and from ``startup_s`` before. Replicas that are needed in the
    same levels are alike, so that each kind is reckoned once.
    """
    paid_s, starts, below = 0.0, 0, 0
    for number in sorted(set(numbers)):
        alike, below = number - below, number
        needed = [count >= number for count in numbers]
        if alike:
            seconds, begun = _running(profile, needed, scaling.startup_s)
            paid_s += alike * seconds
            starts += alike * begun
    return paid_s, starts


def _running(profile: DayProfile, needed: list[bool], startup_s: float) -> tuple[float, int]:
    """Return how long a replica runs in one period that is needed in these levels, and how often it is started."""
    if all(needed):
        return profile.period_s, 0
    seconds = sum(length for length, wanted in zip(profile.lengths_s, needed, strict=True) if wanted)
    starts, idle_s, count = 0, 0.0, len(needed)
    first = needed.index(True)
    # Once around, from a level that needs it: each time without need ends in a start, or is too short for a stop.
    for turn in range(1, count + 1):
        place = (first + turn) % count
        if not needed[place]:
            idle_s += profile.lengths_s[place]
        elif idle_s:
            starts += idle_s > startup_s
            seconds += min(idle_s, startup_s)
            idle_s = 0.0
    return seconds, starts
