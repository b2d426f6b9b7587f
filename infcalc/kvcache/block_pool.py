"""The block pool: who holds each block, which are free, and which of them can still be found by what they hold.

Source: vLLM 0.33 ``v1/core/block_pool.py``. A block whose last holder leaves becomes free but keeps its content and its
hash until it is handed out again: the free queue is the LRU list of the prefix cache. Blocks with a hash go to its
back; blocks without one can never be hit and go to its front. Without prefix caching all go to the back.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from infcalc.kvcache.free_queue import FreeQueue
from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse

NULL_BLOCK = 0
"""Stands for "none" in a block table (what a window has left behind): never handed out, never counted."""


class BlockPool:
    """``num_blocks`` blocks, the null block included, each with a count of its holders."""

    __slots__ = (
        "_cached",
        "_free",
        "_hashes",
        "_references",
        "_twins",
        "num_blocks",
        "num_evictions",
        "prefix_caching",
    )

    def __init__(self, num_blocks: int, *, prefix_caching: bool = True) -> None:
        if num_blocks < 1:
            raise ValueError(f"{num_blocks} blocks: the null block alone takes one")
        self.num_blocks = num_blocks
        self.prefix_caching = prefix_caching
        self.num_evictions = 0
        """Blocks that lost their hash because they were handed out anew."""
        self._references = [0] * num_blocks
        self._free = FreeQueue(num_blocks, NULL_BLOCK)
        self._hashes: list[bytes | None] = [None] * num_blocks
        self._cached: dict[bytes, int] = {}
        # Two requests that computed the same block keep one each, for block tables only grow: the oldest is found,
        # the others wait here.
        self._twins: dict[bytes, dict[int, None]] = {}

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out, those that are still cached among them."""
        return len(self._free)

    @property
    def num_used(self) -> int:
        """Blocks that somebody holds."""
        return self.num_blocks - 1 - len(self._free)

    @property
    def num_cached(self) -> int:
        """Hashes that can be found."""
        return len(self._cached)

    @property
    def usage_fraction(self) -> float:
        """Held blocks over all that can be handed out; 0 for a pool of none."""
        return self.num_used / (self.num_blocks - 1) if self.num_blocks > 1 else 0.0

    def references(self, block: int) -> int:
        """Return how many hold a block."""
        return self._references[block]

    def hash_of(self, block: int) -> bytes | None:
        """Return the hash under which a block's content is known."""
        return self._hashes[block]

    def free_order(self) -> tuple[int, ...]:
        """Return the free blocks in the order in which they will be handed out."""
        return tuple(self._free)

    def num_free_among(self, blocks: Iterable[int]) -> int:
        """Return how many of ``blocks`` nobody holds: sharing them takes as many from the free ones."""
        return sum(self._references[block] == 0 for block in blocks if block != NULL_BLOCK)

    def allocate(self, num_blocks: int) -> list[int]:
        """Hand out blocks from the front of the free queue, each with one holder; what they held is forgotten.

        Raises:
            Misuse: fewer are free; ask ``num_free`` first.

        """
        if num_blocks > len(self._free):
            raise Misuse(f"{num_blocks} blocks asked for, {len(self._free)} are free")
        taken = [self._free.take_first() for _ in range(num_blocks)]
        for block in taken:
            self._references[block] = 1
            if self._hashes[block] is not None:
                self._forget(block)
                self.num_evictions += 1
        return taken

    def share(self, blocks: Iterable[int]) -> None:
        """Add one holder to each block; a free one leaves the free queue.

        Raises:
            Misuse: a block is free and holds nothing that can be found: a use after free.

        """
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            if not self._references[block]:
                if self._hashes[block] is None:
                    raise Misuse(f"block {block} is shared after it was freed")
                self._free.take(block)
            self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Take one holder from each block, in the order in which they shall be evicted.

        Raises:
            Misuse: a block has no holder: a double free.

        """
        unfindable = []
        for block in blocks:
            if block == NULL_BLOCK:
                continue
            left = self._references[block] - 1
            if left < 0:
                raise Misuse(f"block {block} is freed twice")
            self._references[block] = left
            if left:
                continue
            if self._hashes[block] is None and self.prefix_caching:
                unfindable.append(block)
            else:
                self._free.put_last(block)
        self._free.put_first(unfindable)

    def publish(self, block: int, block_hash: bytes) -> None:
        """Make a full block findable.

        Raises:
            Misuse: nobody holds the block, or it has a hash already.

        """
        if block == NULL_BLOCK or not self._references[block]:
            raise Misuse(f"block {block} is published, and nobody holds it")
        if self._hashes[block] is not None:
            raise Misuse(f"block {block} is published twice")
        self._hashes[block] = block_hash
        if self._cached.setdefault(block_hash, block) != block:
            self._twins.setdefault(block_hash, {})[block] = None

    def find(self, block_hash: bytes) -> int | None:
        """Return the block that holds what ``block_hash`` stands for; it may be free."""
        return self._cached.get(block_hash)

    def _forget(self, block: int) -> None:
        block_hash = self._hashes[block]
        if block_hash is None:
            return
        self._hashes[block] = None
        twins = self._twins.get(block_hash)
        if self._cached[block_hash] != block:
            if twins is not None:
                del twins[block]
        elif twins:
            heir = next(iter(twins))
            del twins[heir]
            self._cached[block_hash] = heir
        else:
            del self._cached[block_hash]
        if twins is not None and not twins:
            del self._twins[block_hash]

    def check_invariants(self) -> None:
        """Raise AssertionError unless counts, free queue and index agree."""
        order = self.free_order()
        holds(len(order) == len(set(order)) == len(self._free), "each free block stands once in the queue")
        unheld = {block for block, held in enumerate(self._references) if not held} - {NULL_BLOCK}
        holds(set(order) == unheld, "free is what nobody holds")
        holds(not self._references[NULL_BLOCK] and self._hashes[NULL_BLOCK] is None, "the null block is nobody's")
        for block, block_hash in enumerate(self._hashes):
            if block_hash is not None:
                known = (self._cached[block_hash], *self._twins.get(block_hash, ()))
                holds(block in known, f"block {block} is hashed, so it can be found")
        num_hashed = sum(block_hash is not None for block_hash in self._hashes)
        num_twins = sum(len(blocks) for blocks in self._twins.values())
        holds(num_hashed == len(self._cached) + num_twins, "what can be found is hashed")
        holds(all(self._twins.values()), "no empty set of twins")


def blocks_for(num_tokens: int, block_tokens: int) -> int:
    """Return the blocks that hold ``num_tokens``.

    >>> blocks_for(0, 16), blocks_for(16, 16), blocks_for(17, 16)
    (0, 1, 2)
    """
    return -(-num_tokens // block_tokens)


def freed_last_first(blocks: Sequence[int]) -> Iterable[int]:
    """Return a sequence's blocks in the order in which it gives them back.

    The tail first, so that it is evicted before the head: a cached block is of use only with all blocks before it.
    """
    return reversed(blocks)
