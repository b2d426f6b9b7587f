"""Slots in use over time, drawn with characters: a line for each policy, on one axis of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.batching_policies import BatchingResult
    from infcalc.api.batching_runs import PolicyResult

_WIDTH = 96
_LEAST_WIDTH = 20
_MOST_DIGITS = 9


def slots_chart(result: BatchingResult, *, width: int = _WIDTH) -> str:
    """Return a line per policy: each column is a stretch of time, its digit the slots in use there on average.

    With more than 9 slots the digit counts tenths of them, and ``#`` is all. Where no step runs there is nothing.
    """
    longest_s = max((one.makespan_s for one in result.policies), default=0.0)
    if not longest_s:
        return ""
    names = max(len(one.policy) for one in result.policies)
    columns = max(_LEAST_WIDTH, min(width, _WIDTH) - names - 3)
    column_s = longest_s / columns
    few = result.num_slots <= _MOST_DIGITS
    unit = f"of {result.num_slots}" if few else "in tenths, # is all"
    span = f"{column_s:.3g} steps" if result.unit_steps else format_seconds(column_s)
    lines = [f"slots in use over time ({unit}; a column is {span})"]
    for one in result.policies:
        shares = _shares(one, columns, column_s)
        lines.append(f"{one.policy:<{names}} |{''.join(_digit(share, result.num_slots) for share in shares).rstrip()}")
    end = f"{longest_s:.0f} steps" if result.unit_steps else format_seconds(longest_s)
    lines.append(f"{'':{names}} +{'-' * columns}")
    lines.append(f"{'':{names}}  0{end:>{columns - 1}}")
    return "\n".join(lines)


def _digit(share: float | None, num_slots: int) -> str:
    if share is None:
        return " "
    whole = num_slots if num_slots <= _MOST_DIGITS else 10
    count = round(share * whole)
    return "#" if count > _MOST_DIGITS else str(count)


def _shares(one: PolicyResult, columns: int, column_s: float) -> list[float | None]:
    """Return the mean share of the slots in each column, over the time of its steps; None without any."""
    used = [0.0] * columns
    covered = [0.0] * columns
    for stretch in one.curve:
        first, last = (min(columns - 1, int(moment_s / column_s)) for moment_s in (stretch.start_s, stretch.end_s))
        for column in range(first, last + 1):
            inside_s = min(stretch.end_s, (column + 1) * column_s) - max(stretch.start_s, column * column_s)
            if inside_s > 0:
                used[column] += stretch.used_fraction * inside_s
                covered[column] += inside_s
    return [part / whole if whole else None for part, whole in zip(used, covered, strict=True)]
