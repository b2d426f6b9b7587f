"""Times of steps in whole picoseconds, affine in the total context of those who decode.

Whoever prices steps is asked for few: one line stands for all contexts between two marks, and prompts are added on top,
read off between marks of their own. A run of steps in which only the context grows then has a time in closed form, to
the picosecond, and no step costs more than a few lookups.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill
from infcalc.simulation.prices import (
    CONTEXT_BITS,
    LEAST_CONTEXT_BITS,
    PROMPT_BITS,
    REFERENCE_TOKENS,
    Prices,
    StepSeconds,
    marks,
)

_ENDLESS_TOKENS = 2**60


@frozen
class Line:
    """The time of a step without prompts, for one number of decodes and a range of their contexts in all."""

    first_tokens: int
    last_tokens: int
    """Both ends belong to it."""
    base_ps: int
    ps_per_token: int

    def at(self, total_tokens: int) -> int:
        """Return the picoseconds at one total context.

        >>> Line(first_tokens=0, last_tokens=99, base_ps=1000, ps_per_token=3).at(10)
        1030
        """
        return self.base_ps + self.ps_per_token * total_tokens


class AffineTimer(Protocol):
    """A :data:`~infcalc.simulation.batch_shape.Timer` that says how its time grows with the total context.

    A step takes ``line(...).at(...)`` of its decodes, 0 without any, plus ``chunks_ps`` of its prompts, if it has any.
    """

    def __call__(self, shape: BatchShape) -> int:
        """Return the picoseconds of a step."""

    def line(self, num_decodes: int, total_tokens: int) -> Line:
        """Return the line of ``num_decodes``, one at least, that holds at a total context of ``total_tokens``."""

    def chunks_ps(self, num_decodes: int, chunks: Sequence[tuple[int, int]]) -> int:
        """Return what chunks of prompts, as new and cached tokens, add to a step with ``num_decodes``."""


class SteadyTimer:
    """An :data:`AffineTimer` for which every step takes the same time.

    >>> SteadyTimer(5)(BatchShape(num_decodes=8, decode_context_tokens=4096))
    5
    """

    __slots__ = ("_line", "_step_ps")

    def __init__(self, step_ps: int = PS_PER_S) -> None:
        self._step_ps = step_ps
        self._line = Line(first_tokens=0, last_tokens=_ENDLESS_TOKENS, base_ps=step_ps, ps_per_token=0)

    def __call__(self, shape: BatchShape) -> int:
        """Return the picoseconds of a step."""
        del shape
        return self._step_ps

    def line(self, num_decodes: int, total_tokens: int) -> Line:
        """Return the one line there is."""
        del num_decodes, total_tokens
        return self._line

    def chunks_ps(self, num_decodes: int, chunks: Sequence[tuple[int, int]]) -> int:
        """Return the time of a step that has no decodes; beside decodes prompts cost nothing more."""
        del chunks
        return 0 if num_decodes else self._step_ps


_NOBODY = Line(first_tokens=0, last_tokens=0, base_ps=0, ps_per_token=0)


class StepTimer:
    """A :data:`~infcalc.simulation.batch_shape.Timer` made of lines, from ``seconds`` of a few steps.

    The time of a step is ``line(...).at(...)`` of its decodes plus ``prefill_ps`` of its prompts. Several chunks take
    what as many equal ones of the same tokens do, and more where being unequal gives them more pairs of query and key;
    each adds what its own cached tokens take. ``in_blocks``: neighbours are priced along, for runs of many requests;
    ``seconds`` then takes arrays.
    """

    __slots__ = ("_cached", "_divisions", "_lines", "_prices", "_prompts")

    def __init__(self, seconds: StepSeconds, *, in_blocks: bool = False) -> None:
        self._prices = Prices(seconds, in_blocks=in_blocks)
        self._lines: dict[tuple[int, int], Line] = {}
        self._prompts: dict[tuple[int, int, int], Line] = {}
        self._divisions: dict[tuple[int, int], tuple[float, float, float, float]] = {}
        self._cached: dict[tuple[int, int, int, int], tuple[float, float, float, float]] = {}

    def __call__(self, shape: BatchShape) -> int:
        """Return the picoseconds of a step."""
        time_ps = self.line(shape.num_decodes, shape.decode_context_tokens).at(shape.decode_context_tokens)
        return time_ps + self.prefill_ps(shape.num_decodes, shape.prefills) if shape.prefills else time_ps

    def line(self, num_decodes: int, total_tokens: int) -> Line:
        """Return the line of ``num_decodes`` that holds at a total context of ``total_tokens``."""
        if not num_decodes:
            return _NOBODY
        low, high = marks(total_tokens // num_decodes, CONTEXT_BITS, LEAST_CONTEXT_BITS)
        key = (num_decodes, low)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = self._line(num_decodes, low, high)
        return found

    def _line(self, num_decodes: int, low: int, high: int) -> Line:
        first_ps, last_ps = (round(self._prices.decode_s(num_decodes, tokens) * PS_PER_S) for tokens in (low, high - 1))
        first_tokens = num_decodes * low
        ps_per_token = round((last_ps - first_ps) / (num_decodes * (high - 1 - low)))
        return Line(
            first_tokens=first_tokens,
            last_tokens=num_decodes * high - 1,
            base_ps=first_ps - ps_per_token * first_tokens,
            ps_per_token=ps_per_token,
        )

    def prefill_ps(self, num_decodes: int, prefills: tuple[Prefill, ...]) -> int:
        """Return what the chunks of prompts add to a step with ``num_decodes``, in picoseconds."""
        return self.chunks_ps(num_decodes, [(one.new_tokens, one.cached_tokens) for one in prefills])

    def chunks_ps(self, num_decodes: int, chunks: Sequence[tuple[int, int]]) -> int:
        """Return the same of chunks as pairs of new and cached tokens."""
        if len(chunks) == 1:
            tokens, cached = chunks[0]
            more_s = self._after_s(tokens, cached) if cached else 0.0
        else:
            tokens = pairs = 0
            more_s = 0.0
            for new, cached in chunks:
                tokens += new
                pairs += new * (new + 1)
                if cached:
                    more_s += self._after_s(new, cached)
            number = len(chunks)
            divided_s, per_pair_s = self._division(number, tokens)
            more_s += divided_s + (pairs - tokens * (tokens / number + 1)) / 2 * per_pair_s
        shift = max(0, tokens.bit_length() - PROMPT_BITS - 1)
        line = self._prompts.get((num_decodes, shift, tokens >> shift)) or self._prompt_line(num_decodes, tokens)
        plain_ps = line.base_ps + line.ps_per_token * tokens
        return max(0, plain_ps + round(more_s * PS_PER_S)) if more_s else plain_ps

    def _prompt_line(self, num_decodes: int, new_tokens: int) -> Line:
        """Return what one whole prompt adds, between two marks."""
        low, high = marks(new_tokens, PROMPT_BITS, 0)
        first_ps, next_ps = (max(0, round(self._prompt_s(num_decodes, mark) * PS_PER_S)) for mark in (low, high))
        ps_per_token = round((next_ps - first_ps) / (high - low))
        line = Line(
            first_tokens=low, last_tokens=high - 1, base_ps=first_ps - ps_per_token * low, ps_per_token=ps_per_token
        )
        shift = (high - low).bit_length() - 1
        self._prompts[num_decodes, shift, low >> shift] = line
        return line

    def _prompt_s(self, num_decodes: int, new_tokens: int) -> float:
        plain = self._prices.decode_s(num_decodes, REFERENCE_TOKENS) if num_decodes else 0.0
        return self._prices.prompt_s(num_decodes, new_tokens) - plain

    def _division(self, num_prefills: int, new_tokens: int) -> tuple[float, float]:
        """Return what is added where equal chunks share the tokens of one, and what a pair of query and key takes."""
        low, high = marks(new_tokens, PROMPT_BITS, 0)
        key = (num_prefills, low)
        found = self._divisions.get(key)
        if found is None:
            found = self._divisions[key] = (*self._divided(num_prefills, low), *self._divided(num_prefills, high))
        low_s, low_pair_s, high_s, high_pair_s = found
        share = (new_tokens - low) / (high - low)
        return low_s + share * (high_s - low_s), low_pair_s + share * (high_pair_s - low_pair_s)

    def _divided(self, num_prefills: int, new_tokens: int) -> tuple[float, float]:
        one_s = self._prices.prompt_s(0, new_tokens)
        pair_s = (self._prices.alone_s(1, new_tokens, REFERENCE_TOKENS) - one_s) / (new_tokens * REFERENCE_TOKENS)
        return self._prices.alone_s(num_prefills, new_tokens / num_prefills, 0) - one_s, pair_s

    def _after_s(self, new_tokens: int, cached_tokens: int) -> float:
        """Return what ``cached_tokens`` before a chunk add to its time."""
        new_shift = max(0, new_tokens.bit_length() - PROMPT_BITS - 1)
        shift = max(LEAST_CONTEXT_BITS, cached_tokens.bit_length() - PROMPT_BITS - 1)
        key = (new_shift, new_tokens >> new_shift, shift, cached_tokens >> shift)
        found = self._cached.get(key)
        if found is None:
            new_marks = marks(new_tokens, PROMPT_BITS, 0)
            context_marks = marks(cached_tokens, PROMPT_BITS, LEAST_CONTEXT_BITS)
            corners = [self._mark_s(new, mark) for new in new_marks for mark in context_marks]
            found = self._cached[key] = (corners[0], corners[1], corners[2], corners[3])
        low_low, low_high, high_low, high_high = found
        new_share = new_tokens / (1 << new_shift) - key[1]
        share = cached_tokens / (1 << shift) - key[3]
        low = low_low + share * (low_high - low_low)
        return low + new_share * (high_low + share * (high_high - high_low) - low)

    def _mark_s(self, new_tokens: int, cached_tokens: int) -> float:
        return self._prices.alone_s(1, new_tokens, cached_tokens) - self._prices.prompt_s(0, new_tokens)
