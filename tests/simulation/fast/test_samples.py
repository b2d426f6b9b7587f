"""Percentiles exact to the sample, of columns and of intervals that are never unrolled."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.simulation.fast.intervals import Intervals, packed
from infcalc.simulation.fast.samples import interval_mean, interval_quantiles, quantiles

SHARES = (0.0, 0.01, 0.5, 0.9, 0.99, 1.0)
times = st.integers(0, 10**13)


@given(values=st.lists(times, min_size=1, max_size=50))
def test_quantiles_are_those_of_numpy(values: list[int]) -> None:
    assert quantiles(np.array(values), SHARES) == pytest.approx(np.quantile(values, SHARES).tolist())


@st.composite
def runs(draw: st.DrawFn) -> tuple[int, int, int, int]:
    count = draw(st.integers(1, 40))
    more = draw(st.integers(-3, 3) | st.integers(-(10**8), 10**8))
    first = draw(times)
    return first + max(0, -more) * count, more, count, draw(st.integers(1, 300))


@given(made=st.lists(runs(), min_size=1, max_size=8))
def test_intervals_are_counted_as_if_unrolled(made: list[tuple[int, int, int, int]]) -> None:
    intervals = Intervals()
    for run in made:
        first, more, count, often = run
        intervals.add((first, more, packed(count, often)))
    unrolled = np.array(
        [first + place * more for first, more, count, often in made for place in range(count) for _ in range(often)]
    )
    flat = np.array(intervals.flat)
    assert interval_quantiles(flat, SHARES) == pytest.approx(quantiles(unrolled, SHARES), rel=1e-12)
    assert interval_mean(flat) == pytest.approx(unrolled.mean(), rel=1e-9)
    assert list(intervals) == made


def test_nothing_has_no_percentiles() -> None:
    nothing = np.array([], dtype=np.int64)
    found = (*quantiles(nothing, SHARES), *interval_quantiles(nothing, SHARES), interval_mean(nothing))
    assert all(map(math.isnan, found))
