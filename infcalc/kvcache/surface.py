"""What a scheduler sees of a manager of KV blocks, whatever index finds the prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from infcalc.frozen import frozen
from infcalc.kvcache.hits import HitCounts


@frozen
class PrefixHit:
    """What is cached of a prompt at this moment. ``block_ids`` hold its first ``num_tokens``.

    ``keys`` says what they must hold, each block or all together, so that a hit that has become stale is noticed.
    """

    num_tokens: int
    block_ids: tuple[int, ...] = ()
    keys: tuple[bytes, ...] = ()
    namespace: str = ""


NO_HIT = PrefixHit(num_tokens=0)


@frozen
class BlockCopy:
    """The first ``num_tokens`` of ``source_block`` go to ``target_block``, in all layers."""

    source_block: int
    target_block: int
    num_tokens: int


@frozen
class Usage:
    """Tokens that a cache has room for, that its sequences hold room for, and that are there.

    ``largest_free_tokens`` is the longest run that one request can still get.
    """

    capacity_tokens: int
    held_tokens: int
    live_tokens: int
    largest_free_tokens: int

    @property
    def waste_fraction(self) -> float:
        """Share of the held room that holds no token: reserved for later, or never used."""
        return 1 - self.live_tokens / self.held_tokens if self.held_tokens else 0.0

    @property
    def fragmented_fraction(self) -> float:
        """Share of the free room that is not in its largest run: external fragmentation."""
        free = self.capacity_tokens - self.held_tokens
        return 1 - self.largest_free_tokens / free if free else 0.0


class KvManager(Protocol):
    """A manager of KV blocks. Every method but ``allocate``, ``append`` and ``fork`` succeeds or raises ``Misuse``."""

    block_tokens: int
    hits: HitCounts
    readmission_hits: HitCounts
    num_preemptions: int

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be had now, those of evictable cached prefixes included."""

    @property
    def usage_fraction(self) -> float:
        """Share of the blocks that running sequences hold."""

    def match_prefix(self, tokens: Sequence[int], *, namespace: str = "") -> PrefixHit:
        """Return what is cached of ``tokens``, at most all but the last of them."""

    def can_allocate(self, num_tokens: int, *, hit: PrefixHit = NO_HIT, num_spare_blocks: int = 0) -> bool:
        """Return whether a new sequence of ``num_tokens`` in all, hit included, would leave ``num_spare_blocks``."""

    def allocate(
        self,
        sequence_id: int,
        tokens: Sequence[int],
        num_new_tokens: int | None = None,
        *,
        hit: PrefixHit | None = None,
        num_lookahead_tokens: int = 0,
        namespace: str = "",
        readmitted: bool = False,
    ) -> tuple[int, ...] | None:
        """Admit a sequence and return its blocks; None, and nothing changed, when they do not fit.

        ``tokens`` is the whole sequence so far; ``num_new_tokens`` of them after the hit (all, when None) get room.
        """

    def append(
        self, sequence_id: int, num_new_tokens: int = 1, *, num_lookahead_tokens: int = 0
    ) -> tuple[int, ...] | None:
        """Make room for more tokens and return the blocks it took; None, and nothing changed, when they do not fit."""

    def commit(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """State that the next ``tokens`` of a sequence are computed, in room that was given before."""

    def rewind(self, sequence_id: int) -> None:
        """Give up the room beyond the committed tokens (rejected drafts): it is written anew; its blocks stay."""

    def fork(self, parent_id: int, child_id: int) -> None:
        """Begin a sequence that shares all tokens of another, none on their way; who writes first gets a copy."""

    def free(self, sequence_id: int) -> None:
        """End a sequence; what it computed stays findable until its blocks are needed."""

    def preempt(self, sequence_id: int) -> int:
        """Take a running sequence's blocks and return its committed tokens: what must be found or computed again."""

    def take_copies(self) -> list[BlockCopy]:
        """Return the copies due before the next step, in order, and forget them."""

    def block_table(self, sequence_id: int) -> Sequence[int]:
        """Return a sequence's blocks in the order of its tokens, for reading."""

    def num_tokens(self, sequence_id: int) -> int:
        """Return the tokens that have room, committed or not."""

    def num_committed_tokens(self, sequence_id: int) -> int:
        """Return the tokens that are computed, those of the prefix hit included."""

    def check_invariants(self) -> None:
        """Raise AssertionError unless everything agrees with everything."""
