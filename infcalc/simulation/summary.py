"""Means and percentiles of what was recorded, exact to the sample."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S

Ints: TypeAlias = NDArray[np.int64]
_PERCENTS = (50, 90, 95, 99)


@frozen
class TimeSummary:
    """Times in seconds: their mean, percentiles and greatest. Percentiles lie between two samples on the line through
    both, as ``numpy.percentile`` and benchmark tools have them.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float

    def statistic(self, name: str) -> float | None:
        """Return the statistic of that name; None where it is not among them."""
        return getattr(self, name) if name in TimeSummary.__dataclass_fields__ else None


def summary_of(times_ps: Ints, weights: Ints | None = None) -> TimeSummary | None:
    """Return what is said of picoseconds, each as often as its weight; None where there are none.

    >>> summary_of(np.array([1, 2, 4]) * PS_PER_S).p50
    2.0
    >>> summary_of(np.array([4, 1]) * PS_PER_S, np.array([1, 3])).p90
    3.1000000000000005
    """
    if not len(times_ps):
        return None
    if weights is None:
        ordered = np.sort(times_ps)
        values = [_at(ordered, percent / 100 * (len(ordered) - 1)) for percent in _PERCENTS]
        mean = _sum(ordered) / len(ordered)
        last = int(ordered[-1])
    else:
        order = np.argsort(times_ps, kind="stable")
        ordered, counted = times_ps[order], np.cumsum(weights[order])
        total = int(counted[-1])
        values = [_at_weighted(ordered, counted, percent / 100 * (total - 1)) for percent in _PERCENTS]
        mean = sum(int(time) * int(weight) for time, weight in _grouped(ordered, weights[order])) / total
        last = int(ordered[-1])
    p50, p90, p95, p99 = (value / PS_PER_S for value in values)
    return TimeSummary(mean=mean / PS_PER_S, p50=p50, p90=p90, p95=p95, p99=p99, max=last / PS_PER_S)


def percentile_s(times_ps: Ints, percent: float) -> float:
    """Return one percentile of picoseconds, in seconds; there is one time at least."""
    ordered = np.sort(times_ps)
    return _at(ordered, percent / 100 * (len(ordered) - 1)) / PS_PER_S


def _sum(values: Ints) -> int:
    # Sums of picoseconds outgrow 64 bits after some years: halves do not.
    low, high = int((values & 0xFFFFFFFF).sum()), int((values >> 32).sum())
    return (high << 32) + low


def _grouped(ordered: Ints, weights: Ints) -> list[tuple[int, int]]:
    """Return each time once with the sum of its weights."""
    values, first = np.unique(ordered, return_index=True)
    return list(zip(values.tolist(), np.add.reduceat(weights, first).tolist(), strict=True))


def _at(ordered: Ints, place: float) -> float:
    low = int(place)
    first, second = int(ordered[low]), int(ordered[min(low + 1, len(ordered) - 1)])
    return first + (place - low) * (second - first)


def _at_weighted(ordered: Ints, counted: Ints, place: float) -> float:
    low = int(place)
    last = int(counted[-1]) - 1
    first, second = (
        int(ordered[np.searchsorted(counted, number, side="right")]) for number in (low, min(low + 1, last))
    )
    return first + (place - low) * (second - first)
