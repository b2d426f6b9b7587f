"""What the laboratory measures with: a clock that is handed in, and what is kept of repeated times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_QUARTILE = 0.25
_MOST = 0.9
LEAST_RUNS = 3


@frozen
class Instruments:
    """``clock`` gives seconds that never run back, ``today`` the date of a measurement; ``progress`` is told it all.

    ``clock_name`` says what those seconds are of: ``wall`` or ``cpu`` (of this process alone).

    ``budget_s`` is what one kind of step, or all kernels together, may take: then fewer repeats must do. It is counted
    by ``wall_s``, whatever the times are taken by: on a busy computer a second of this process alone takes several, and
    somebody waits for them.
    """

    clock: Callable[[], float]
    today: str
    progress: Callable[[str], None]
    budget_s: float = math.inf
    clock_name: str = "wall"
    wall_s: Callable[[], float] | None = None
    """Seconds as they pass; None: those of ``clock``."""

    ends_s: float = math.inf
    """By ``wall_s``: from then on nothing is run more than once."""

    def passed_s(self) -> float:
        """Return the seconds that passed since some moment, by which budgets are counted."""
        return (self.wall_s or self.clock)()


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
    """Return whether what began at ``start_s`` and was done ``num_runs`` times is over its budget.

    It gets 3 runs whatever they take, and one where the whole run should have ended by now.
    """
    if instruments.passed_s() > instruments.ends_s:
        return num_runs >= 1
    return num_runs >= LEAST_RUNS and instruments.passed_s() - start_s > instruments.budget_s


class Course:
    """Tells at which part of a run it is, and how long the rest takes at the pace so far; budgets bound it."""

    def __init__(self, instruments: Instruments, num_parts: int) -> None:
        self._instruments = instruments
        self._num_parts = num_parts
        self._num_begun = 0
        self._start_s = instruments.passed_s()

    def begin(self, text: str) -> None:
        """Say that the next part begins."""
        done, left = self._num_begun, self._num_parts - self._num_begun
        self._num_begun += 1
        rest = ""
        if done:
            rest_s = (self._instruments.passed_s() - self._start_s) / done * left
            rest = f", about {math.ceil(rest_s)} s to go"
        self._instruments.progress(f"{text} ({self._num_begun} of {self._num_parts}{rest})")


def timed_s(work: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds that ``work`` takes."""
    start_s = clock()
    work()
    return clock() - start_s
