"""Free runs in one list, by position: the first that is long enough is cut, neighbours grow together again."""

from __future__ import annotations

from bisect import bisect_left

from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse


class FirstFitRuns:
    """A memory of ``capacity_tokens``, all free at first.

    >>> runs = FirstFitRuns(10)
    >>> runs.take(4), runs.take(4), runs.take(4)
    (0, 4, None)
    >>> runs.give_back(0, 4)
    >>> runs.largest_tokens, runs.take(4)
    (4, 0)
    """

    __slots__ = ("_lengths", "_starts", "capacity_tokens")

    def __init__(self, capacity_tokens: int) -> None:
        self.capacity_tokens = capacity_tokens
        self._starts = [0] if capacity_tokens else []
        self._lengths = [capacity_tokens] if capacity_tokens else []

    @property
    def largest_tokens(self) -> int:
        """The longest run that can be had."""
        return max(self._lengths, default=0)

    def take(self, num_tokens: int) -> int | None:
        """Return where a run of that length begins, no longer free; None when there is none."""
        for index, length in enumerate(self._lengths):
            if length >= num_tokens:
                start = self._starts[index]
                if length == num_tokens:
                    del self._starts[index], self._lengths[index]
                else:
                    self._starts[index] += num_tokens
                    self._lengths[index] -= num_tokens
                return start
        return None

    def give_back(self, start: int, num_tokens: int) -> None:
        """Make a run free that was taken.

        Raises:
            Misuse: a part of it is free already.

        """
        if not num_tokens:
            return
        index = bisect_left(self._starts, start)
        before = self._starts[index - 1] + self._lengths[index - 1] if index else 0
        after = self._starts[index] if index < len(self._starts) else self.capacity_tokens
        if start < before or start + num_tokens > after:
            raise Misuse(f"tokens {start} to {start + num_tokens} are freed twice")
        self._starts.insert(index, start)
        self._lengths.insert(index, num_tokens)
        for left in (index, index - 1):
            self._merge(left)

    def _merge(self, left: int) -> None:
        right = left + 1
        if left >= 0 and right < len(self._starts) and self._starts[left] + self._lengths[left] == self._starts[right]:
            self._lengths[left] += self._lengths[right]
            del self._starts[right], self._lengths[right]

    def check_invariants(self) -> None:
        """Raise AssertionError unless runs are apart, in order and within memory."""
        end = -1
        for start, length in zip(self._starts, self._lengths, strict=True):
            holds(length > 0 and start > end, "free runs are apart and in order")
            end = start + length
        holds(end <= self.capacity_tokens, "free runs lie in memory")
