"""Step times of one lane of a server on a grid, read off by interpolation: the clock is asked for few.

A lane is what takes steps on its own: an attention-DP rank, or one of the micro-batches that fill a pipeline.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Protocol

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray


class Clock(Protocol):
    """What prices a step: arguments may be arrays that broadcast; the answer is in seconds."""

    def step_s(
        self,
        *,
        num_decodes: Any,  # noqa: ANN401 - a number or an array
        context_tokens: Any,  # noqa: ANN401
        num_prefills: Any = 0,  # noqa: ANN401
        new_tokens: Any = 0,  # noqa: ANN401
        cached_tokens: Any = 0,  # noqa: ANN401
        decode_new_tokens: Any = 1,  # noqa: ANN401
        busy_dp_ranks: Any = None,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Return the seconds of one step; ``busy_dp_ranks`` of the lanes that share experts have such a step."""


@frozen
class Prompts:
    """What prompts bring to a step, beside tokens: ``prompt_tokens`` new after ``cached_tokens`` that were found."""

    prompt_tokens: float
    cached_tokens: float

    def step(self, new_tokens: float) -> tuple[float, float, float]:
        """Return the prompts of a step with so many new tokens, the new tokens of each, and what lies before them.

        Fewer new tokens than a prompt are a chunk from its middle, more are several prompts at once.
        """
        if new_tokens <= 0:
            return 0.0, 0.0, 0.0
        each = min(new_tokens, self.prompt_tokens)
        number = max(new_tokens / max(self.prompt_tokens, 1e-9), 1.0)
        return number, each, self.cached_tokens + (self.prompt_tokens - each) / 2


@frozen
class Busy:
    """How many of the lanes that step together decode, and how many compute prompts: experts meet the tokens of all."""

    num_decoding: float
    num_prefilling: float

    def ranks(self, num_decodes: float, new_tokens: float) -> float:
        """Return the lanes that would bring as many tokens to the experts if all of them had this step."""
        tokens = num_decodes + new_tokens
        return (self.num_decoding * num_decodes + self.num_prefilling * new_tokens) / tokens if tokens else 1.0


