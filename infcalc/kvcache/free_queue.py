"""The queue of free blocks: taken from the front, given back to either end, and taken out of the middle, each O(1).

Source: vLLM ``FreeKVCacheBlockQueue``: a doubly linked list through the blocks themselves, because a prefix hit takes a
free block from the middle, which a deque cannot do.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence


class FreeQueue:
    """Block ids from 0 to ``num_blocks - 1``, each at most once. At first all but ``left_out``, in their order."""

    __slots__ = ("_next", "_previous", "_size")

    def __init__(self, num_blocks: int, left_out: int) -> None:
        # One ring: place `num_blocks` stands before the first and after the last. A block outside points to itself.
        ring = [block for block in range(num_blocks + 1) if block != left_out]
        self._next = list(range(num_blocks + 1))
        self._previous = list(range(num_blocks + 1))
        for block, follower in zip(ring, ring[1:] + ring[:1], strict=True):
            self._next[block] = follower
            self._previous[follower] = block
        self._size = len(ring) - 1

    def __len__(self) -> int:
        """Return how many blocks are free."""
        return self._size

    def __iter__(self) -> Iterator[int]:
        """Yield the free blocks from the front: in the order in which they will be taken."""
        end = len(self._next) - 1
        block = self._next[end]
        while block != end:
            yield block
            block = self._next[block]

    def __contains__(self, block: int) -> bool:
        """Return whether a block is free."""
        return self._next[block] != block

    def take_first(self) -> int:
        """Return the block at the front, no longer free. The queue must not be empty."""
        block = self._next[-1]
        self.take(block)
        return block

    def take(self, block: int) -> None:
        """Take a free block out, wherever it stands."""
        before, after = self._previous[block], self._next[block]
        self._next[before] = after
        self._previous[after] = before
        self._next[block] = self._previous[block] = block
        self._size -= 1

    def put_last(self, block: int) -> None:
        """Put a block behind all others: it is taken last."""
        end = len(self._next) - 1
        self._insert(block, self._previous[end], end)

    def put_first(self, blocks: Sequence[int]) -> None:
        """Put blocks before all others, the first of them foremost."""
        end = len(self._next) - 1
        for block in reversed(blocks):
            self._insert(block, end, self._next[end])

    def _insert(self, block: int, before: int, after: int) -> None:
        self._next[before] = self._previous[after] = block
        self._previous[block] = before
        self._next[block] = after
        self._size += 1
