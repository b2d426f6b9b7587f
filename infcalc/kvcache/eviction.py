"""Which entry of a prefix cache goes first: each policy is a sort key, least first.

Source: SGLang ``mem_cache/evict_policy.py``. Times are a count of operations. The key of an entry may only grow while
the entry lives (splitting shrinks it, use makes it younger): the radix tree corrects its queue when it takes from it.
"""

from __future__ import annotations

from typing import Protocol


class Evictable(Protocol):
    """What a policy may look at."""

    @property
    def num_tokens(self) -> int:
        """Tokens that evicting it sets free."""

    @property
    def last_use(self) -> int:
        """When it was last matched or inserted."""

    @property
    def first_use(self) -> int:
        """When it was inserted."""

    @property
    def num_hits(self) -> int:
        """How often it was matched."""


class EvictionPolicy(Protocol):
    """An order of eviction."""

    def key(self, entry: Evictable) -> tuple[int, ...]:
        """Return the sort key: the entry with the least goes first."""


class LeastRecentlyUsed:
    """The entry that was not used for longest (SGLang's default)."""

    def key(self, entry: Evictable) -> tuple[int, ...]:
        """Return the last use."""
        return (entry.last_use,)


class LeastFrequentlyUsed:
    """The entry with the fewest hits, of several the one not used for longest."""

    def key(self, entry: Evictable) -> tuple[int, ...]:
        """Return hits, then the last use."""
        return (entry.num_hits, entry.last_use)


class FirstInFirstOut:
    """The oldest entry, however much it is used."""

    def key(self, entry: Evictable) -> tuple[int, ...]:
        """Return the time of insertion; of several parts of one, the one not used for longest."""
        return (entry.first_use, entry.last_use)


class LargestFirst:
    """The longest entry, so that few evictions make room; of several the one not used for longest."""

    def key(self, entry: Evictable) -> tuple[int, ...]:
        """Return the size, negative, then the last use."""
        return (-entry.num_tokens, entry.last_use)
