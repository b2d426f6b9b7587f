from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from infcalc.errors import UsageError
from infcalc.planning.autoscaling import Scaling, bill_of, replicas_for
from infcalc.planning.spread import Spread, exact
from infcalc.workload.day_profile import DayProfile, Unit

HOUR_S = 3600.0


def day(*levels: float) -> DayProfile:
    step = 24 * HOUR_S / len(levels)
    return DayProfile(
        starts_s=tuple(step * number for number in range(len(levels))),
        levels=levels,
        period_s=24 * HOUR_S,
        unit=Unit.RATE,
    )


def naive(profile: DayProfile, capacity: float, scaling: Scaling) -> tuple[int, float]:
    """Return peak replicas and replica-minutes of a day, by the minute: one runs where it serves or starts."""
    minutes = int(profile.period_s // 60)
    needs = []
    for minute in range(minutes):
        place = max((n for n, start in enumerate(profile.starts_s) if start <= 60 * minute), default=-1)
        needs.append(replicas_for(profile.levels[place], capacity, scaling.num_least_replicas))
    ahead = int(scaling.startup_s // 60)
    running = [max(needs[(minute + more) % minutes] for more in range(ahead + 1)) for minute in range(minutes)]
    return max(needs), sum(running)


@settings(deadline=None)
@given(
    levels=some.lists(some.integers(0, 6).map(float), min_size=1, max_size=24).filter(lambda one: 24 % len(one) == 0),
    startup=some.integers(0, 600),
    least=some.integers(0, 2),
)
def test_the_bill_is_that_of_every_minute_counted_by_itself(levels: list[float], startup: int, least: int) -> None:
    profile, scaling = day(*levels), Scaling(startup_s=60.0 * startup, num_least_replicas=least)
    bill = bill_of(profile, capacity=exact(2.0), usd_per_hour=exact(3.0), scaling=scaling)
    peak, minutes = naive(profile, 2.0, scaling)
    assert bill.num_peak_replicas == peak
    assert bill.num_mean_replicas * 24 * 60 == pytest.approx(minutes)
    assert bill.month_scaled_usd.value == pytest.approx(minutes / 60 / 24 * 730 * 3)
    assert bill.month_fixed_usd.value == pytest.approx(peak * 730 * 3)


def test_a_start_is_paid_before_it_serves_and_counted_once_a_day() -> None:
    profile = day(1.0, 1.0, 5.0, 1.0)
    free = bill_of(profile, capacity=exact(1.0), usd_per_hour=exact(1.0), scaling=Scaling())
    slow = bill_of(profile, capacity=exact(1.0), usd_per_hour=exact(1.0), scaling=Scaling(startup_s=1800.0))
    assert (free.num_starts, slow.num_starts) == (4, 4)
    assert slow.num_mean_replicas - free.num_mean_replicas == pytest.approx(4 * 0.5 / 24)
    assert free.num_replicas == (1, 1, 5, 1)


def test_what_would_be_started_again_before_it_stopped_keeps_running() -> None:
    profile = day(3.0, 1.0, 3.0, 3.0)
    bill = bill_of(profile, capacity=exact(1.0), usd_per_hour=exact(1.0), scaling=Scaling(startup_s=6 * HOUR_S))
    assert bill.num_starts == 0
    assert bill.num_mean_replicas == 3.0
    assert bill.saved_fraction == 0.0


def test_a_slower_replica_is_the_dear_end() -> None:
    capacity = Spread(value=2.0, low=1.0, high=4.0)
    bill = bill_of(day(4.0, 8.0), capacity=capacity, usd_per_hour=exact(1.0), scaling=Scaling())
    assert bill.num_replicas == (2, 4)
    assert (bill.month_fixed_usd.low, bill.month_fixed_usd.high) == (2 * 730, 8 * 730)
    assert bill.month_scaled_usd.low < bill.month_scaled_usd.value < bill.month_scaled_usd.high
    assert bill.fixed_utilization_fraction == pytest.approx(6 / 8)
    assert bill.scaled_utilization_fraction == pytest.approx(1.0)


def test_fractions_are_of_what_is_stated() -> None:
    bill = bill_of(day(0.1, 1.0), capacity=exact(5.0), usd_per_hour=exact(1.0), scaling=Scaling(), demand_at_one=20.0)
    assert bill.num_replicas == (1, 4)


def test_nothing_runs_at_night_where_none_must() -> None:
    bill = bill_of(day(0.0, 4.0), capacity=exact(4.0), usd_per_hour=exact(2.0), scaling=Scaling(num_least_replicas=0))
    assert bill.num_replicas == (0, 1)
    assert bill.saved_fraction == pytest.approx(0.5)


def test_a_load_beyond_any_fleet_is_refused() -> None:
    with pytest.raises(UsageError, match="replicas"):
        bill_of(day(1e9), capacity=exact(1.0), usd_per_hour=exact(1.0), scaling=Scaling())
