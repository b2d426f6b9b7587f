"""Samples of a run in picoseconds, and their percentiles, exact to the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen
from infcalc.simulation.fast.intervals import unpacked

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


@frozen
class Samples:
    """One entry for each request that got its answer, in the order of ending.

    ``tpot_ps``: from the first token to the last, by tokens between; not a number for an answer of one token.
    ``e2e_ps`` ends when the answer is returned, under static batching with its batch.
    """

    ttft_ps: Ints
    queue_ps: Ints
    e2e_ps: Ints
    tpot_ps: Floats


def quantiles(values: Ints | Floats, shares: Sequence[float]) -> tuple[float, ...]:
    """Return percentiles, interpolated between the two nearest samples as ``numpy.percentile`` does; NaN of nothing.

    >>> quantiles(np.array([4, 1, 2]), (0.5, 0.75))
    (2.0, 3.0)
    """
    if not len(values):
        return (float("nan"),) * len(shares)
    places = [_places(share, len(values)) for share in shares]
    wanted = sorted({place for low, high, _ in places for place in (low, high)})
    ordered = np.partition(values, wanted)
    return tuple(_between(ordered[low].item(), ordered[high].item(), part) for low, high, part in places)


def interval_quantiles(flat: Ints, shares: Sequence[float]) -> tuple[float, ...]:
    """Return the same of runs of intervals, as :class:`~infcalc.simulation.fast.intervals.Intervals` writes them.

    Nothing is unrolled: that many samples are no longer than a time is counted run by run, and the time is found by
    halving.

    >>> from infcalc.simulation.fast.intervals import packed
    >>> interval_quantiles(np.array([10, 5, packed(3, 2), 7, 0, packed(1, 1)]), (0.0, 0.5, 1.0))
    (7.0, 15.0, 20.0)
    """
    first, more, counts = flat.reshape(-1, 3).T
    steps, times = unpacked(counts)
    # A run of equal intervals is one interval that came up so much more often.
    times *= np.where(more == 0, steps, 1)
    steps[more == 0] = 1
    total = int(np.dot(steps, times))
    if not total:
        return (float("nan"),) * len(shares)
    spread = more * (steps - 1)
    runs = _Runs(least=first + np.minimum(spread, 0), pace=np.maximum(np.abs(more), 1), steps=steps, times=times)
    del spread
    places = [_places(share, total) for share in shares]
    found = {place: _nth(runs, place) for low, high, _ in places for place in (low, high)}
    return tuple(_between(found[low], found[high], part) for low, high, part in places)


def interval_mean(flat: Ints) -> float:
    """Return the mean of runs of intervals; NaN of nothing."""
    first, more, counts = flat.reshape(-1, 3).T
    steps, times = unpacked(counts)
    total = int(np.dot(steps, times))
    # Picoseconds times requests outgrow 64 bits in long runs.
    lasted = (steps * first + more * (steps * (steps - 1) // 2)).astype(np.float64)
    return float((lasted * times).sum() / total) if total else float("nan")


@frozen
class _Runs:
    """Intervals from ``least`` on, ``pace`` apart, ``steps`` of them, each ``times``."""

    least: Ints
    pace: Ints
    steps: Ints
    times: Ints

    @property
    def most(self) -> Ints:
        return self.least + self.pace * (self.steps - 1)

    def chosen(self, stay: NDArray[np.bool_]) -> _Runs:
        return _Runs(least=self.least[stay], pace=self.pace[stay], steps=self.steps[stay], times=self.times[stay])


def _nth(runs: _Runs, place: int) -> int:
    """Return the sample with ``place`` others before it; what is out of question is counted once and left out."""
    low, high = int(runs.least.min()), int(runs.most.max())
    num_below = 0
    while low < high:
        middle = (low + high) // 2
        within = middle - runs.least
        within //= runs.pace
        within += 1
        np.clip(within, 0, runs.steps, out=within)
        if num_below + int(np.dot(within, runs.times)) > place:
            high = middle
            stay = within > 0
        else:
            low = middle + 1
            stay = within < runs.steps
            num_below += int(np.dot(runs.steps[~stay], runs.times[~stay]))
        if 2 * int(stay.sum()) < len(stay):
            runs = runs.chosen(stay)
        elif low > middle:
            # They are counted again with the others.
            num_below -= int(np.dot(runs.steps[~stay], runs.times[~stay]))
    return low


def _places(share: float, count: int) -> tuple[int, int, float]:
    exact = share * (count - 1)
    low = int(exact)
    return low, min(low + 1, count - 1), exact - low


def _between(low: float, high: float, part: float) -> float:
    return float(low + part * (high - low))
