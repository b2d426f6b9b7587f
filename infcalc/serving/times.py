"""Step times of one lane of a server on a grid, read off by interpolation: the clock is asked once for a load.

A lane is what takes steps on its own: an attention-DP rank, or one of the micro-batches that fill a pipeline.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Protocol

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence


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
    ) -> Any:  # noqa: ANN401
        """Return the seconds of one step."""


@frozen
class StepTimes:
    """Seconds of a step by decoding sequences, tokens in the cache of each, and prompt tokens that ride along."""

    num_decodes: tuple[float, ...]
    context_tokens: tuple[float, ...]
    new_tokens: tuple[float, ...]
    seconds_s: tuple[tuple[tuple[float, ...], ...], ...]

    def at(self, num_decodes: float, context_tokens: float, new_tokens: float = 0.0) -> float:
        """Return the seconds of a step, linear between the points of the grid."""
        d, p = _place(self.num_decodes, num_decodes)
        c, q = _place(self.context_tokens, context_tokens)
        n, r = _place(self.new_tokens, new_tokens)
        total = 0.0
        for i, wi in ((d, 1 - p), (d + 1, p)):
            if wi:
                for j, wj in ((c, 1 - q), (c + 1, q)):
                    if wj:
                        row = self.seconds_s[i][j]
                        total += wi * wj * (row[n] if not r else row[n] * (1 - r) + row[n + 1] * r)
        return total


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
) -> StepTimes:
    """Return the step times of a load: up to ``most_decodes`` sequences, and up to ``budget_tokens`` in a step.

    A prompt brings ``prompt_tokens`` new tokens after ``cached_tokens`` that are found in the prefix cache. Fewer new
    tokens than that are a chunk from its middle, more are several prompts at once.
    """
    import numpy as np  # noqa: PLC0415 - only where a clock runs

    decodes = [0.0, 1.0]
    while decodes[-1] < most_decodes:
        decodes.append(min(max(decodes[-1] + 1, round(decodes[-1] * _DECODE_RATIO)), max(most_decodes, 2.0)))
    width = max(1.0, most_context_tokens - least_context_tokens)
    contexts = [least_context_tokens, least_context_tokens + width / 2, least_context_tokens + width]
    most_new = max(budget_tokens, 1.0)
    marks = {0.0, most_new, min(prompt_tokens, most_new), *(mark for mark in _NEW_TOKENS if mark < most_new)}
    new = sorted(marks)
    count = np.array(new)
    prompts = np.maximum(count / max(prompt_tokens, 1e-9), (count > 0).astype(float))
    each = np.minimum(count, prompt_tokens)
    before = cached_tokens + (prompt_tokens - each) / 2
    seconds = clock.step_s(
        num_decodes=np.array(decodes)[:, None, None],
        context_tokens=np.array(contexts)[None, :, None],
        num_prefills=prompts[None, None, :],
        new_tokens=each[None, None, :],
        cached_tokens=np.where(count > 0, before, 0.0)[None, None, :],
    )
    full = np.broadcast_to(seconds, (len(decodes), len(contexts), len(new)))
    return StepTimes(
        num_decodes=tuple(decodes),
        context_tokens=tuple(contexts),
        new_tokens=tuple(new),
        seconds_s=tuple(tuple(tuple(row) for row in plane) for plane in full.tolist()),
    )


_DECODE_RATIO = 1.5
_NEW_TOKENS = (16.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0)
