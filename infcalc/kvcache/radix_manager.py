"""The KV cache manager of SGLang: pages found by a radix tree of tokens, which owns what sequences have published.

Source: SGLang 0.5 ``radix_cache.py`` (``cache_unfinished_req``, ``cache_finished_req``), ``schedule_batch.py``. While a
prompt is computed, each chunk goes into the tree; of the answer nothing until the sequence ends. What a retracted
sequence held outside the tree is lost.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from infcalc.kvcache.admission import admitted_tokens, check_new
from infcalc.kvcache.block_pool import NULL_BLOCK, BlockPool, blocks_for, freed_last_first
from infcalc.kvcache.eviction import EvictionPolicy
from infcalc.kvcache.hits import HitCounts
from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.radix_node import RadixNode
from infcalc.kvcache.radix_tree import RadixTree
from infcalc.kvcache.surface import NO_HIT, BlockCopy, PrefixHit, Usage
from infcalc.kvcache.tokens import packed


class _Running:
    """One sequence: its first ``num_published`` tokens lie in pages of the tree, down to ``node``."""

    __slots__ = ("block_ids", "namespace", "node", "num_prompt", "num_published", "num_tokens", "tokens")

    def __init__(self, node: RadixNode, block_ids: list[int], tokens: array[int], namespace: str) -> None:
        self.node = node
        self.block_ids = block_ids
        self.tokens = tokens
        self.num_tokens = self.num_published = self.num_prompt = len(tokens)
        self.namespace = namespace


class RadixCacheManager:
    """Pages of ``block_tokens`` (SGLang's default is 1) for many sequences; one of ``num_blocks`` is the null block."""

    __slots__ = (
        "_copies",
        "_running",
        "block_tokens",
        "hits",
        "num_copies",
        "num_preemptions",
        "pool",
        "prefix_caching",
        "readmission_hits",
        "tree",
    )

    def __init__(
        self,
        num_blocks: int,
        block_tokens: int = 1,
        *,
        prefix_caching: bool = True,
        policy: EvictionPolicy | None = None,
    ) -> None:
        self.block_tokens = block_tokens
        self.prefix_caching = prefix_caching
        # Pages have no hash here: the tree knows what they hold.
        self.pool = BlockPool(num_blocks, prefix_caching=False)
        self.tree = RadixTree(page_tokens=block_tokens, policy=policy)
        self.hits = HitCounts()
        self.readmission_hits = HitCounts()
        self.num_preemptions = 0
        self.num_copies = 0
        self._running: dict[int, _Running] = {}
        self._copies: list[BlockCopy] = []

    # What is there

    @property
    def num_free_blocks(self) -> int:
        """Pages that can be had now: free ones, and those of the tree that nobody uses."""
        return self.pool.num_free + self.tree.num_evictable_tokens // self.block_tokens

    @property
    def usage_fraction(self) -> float:
        """Share of the pages that running sequences hold."""
        total = self.pool.num_blocks - 1
        return (total - self.num_free_blocks) / total if total else 0.0

    @property
    def sequence_ids(self) -> tuple[int, ...]:
        """The sequences that hold pages, in the order of their admission."""
        return tuple(self._running)

    def block_table(self, sequence_id: int) -> Sequence[int]:
        """Return a sequence's pages in the order of its tokens, for reading.

        What was computed twice is kept once: a commit may put the tree's page in place of the sequence's own.
        """
        return self._get(sequence_id).block_ids

    def num_tokens(self, sequence_id: int) -> int:
        """Return the tokens that have room, committed or not."""
        return self._get(sequence_id).num_tokens

    def num_committed_tokens(self, sequence_id: int) -> int:
        """Return the tokens that are computed, those of the prefix hit included."""
        return len(self._get(sequence_id).tokens)

    def usage(self) -> Usage:
        """Return tokens held and tokens there; a page that several share counts once, at its fullest."""
        filled: dict[int, int] = {}
        for one in self._running.values():
            for index, block in enumerate(one.block_ids):
                tokens = max(0, min(self.block_tokens, len(one.tokens) - index * self.block_tokens))
                filled[block] = max(filled.get(block, 0), tokens)
        return Usage(
            capacity_tokens=(self.pool.num_blocks - 1) * self.block_tokens,
            held_tokens=len(filled) * self.block_tokens,
            live_tokens=sum(filled.values()),
            largest_free_tokens=self.num_free_blocks * self.block_tokens,
        )

    # Admission

    def match_prefix(self, tokens: Sequence[int], *, namespace: str = "") -> PrefixHit:
        """Return the longest cached prefix of whole pages, at most ``len(tokens) - 1`` tokens; nothing is changed."""
        if not self.prefix_caching:
            return NO_HIT
        head = tokens[: max(0, len(tokens) - 1)]
        found = self.tree.peek(head, namespace=namespace)
        return PrefixHit(
            num_tokens=found.num_tokens,
            block_ids=tuple(found.pages),
            keys=(packed(head[: found.num_tokens]),) if found.num_tokens else (),
            namespace=namespace,
        )

    def can_allocate(self, num_tokens: int, *, hit: PrefixHit = NO_HIT, num_spare_blocks: int = 0) -> bool:
        """Return whether a new sequence of ``num_tokens`` in all, hit included, would leave ``num_spare_blocks``.

        Pages of the hit that nobody uses could be evicted, and no longer so once they are in use.
        """
        needed = blocks_for(num_tokens, self.block_tokens) - len(hit.block_ids)
        return needed + self._num_idle_pages(hit) + num_spare_blocks <= self.num_free_blocks

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
        """Admit a sequence and return its pages; None, and nothing changed, when they do not fit.

        ``tokens`` is the whole sequence so far; ``num_new_tokens`` of them after the hit (all, when None) get room,
        and ``num_lookahead_tokens`` behind them. ``hit`` is what ``match_prefix`` said, asked for anew when None.

        Raises:
            Misuse: the sequence is there already, more tokens are asked for than there are, or the hit is stale.

        """
        check_new(sequence_id, self._running)
        hit = self.match_prefix(tokens, namespace=namespace) if hit is None else hit
        end = admitted_tokens(sequence_id, len(tokens), hit, num_new_tokens)
        if not self.can_allocate(end + num_lookahead_tokens, hit=hit):
            return None
        head = array("i", tokens[: hit.num_tokens])
        found = self.tree.match(head, namespace=namespace)
        self.tree.lock(found.node)
        one = _Running(found.node, [*hit.block_ids], head, namespace)
        one.num_prompt = len(tokens)
        needed = blocks_for(end + num_lookahead_tokens, self.block_tokens) - len(hit.block_ids)
        one.block_ids += self._take(max(0, needed))
        one.num_tokens = end
        self._running[sequence_id] = one
        (self.readmission_hits if readmitted else self.hits).record(len(tokens), hit.num_tokens)
        return tuple(one.block_ids)

    def fork(self, parent_id: int, child_id: int) -> None:
        """Begin a sequence that shares all tokens of another: no page is taken before one of them writes.

        The parent publishes first, so that a page which both hold outside the tree is one that is not full.

        Raises:
            Misuse: the child is there already, or the parent has room that is not committed (or rewound).

        """
        check_new(child_id, self._running)
        parent = self._get(parent_id)
        if parent.num_tokens > len(parent.tokens):
            raise Misuse(f"forked with {parent.num_tokens - len(parent.tokens)} tokens on their way")
        self._publish(parent)
        num_pages = blocks_for(len(parent.tokens), self.block_tokens)
        child = _Running(parent.node, parent.block_ids[:num_pages], parent.tokens[:], parent.namespace)
        child.num_published = parent.num_published
        child.num_prompt = parent.num_prompt
        self.tree.lock(child.node)
        self.pool.share(self._own_pages(child))
        self._running[child_id] = child

    # Growth

    def append(
        self, sequence_id: int, num_new_tokens: int = 1, *, num_lookahead_tokens: int = 0
    ) -> tuple[int, ...] | None:
        """Make room for more tokens and return the pages it took; None, and nothing changed, when they do not fit.

        A first write into a page that forks share takes a page for its copy.
        """
        one = self._get(sequence_id)
        end = one.num_tokens + num_new_tokens
        written = one.num_tokens // self.block_tokens
        num_held = len(one.block_ids)
        shared = written < num_held and self.pool.references(one.block_ids[written]) > 1
        needed = max(0, blocks_for(end + num_lookahead_tokens, self.block_tokens) - num_held) + shared
        if not needed:
            one.num_tokens = end
            return ()
        if needed > self.num_free_blocks:
            return None
        taken = self._take(needed)
        if shared:
            source, one.block_ids[written] = one.block_ids[written], taken[0]
            filled = one.num_tokens % self.block_tokens
            self._copies.append(BlockCopy(source_block=source, target_block=taken[0], num_tokens=filled))
            self.num_copies += 1
            self.pool.release((source,))
        one.block_ids.extend(taken[shared:])
        one.num_tokens = end
        return tuple(taken)

    def commit(self, sequence_id: int, tokens: Sequence[int]) -> None:
        """State that the next ``tokens`` of a sequence are computed; a chunk of the prompt can be found from now on.

        Raises:
            Misuse: there was no room for them.

        """
        one = self._get(sequence_id)
        num_before = len(one.tokens)
        if num_before + len(tokens) > one.num_tokens:
            raise Misuse(
                f"{len(tokens)} tokens computed after {num_before}: there was room for {one.num_tokens} in all"
            )
        one.tokens.extend(tokens)
        if num_before < one.num_prompt:
            self._publish(one)

    def rewind(self, sequence_id: int) -> None:
        """Give up the room beyond the committed tokens (rejected drafts): it is written anew; its pages stay."""
        one = self._get(sequence_id)
        one.num_tokens = len(one.tokens)

    # End

    def free(self, sequence_id: int) -> None:
        """End a sequence: prompt and answer go into the tree, in whole pages; the rest is given back.

        Raises:
            Misuse: there is no such sequence: a double free.

        """
        self._publish(self._get(sequence_id))
        self._drop(sequence_id)

    def preempt(self, sequence_id: int) -> int:
        """Retract a running sequence and return its committed tokens; what it had not published is lost."""
        num_lost = len(self._get(sequence_id).tokens)
        self._drop(sequence_id)
        self.num_preemptions += 1
        return num_lost

    def take_copies(self) -> list[BlockCopy]:
        """Return the copies due before the next step, in order, and forget them."""
        due, self._copies = self._copies, []
        return due

    # Inside

    def _get(self, sequence_id: int) -> _Running:
        try:
            return self._running[sequence_id]
        except KeyError:
            raise Misuse(f"sequence {sequence_id} holds nothing: never admitted, or freed") from None

    def _own_pages(self, one: _Running) -> list[int]:
        return one.block_ids[one.num_published // self.block_tokens :]

    def _drop(self, sequence_id: int) -> None:
        one = self._running.pop(sequence_id)
        self.tree.unlock(one.node)
        self.pool.release(freed_last_first(self._own_pages(one)))

    def _take(self, num_pages: int) -> list[int]:
        missing = num_pages - self.pool.num_free
        if missing > 0:
            self.pool.release(self.tree.evict(missing * self.block_tokens))
        return self.pool.allocate(num_pages)

    def _publish(self, one: _Running) -> None:
        """Give the tree what is computed, in whole pages; where it has the same already, use the tree's pages."""
        size = self.block_tokens
        num_whole = len(one.tokens) // size * size
        if not self.prefix_caching or num_whole <= one.num_published:
            return
        whole = one.tokens[:num_whole]
        before, after = one.num_published // size, num_whole // size
        inserted = self.tree.insert(whole, one.block_ids[:after], namespace=one.namespace)
        found = self.tree.match(whole, namespace=one.namespace)
        # The tree has taken over the sequence's hold of what is new; of the rest it holds its own.
        self.pool.release(one.block_ids[before : inserted.num_present_tokens // size])
        one.block_ids[:after] = found.pages
        self.tree.lock(found.node)
        self.tree.unlock(one.node)
        one.node = found.node
        one.num_published = num_whole

    def _num_idle_pages(self, hit: PrefixHit) -> int:
        """Return the pages of a hit that no sequence uses.

        Raises:
            Misuse: the hit is stale.

        """
        if not hit.num_tokens:
            return 0
        found = self.tree.peek(array("i", hit.keys[0]), namespace=hit.namespace)
        if tuple(found.pages) != hit.block_ids:
            raise Misuse("a stale hit: its pages were evicted since")
        node, num_idle, num_beyond = found.node, 0, self._beyond(found.node) - found.num_tokens
        while node.parent is not None:
            if not node.locks:
                num_idle += node.num_tokens - num_beyond
            num_beyond = 0
            node = node.parent
        return num_idle // self.block_tokens

    @staticmethod
    def _beyond(node: RadixNode) -> int:
        depth = 0
        while node.parent is not None:
            depth += node.num_tokens
            node = node.parent
        return depth

    def check_invariants(self) -> None:
        """Raise AssertionError unless each page is counted as often as tree and sequences hold it."""
        self.pool.check_invariants()
        self.tree.check_invariants()
        counts = [0] * self.pool.num_blocks
        locks: dict[int, int] = {}
        for page in _pages(self.tree):
            counts[page] += 1
        holds(not counts[NULL_BLOCK], "the null page is in no tree")
        for one in self._running.values():
            for page in self._own_pages(one):
                counts[page] += 1
            node = one.node
            while node.parent is not None:
                locks[node.serial] = locks.get(node.serial, 0) + 1
                node = node.parent
            published = self.tree.peek(one.tokens[: one.num_published], namespace=one.namespace)
            holds(list(published.pages) == one.block_ids[: len(published.pages)], "a sequence reads the tree's pages")
            holds(published.num_tokens == one.num_published <= len(one.tokens), "what is published is there")
            holds(len(one.tokens) <= one.num_tokens <= len(one.block_ids) * self.block_tokens, "room for all tokens")
        for page, count in enumerate(counts):
            holds(count == self.pool.references(page), f"page {page} is held by {count}")
        for node in self.tree:
            holds(node.locks == locks.get(node.serial, 0), "an entry is locked once by each sequence that uses it")


def _pages(tree: RadixTree) -> Iterable[int]:
    return (page for node in tree for page in node.pages)
