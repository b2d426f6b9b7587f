from __future__ import annotations

import pytest

from infcalc.planning.owning import YEAR_S, Purchase, amortised_usd_per_hour, owned_usd_per_hour, power_usd_per_hour
from infcalc.planning.spread import Spread, exact

BOUGHT = Purchase(gpu_usd=35_040.0, life_s=4 * YEAR_S, residual_fraction=0.25, usd_per_kwh=0.2, pue=1.5)


def test_the_price_less_what_is_left_is_spread_over_the_hours() -> None:
    assert amortised_usd_per_hour(BOUGHT) == pytest.approx(35_040 * 0.75 / (4 * 8760))
    assert amortised_usd_per_hour(BOUGHT) * 4 * 8760 == pytest.approx(35_040 - 35_040 / 4)


def test_power_is_paid_with_what_the_site_adds() -> None:
    watt = Spread(value=500.0, low=400.0, high=700.0)
    hour = power_usd_per_hour(BOUGHT, watt)
    assert hour.value == pytest.approx(0.5 * 1.5 * 0.2)
    assert hour.low == pytest.approx(0.12)
    assert hour.high == pytest.approx(0.21)
    assert power_usd_per_hour(Purchase(gpu_usd=1.0), watt) == exact(0.0)


def test_an_hour_is_both_and_its_range_is_that_of_the_power() -> None:
    hour = owned_usd_per_hour(BOUGHT, Spread(value=500.0, low=400.0, high=700.0))
    assert hour.value == pytest.approx(0.75 + 0.15)
    assert hour.high - hour.low == pytest.approx(0.09)
