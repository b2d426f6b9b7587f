"""The radix tree of cached prefixes: runs of tokens, matched to the token, evicted from the leaves.

Source: SGLang 0.5 ``mem_cache/radix_cache.py``; Zheng et al. 2024 (RadixAttention). An entry is a node: a run of tokens
after its parent's. A match that ends inside a run splits it. With ``page_tokens`` above 1, entries and matches are
whole pages. Runs are compared as bytes, so that a match costs a comparison per entry, not per token.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush

from infcalc.frozen import frozen
from infcalc.kvcache.eviction import EvictionPolicy, LeastRecentlyUsed
from infcalc.kvcache.hits import HitCounts
from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.radix_node import RadixNode
from infcalc.kvcache.tokens import TOKEN_BYTES, packed, shared_bytes


@frozen
class Match:
    """The longest cached prefix of some tokens, the node where it ends and the pages that hold it."""

    num_tokens: int
    node: RadixNode
    pages: Sequence[int] = ()


@frozen
class Inserted:
    """What an insertion found and did.

    ``num_present_tokens`` were there, ``num_added_tokens`` are new (0 where the limits left no room), and
    ``evicted_pages`` made room.
    """

    num_present_tokens: int
    num_added_tokens: int
    evicted_pages: Sequence[int] = ()


class RadixTree:
    """Cached prefixes, each with one page id per ``page_tokens``, or without pages as an index alone.

    ``max_entries`` and ``max_tokens`` bound what is kept: an insertion evicts first what ``policy`` names. Entries that
    are locked, or have others below them, stay. A match that splits a run may leave one entry too many until the next
    insertion. A namespace (LoRA id, salt) is a tree of its own in all but the bounds.
    """

    __slots__ = (
        "_now",
        "_page_bytes",
        "_policy",
        "_queue",
        "_roots",
        "_serial",
        "hits",
        "max_entries",
        "max_tokens",
        "num_entries",
        "num_evicted_tokens",
        "num_evictions",
        "num_locked_entries",
        "num_locked_tokens",
        "num_tokens",
        "page_tokens",
    )

    def __init__(
        self,
        *,
        page_tokens: int = 1,
        policy: EvictionPolicy | None = None,
        max_entries: int | None = None,
        max_tokens: int | None = None,
    ) -> None:
        if page_tokens < 1:
            raise ValueError(f"pages of {page_tokens} tokens")
        self.page_tokens = page_tokens
        self.max_entries = max_entries
        self.max_tokens = max_tokens
        self.hits = HitCounts()
        """Lookups that were marked as counted."""
        self.num_entries = 0
        self.num_tokens = 0
        self.num_locked_entries = 0
        self.num_locked_tokens = 0
        """Tokens of entries in use, which cannot be evicted."""
        self.num_evictions = 0
        self.num_evicted_tokens = 0
        self._policy = LeastRecentlyUsed() if policy is None else policy
        self._page_bytes = page_tokens * TOKEN_BYTES
        self._now = 0
        self._serial = 0
        self._roots: dict[str, RadixNode] = {}
        self._queue: list[tuple[tuple[int, ...], int, RadixNode]] = []

    @property
    def num_evictable_tokens(self) -> int:
        """Tokens that evicting everything that is not in use would set free."""
        return self.num_tokens - self.num_locked_tokens

    def __iter__(self) -> Iterator[RadixNode]:
        """Yield all entries, parents before their children."""
        waiting = [child for root in self._roots.values() for child in root.children.values()]
        while waiting:
            node = waiting.pop()
            yield node
            waiting.extend(node.children.values())

    # Matching

    def peek(self, tokens: Sequence[int], *, namespace: str = "") -> Match:
        """Return the longest cached prefix and change nothing; the node is where it ends or in whose run."""
        node, num_bytes, pages = self._root(namespace), 0, array("i")
        data = packed(tokens)
        while child := node.children.get(data[num_bytes : num_bytes + self._page_bytes]):
            shared = self._shared(child, data, num_bytes)
            pages += child.pages[: shared // self._page_bytes]
            node = child
            num_bytes += shared
            if shared < len(child.run):
                break
        return Match(num_tokens=num_bytes // TOKEN_BYTES, node=node, pages=pages)

    def match(self, tokens: Sequence[int], *, namespace: str = "", counted: bool = False) -> Match:
        """Return the longest cached prefix and note its use; a run in which it ends is split there.

        ``counted``: this is the one lookup of a request, and goes into ``hits``.
        """
        node, num_bytes, pages = self._walk(packed(tokens), namespace)
        self._use(node, hit=True)
        num_tokens = num_bytes // TOKEN_BYTES
        if counted:
            self.hits.record(len(tokens), num_tokens)
        return Match(num_tokens=num_tokens, node=node, pages=pages)

    def _walk(self, data: bytes, namespace: str) -> tuple[RadixNode, int, array[int]]:
        node, num_bytes, pages = self._root(namespace), 0, array("i")
        while child := node.children.get(data[num_bytes : num_bytes + self._page_bytes]):
            shared = self._shared(child, data, num_bytes)
            node = child if shared == len(child.run) else self._split(child, shared)
            pages += node.pages
            num_bytes += shared
            if node is not child:
                break
        return node, num_bytes, pages

    def _shared(self, node: RadixNode, data: bytes, start: int) -> int:
        """Return the bytes of whole pages that a run shares with ``data`` from ``start``; at least the first page."""
        run = node.run
        part = data[start : start + len(run)]
        if part == run:
            return len(run)
        shared = shared_bytes(run, part)
        return shared - shared % self._page_bytes

    def _root(self, namespace: str) -> RadixNode:
        root = self._roots.get(namespace)
        if root is None:
            root = self._roots[namespace] = RadixNode(b"", array("i"), None, serial=0, now=0)
        return root

    def _split(self, node: RadixNode, at: int) -> RadixNode:
        """Cut a run in two and return the new upper part; ``node`` stays the lower, so that what is locked stays so."""
        upper = self._new(node.run[:at], node.pages[: at // self._page_bytes], node.parent)
        upper.locks, upper.num_hits = node.locks, node.num_hits
        self.num_locked_entries += upper.locks > 0
        upper.first_use, upper.last_use = node.first_use, node.last_use
        node.run = node.run[at:]
        node.pages = node.pages[at // self._page_bytes :]
        node.parent = upper
        upper.children[node.run[: self._page_bytes]] = node
        return upper

    def _new(self, run: bytes, pages: array[int], parent: RadixNode | None) -> RadixNode:
        if parent is None:
            raise Misuse("an entry that was evicted is used")
        self._serial += 1
        node = RadixNode(run, pages, parent, serial=self._serial, now=self._now)
        parent.children[run[: self._page_bytes]] = node
        self.num_entries += 1
        return node

    def _use(self, node: RadixNode, *, hit: bool) -> None:
        self._now += 1
        while node.parent is not None:
            node.last_use = self._now
            node.num_hits += hit
            node = node.parent

    # Insertion

    def insert(self, tokens: Sequence[int], pages: Sequence[int] = (), *, namespace: str = "") -> Inserted:
        """Keep ``tokens``, cut to whole pages, in ``pages`` (one id per page, or none at all).

        Of what is there already the tree keeps its own pages. Within the limits others are evicted first; where that
        is not enough nothing is added.

        Raises:
            ValueError: not one page id per page.

        """
        data = packed(tokens)
        data = data[: len(data) - len(data) % self._page_bytes]
        given = array("i", pages)
        if given and len(given) != len(data) // self._page_bytes:
            raise ValueError(f"{len(given)} pages for {len(data) // TOKEN_BYTES} tokens in pages of {self.page_tokens}")
        node, num_bytes, _ = self._walk(data, namespace)
        self._use(node, hit=False)
        num_present, num_added = num_bytes // TOKEN_BYTES, (len(data) - num_bytes) // TOKEN_BYTES
        # What the new entry hangs on must survive the making of room for it.
        self.lock(node)
        evicted = self._make_room(int(num_added > 0), num_added)
        if num_added and self._has_room(1, num_added):
            self._new(data[num_bytes:], given[num_bytes // self._page_bytes :], node)
            self.num_tokens += num_added
            self._enqueue(node.children[data[num_bytes : num_bytes + self._page_bytes]])
        else:
            num_added = 0
        self.unlock(node)
        return Inserted(num_present_tokens=num_present, num_added_tokens=num_added, evicted_pages=evicted)

    def _has_room(self, num_entries: int, num_tokens: int) -> bool:
        return (self.max_entries is None or self.num_entries + num_entries <= self.max_entries) and (
            self.max_tokens is None or self.num_tokens + num_tokens <= self.max_tokens
        )

    def _make_room(self, num_entries: int, num_tokens: int) -> array[int]:
        pages = array("i")
        # Nothing is evicted for an entry that will find no room all the same.
        if self.max_tokens is not None and self.num_locked_tokens + num_tokens > self.max_tokens:
            return pages
        if self.max_entries is not None and self.num_locked_entries + num_entries > self.max_entries:
            return pages
        while not self._has_room(num_entries, num_tokens) and (victim := self._next_victim()):
            pages += self._remove(victim)
        return pages

    # Locks

    def lock(self, node: RadixNode) -> None:
        """Keep an entry and all above it from eviction, until ``unlock`` was called as often.

        Raises:
            Misuse: the entry was evicted: a use after free.

        """
        self._check_alive(node)
        while node.parent is not None:
            if not node.locks:
                self.num_locked_tokens += node.num_tokens
                self.num_locked_entries += 1
            node.locks += 1
            node = node.parent

    def unlock(self, node: RadixNode) -> None:
        """Take one lock back.

        Raises:
            Misuse: the entry is not locked.

        """
        self._check_alive(node)
        if node.parent is not None and not node.locks:
            raise Misuse("an entry is unlocked that nobody locked")
        while node.parent is not None:
            node.locks -= 1
            if not node.locks:
                self.num_locked_tokens -= node.num_tokens
                self.num_locked_entries -= 1
                self._enqueue(node)
            node = node.parent

    def _check_alive(self, node: RadixNode) -> None:
        # An evicted entry keeps its run and has no parent; a root has neither.
        if node.parent is None and node.run:
            raise Misuse("an entry that was evicted is used")

    # Eviction

    def evict(self, num_tokens: int) -> array[int]:
        """Evict leaves that are not in use until ``num_tokens`` are free or none is left; return their pages.

        Whole entries go: more may be set free than was asked for, see ``num_evicted_tokens``.
        """
        pages = array("i")
        target = self.num_evicted_tokens + num_tokens
        while self.num_evicted_tokens < target and (victim := self._next_victim()):
            pages += self._remove(victim)
        return pages

    def _enqueue(self, node: RadixNode) -> None:
        if not (node.in_queue or node.locks or node.children or node.parent is None):
            node.in_queue = True
            heappush(self._queue, (self._policy.key(node), node.serial, node))

    def _next_victim(self) -> RadixNode | None:
        """Return the leaf that the policy names. The queue is mended here: entries grew younger, gained children."""
        while self._queue:
            key, _, node = heappop(self._queue)
            node.in_queue = False
            if node.locks or node.children:
                continue
            if key == self._policy.key(node):
                return node
            self._enqueue(node)
        return None

    def _remove(self, node: RadixNode) -> array[int]:
        parent = node.parent
        if parent is None:
            raise Misuse("a root is evicted")
        del parent.children[node.run[: self._page_bytes]]
        node.parent = None
        self.num_entries -= 1
        self.num_tokens -= node.num_tokens
        self.num_evictions += 1
        self.num_evicted_tokens += node.num_tokens
        self._enqueue(parent)
        return node.pages

    def check_invariants(self) -> None:
        """Raise AssertionError unless counts, links, locks and the queue of eviction agree."""
        nodes = list(self)
        holds(len(nodes) == self.num_entries, "entries are counted")
        holds(sum(node.num_tokens for node in nodes) == self.num_tokens, "tokens are counted")
        locked = [node.num_tokens for node in nodes if node.locks]
        holds(sum(locked) == self.num_locked_tokens, "locked tokens are counted")
        holds(len(locked) == self.num_locked_entries, "locked entries are counted")
        holds(self.max_tokens is None or self.num_tokens <= self.max_tokens, "no more tokens than allowed")
        queued = {serial for _, serial, _ in self._queue}
        holds(len(queued) == len(self._queue), "each entry is queued once")
        for node in nodes:
            holds(bool(node.run) and len(node.run) % self._page_bytes == 0, "a run of whole pages")
            holds(not node.pages or len(node.pages) * self._page_bytes == len(node.run), "a page id per page")
            holds(node.locks >= sum(child.locks for child in node.children.values()), "a lock reaches up to the root")
            holds(node.in_queue == (node.serial in queued), "an entry knows whether it is queued")
            holds(bool(node.locks or node.children) or node.in_queue, "a free leaf is queued")
            for first, child in node.children.items():
                holds(child.parent is node and child.run.startswith(first), "children are where they are looked for")
                holds(child.last_use <= node.last_use, "an entry is used whenever one below it is")
