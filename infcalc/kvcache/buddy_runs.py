"""Free runs of a buddy allocator: powers of two, each split into two buddies, and joined when both are free again.

Source: Knowlton 1965, "A fast storage allocator".
"""

from __future__ import annotations

from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse


def power_of_two(num_tokens: int) -> int:
    """Return the least power of two that is not below ``num_tokens``.

    >>> [power_of_two(tokens) for tokens in (0, 1, 5, 64, 65)]
    [1, 1, 8, 64, 128]
    """
    return 1 << max(0, num_tokens - 1).bit_length()


class BuddyRuns:
    """A memory of ``capacity_tokens``, cut into powers of two from the largest on.

    >>> runs = BuddyRuns(12)
    >>> runs.take(2), runs.take(4), runs.take(8), runs.largest_tokens
    (8, 0, None, 4)
    >>> runs.give_back(0, 4)
    >>> runs.largest_tokens
    8
    """

    __slots__ = ("_free", "capacity_tokens")

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self._free: list[set[int]] = [set() for _ in range(capacity_tokens.bit_length())]
        start = 0
        for order in reversed(range(len(self._free))):
            if capacity_tokens >> order & 1:
                self._free[order].add(start)
                start += 1 << order

    @property
    def largest_tokens(self) -> int:
        """The longest run that can be had."""
        return max((1 << order for order, starts in enumerate(self._free) if starts), default=0)

    def take(self, num_tokens: int) -> int | None:
        """Return where a run of the next power of two begins, no longer free; None when there is none."""
        wanted = power_of_two(num_tokens).bit_length() - 1
        order = next((order for order in range(wanted, len(self._free)) if self._free[order]), None)
        if order is None:
            return None
        start = min(self._free[order])
        self._free[order].remove(start)
        while order > wanted:
            order -= 1
            self._free[order].add(start + (1 << order))
        return start

    def give_back(self, start: int, num_tokens: int) -> None:
        """Make a run free that was taken.

        Raises:
            Misuse: a run that begins there, or lies around it, is free already.

        """
        order = power_of_two(num_tokens).bit_length() - 1
        if any(start >> size << size in starts for size, starts in enumerate(self._free) if size >= order) or any(
            start in starts for starts in self._free
        ):
            raise Misuse(f"tokens {start} to {start + num_tokens} are freed twice")
        while start ^ (1 << order) in self._free[order]:
            self._free[order].remove(start ^ (1 << order))
            start &= ~(1 << order)
            order += 1
        self._free[order].add(start)

    def check_invariants(self) -> None:
        """Raise AssertionError unless runs are aligned, apart and within memory, and no two buddies are both free."""
        end = 0
        for start, order in sorted((start, order) for order, starts in enumerate(self._free) for start in starts):
            size = 1 << order
            holds(start % size == 0 and start >= end, "free runs are aligned and apart")
            holds(start ^ size not in self._free[order], "buddies that are both free are one run")
            end = start + size
        holds(end <= self.capacity_tokens, "free runs lie in memory")
