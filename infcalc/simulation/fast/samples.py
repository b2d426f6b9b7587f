"""Samples of a run in picoseconds, and their percentiles, exact to the sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen

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
    """Return the same of runs of intervals: (first, how much longer each next one is, how many, how often each).

    Nothing is unrolled: that many samples are no longer than a time is counted run by run, and the time is found by
    halving.

    >>> interval_quantiles(np.array([10, 5, 3, 2, 7, 0, 1, 1]), (0.0, 0.5, 1.0))
    (7.0, 15.0, 20.0)
    """
    first, more, steps, times = np.ascontiguousarray(flat.reshape(-1, 4).T)
    total = int((steps * times).sum())
    if not total:
        return (float("nan"),) * len(shares)
    places = [_places(share, total) for share in shares]
    found = {place: _nth(first, more, steps, times, place) for low, high, _ in places for place in (low, high)}
    return tuple(_between(found[low], found[high], part) for low, high, part in places)


def interval_mean(flat: Ints) -> float:
    """Return the mean of runs of intervals; NaN of nothing."""
    first, more, steps, times = flat.reshape(-1, 4).T
    total = int((steps * times).sum())
    # Picoseconds times requests outgrow 64 bits in long runs.
    lasted = (steps * first + more * (steps * (steps - 1) // 2)).astype(np.float64)
    return float((lasted * times).sum() / total) if total else float("nan")


def _nth(first: Ints, more: Ints, steps: Ints, times: Ints, place: int) -> int:
    """Return the sample with ``place`` others before it; what is out of question is counted once and left out."""
    last = first + more * (steps - 1)
    # Sorted within a run, from the least on: by `pace` each, from `least` to `most`.
    least, most = np.minimum(first, last), np.maximum(first, last)
    pace = np.abs(more)
    low, high = int(least.min()), int(most.max())
    num_below = 0
    while low < high:
        middle = (low + high) // 2
        within = np.clip((middle - least) // np.maximum(pace, 1) + 1, 0, steps)
        within[(pace == 0) & (least <= middle)] = steps[(pace == 0) & (least <= middle)]
        if num_below + int((within * times).sum()) > place:
            high = middle
            stay = least <= middle
        else:
            low = middle + 1
            stay = most > middle
            num_below += int((steps * times)[~stay].sum())
        if not stay.all():
            least, most, pace, steps, times = (column[stay] for column in (least, most, pace, steps, times))
    return low


def _places(share: float, count: int) -> tuple[int, int, float]:
    exact = share * (count - 1)
    low = int(exact)
    return low, min(low + 1, count - 1), exact - low


def _between(low: float, high: float, part: float) -> float:
    return float(low + part * (high - low))
