"""Means and percentiles of what was recorded, exact to the sample."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.fast.samples import interval_mean, interval_quantiles, quantiles

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
_SHARES = (0.5, 0.9, 0.95, 0.99, 1.0)


@frozen
class TimeSummary:
    """Times in seconds: their mean, percentiles and greatest.

    Percentiles lie between two samples on the line through both, as ``numpy.percentile`` and benchmark tools have them.
    """

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float


def summary_of(times_ps: Ints | Floats) -> TimeSummary | None:
    """Return what is said of picoseconds; None where there are none.

    >>> summary_of(np.array([1, 2, 4]) * PS_PER_S).p50
    2.0
    """
    if not len(times_ps):
        return None
    return _summary(float(np.sort(times_ps).mean()), quantiles(times_ps, _SHARES))


def interval_summary(runs: Ints) -> TimeSummary | None:
    """Return the same of runs of intervals, as :mod:`infcalc.simulation.fast.samples` takes them."""
    if not len(runs):
        return None
    return _summary(interval_mean(runs), interval_quantiles(runs, _SHARES))


def _summary(mean_ps: float, quantiles_ps: tuple[float, ...]) -> TimeSummary:
    p50, p90, p95, p99, most = (value / PS_PER_S for value in quantiles_ps)
    return TimeSummary(mean=mean_ps / PS_PER_S, p50=p50, p90=p90, p95=p95, p99=p99, max=most)


def percentile_s(times_ps: Ints | Floats, percent: float) -> float:
    """Return one percentile of picoseconds, in seconds; there is one time at least."""
    return quantiles(times_ps, (percent / 100,))[0] / PS_PER_S
