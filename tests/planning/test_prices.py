from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as some

from infcalc.planning.prices import STALE_DAYS, age_warning, day_of, middle_usd_per_hour, standing_of
from infcalc.spec.hardware import Price


def price(usd: float, written: str, *, high: float | None = None) -> Price:
    return Price(provider="P", usd_per_hour=usd, usd_per_hour_high=high, date=written, source="S")


@pytest.mark.parametrize(
    ("written", "day"),
    [
        ("2026-10-09", date(2026, 10, 9)),
        ("2026-10", date(2026, 10, 1)),
        ("2026 (early)", date(2026, 1, 1)),
        ("2026", date(2026, 1, 1)),
        ("undated (2026 page)", None),
        ("Undated", None),
        ("2026-13", None),
        ("last year", None),
        ("", None),
    ],
)
def test_a_written_date_is_the_first_day_it_can_mean(written: str, day: date | None) -> None:
    assert day_of(written) == day


def test_the_middle_price_of_those_as_new_as_the_newest_stands() -> None:
    old, cheap, middle, dear = (
        price(9.0, "2026-08-01"),
        price(1.0, "2026-10"),
        price(2.0, "2026-10-10"),
        price(8.0, "2026-09-20"),
    )
    standing = standing_of((dear, old, cheap, middle))
    assert standing is not None
    assert standing.price is middle
    assert (standing.num_prices, standing.low_usd_per_hour, standing.high_usd_per_hour) == (3, 1.0, 8.0)


def test_of_two_prices_the_dearer_stands_and_of_equal_ones_the_newer() -> None:
    cheap, dear = price(1.0, "2026-10-10"), price(2.0, "2026-10-01")
    assert standing_of((cheap, dear)) == standing_of((dear, cheap))
    for pair in ((cheap, dear), (dear, cheap)):
        standing = standing_of(pair)
        assert standing is not None
        assert standing.price is dear
    older, newer = price(1.0, "2026-10-01"), price(1.0, "2026-10-10")
    standing = standing_of((newer, older))
    assert standing is not None
    assert standing.price is newer


def test_what_has_no_date_never_stands_before_what_has_one() -> None:
    dated, undated = price(5.0, "2020-01"), price(1.0, "undated (2026 page)")
    standing = standing_of((undated, dated))
    assert standing is not None
    assert (standing.price, standing.num_prices) == (dated, 1)
    alone = standing_of((undated,))
    assert alone is not None
    assert alone.price is undated
    assert standing_of(()) is None


def test_of_a_range_the_geometric_mean_is_taken() -> None:
    assert middle_usd_per_hour(price(1.0, "2026", high=4.0)) == 2.0
    assert middle_usd_per_hour(price(3.0, "2026")) == pytest.approx(3.0)


@given(some.lists(some.floats(0.1, 100.0), min_size=1, max_size=9))
def test_as_many_prices_are_below_the_standing_one_as_above_it(usd: list[float]) -> None:
    standing = standing_of(tuple(price(one, "2026-10-10") for one in usd))
    assert standing is not None
    stands = standing.price.usd_per_hour
    below, above = sum(one < stands for one in usd), sum(one > stands for one in usd)
    assert max(below, above) <= len(usd) // 2
    assert (standing.low_usd_per_hour, standing.high_usd_per_hour) == (min(usd), max(usd))


def test_a_price_is_old_after_ninety_days_and_not_on_the_ninetieth() -> None:
    assert STALE_DAYS == 90
    assert age_warning("h100", "2026-09-01", "2026-11-30") is None
    told = age_warning("h100", "2026-08-31", "2026-11-30")
    assert told is not None
    assert "91 days old (2026-08-31)" in told
    assert "--price h100=USD" in told
    # A month is as old as its first day.
    assert age_warning("h100", "2026-09", "2026-11-30") is None
    assert age_warning("h100", "2026-08", "2026-11-30") is not None


def test_a_price_without_a_date_says_so() -> None:
    for written in ("", "undated (2026 page)"):
        told = age_warning("t4", written, "2026-11-30")
        assert told is not None
        assert "no date" in told
