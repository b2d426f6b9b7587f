"""Times between two tokens of a request, as runs of steps."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infcalc.simulation.fast.samples import Ints

TIMES_BITS = 24
_TIMES_MASK = (1 << TIMES_BITS) - 1


def packed(num_steps: int, num_requests: int) -> int:
    """Return two counts as one number: fewer than 2**24 requests run at once, and a run has fewer than 2**39 steps.

    >>> packed(3, 2) == (3 << 24) + 2
    True
    """
    return num_steps << TIMES_BITS | num_requests


def unpacked(counts: Ints) -> tuple[Ints, Ints]:
    """Return steps and requests of packed counts."""
    return counts >> TIMES_BITS, counts & _TIMES_MASK


class Intervals:
    """Runs of steps, three numbers each in ``flat``.

    The first interval, how much longer each next one is, and, packed, how many there are and how many requests waited
    each. 24 bytes stand for all samples of a run.
    """

    __slots__ = ("add", "flat")

    def __init__(self) -> None:
        self.flat = array("q")
        self.add: Callable[[tuple[int, int, int]], None] = self.flat.extend
        """Add a run."""

    def __iter__(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the runs, with both counts."""
        numbers = iter(self.flat)
        for first_ps, more_ps, counts in zip(numbers, numbers, numbers, strict=True):
            yield first_ps, more_ps, counts >> TIMES_BITS, counts & _TIMES_MASK
