"""Where the runs of a sweep or a comparison are made: here, on processes of this machine, or on a cluster.

Whoever executes gives the same results in the same order. A run is a task that can be sent elsewhere; what comes back
is light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAYS_FROM_S = 0.5
"""Seconds that processes must save before they are started."""


class Partial(Protocol):
    """A result that says whether its run was broken off."""

    @property
    def is_partial(self) -> bool:
        """Whether Ctrl-C ended it."""


Done = TypeVar("Done", bound=Partial)
Done_co = TypeVar("Done_co", bound=Partial, covariant=True)


class Task(Protocol[Done_co]):
    """One run, in what it takes to make it: a task is pickled where it is sent elsewhere, and so is its result."""

    @property
    def name(self) -> str:
        """What an error calls it: ``rate 4``."""

    @property
    def num_requests(self) -> int:
        """Requests that it simulates: the unit of progress."""

    @property
    def expected_s(self) -> float:
        """About how long it takes on one core."""

    def run(self, progress: Callable[[int, int], None] | None) -> Done_co:
        """Make the run; the same result wherever it is made."""


@frozen
class Executed(Generic[Done]):
    """Results in the order of the tasks; None for what Ctrl-C kept from being made."""

    results: tuple[Done | None, ...]


class Executor(Protocol):
    """Makes runs."""

    def run(self, tasks: Sequence[Task[Done]], progress: Callable[[int, int], None] | None = None) -> Executed[Done]:
        """Return the results of ``tasks``; ``progress`` takes in requests that ended, of those of all tasks.

        Raises:
            InfcalcError: a run was refused, or cannot be made there.
            KeyboardInterrupt: nothing was finished yet.

        """


class Whole:
    """Adds up how far all tasks are."""

    def __init__(self, tasks: Sequence[Task[Done]], progress: Callable[[int, int], None] | None) -> None:
        self._progress = progress
        self._done = [0] * len(tasks)
        self._total = sum(task.num_requests for task in tasks)

    def tell(self, place: int, done: int) -> None:
        """Take in that so many requests of a task have ended."""
        self._done[place] = done
        if self._progress is not None:
            self._progress(sum(self._done), self._total)


class SerialExecutor:
    """One run after another, in this process."""

    def run(self, tasks: Sequence[Task[Done]], progress: Callable[[int, int], None] | None = None) -> Executed[Done]:
        """Return the results; a run that Ctrl-C breaks off is the last."""
        results: list[Done | None] = [None] * len(tasks)
        whole = Whole(tasks, progress)
        try:
            for place, task in enumerate(tasks):
                results[place] = done = task.run(_teller(whole, place) if progress is not None else None)
                if done.is_partial:
                    break
                whole.tell(place, task.num_requests)
        except KeyboardInterrupt:
            if all(one is None for one in results):
                raise
        return Executed(results=tuple(results))


def _teller(whole: Whole, place: int) -> Callable[[int, int], None]:
    def tell(done: int, total: int) -> None:
        del total
        whole.tell(place, done)

    return tell


def saved_s(tasks: Sequence[Task[Done]], num_workers: int) -> float:
    """Return the seconds that so many workers save: the longest task, or all by as many, is what they still take."""
    expected = [task.expected_s for task in tasks]
    return sum(expected) - max(max(expected, default=0.0), sum(expected) / num_workers)
