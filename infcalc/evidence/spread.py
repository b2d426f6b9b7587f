"""Lengths of requests from the percentiles that a benchmark prints of them."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from infcalc.evidence.gathering import is_statistic, statistic_of
from infcalc.evidence.nouns import MEAN

if TYPE_CHECKING:
    from infcalc.evidence.fields import Fields

_LEAST = 3
_SLICES = 40
_ENDS = {"min": 0.0, "median": 50.0, "max": 100.0}


def lengths_by_percentiles(*parts: Fields) -> tuple[float, ...]:
    """Return lengths, each as likely as the others, with the percentiles and the mean that mappings state.

    Empty where fewer than three percentiles are stated; linear between them.
    """
    points: dict[float, float] = {}
    mean: float | None = None
    for part in parts:
        for key in part.names():
            name = statistic_of(key)
            if not is_statistic(key) or name == "std":
                continue
            value = part.amount(key)
            if value is not None and name == MEAN:
                mean = value
            elif value is not None:
                points[_ENDS[name] if name in _ENDS else float(name[1:])] = value
    return spread(points, mean)


def spread(points: dict[float, float], mean: float | None) -> tuple[float, ...]:
    """Return lengths with the given percentiles, scaled to the mean; empty where they are too few, or fall.

    >>> lengths = spread({0: 50, 50: 100, 100: 150}, 100)
    >>> len(lengths), round(sum(lengths) / len(lengths)), round(lengths[0]), round(lengths[-1])
    (40, 100, 51, 149)
    """
    ordered = sorted(points.items())
    values = [value for _, value in ordered]
    if len(ordered) < _LEAST or not mean or values != sorted(values):
        return ()
    found = [max(1.0, _at(ordered, (place + 0.5) * 100 / _SLICES)) for place in range(_SLICES)]
    scale = mean * _SLICES / sum(found)
    return tuple(max(1.0, one * scale) for one in found)


def _at(points: list[tuple[float, float]], percent: float) -> float:
    if percent <= points[0][0]:
        return points[0][1]
    for (low, before), (high, after) in itertools.pairwise(points):
        if percent <= high:
            return before + (after - before) * (percent - low) / (high - low)
    return points[-1][1]
