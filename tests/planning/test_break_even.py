from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from infcalc.planning.break_even import ApiPrice, Served, Wins, break_even, request_usd
from infcalc.planning.spread import Spread, exact

API = ApiPrice(input_usd=0.5, output_usd=1.5)


def served(
    *,
    idle: Spread | None = None,
    full: Spread | None = None,
    rate: Spread | None = None,
    cached: float = 0.0,
) -> Served:
    idle = idle or exact(10.0)
    return Served(
        idle_usd_per_hour=idle,
        full_usd_per_hour=full or idle,
        requests_per_s=rate or exact(5.0),
        prompt_tokens=1000.0,
        cached_tokens=cached,
        answer_tokens=500.0,
    )


def test_a_request_costs_its_prompt_and_its_answer() -> None:
    assert request_usd(API, served()) == pytest.approx(1000 * 0.5e-6 + 500 * 1.5e-6)
    half = ApiPrice(input_usd=0.5, output_usd=1.5, cached_usd=0.1)
    assert request_usd(half, served(cached=400.0)) == pytest.approx(600 * 0.5e-6 + 400 * 0.1e-6 + 500 * 1.5e-6)
    # Without a price for them, cached tokens cost what the others do.
    assert request_usd(API, served(cached=400.0)) == pytest.approx(request_usd(API, served()))


@given(
    idle=some.floats(0.1, 100),
    power=some.floats(0, 0.4),
    rate=some.floats(0.5, 50),
)
def test_both_bills_are_equal_where_they_meet(idle: float, power: float, rate: float) -> None:
    # The power of full use costs less than the API: the lines do meet.
    full = idle + power * rate * 3600 * 0.00125
    found = break_even(API, served(idle=exact(idle), full=exact(full), rate=exact(rate)))
    share, requests = found.utilization_fraction, found.requests_per_month
    assert share is not None
    assert requests is not None
    own = (idle + share.value * (full - idle)) * 730
    assert requests.value * found.api_request_usd == pytest.approx(own)
    assert requests.value == pytest.approx(share.value * rate * 3600 * 730)
    assert found.tokens_per_month is not None
    assert found.tokens_per_month.value == pytest.approx(requests.value * 1500)
    assert found.output_tokens_per_month is not None
    assert found.output_tokens_per_month.value == pytest.approx(requests.value * 500)


def test_a_bill_without_power_does_not_depend_on_how_fast_the_gpus_are() -> None:
    rate = Spread(value=5.0, low=4.0, high=8.0)
    found = break_even(API, served(rate=rate))
    assert found.requests_per_month is not None
    assert found.requests_per_month.low == pytest.approx(found.requests_per_month.high)
    assert found.utilization_fraction is not None
    assert found.utilization_fraction.high / found.utilization_fraction.low == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("low", "high", "wins"),
    [(5.0, 8.0, Wins.YES), (1.0, 5.0, Wins.PERHAPS), (0.5, 1.0, Wins.NO)],
)
def test_who_wins_follows_the_whole_range(low: float, high: float, wins: Wins) -> None:
    # 10 USD/h buy 8,000 requests of 0.00125 USD: 2.22 in a second.
    found = break_even(API, served(rate=Spread(value=(low * high) ** 0.5, low=low, high=high)))
    assert found.wins is wins


def test_what_costs_more_in_power_than_the_api_asks_never_wins() -> None:
    found = break_even(API, served(idle=exact(1.0), full=exact(100.0)))
    assert found.wins is Wins.NO
    assert (found.utilization_fraction, found.requests_per_month, found.tokens_per_month) == (None, None, None)
    assert found.api_usd_per_million_output_tokens == pytest.approx(0.00125 / 500 * 1e6)
