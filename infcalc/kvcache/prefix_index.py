"""A stream of prompts against a prefix cache: one request after the other is looked up, computed, and kept.

Two kinds of cache. A radix tree (SGLang) finds prefixes to the token or page, is bounded by entries and tokens, and
evicts as its policy says. Blocks found by their hash (vLLM, TensorRT-LLM) are bounded by their number and leave in the
order of their last use. Both leave at least the last token of a prompt to be computed. Requests that run at the same
time are not modelled: what one computes, the next one finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Protocol

from infcalc.frozen import frozen
from infcalc.kvcache.eviction import (
    EvictionPolicy,
    FirstInFirstOut,
    LargestFirst,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
)
from infcalc.kvcache.hits import HitCounts
from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.radix_tree import RadixTree


class IndexKind(StrEnum):
    """How cached prefixes are found."""

    TREE = "radix-tree"
    BLOCKS = "hash-blocks"


class Policy(StrEnum):
    """Which entry of a tree goes first."""

    LRU = "lru"
    LFU = "lfu"
    FIFO = "fifo"
    SIZE_AWARE = "size-aware"


def policy_of(policy: Policy) -> EvictionPolicy:
    """Return the order of eviction of that name."""
    match policy:
        case Policy.LRU:
            return LeastRecentlyUsed()
        case Policy.LFU:
            return LeastFrequentlyUsed()
        case Policy.FIFO:
            return FirstInFirstOut()
        case Policy.SIZE_AWARE:
            return LargestFirst()


class PrefixIndex(Protocol):
    """A prefix cache, asked one request at a time."""

    @property
    def num_evictions(self) -> int:
        """Entries, or blocks, that had to go."""

    def serve(self, tokens: Sequence[int], answer: Sequence[int]) -> int:
        """Look a prompt up, keep it with its answer, and return how many of its tokens were found."""


class TreeIndex:
    """A radix tree; ``page_tokens`` 1 finds prefixes to the token."""

    def __init__(
        self, *, page_tokens: int = 1, policy: Policy = Policy.LRU, max_entries: int | None, max_tokens: int | None
    ) -> None:
        self.tree = RadixTree(
            page_tokens=page_tokens, policy=policy_of(policy), max_entries=max_entries, max_tokens=max_tokens
        )

    @property
    def num_evictions(self) -> int:
        """Entries that had to go."""
        return self.tree.num_evictions

    def serve(self, tokens: Sequence[int], answer: Sequence[int]) -> int:
        """Look a prompt up, keep it with its answer, and return how many of its tokens were found."""
        found = self.tree.match(tokens[:-1]).num_tokens
        self.tree.insert([*tokens, *answer] if answer else tokens)
        return found


class BlockIndex:
    """Full blocks in a pool of ``max_tokens``; a request that is longer than the pool leaves it as it is."""

    def __init__(self, *, block_tokens: int, max_tokens: int) -> None:
        self.manager = KvCacheManager(max_tokens // block_tokens + 1, block_tokens)
        self._next_name = 0

    @property
    def num_evictions(self) -> int:
        """Blocks that were handed out anew."""
        return self.manager.pool.num_evictions

    def serve(self, tokens: Sequence[int], answer: Sequence[int]) -> int:
        """Look a prompt up, keep it with its answer, and return how many of its tokens were found."""
        manager, name = self.manager, self._next_name
        self._next_name += 1
        hit = manager.match_prefix(tokens)
        if manager.allocate(name, tokens, hit=hit) is None:
            return 0
        manager.commit(name, tokens[hit.num_tokens :])
        if answer and manager.append(name, len(answer)) is not None:
            manager.commit(name, answer)
        manager.free(name)
        return hit.num_tokens


@frozen
class Served:
    """What a stream found: counts by request and token, and each hit with the length of its prompt."""

    counts: HitCounts
    num_evictions: int
    found: tuple[tuple[int, int], ...]
    """Prompt and found tokens of each request, in order."""


def serve_all(requests: Iterable[tuple[Sequence[int], Sequence[int]]], index: PrefixIndex) -> Served:
    """Return what a stream of prompts and answers finds.

    >>> tree = TreeIndex(max_entries=None, max_tokens=None)
    >>> served = serve_all([([1, 2, 3], []), ([1, 2, 4], []), ([1, 2, 4], [])], tree)
    >>> served.found, served.counts.request_fraction
    (((3, 0), (3, 2), (3, 2)), 0.6666666666666666)
    """
    counts = HitCounts()
    pairs = []
    for tokens, answer in requests:
        found = index.serve(tokens, answer)
        counts.record(len(tokens), found)
        pairs.append((len(tokens), found))
    return Served(counts=counts, num_evictions=index.num_evictions, found=tuple(pairs))
