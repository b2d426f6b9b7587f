"""What the laboratory measures with: a clock that is handed in, and what is kept of repeated times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_QUARTILE = 0.25
_MOST = 0.9
_LEAST_RUNS = 3


@frozen
class Instruments:
    """``clock`` gives seconds that never run back, ``today`` the date of a measurement; ``progress`` is told it all.

    ``clock_name`` says what those seconds are of: ``wall`` or ``cpu`` (of this process alone).

    ``budget_s`` is what one kind of step, or all kernels together, may take: then fewer repeats must do.
    """

    clock: Callable[[], float]
    today: str
    progress: Callable[[str], None]
    budget_s: float = math.inf
    clock_name: str = "wall"


@frozen
class Spread:
    """Repeated times of one thing: the lower quartile ``time_s``, the least of all, and what nine of ten keep to."""

    time_s: float
    low_s: float
    high_s: float
    num_runs: int


def spread(times_s: Sequence[float]) -> Spread:
    """Return what is kept of ``times_s``: seconds, at least one.

    Other programs only ever make a run longer. The lower quartile holds as long as a quarter of the runs were left
    alone, and is not, as the least of all would be, the luck of one.

    >>> spread([1.0, 1.1, 1.2, 9.0, 9.5])
    Spread(time_s=1.1, low_s=1.0, high_s=9.5, num_runs=5)
    """
    ordered = sorted(times_s)
    last = len(ordered) - 1
    return Spread(
        time_s=ordered[round(last * _QUARTILE)],
        low_s=ordered[0],
        high_s=ordered[round(last * _MOST)],
        num_runs=len(ordered),
    )


def is_spent(start_s: float, num_runs: int, instruments: Instruments) -> bool:
    """Return whether what began at ``start_s`` and was done ``num_runs`` times is over its budget: 3 runs it gets."""
    return num_runs >= _LEAST_RUNS and instruments.clock() - start_s > instruments.budget_s


def timed_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds that ``work`` takes."""
    start_s = clock()
    work()
    return clock() - start_s
