"""The KV cache manager of vLLM: blocks of fixed size, full blocks found by their hash chain, copy on write.

Source: vLLM 0.33 ``kv_cache_manager.py``, ``single_type_kv_cache_manager.py``. Copy on write is that of the
PagedAttention paper (Kwon et al. 2023, 4.4): sequences that share a block that is not full diverge inside it; who
writes first gets a copy, the last holder writes in place. Full blocks are never written again.
"""

from __future__ import annotations

from collections.abc import Sequence

from infcalc.kvcache.admission import admitted_tokens, check_new
from infcalc.kvcache.block_pool import NULL_BLOCK, BlockPool, blocks_for, freed_last_first
from infcalc.kvcache.block_table import BlockTable
from infcalc.kvcache.chain import chain_start, chained
from infcalc.kvcache.hit_rules import full_hit, most_hit_blocks, window_hit
from infcalc.kvcache.hits import HitCounts
from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.surface import NO_HIT, BlockCopy, PrefixHit, Usage


class KvCacheManager:
    """Blocks of ``block_tokens`` for many sequences; ``num_blocks`` includes the null block, as vLLM prints it.

    ``window_tokens``: all layers have this sliding window, and blocks behind it are given back while running.
    ``drop_last_hit``: the last matched block is computed again, as EAGLE and MTP heads need its hidden states.
    """

    __slots__ = (
        "_copies",
        "_tables",
        "block_tokens",
        "drop_last_hit",
        "hits",
        "num_copies",
        "num_preemptions",
        "pool",
        "prefix_caching",
        "readmission_hits",
        "window_tokens",
    )

    def __init__(
        self,
        num_blocks: int,
        block_tokens: int,
        *,
        prefix_caching: bool = True,
        window_tokens: int | None = None,
        drop_last_hit: bool = False,
    ) -> None:
        if block_tokens < 1:
            raise ValueError(f"blocks of {block_tokens} tokens")
        if window_tokens is not None and window_tokens <= 1:
            raise ValueError(f"a window of {window_tokens} tokens")
        self.block_tokens = block_tokens
        self.prefix_caching = prefix_caching
        self.pool = BlockPool(num_blocks, prefix_caching=prefix_caching)
        self.hits = HitCounts()
        self.readmission_hits = HitCounts()
        """Hits of sequences that come back after a preemption: they find their own blocks."""
        self.num_preemptions = 0
        self.num_copies = 0
        self.window_tokens = window_tokens
        self.drop_last_hit = drop_last_hit
        self._tables: dict[int, BlockTable] = {}
        self._copies: list[BlockCopy] = []

    # What is there

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be had now, cached ones that nobody holds included."""
        return self.pool.num_free

    @property
    def usage_fraction(self) -> float:
        """Share of the blocks that running sequences hold."""
        return self.pool.usage_fraction

    @property
    def sequence_ids(self) -> tuple[int, ...]:
        """The sequences that hold blocks, in the order of their admission."""
        return tuple(self._tables)

    def block_table(self, sequence_id: int) -> Sequence[int]:
        """Return a sequence's blocks in the order of its tokens, for reading."""
        return self._table(sequence_id).block_ids

    def num_tokens(self, sequence_id: int) -> int:
        """Return the tokens that have room, committed or not."""
        return self._table(sequence_id).num_tokens

    def num_committed_tokens(self, sequence_id: int) -> int:
        """Return the tokens that are computed, those of the prefix hit included."""
        return self._table(sequence_id).num_committed

    def usage(self) -> Usage:
        """Return tokens held and tokens there; a block that several share counts once, at its fullest."""
        filled: dict[int, int] = {}
        for table in self._tables.values():
            for index, block in enumerate(table.block_ids):
                if block != NULL_BLOCK:
                    tokens = min(self.block_tokens, table.num_committed - index * self.block_tokens)
                    filled[block] = max(filled.get(block, 0), tokens)
        return Usage(
            capacity_tokens=(self.pool.num_blocks - 1) * self.block_tokens,
            held_tokens=self.pool.num_used * self.block_tokens,
            live_tokens=sum(max(0, tokens) for tokens in filled.values()),
            largest_free_tokens=self.pool.num_free * self.block_tokens,
        )

    # Admission

    def match_prefix(self, tokens: Sequence[int], *, namespace: str = "") -> PrefixHit:
        """Return the longest run of full cached blocks from the start of ``tokens``; nothing is changed.

        At most ``len(tokens) - 1`` tokens, rounded down to a block: a prompt of whole blocks that is cached entirely
        computes its last block again.
        """
        if not self.prefix_caching:
            return NO_HIT
        size = self.block_tokens
        keys: list[bytes] = []
        blocks: list[int | None] = []
        parent = chain_start(namespace)

        def is_cached(index: int) -> bool:
            return blocks[index] is not None

        def look_up(index: int) -> bool:
            keys.append(chained(keys[-1] if keys else parent, tokens[index * size : (index + 1) * size]))
            blocks.append(self.pool.find(keys[-1]))
            return blocks[-1] is not None

        most = most_hit_blocks(len(tokens), size)
        if self.window_tokens is None:
            # Hashing is what costs: it ends at the first miss.
            num_hit = full_hit(look_up, most)
        else:
            for index in range(most):
                look_up(index)
            num_hit = window_hit(
                is_cached,
                most,
                window_tokens=self.window_tokens,
                block_tokens=size,
                num_dropped_blocks=int(self.drop_last_hit),
            )
        if self.drop_last_hit:
            num_hit = max(0, num_hit - 1)
        unseen = self._unseen_blocks(num_hit * size)
        return PrefixHit(
            num_tokens=num_hit * size,
            block_ids=tuple(
                NULL_BLOCK if index < unseen or block is None else block for index, block in enumerate(blocks[:num_hit])
            ),
            keys=tuple(keys[:num_hit]),
            namespace=namespace,
        )

    def can_allocate(self, num_tokens: int, *, hit: PrefixHit = NO_HIT, num_spare_blocks: int = 0) -> bool:
        """Return whether a new sequence of ``num_tokens`` in all, hit included, would leave ``num_spare_blocks``.

        Blocks of the hit that nobody holds are among the free ones, and no longer free once they are shared.
        """
        needed = blocks_for(num_tokens, self.block_tokens) - len(hit.block_ids)
        return needed + self.pool.num_free_among(hit.block_ids) + num_spare_blocks <= self.pool.num_free

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

        ``tokens`` is the whole sequence so far; ``num_new_tokens`` of them after the hit (all, when None) get room,
        and ``num_lookahead_tokens`` behind them. ``hit`` is what ``match_prefix`` said, asked for anew when None.

        Raises:
            Misuse: the sequence is there already, more tokens are asked for than there are, or the hit is stale.

        """
        check_new(sequence_id, self._tables)
        hit = self.match_prefix(tokens, namespace=namespace) if hit is None else hit
        end = admitted_tokens(sequence_id, len(tokens), hit, num_new_tokens)
        if not self.can_allocate(end + num_lookahead_tokens, hit=hit):
            return None
        self._share(hit)
        needed = blocks_for(end + num_lookahead_tokens, self.block_tokens) - len(hit.block_ids)
        table = BlockTable(
            self.block_tokens,
            hit.keys[-1] if hit.keys else chain_start(namespace),
            [*hit.block_ids, *self.pool.allocate(max(0, needed))],
            hit.num_tokens,
        )
        table.num_tokens = end
        table.num_behind = self._unseen_blocks(hit.num_tokens)
        self._tables[sequence_id] = table
        (self.readmission_hits if readmitted else self.hits).record(len(tokens), hit.num_tokens)
        return tuple(table.block_ids)

    def fork(self, parent_id: int, child_id: int) -> None:
        """Begin a sequence that shares all tokens of another: no block is taken before one of them writes.

        Raises:
            Misuse: the child is there already, or the parent has room that is not committed (or rewound).

        """
        check_new(child_id, self._tables)
        child = self._table(parent_id).forked()
        self.pool.share(child.block_ids)
        self._tables[child_id] = child

    # Growth

    def append(
        self, sequence_id: int, num_new_tokens: int = 1, *, num_lookahead_tokens: int = 0
    ) -> tuple[int, ...] | None:
        """Make room for more tokens and return the blocks it took; None, and nothing changed, when they do not fit.

        A first write into a shared block takes a block for its copy.
        """
        table = self._table(sequence_id)
        end = table.num_tokens + num_new_tokens
        written = table.num_tokens // self.block_tokens
        num_held = len(table.block_ids)
        shared = written < num_held and self.pool.references(table.block_ids[written]) > 1
        needed = blocks_for(end + num_lookahead_tokens, self.block_tokens) - num_held
        if needed <= 0 and not shared and self.window_tokens is None:
            table.num_tokens = end
            return ()
        needed = max(0, needed) + shared
        unseen = slice(table.num_behind, self._unseen_blocks(table.num_committed))
        behind = table.block_ids[unseen]
        num_returned = sum(self.pool.references(block) == 1 for block in behind) if behind else 0
        if needed > self.pool.num_free + num_returned:
            return None
        if behind:
            self.pool.release(freed_last_first(behind))
            table.block_ids[unseen] = [NULL_BLOCK] * len(behind)
            table.num_behind += len(behind)
        taken = self.pool.allocate(needed)
        if shared:
            self._diverge(table, written, taken[0])
        table.block_ids.extend(taken[shared:])
        table.num_tokens = end
        return tuple(taken)

    def commit(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """State that the next ``tokens`` of a sequence are computed: blocks that they fill can be found from now on.

        Raises:
            Misuse: there was no room for them.

        """
        table = self._table(sequence_id)
        table.count_committed(len(tokens))
        if self.prefix_caching:
            for index, block_hash in table.completed(tokens):
                block = table.block_ids[index]
                if block != NULL_BLOCK:
                    self.pool.publish(block, block_hash)

    def rewind(self, sequence_id: int) -> None:
        """Give up the room beyond the committed tokens (rejected drafts): it is written anew; its blocks stay."""
        table = self._table(sequence_id)
        table.num_tokens = table.num_committed

    # End

    def free(self, sequence_id: int) -> None:
        """End a sequence: its blocks are given back from the tail, and stay findable until they are handed out.

        Raises:
            Misuse: there is no such sequence: a double free.

        """
        table = self._table(sequence_id)
        del self._tables[sequence_id]
        self.pool.release(freed_last_first(table.block_ids))

    def preempt(self, sequence_id: int) -> int:
        """Take a running sequence's blocks and return its committed tokens: what must be found or computed again."""
        num_lost = self._table(sequence_id).num_committed
        self.free(sequence_id)
        self.num_preemptions += 1
        return num_lost

    def take_copies(self) -> list[BlockCopy]:
        """Return the copies due before the next step, in order, and forget them."""
        due, self._copies = self._copies, []
        return due

    # Inside

    def _table(self, sequence_id: int) -> BlockTable:
        try:
            return self._tables[sequence_id]
        except KeyError:
            raise Misuse(f"sequence {sequence_id} holds nothing: never admitted, or freed") from None

    def _share(self, hit: PrefixHit) -> None:
        for block, key in zip(hit.block_ids, hit.keys, strict=True):
            if block != NULL_BLOCK and self.pool.hash_of(block) != key:
                raise Misuse(f"a stale hit: block {block} was handed out since")
        self.pool.share(hit.block_ids)

    def _diverge(self, table: BlockTable, index: int, target: int) -> None:
        source = table.block_ids[index]
        self._copies.append(
            BlockCopy(source_block=source, target_block=target, num_tokens=table.num_tokens % self.block_tokens)
        )
        self.num_copies += 1
        table.block_ids[index] = target
        self.pool.release((source,))

    def _unseen_blocks(self, num_computed: int) -> int:
        """Return the leading blocks that no later token sees: the next one sees itself and ``window - 1`` before it."""
        if self.window_tokens is None:
            return 0
        return max(0, num_computed - self.window_tokens + 1) // self.block_tokens

    def check_invariants(self) -> None:
        """Raise AssertionError unless each block is counted as often as tables hold it, and no room is missing."""
        self.pool.check_invariants()
        counts = [0] * self.pool.num_blocks
        for table in self._tables.values():
            table.check_invariants(hashed=self.prefix_caching)
            for block in table.block_ids:
                counts[block] += 1
        for block, count in enumerate(counts):
            holds(block == NULL_BLOCK or count == self.pool.references(block), f"block {block} is held by {count}")