class StepTimes:
    """Seconds of a step by decoding sequences, tokens in the cache of each, and prompt tokens that ride along.

    Points of the grid are priced when they are first read, one by one.
    """

    __slots__ = ("_busy", "_clock", "_lone", "_prompts", "_seconds", "context_tokens", "new_tokens", "num_decodes")

    def __init__(
        self,
        clock: Clock,
        prompts: Prompts,
        *,
        num_decodes: Sequence[float],
        context_tokens: Sequence[float],
        new_tokens: Sequence[float],
        busy: Busy | None = None,
        lone: StepTimes | None = None,
    ) -> None:
        self._clock, self._prompts = clock, prompts
        self.num_decodes, self.context_tokens, self.new_tokens = num_decodes, context_tokens, new_tokens
        self._busy, self._lone = busy, lone
        self._seconds: dict[tuple[int, int, int], float] = {}

    @property
    def lone(self) -> StepTimes:
        """Step times where only one of the lanes that step together computes a prompt."""
        return self._lone or self

    def at(self, num_decodes: float, context_tokens: float, new_tokens: float = 0.0) -> float:
        """Return the seconds of a step, linear between the points of the grid."""
        d, p = _place(self.num_decodes, num_decodes)
        # Without anything in decode there is no context.
        c, q = _place(self.context_tokens, context_tokens) if num_decodes else (0, 0.0)
        n, r = _place(self.new_tokens, new_tokens)
        found = self._along(d, c, n, q, r)
        return found if not p else found + p * (self._along(d + 1, c, n, q, r) - found)

    def _along(self, decodes: int, context: int, new: int, q: float, r: float) -> float:
        point = self._point
        found = point(decodes, context, new)
        if r:
            found += r * (point(decodes, context, new + 1) - found)
        if not q:
            return found
        other = point(decodes, context + 1, new)
        if r:
            other += r * (point(decodes, context + 1, new + 1) - other)
        return found + q * (other - found)

    def _point(self, decodes: int, context: int, new: int) -> float:
        key = (decodes, context, new)
        found = self._seconds.get(key)
        if found is None:
            number, each, before = self._prompts.step(self.new_tokens[new])
            step = {
                "num_decodes": self.num_decodes[decodes],
                "context_tokens": self.context_tokens[context],
                "num_prefills": number,
                "new_tokens": each,
                "cached_tokens": before,
            }
            if self._busy is not None:
                step["busy_dp_ranks"] = self._busy.ranks(step["num_decodes"], self.new_tokens[new])
            found = self._seconds[key] = float(self._clock.step_s(**step))
        return found

    def decodes_s(self, num_decodes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the seconds of decode steps alone, priced in one call: a row for each, a column for each context."""
        import numpy as np  # noqa: PLC0415 - whoever hands in arrays has loaded it

        contexts = np.array(self.context_tokens)
        seconds = self._clock.step_s(num_decodes=num_decodes[:, None], context_tokens=contexts[None, :])
        return np.broadcast_to(seconds, (len(num_decodes), len(contexts)))


def _place(grid: Sequence[float], value: float) -> tuple[int, float]:
    if value <= grid[0]:
        return 0, 0.0
    if value >= grid[-1]:
        # Beyond the grid the last slope goes on.
        last = len(grid) - 1
        return (
            (last, 0.0)
            if last == 0 or value == grid[-1]
            else (
                last - 1,
                (value - grid[-2]) / (grid[-1] - grid[-2]),
            )
        )
    low = bisect_right(grid, value) - 1
    return low, (value - grid[low]) / (grid[low + 1] - grid[low])


def step_times(
    clock: Clock,
    *,
    most_decodes: float,
    least_context_tokens: float,
    most_context_tokens: float,
    prompt_tokens: float,
    cached_tokens: float,
    budget_tokens: float,
    num_locked: int = 1,
    num_decoding: float = math.inf,
    lone_clock: Clock | None = None,
) -> StepTimes:
    """Return the step times of a load: up to ``most_decodes`` sequences, and up to ``budget_tokens`` in a step.

    A prompt brings ``prompt_tokens`` new tokens after ``cached_tokens`` that are found in the prefix cache. Of
    ``num_locked`` lanes that step together, ``num_decoding`` have anything in decode. ``lone_clock`` prices steps in
    which only one lane computes a prompt, where that is not only a matter of experts.
    """
    decodes = [0.0, 1.0]
    while decodes[-1] < most_decodes:
        decodes.append(min(max(decodes[-1] + 1, round(decodes[-1] * _DECODE_RATIO)), max(most_decodes, 2.0)))
    width = max(1.0, most_context_tokens - least_context_tokens)
    most_new = max(budget_tokens, 1.0)
    marks = {0.0, most_new, min(prompt_tokens, most_new), *(mark for mark in _NEW_TOKENS if mark < most_new)}
    contexts = (least_context_tokens, least_context_tokens + width / 2, least_context_tokens + width)
    prompts, new_tokens = Prompts(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens), sorted(marks)

    def grid(busy: Busy | None, lone: StepTimes | None = None, own: Clock | None = None) -> StepTimes:
        return StepTimes(
            own or clock,
            prompts,
            num_decodes=decodes,
            context_tokens=contexts,
            new_tokens=new_tokens,
            busy=busy,
            lone=lone,
        )

    if num_locked == 1:
        return grid(None, None if lone_clock is None else grid(None, None, lone_clock))
    decoding = min(num_decoding, float(num_locked))
    lone = grid(Busy(num_decoding=decoding, num_prefilling=1.0), None, lone_clock)
    return grid(Busy(num_decoding=decoding, num_prefilling=float(num_locked)), lone)


_DECODE_RATIO = 1.5
_NEW_TOKENS = (16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
