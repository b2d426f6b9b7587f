from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from infcalc.planning.money import Traffic, token_costs, usd_per_million, usd_per_month
from infcalc.planning.spread import Spread, exact, quotient, scaled, total

SPEED = Spread(value=1000.0, low=800.0, high=1250.0)
HOUR = Spread(value=8.0, low=6.0, high=10.0)


def traffic(**changed: float) -> Traffic:
    return Traffic(
        output_tokens_per_s=SPEED,
        prompt_tokens=changed.get("prompt_tokens", 1000.0),
        answer_tokens=changed.get("answer_tokens", 250.0),
        prefill_fraction=changed.get("prefill_fraction", 0.2),
        cached_token_fraction=0.2 / 1000 / 50,
    )


def test_the_cheap_end_is_the_fast_one_at_the_low_price() -> None:
    found = usd_per_million(HOUR, SPEED)
    assert found.value == pytest.approx(8 / 3600 / 1000 * 1e6)
    assert found.low == pytest.approx(6 / 3600 / 1250 * 1e6)
    assert found.high == pytest.approx(10 / 3600 / 800 * 1e6)


def test_a_month_is_the_twelfth_of_a_year_of_hours() -> None:
    assert usd_per_month(exact(1.0)).value * 12 == 365 * 24


@pytest.mark.parametrize("used", [0.1, 0.5, 1.0])
def test_half_the_use_is_twice_the_price_of_each_token(used: float) -> None:
    full, part = token_costs(HOUR, traffic()), token_costs(HOUR, traffic(), utilization_fraction=used)
    for kind in ("output", "input", "cached", "blended", "total"):
        assert getattr(part, kind).value == pytest.approx(getattr(full, kind).value / used)


@given(prompt=some.floats(1, 1e5), answer=some.floats(1, 1e5), prefill=some.floats(0, 1))
def test_what_prompts_and_decode_cost_is_the_whole_bill(prompt: float, answer: float, prefill: float) -> None:
    costs = token_costs(HOUR, traffic(prompt_tokens=prompt, answer_tokens=answer, prefill_fraction=prefill))
    bill = costs.output.value * answer
    decode = (1 - prefill) * costs.output.value * answer
    assert costs.input.value * prompt + decode == pytest.approx(bill)
    assert costs.total.value * (prompt + answer) == pytest.approx(bill)
    assert costs.blended.value == pytest.approx(0.75 * costs.input.value + 0.25 * (1 - prefill) * costs.output.value)


def test_a_cached_token_costs_the_share_of_the_request_that_it_takes() -> None:
    costs = token_costs(HOUR, traffic())
    assert costs.cached is not None
    # A fiftieth of the time of a token of the prompt.
    assert costs.cached.value == pytest.approx(costs.input.value / 50)


def test_spreads_carry_their_ends() -> None:
    one, two = Spread(value=2.0, low=1.0, high=4.0), Spread(value=10.0, low=5.0, high=20.0)
    assert total(one, two, exact(1.0)) == Spread(value=13.0, low=7.0, high=25.0)
    assert scaled(one, 3.0) == Spread(value=6.0, low=3.0, high=12.0)
    assert quotient(two, one) == Spread(value=5.0, low=1.25, high=20.0)
