"""Times between two tokens of a request, as runs of steps."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator


class Intervals:
    """Runs of steps: the first interval, what each next one is longer, how many, and how many requests waited each."""

    __slots__ = ("add", "flat")

    def __init__(self) -> None:
        self.flat = array("q")
        """Four numbers a run, one after the other."""
        self.add: Callable[[tuple[int, int, int, int]], None] = self.flat.extend
        """Add a run."""

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the runs."""
        numbers = iter(self.flat)
        return zip(numbers, numbers, numbers, numbers, strict=True)
