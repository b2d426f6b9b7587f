"""Slow models that are plainly right: lists, tuples of tokens and searches through everything."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

Tokens: TypeAlias = tuple[int, ...]


class NaivePool:
    """Blocks as a list of free ids in order, a dict of counts, and a list of what was published, oldest first."""

    def __init__(self, num_blocks: int, *, prefix_caching: bool = True) -> None:
        self.caching = prefix_caching
        self.free = list(range(1, num_blocks))
        self.counts = dict.fromkeys(range(1, num_blocks), 0)
        self.published: list[tuple[object, int]] = []
        self.evictions = 0

    def allocate(self, number: int) -> list[int]:
        taken, self.free = self.free[:number], self.free[number:]
        for block in taken:
            self.counts[block] = 1
            self.evictions += any(one == block for _, one in self.published)
            self.published = [entry for entry in self.published if entry[1] != block]
        return taken

    def share(self, blocks: list[int]) -> None:
        for block in blocks:
            if block:
                self.counts[block] += 1
                self.free = [one for one in self.free if one != block]

    def release(self, blocks: list[int]) -> None:
        front: list[int] = []
        back: list[int] = []
        for block in blocks:
            if not block:
                continue
            self.counts[block] -= 1
            if not self.counts[block]:
                known = any(one == block for _, one in self.published)
                (back if known or not self.caching else front).append(block)
        self.free = front + self.free + back

    def find(self, key: object) -> int | None:
        return next((block for known, block in self.published if known == key), None)


@dataclass
class NaiveSequence:
    """A sequence: what is computed, how far there is room, and its blocks."""

    blocks: list[int]
    room: int
    tokens: Tokens


class NaiveManager:
    """vLLM's rules over a naive pool; a block is known by the whole tuple of tokens up to its end."""

    def __init__(
        self, num_blocks: int, size: int, *, window: int | None = None, drop: bool = False, caching: bool = True
    ) -> None:
        self.pool = NaivePool(num_blocks, prefix_caching=caching)
        self.size = size
        self.window = window
        self.drop = drop
        self.caching = caching
        self.sequences: dict[int, NaiveSequence] = {}
        self.copies: list[tuple[int, int, int]] = []

    def hit(self, tokens: Tokens) -> tuple[int, list[int]]:
        """Return tokens and blocks of the longest usable hit, found by trying all from the longest down."""
        if not self.caching:
            return 0, []
        found = [
            self.pool.find(tokens[: (index + 1) * self.size]) for index in range(max(0, len(tokens) - 1) // self.size)
        ]
        for number in range(len(found), 0, -1):
            kept = number - self.drop
            # What the token after the hit sees before itself, and what is dropped after it, must be there.
            first = 0 if self.window is None else max(0, kept * self.size - self.window + 1) // self.size
            if None not in found[first:number]:
                return kept * self.size, [0 if index < first else found[index] or 0 for index in range(kept)]
        return 0, []

    def allocate(self, name: int, tokens: Tokens, number: int, ahead: int) -> bool:
        hit, blocks = self.hit(tokens)
        room = hit + number
        needed = max(0, -(-(room + ahead) // self.size) - len(blocks))
        idle = sum(block in self.pool.free for block in blocks)
        if needed + idle > len(self.pool.free):
            return False
        self.pool.share(blocks)
        self.sequences[name] = NaiveSequence(blocks + self.pool.allocate(needed), room, tokens[:hit])
        return True

    def append(self, name: int, number: int, ahead: int) -> bool:
        one = self.sequences[name]
        place = one.room // self.size
        shared = place < len(one.blocks) and self.pool.counts.get(one.blocks[place], 0) > 1
        needed = max(0, -(-(one.room + number + ahead) // self.size) - len(one.blocks)) + shared
        behind = 0 if self.window is None else max(0, len(one.tokens) - self.window + 1) // self.size
        leaving = [block for block in one.blocks[:behind] if block]
        if needed > len(self.pool.free) + sum(self.pool.counts[block] == 1 for block in leaving):
            return False
        self.pool.release(leaving[::-1])
        one.blocks[:behind] = [0] * behind
        taken = self.pool.allocate(needed)
        if shared:
            target = taken.pop(0)
            self.copies.append((one.blocks[place], target, one.room % self.size))
            self.pool.release([one.blocks[place]])
            one.blocks[place] = target
        one.blocks += taken
        one.room += number
        return True

    def commit(self, name: int, tokens: Tokens) -> None:
        one = self.sequences[name]
        before = len(one.tokens) // self.size
        one.tokens += tokens
        for index in range(before, len(one.tokens) // self.size):
            if self.caching and one.blocks[index]:
                self.pool.published.append((one.tokens[: (index + 1) * self.size], one.blocks[index]))

    def fork(self, parent: int, child: int) -> None:
        one = self.sequences[parent]
        blocks = one.blocks[: -(-len(one.tokens) // self.size)]
        self.pool.share(blocks)
        self.sequences[child] = NaiveSequence(blocks, len(one.tokens), one.tokens)

    def free(self, name: int) -> None:
        self.pool.release(self.sequences.pop(name).blocks[::-1])


@dataclass
class NaiveEntry:
    """An entry of the naive tree, found under its whole path; ``start`` is where its parent's path ends."""

    start: int
    last_use: int
    first_use: int
    pages: Tokens
    hits: int = 0
    locks: int = 0


@dataclass
class NaiveTree:
    """A prefix tree as a dict from the whole path of an entry to the entry; every question searches through it."""

    page: int
    policy: str
    max_entries: int | None = None
    max_tokens: int | None = None
    now: int = 0
    evictions: int = 0
    entries: dict[Tokens, NaiveEntry] = field(default_factory=dict)

    def longest(self, tokens: Tokens) -> int:
        best = 0
        for path in self.entries:
            shared = next(
                (index for index, pair in enumerate(zip(path, tokens, strict=False)) if pair[0] != pair[1]),
                min(len(path), len(tokens)),
            )
            best = max(best, shared - shared % self.page)
        return best

    def walk(self, tokens: Tokens) -> int:
        length = self.longest(tokens)
        for path, entry in list(self.entries.items()):
            if entry.start < length < len(path) and path[:length] == tokens[:length]:
                cut = (length - entry.start) // self.page
                self.entries[path[:length]] = NaiveEntry(
                    entry.start, entry.last_use, entry.first_use, entry.pages[:cut], entry.hits, entry.locks
                )
                entry.start, entry.pages = length, entry.pages[cut:]
        return length

    def above(self, path: Tokens) -> list[NaiveEntry]:
        return [entry for known, entry in self.entries.items() if path[: len(known)] == known]

    def match(self, tokens: Tokens) -> tuple[int, Tokens]:
        length = self.walk(tokens)
        self.now += 1
        for entry in self.above(tokens[:length]):
            entry.last_use = self.now
            entry.hits += 1
        return length, self.pages(tokens[:length])

    def pages(self, path: Tokens) -> Tokens:
        return sum((entry.pages for entry in sorted(self.above(path), key=lambda one: one.start)), ())

    def insert(self, tokens: Tokens, pages: Tokens) -> tuple[int, int, list[int]]:
        tokens = tokens[: len(tokens) - len(tokens) % self.page]
        length = self.walk(tokens)
        self.now += 1
        path = self.above(tokens[:length])
        for entry in path:
            entry.last_use = self.now
            entry.locks += 1
        added = len(tokens) - length
        evicted: list[int] = []
        locked = [(key, entry) for key, entry in self.entries.items() if entry.locks]
        locked_tokens = sum(len(key) - entry.start for key, entry in locked)
        hopeless = (self.max_tokens is not None and locked_tokens + added > self.max_tokens) or (
            self.max_entries is not None and len(locked) + (added > 0) > self.max_entries
        )
        while not hopeless and not self.has_room(int(added > 0), added):
            gone = self.evict_one()
            if gone is None:
                break
            evicted += gone
        if added and self.has_room(1, added):
            self.entries[tokens] = NaiveEntry(length, self.now, self.now, pages[length // self.page :])
        else:
            added = 0
        for entry in path:
            entry.locks -= 1
        return length, added, evicted

    def size(self) -> int:
        return sum(len(path) - entry.start for path, entry in self.entries.items())

    def has_room(self, entries: int, tokens: int) -> bool:
        return (self.max_entries is None or len(self.entries) + entries <= self.max_entries) and (
            self.max_tokens is None or self.size() + tokens <= self.max_tokens
        )

    def key(self, path: Tokens) -> tuple[int, ...]:
        entry = self.entries[path]
        return {
            "lru": (entry.last_use,),
            "lfu": (entry.hits, entry.last_use),
            "fifo": (entry.first_use, entry.last_use),
            "largest": (entry.start - len(path), entry.last_use),
        }[self.policy]

    def evict_one(self) -> list[int] | None:
        inner = {path[: entry.start] for path, entry in self.entries.items()}
        leaves = [path for path, entry in self.entries.items() if path not in inner and not entry.locks]
        if not leaves:
            return None
        self.evictions += 1
        return list(self.entries.pop(min(leaves, key=self.key)).pages)

    def evict(self, tokens: int) -> list[int]:
        pages: list[int] = []
        target = self.size() - tokens
        while self.size() > target and (gone := self.evict_one()) is not None:
            pages += gone
        return pages
