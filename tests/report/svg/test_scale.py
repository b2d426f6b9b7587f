from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.report.svg.scale import Scale, around

POSITIVE = st.floats(min_value=1e-6, max_value=1e9)


@given(st.lists(POSITIVE, min_size=1, max_size=6), st.booleans())
def test_every_value_has_a_place_inside_in_its_order(values: list[float], logarithmic: bool) -> None:
    scale = around(values, 10.0, 210.0, logarithmic=logarithmic)
    places = [scale.place(value) for value in sorted(values)]
    assert places == sorted(places)
    assert all(10.0 < place < 210.0 for place in places)


@given(POSITIVE, st.floats(min_value=1.01, max_value=1e8), st.integers(min_value=3, max_value=12), st.booleans())
def test_ticks_are_round_inside_rising_and_few(low: float, ratio: float, most: int, logarithmic: bool) -> None:
    scale = Scale(low=low, high=low * ratio, start=0.0, end=100.0, logarithmic=logarithmic)
    ticks = scale.ticks(most)
    assert 1 <= len(ticks) <= most
    assert list(ticks) == sorted(set(ticks))
    for tick in ticks:
        assert low * (1 - 1e-6) <= tick <= low * ratio * (1 + 1e-6)
        assert float(f"{tick:.3g}") == pytest.approx(tick, rel=1e-2)


def test_equal_factors_are_equally_far_apart_by_logarithm() -> None:
    scale = Scale(low=1.0, high=10_000.0, start=0.0, end=400.0, logarithmic=True)
    assert [scale.place(10.0**power) for power in range(5)] == pytest.approx([0, 100, 200, 300, 400])


def test_what_lies_outside_stands_at_the_end() -> None:
    scale = Scale(low=1.0, high=2.0, start=100.0, end=0.0)
    assert (scale.place(-5.0), scale.place(99.0)) == (100.0, 0.0)


def test_nothing_and_infinity_break_no_scale() -> None:
    assert around([], 0.0, 1.0).ticks(5)
    assert math.isfinite(around([math.inf, 5.0], 0.0, 1.0).high)
    assert around([0.0, 5.0], 0.0, 1.0).low > 0
