"""Times between two tokens of a request, as runs of steps."""

from __future__ import annotations

from array import array
from collections.abc import Iterator


class Intervals:
    """Runs of steps: the first interval, what each next one is longer, how many, and how many requests waited each."""

    __slots__ = ("_extend", "flat")

    def __init__(self) -> None:
        self.flat = array("q")
        """Four numbers a run, one after the other."""
        self._extend = self.flat.extend

    def add(self, first_ps: int, more_ps: int, num_steps: int, num_requests: int) -> None:
        """Add a run."""
        self._extend((first_ps, more_ps, num_steps, num_requests))

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the runs."""
        numbers = iter(self.flat)
        return zip(numbers, numbers, numbers, numbers, strict=True)
