"""Prices of steps at marks, one by one or by the block: an array of steps costs hardly more than twenty of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Floats: TypeAlias = NDArray[np.float64]

CONTEXT_BITS, LEAST_CONTEXT_BITS = 3, 4
"""Marks of the mean context: 8 per octave, and none closer than 16 tokens."""
PROMPT_BITS = 2
"""Marks of prompt tokens: 4 per octave, every number below 8."""
REFERENCE_TOKENS = 1024
"""Context of the decodes that prompts are priced beside: what prompts add does not depend on it."""
_DECODES_AT_ONCE = 32
_PROMPT_OCTAVES = 4
"""Octaves of prompt tokens that are priced at once; of contexts it is one."""


class StepSeconds(Protocol):
    """What prices steps in which all decodes are alike and all chunks of prompts are alike: means, where they vary."""

    def __call__(
        self,
        *,
        num_decodes: float | Floats,
        context_tokens: float | Floats,
        num_prefills: float,
        new_tokens: float | Floats,
        cached_tokens: float,
    ) -> float | Floats:
        """Return the seconds of one step; an array of them where an argument is one, as all arguments broadcast."""


class Prices:
    """The seconds of steps at marks; with ``in_blocks`` neighbours are priced along, which takes numpy.

    Each mark is in one block only, so that what was asked before changes nothing.
    """

    __slots__ = ("_decodes", "_in_blocks", "_others", "_prompts", "_seconds")

    def __init__(self, seconds: StepSeconds, *, in_blocks: bool) -> None:
        self._seconds = seconds
        self._in_blocks = in_blocks
        self._decodes: dict[tuple[int, int], float] = {}
        self._prompts: dict[tuple[int, int], float] = {}
        self._others: dict[tuple[int, float, int], float] = {}

    def decode_s(self, num_decodes: int, context_tokens: int) -> float:
        """Return the price of decodes at a mark of their context, or one token before the next mark."""
        key = (num_decodes, context_tokens)
        if key not in self._decodes:
            if self._in_blocks:
                self._price_block(self._decodes, num_decodes, _contexts_around(context_tokens), num_prefills=0)
            else:
                self._decodes[key] = self._one_s(num_decodes, context_tokens, 0, 0, 0)
        return self._decodes[key]

    def prompt_s(self, num_decodes: int, new_tokens: int) -> float:
        """Return the price of one whole prompt, of a mark's tokens, beside decodes of the reference context."""
        key = (num_decodes, new_tokens)
        if key not in self._prompts:
            if self._in_blocks:
                self._price_block(self._prompts, num_decodes, _prompts_around(new_tokens), num_prefills=1)
            else:
                context = REFERENCE_TOKENS if num_decodes else 0
                self._prompts[key] = self._one_s(num_decodes, context, 1, new_tokens, 0)
        return self._prompts[key]

    def alone_s(self, num_prefills: int, new_tokens: float, cached_tokens: int) -> float:
        """Return the price of equal chunks of prompts without decodes."""
        key = (num_prefills, new_tokens, cached_tokens)
        found = self._others.get(key)
        if found is None:
            found = self._others[key] = self._one_s(0, 0, num_prefills, new_tokens, cached_tokens)
        return found

    def _one_s(
        self, num_decodes: int, context_tokens: int, num_prefills: int, new_tokens: float, cached_tokens: int
    ) -> float:
        return float(
            self._seconds(
                num_decodes=num_decodes,
                context_tokens=context_tokens,
                num_prefills=num_prefills,
                new_tokens=new_tokens,
                cached_tokens=cached_tokens,
            )
        )

    def _price_block(
        self, table: dict[tuple[int, int], float], num_decodes: int, points: Sequence[int], *, num_prefills: int
    ) -> None:
        """Price all ``points`` for several numbers of decodes: contexts, or prompts where there are prefills."""
        import numpy as np  # noqa: PLC0415 - who prices one by one needs none

        first = num_decodes - num_decodes % _DECODES_AT_ONCE
        numbers = range(first, first + _DECODES_AT_ONCE)
        column, row = np.array(numbers, dtype=float)[:, np.newaxis], np.array(points, dtype=float)
        seconds = self._seconds(
            num_decodes=column,
            context_tokens=np.where(column > 0, REFERENCE_TOKENS, 0.0) if num_prefills else row,
            num_prefills=num_prefills,
            new_tokens=row if num_prefills else 0,
            cached_tokens=0,
        )
        keys = [(number, point) for number in numbers for point in points]
        prices = np.broadcast_to(seconds, (len(numbers), len(points)))
        table.update(zip(keys, prices.ravel().tolist(), strict=True))


def marks(tokens: int, bits: int, least_bits: int) -> tuple[int, int]:
    """Return the marks around ``tokens``: ``2**bits`` to an octave, and at least ``2**least_bits`` apart.

    >>> marks(1000, 3, 4), marks(5, 3, 4), marks(1024, 3, 4)
    ((960, 1024), (0, 16), (1024, 1152))
    """
    shift = max(least_bits, tokens.bit_length() - bits - 1)
    low = tokens >> shift
    return low << shift, (low + 1) << shift


def marks_from(first: int, end: int, bits: int, least_bits: int) -> list[int]:
    """Return all marks from one on, up to ``end`` without it.

    >>> marks_from(16, 32, 2, 0)
    [16, 20, 24, 28]
    """
    found = []
    while first < end:
        found.append(first)
        first = marks(first, bits, least_bits)[1]
    return found


def _contexts_around(context_tokens: int) -> list[int]:
    """Return the marks of an octave, and the last whole token below each next one.

    That token, not the mark, ends a line: a chunked mask forgets everything at the mark.
    """
    octave = max(context_tokens.bit_length(), LEAST_CONTEXT_BITS)
    first, end = (0 if octave == LEAST_CONTEXT_BITS else 1 << octave - 1), 1 << octave
    lows = marks_from(first, end, CONTEXT_BITS, LEAST_CONTEXT_BITS)
    return sorted([*lows, *(mark - 1 for mark in (*lows[1:], end))])


def _prompts_around(new_tokens: int) -> list[int]:
    """Return the marks of some octaves."""
    group = new_tokens.bit_length() // _PROMPT_OCTAVES
    first, end = (1 << max(0, _PROMPT_OCTAVES * one - 1) for one in (group, group + 1))
    return marks_from(first, end, PROMPT_BITS, 0)
