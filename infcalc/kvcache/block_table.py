"""The block table of one sequence: which block holds which of its tokens, and how far they are computed."""

from __future__ import annotations

from collections.abc import Sequence

from infcalc.kvcache.chain import chained
from infcalc.kvcache.invariant import holds
from infcalc.kvcache.misuse import Misuse


class BlockTable:
    """Token ``i`` of the sequence lies in ``block_ids[i // block_tokens]`` at ``i % block_tokens``.

    ``num_tokens`` have room; ``num_committed`` of them, the first ones, are computed. The first ``num_behind`` blocks
    are out of the window and given back: the null block stands in their place.
    """

    __slots__ = ("_chain", "_open", "block_ids", "block_tokens", "num_behind", "num_committed", "num_tokens")

    def __init__(self, block_tokens: int, chain: bytes, block_ids: list[int], num_hit_tokens: int = 0) -> None:
        self.block_tokens = block_tokens
        self.block_ids = block_ids
        self.num_tokens = self.num_committed = num_hit_tokens
        self.num_behind = 0
        self._chain = chain
        # Tokens of the block that is not full yet: a hash needs them all.
        self._open: list[int] = []

    @property
    def room_tokens(self) -> int:
        """Tokens that the blocks hold when full."""
        return len(self.block_ids) * self.block_tokens

    def place(self, index: int) -> tuple[int, int]:
        """Return block and offset of token ``index``.

        Raises:
            IndexError: it has no room.

        >>> BlockTable(16, b"", [7, 3]).place(17)
        (3, 1)

        """
        if not 0 <= index < self.room_tokens:
            raise IndexError(f"token {index}: the table has room for {self.room_tokens}")
        block, offset = divmod(index, self.block_tokens)
        return self.block_ids[block], offset

    def count_committed(self, num_tokens: int) -> None:
        """Move the line of computed tokens onward.

        Raises:
            Misuse: beyond the room.

        """
        if self.num_committed + num_tokens > self.num_tokens:
            raise Misuse(
                f"{num_tokens} tokens computed after {self.num_committed}: there was room for {self.num_tokens} in all"
            )
        self.num_committed += num_tokens

    def completed(self, tokens: Sequence[int]) -> list[tuple[int, bytes]]:
        """Take newly committed tokens in; return index and hash of each block that they make full."""
        size = self.block_tokens
        self._open.extend(tokens)
        if len(self._open) < size:
            return []
        first = (self.num_committed - len(self._open)) // size
        full = len(self._open) // size
        found = []
        for index in range(full):
            self._chain = chained(self._chain, self._open[index * size : (index + 1) * size])
            found.append((first + index, self._chain))
        del self._open[: full * size]
        return found

    def forked(self) -> BlockTable:
        """Return a table of its own over the same blocks.

        Raises:
            Misuse: tokens are on their way: they would be written into a block that is shared by then.

        """
        if self.num_tokens > self.num_committed:
            raise Misuse(f"forked with {self.num_tokens - self.num_committed} tokens on their way")
        child = BlockTable(
            self.block_tokens, self._chain, self.block_ids[: -(-self.num_committed // self.block_tokens)]
        )
        child.num_tokens = child.num_committed = self.num_committed
        child.num_behind = self.num_behind
        child._open = self._open.copy()
        return child

    def check_invariants(self, *, hashed: bool) -> None:
        """Raise AssertionError unless the lines are in order; ``hashed``: the open block's tokens are kept."""
        holds(0 <= self.num_committed <= self.num_tokens <= self.room_tokens, "committed, then room, then blocks")
        if hashed:
            holds(len(self._open) == self.num_committed % self.block_tokens, "the open block's tokens are known")
