"""Scales: from a quantity to a place on an axis, and where its ticks stand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable

_MARGIN = 0.06
"""Of the span of the values, free at both ends of an axis."""
_FEWEST = 3
_STEPS = (1.0, 2.0, 2.5, 5.0)


@frozen
class Scale:
    """From ``low``..``high`` to ``start``..``end``, evenly or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """Return where a value stands; what lies outside stands at the nearest end."""
        value = min(max(value, self.low), self.high)
        if self.logarithmic:
            share = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, most: int) -> tuple[float, ...]:
        """Return round values inside, from low to high, at most so many.

        A logarithmic axis that is too short for powers of ten has even steps.
        """
        found = _decades(self.low, self.high, most) if self.logarithmic else ()
        return found if len(found) >= _FEWEST else max(found, _even(self.low, self.high, most), key=len)


def around(values: Iterable[float], start: float, end: float, *, logarithmic: bool = True) -> Scale:
    """Return a scale that holds all values, with some room at both ends.

    >>> around((0.0, 10.0), 0, 100, logarithmic=False).place(5)
    50.0
    """
    found = [value for value in values if math.isfinite(value) and (value > 0 or not logarithmic)]
    low, high = (min(found), max(found)) if found else (1.0, 10.0)
    if logarithmic:
        room = max((high / low) ** _MARGIN, 1.15)
        return Scale(low=low / room, high=high * room, start=start, end=end, logarithmic=True)
    room = max((high - low) * _MARGIN, abs(high) * 0.01, 1e-9)
    return Scale(low=low - room, high=high + room, start=start, end=end)


def _decades(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return the densest of 1-2-5, 1-3 and 1 in every so many decades that is not too dense.

    >>> _decades(1, 1000, 10)
    (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
    >>> _decades(1, 1000, 4)
    (1.0, 10.0, 100.0, 1000.0)
    """
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    tried: list[tuple[tuple[int, ...], int]] = [((1, 2, 5), 1), ((1, 3), 1), ((1,), 1), ((1,), 2), ((1,), 3)]
    for digits, every in tried:
        found = tuple(
            digit * 10.0**power
            for power in range(first, last + 1, every)
            for digit in digits
            if low * (1 - 1e-9) <= digit * 10.0**power <= high * (1 + 1e-9)
        )
        if len(found) <= most:
            return found
    return ()


def _even(low: float, high: float, most: int) -> tuple[float, ...]:
    """Return multiples of the finest round step of which there are not too many.

    >>> _even(0, 80, 5)
    (0.0, 20.0, 40.0, 60.0, 80.0)
    """
    if high <= low:
        return (low,)
    size = 10.0 ** (math.floor(math.log10((high - low) / max(1, most))) - 1)
    while True:
        for factor in _STEPS:
            step = factor * size
            first, last = math.ceil(low / step - _TINY), math.floor(high / step + _TINY)
            if last - first < most:
                return tuple(float(f"{number * step:.12g}") for number in range(first, last + 1))
        size *= 10


_TINY = 1e-9
