"""What the laboratory measures with: a clock that is handed in, and what is kept of repeated times."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST_OF_ALL = 0.9


@frozen
class Instruments:
    """``clock`` gives seconds that never run back, ``today`` the date of a measurement; ``progress`` is told it all."""

    clock: Callable[[], float]
    today: str
    progress: Callable[[str], None]


@frozen
class Spread:
    """Repeated times of one thing: their median, and the ends of the middle four fifths."""

    median_s: float
    low_s: float
    high_s: float
    num_runs: int

    @property
    def width_fraction(self) -> float:
        """How far the ends are apart, in medians."""
        return (self.high_s - self.low_s) / self.median_s


def spread(times_s: Sequence[float]) -> Spread:
    """Return what is kept of ``times_s``: seconds, at least one. The median forgives what other programs disturbed.

    >>> spread([1.0, 1.1, 9.0]).median_s
    1.1
    """
    ordered = sorted(times_s)
    last = len(ordered) - 1
    return Spread(
        median_s=median(ordered),
        low_s=ordered[round(last * (1 - _MOST_OF_ALL))],
        high_s=ordered[round(last * _MOST_OF_ALL)],
        num_runs=len(ordered),
    )


def timed_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds that ``work`` takes."""
    start_s = clock()
    work()
    return clock() - start_s
