"""The prefix cache of vLLM's manager over runs of blocks: the same hits, the same evictions, without touching a block.

A block is known by what lies before it, so that requests share blocks exactly as far as their contents share nodes of
one tree; a block belongs to the node that holds its last token. Beyond its deepest node a flight's blocks are its own:
only a flight that was preempted looks for them again. Free blocks that cannot be found are handed out first, then the
findable ones in the order in which they were given back, each flight's last block first
(:mod:`infcalc.kvcache.block_pool`). Of several copies the oldest is found. Hence, wherever a block can be found, all
before it can.

With ``drops_last`` the last block that is found is computed again, as heads that draft need it: it is left where it
lies, and a copy comes beside it. What a flight that was preempted had for itself is then a node of its own, for it may
have copies too.
"""

from __future__ import annotations

from collections.abc import Sequence

from infcalc.kvcache.hit_rules import most_hit_blocks
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.parts import Copy, Node, Part, PrivateRun, Ring, split


class PrefixBlocks:
    """Blocks with a prefix cache. ``parents`` and ``sizes`` (in tokens) are the tree of what flights share."""

    __slots__ = (
        "_chains",
        "_drops_last",
        "_nodes",
        "_num_blank",
        "_num_open",
        "_parents",
        "_ring",
        "block_tokens",
        "num_blocks",
        "num_evictions",
        "num_free",
    )

    finds = True

    def __init__(
        self,
        num_blocks: int,
        block_tokens: int,
        parents: Sequence[int],
        sizes: Sequence[int],
        *,
        drops_last: bool = False,
    ) -> None:
        self.num_blocks = self.num_free = num_blocks
        self.block_tokens = block_tokens
        self.num_evictions = 0
        self._drops_last = drops_last
        self._num_blank = num_blocks
        """Free blocks that cannot be found."""
        self._ring = Ring()
        self._num_open = 0
        self._parents = parents
        self._chains: dict[int, tuple[Node, ...]] = {-1: ()}
        self._nodes: list[Node] = []
        ends: list[int] = []
        for parent, size in zip(parents, sizes, strict=True):
            start = ends[parent] if parent >= 0 else 0
            ends.append(start + size)
            self._nodes.append(Node(start // block_tokens, (start + size) // block_tokens))

    @property
    def num_open(self) -> int:
        """Flights whose answers become findable while they decode."""
        return self._num_open

    def _chain(self, content: int) -> tuple[Node, ...]:
        found = self._chains.get(content)
        if found is None:
            above = self._chain(self._parents[content])
            node = self._nodes[content]
            found = self._chains[content] = (*above, node) if node.high > node.low else above
        return found

    def _path(self, flight: Flight) -> tuple[Node, ...]:
        """Return the nodes that a flight may find blocks in, or fill."""
        chain = self._chain(flight.content)
        return chain if flight.own is None else (*chain, flight.own)

    # What is handed out

    def take(self, num_blocks: int) -> None:
        """Hand out blocks, of which as many are free; what can be found is forgotten only when nothing else is left."""
        self.num_free -= num_blocks
        blank = self._num_blank - num_blocks
        if blank >= 0:
            self._num_blank = blank
        else:
            self._num_blank = 0
            self._forget(-blank)

    def _forget(self, num_blocks: int) -> None:
        self.num_evictions += num_blocks
        while num_blocks:
            run = self._ring.first
            if isinstance(run, PrivateRun):
                gone = min(num_blocks, run.num_blocks)
                run.num_blocks -= gone
                if not run.num_blocks:
                    Ring.take(run)
                num_blocks -= gone
                continue
            assert isinstance(run, Copy)  # noqa: S101 - nothing else is in the ring
            part = run.part
            size = part.high - part.low
            if size > num_blocks:
                split(part, part.high - num_blocks)
                continue
            Ring.take(run)
            part.copies.remove(run)
            if not part.copies:
                part.node.parts.remove(part)
            num_blocks -= size

    # What is found

    def match(self, flight: Flight, num_tokens: int, num_steps: int) -> tuple[int, int]:
        """Return the blocks that are found of the first tokens, and how many of them nobody holds."""
        most = most_hit_blocks(num_tokens, self.block_tokens)
        found = self._match(flight, most, num_steps)
        if self._drops_last and found[0]:
            return self._match(flight, found[0] - 1, num_steps)
        return found

    def _match(self, flight: Flight, most: int, num_steps: int) -> tuple[int, int]:
        found = num_free = 0
        for node in self._path(flight):
            if node.open:
                self._publish_open(node, num_steps)
            for part in node.parts:
                end = min(part.high, most)
                if end > found:
                    if not part.copies[0].references:
                        num_free += end - found
                    found = end
            if found < node.high:
                return found, num_free
        private = flight.private
        if private is not None:
            found += private.num_blocks
            num_free += private.num_blocks
        return found, num_free

    def admit(self, flight: Flight, num_hit_blocks: int, num_blocks: int) -> None:
        """Give ``num_blocks`` to a flight, the found ones included."""
        holdings = flight.holdings = []
        chain = self._path(flight)
        flight.num_shared_blocks = chain[-1].high if chain else 0
        held = 0
        for node in chain:
            if held == num_hit_blocks:
                break
            for part in tuple(node.parts):
                if part.low >= num_hit_blocks:
                    break
                if part.high > num_hit_blocks:
                    split(part, num_hit_blocks)
                copy = part.copies[0]
                if not copy.references:
                    Ring.take(copy)
                    self.num_free -= part.high - part.low
                copy.references += 1
                holdings.append((part.low, part.high, node, copy.owner))
                held = part.high
        private = flight.private
        if private is not None:
            if private.num_blocks:
                Ring.take(private)
                self.num_free -= private.num_blocks
                held += private.num_blocks
            flight.private = None
        self.take(num_blocks - num_hit_blocks)

    # What becomes findable

    def commit(self, flight: Flight, before_tokens: int, num_steps: int) -> None:
        """State that a chunk is computed, so that ``cached_tokens`` are; ``num_steps`` ended before this one."""
        low = before_tokens // self.block_tokens
        if low >= flight.num_shared_blocks:
            return
        high = flight.cached_tokens // self.block_tokens
        if high > low:
            for node in self._path(flight):
                if node.low >= high:
                    break
                if node.open:
                    self._publish_open(node, num_steps)
                    self._publish_open(node, num_steps + 1, flight.serial)
                self._publish(flight, node, max(low, node.low), min(high, node.high))

    def _publish(self, flight: Flight, node: Node, low: int, high: int) -> None:
        if low >= high:
            return
        owner, parts = flight.serial, node.parts
        place = 0
        start = low
        while place < len(parts):
            part = parts[place]
            if part.low >= high:
                break
            if part.high > low:
                if part.low < low:
                    split(part, low)
                else:
                    if part.high > high:
                        split(part, high)
                    part.copies.append(Copy(part, owner, 1))
                    start = part.high
            place += 1
        if start < high:
            last = parts[-1] if parts else None
            if last is not None and len(last.copies) == 1 and last.copies[0].owner == owner and _held_once(last):
                last.high = high
            else:
                part = Part(node, start, high)
                part.copies.append(Copy(part, owner, 1))
                parts.append(part)
        holdings = flight.holdings
        assert holdings is not None  # noqa: S101 - whoever computes was admitted
        if holdings and holdings[-1][1:] == (low, node, owner):
            holdings[-1] = (holdings[-1][0], high, node, owner)
        else:
            holdings.append((low, high, node, owner))

    # Answers that others repeat become findable while they are given

    def open(self, flight: Flight) -> None:
        """State that a flight begins to decode."""
        done = flight.cached_tokens // self.block_tokens
        if flight.num_shared_blocks > done:
            flight.is_open = True
            self._num_open += 1
            for node in self._chain(flight.content):
                if node.high > done:
                    node.open[flight.serial] = flight

    def close(self, flight: Flight, num_steps: int) -> None:
        """State that an open flight decodes no more."""
        for node in self._chain(flight.content):
            # From the root on, others too: nobody publishes the end of a chain before its beginning.
            if node.open:
                self._publish_open(node, num_steps)
                node.open.pop(flight.serial, None)
        flight.is_open = False
        self._num_open -= 1

    def _publish_open(self, node: Node, num_steps: int, before_serial: int | None = None) -> None:
        """Publish what those who decode have filled: who is ahead was first, of equals who was admitted first."""
        flights = sorted(node.open.values(), key=lambda one: (one.lead, one.serial))
        for flight in flights:
            if before_serial is not None and flight.serial >= before_serial:
                continue
            assert flight.lead is not None  # noqa: S101 - it decodes
            low = node.low
            for holding in flight.holdings or ():
                low = max(low, holding[1])
            high = min(node.high, (num_steps - flight.lead) // self.block_tokens)
            self._publish(flight, node, low, high)

    # What is given back

    def release(self, flight: Flight, committed_tokens: int, num_held: int, *, again: bool) -> None:
        """Take all blocks back; ``again``: it will look for them."""
        findable = committed_tokens // self.block_tokens
        self._num_blank += num_held - findable
        self.num_free += num_held - findable
        private = findable - flight.num_shared_blocks
        if private > 0:
            self.num_free += private
            self._give_back(flight, private, again=again)
        holdings = flight.holdings
        if holdings:
            for low, high, node, owner in reversed(holdings):
                for part in reversed(node.parts):
                    if part.high > low and part.low < high:
                        copy = part.copies[0]
                        if copy.owner != owner:
                            copy = part.copy_of(owner)
                        copy.references -= 1
                        if not copy.references:
                            self._ring.put_last(copy)
                            self.num_free += part.high - part.low
        flight.holdings = None

    def _give_back(self, flight: Flight, num_blocks: int, *, again: bool) -> None:
        last = self._ring.last
        if again and self._drops_last:
            self._own(flight, num_blocks)
        elif again:
            flight.private = PrivateRun(num_blocks, wanted=True)
            self._ring.put_last(flight.private)
        elif isinstance(last, PrivateRun) and not last.wanted:
            last.num_blocks += num_blocks
        else:
            self._ring.put_last(PrivateRun(num_blocks, wanted=False))

    def _own(self, flight: Flight, num_blocks: int) -> None:
        """Make blocks that nobody else can find part of a node that the flight will look in."""
        low = flight.num_shared_blocks
        node = flight.own
        if node is None:
            node = flight.own = Node(low, low)
        node.high = low + num_blocks
        part = Part(node, low, node.high)
        copy = Copy(part, flight.serial, 0)
        part.copies.append(copy)
        node.parts.append(part)
        self._ring.put_last(copy)


def _held_once(part: Part) -> bool:
    return part.copies[0].references == 1
