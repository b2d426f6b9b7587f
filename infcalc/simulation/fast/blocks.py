"""Blocks of a KV cache as mere counts: which block it is makes no difference to anybody."""

from __future__ import annotations

from infcalc.simulation.fast.flight import Flight


class CountedBlocks:
    """A manager without a prefix cache: nothing is ever found, so that only numbers count."""

    __slots__ = ("block_tokens", "num_blocks", "num_evictions", "num_free")

    finds = False
    """Whether anything can be found."""

    def __init__(self, num_blocks: int, block_tokens: int) -> None:
        self.num_blocks = self.num_free = num_blocks
        self.block_tokens = block_tokens
        self.num_evictions = 0

    @property
    def num_open(self) -> int:
        """Flights whose answers become findable while they decode."""
        return 0

    def take(self, num_blocks: int) -> None:
        """Hand out blocks, of which as many are free."""
        self.num_free -= num_blocks

    def match(self, flight: Flight, num_tokens: int, num_steps: int) -> tuple[int, int]:
        """Return the blocks that are found of the first tokens, and how many of them nobody holds."""
        del flight, num_tokens, num_steps
        return 0, 0

    def admit(self, flight: Flight, num_hit_blocks: int, num_blocks: int) -> None:
        """Give ``num_blocks`` to a flight, the found ones included."""
        del flight, num_hit_blocks
        self.num_free -= num_blocks

    def commit(self, flight: Flight, before_tokens: int, num_steps: int) -> None:
        """State that a chunk is computed, so that ``cached_tokens`` are; ``num_steps`` ended before this one."""

    def open(self, flight: Flight) -> None:
        """State that a flight begins to decode."""

    def close(self, flight: Flight, num_steps: int) -> None:
        """State that an open flight decodes no more."""

    def release(self, flight: Flight, committed_tokens: int, num_held: int, *, again: bool) -> None:
        """Take all blocks back; ``again``: it will look for them."""
        del flight, committed_tokens, again
        self.num_free += num_held
