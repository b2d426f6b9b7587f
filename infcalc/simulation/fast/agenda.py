"""What is known of the steps to come: sums over all who decode, so that no step asks each of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from infcalc.simulation.fast.drawn import DrawnRounds

Ints: TypeAlias = NDArray[np.int64]
_LEAST = 4096


class Agenda:
    """By step: tokens that the rounds add to the cache, blocks that they take, and tokens that they leave uncomputed.

    Rounds differ from one another, so that neither a slope nor a histogram of remainders says what they need; but all
    that a flight will do is drawn when it begins to decode, and is added here in one go. A step then reads one number.
    """

    __slots__ = ("_base", "blocks", "growth", "spared")

    def __init__(self) -> None:
        self._base = 0
        """The step of the first entry."""
        self.growth: Ints = np.zeros(_LEAST, dtype=np.int64)
        self.blocks: Ints = np.zeros(_LEAST, dtype=np.int64)
        self.spared: Ints = np.zeros(_LEAST, dtype=np.int64)
        """Tokens of a whole round that the longest sequence has no room for."""

    def place(self, step: int) -> int:
        """Return the entry of a step, present or to come."""
        return step - self._base

    def add(self, step: int, rounds: DrawnRounds, num_held_blocks: int, spared: Ints | None) -> None:
        """Enter rounds that begin at ``step``, of a flight that holds so many blocks by then."""
        count = len(rounds)
        if not count:
            return
        start = step - self._base
        if start + count > len(self.growth):
            start = self._moved(step, count)
        end = start + count
        self.growth[start:end] += rounds.kept_tokens
        held = rounds.held_blocks
        self.blocks[start:end] += held
        self.blocks[start + 1 : end] -= held[:-1]
        self.blocks[start] -= num_held_blocks
        if spared is not None:
            self.spared[start:end] += spared

    def strike(self, step: int, rounds: DrawnRounds, done: int, num_held_blocks: int, spared: Ints | None) -> None:
        """Take out the rounds from ``step`` on, of which ``done`` lie before; so many blocks are held by then."""
        count = len(rounds) - done
        if not count:
            return
        start = step - self._base
        end = start + count
        self.growth[start:end] -= rounds.kept_tokens[done:]
        held = rounds.held_blocks[done:]
        self.blocks[start:end] -= held
        self.blocks[start + 1 : end] += held[:-1]
        self.blocks[start] += num_held_blocks
        if spared is not None:
            self.spared[start:end] -= spared[done:]

    def _moved(self, step: int, count: int) -> int:
        """Forget the steps before ``step``, make room for ``count`` from it on, and return its place: 0."""
        start = step - self._base
        left = len(self.growth) - start
        size = max(_LEAST, 2 * max(left, count))
        for name in ("growth", "blocks", "spared"):
            fresh = np.zeros(size, dtype=np.int64)
            fresh[:left] = getattr(self, name)[start:]
            setattr(self, name, fresh)
        self._base = step
        return 0
