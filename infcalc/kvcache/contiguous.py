"""What paging is compared with: one contiguous run of tokens per sequence, reserved when it begins.

Source: Kwon et al. 2023 (PagedAttention), section 3 and figure 2: engines before it reserved the longest possible
length (Orca Max), the next power of two from a buddy allocator (Orca Pow2), or, knowing the future, the exact length
(Orca Oracle). Reserved but empty room and room too scattered to use left 20 to 38 % of the memory to tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Protocol

from infcalc.kvcache.admission import check_new
from infcalc.kvcache.buddy_runs import BuddyRuns, power_of_two
from infcalc.kvcache.first_fit_runs import FirstFitRuns
from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.surface import Usage


class Runs(Protocol):
    """Free runs of tokens of a memory of ``capacity_tokens``."""

    capacity_tokens: int

    @property
    def largest_tokens(self) -> int:
        """The longest run that can be had."""

    def take(self, num_tokens: int) -> int | None:
        """Return where a run of that length begins, no longer free; None when there is none."""

    def give_back(self, start: int, num_tokens: int) -> None:
        """Make a run free that was taken."""

    def check_invariants(self) -> None:
        """Raise AssertionError unless the free runs are in order."""


class ContiguousAllocator:
    """Sequences that each hold one run; ``reserved`` says how much one takes that will have so many tokens."""

    __slots__ = ("_held", "_live", "_reserved", "runs")

    def __init__(self, runs: Runs, reserved: Callable[[int], int]) -> None:
        self.runs = runs
        self._reserved = reserved
        self._held: dict[int, tuple[int, int]] = {}
        self._live: dict[int, int] = {}

    def allocate(self, sequence_id: int, num_tokens: int, final_tokens: int) -> int | None:
        """Reserve a run for a sequence of ``num_tokens`` that ends with ``final_tokens``; return where it begins.

        None, and nothing changed, when no free run is long enough.

        Raises:
            Misuse: the sequence is there already, or does not fit what would be reserved for it.

        """
        check_new(sequence_id, self._held)
        reserved = self._reserved(final_tokens)
        if not 0 <= num_tokens <= final_tokens <= reserved:
            raise Misuse(f"{num_tokens} of {final_tokens} tokens in a run of {reserved}")
        start = self.runs.take(reserved)
        if start is not None:
            self._held[sequence_id] = start, reserved
            self._live[sequence_id] = num_tokens
        return start

    def append(self, sequence_id: int, num_new_tokens: int = 1) -> None:
        """Fill more of a sequence's run.

        Raises:
            Misuse: no such sequence, or beyond its run.

        """
        _, reserved = self._run(sequence_id)
        num_tokens = self._live[sequence_id] + num_new_tokens
        if num_tokens > reserved:
            raise Misuse(f"token {num_tokens} in a run of {reserved}")
        self._live[sequence_id] = num_tokens

    def free(self, sequence_id: int) -> None:
        """Give a sequence's run back.

        Raises:
            Misuse: no such sequence: a double free.

        """
        self.runs.give_back(*self._run(sequence_id))
        del self._held[sequence_id], self._live[sequence_id]

    def run_of(self, sequence_id: int) -> tuple[int, int]:
        """Return where a sequence's run begins and how many tokens it holds when full."""
        return self._run(sequence_id)

    def usage(self) -> Usage:
        """Return tokens reserved and tokens there."""
        return Usage(
            capacity_tokens=self.runs.capacity_tokens,
            held_tokens=sum(reserved for _, reserved in self._held.values()),
            live_tokens=sum(self._live.values()),
            largest_free_tokens=self.runs.largest_tokens,
        )

    def _run(self, sequence_id: int) -> tuple[int, int]:
        try:
            return self._held[sequence_id]
        except KeyError:
            raise Misuse(f"sequence {sequence_id} holds nothing: never admitted, or freed") from None

    def check_invariants(self) -> None:
        """Raise AssertionError unless no two runs overlap."""
        self.runs.check_invariants()
        ordered = sorted(self._held.values())
        for (start, reserved), (following, _) in pairwise(ordered):
            holds(start + reserved <= following, "runs do not overlap")
        for sequence_id, (start, reserved) in self._held.items():
            holds(start >= 0 and start + reserved <= self.runs.capacity_tokens, "runs lie in memory")
            holds(0 <= self._live[sequence_id] <= reserved, "tokens lie in their run")


def reserve_maximum(capacity_tokens: int, max_tokens: int) -> ContiguousAllocator:
    """Return an allocator that reserves the longest possible sequence for each (Orca Max, FasterTransformer)."""
    return ContiguousAllocator(FirstFitRuns(capacity_tokens), lambda _: max_tokens)


def reserve_exact(capacity_tokens: int) -> ContiguousAllocator:
    """Return an allocator that knows how long each sequence will be (Orca Oracle): no engine can."""
    return ContiguousAllocator(FirstFitRuns(capacity_tokens), lambda final_tokens: final_tokens)


def buddy(capacity_tokens: int) -> ContiguousAllocator:
    """Return an allocator that reserves the next power of two of the final length (Orca Pow2)."""
    return ContiguousAllocator(BuddyRuns(capacity_tokens), power_of_two)
