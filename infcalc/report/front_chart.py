"""The front of plans drawn with characters: cost to the right, the time of a request upwards, both logarithmic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.plan_nouns import FrontPoint

_HEIGHT = 10
_LEFT = 10
_RIGHT = 2


def front_chart(points: Sequence[FrontPoint], width: int) -> str:
    """Return the drawing of the plans that no other beats, numbered from the cheapest; empty for fewer than two."""
    if len(points) < 2:  # noqa: PLR2004 - one point is no curve
        return ""
    import textwrap  # noqa: PLC0415 - start-up

    room = max(20, width - _LEFT - _RIGHT - 2)
    costs, times = [point.usd_per_month for point in points], [point.e2e_s for point in points]
    grid = [[" "] * room for _ in range(_HEIGHT)]
    for number, point in enumerate(points, start=1):
        column = _place(point.usd_per_month, min(costs), max(costs), room)
        row = _HEIGHT - 1 - _place(point.e2e_s, min(times), max(times), _HEIGHT)
        mark = str(number) if number <= 9 else "*"  # noqa: PLR2004 - one digit
        grid[row][column] = mark
    labels = {0: format_seconds(max(times)), _HEIGHT - 1: format_seconds(min(times))}
    lines = textwrap.wrap("Time of a request against cost (plans that none beats in both)", width)
    lines += [f"{labels.get(row, ''):>{_LEFT}} |{''.join(cells).rstrip()}" for row, cells in enumerate(grid)]
    lines.append(f"{'':>{_LEFT}} +{'-' * room}")
    low, high = f"{min(costs):,.0f}", f"{max(costs):,.0f} USD a month"
    lines.append(f"{'':>{_LEFT}}  {low}{high:>{max(1, room - len(low))}}")
    for number, point in enumerate(points[:9], start=1):
        many = f"{point.replicas} x " if point.replicas > 1 else ""
        each = point.total_gpus // point.replicas
        lines.append(
            f"{'':>{_LEFT}}  {number} {many}{each} x {point.gpu} ({', '.join(split_of(point))}): "
            f"{point.usd_per_month:,.0f} USD a month, {format_seconds(point.e2e_s)}"
        )
    if len(points) > 9:  # noqa: PLR2004 - one digit
        lines.append(f"{'':>{_LEFT}}  * {len(points) - 9} more; --json has all")
    return "\n".join(lines)


def split_of(point: FrontPoint) -> list[str]:
    """Return how the GPUs of a replica share the work, and how it drafts."""
    found = [f"TP {point.tp}"] + ([f"PP {point.pp}"] if point.pp > 1 else [])
    return found + ([f"{point.method} {point.num_draft_tokens}"] if point.method is not None else [])


def _place(value: float, low: float, high: float, cells: int) -> int:
    if high <= low:
        return 0
    return min(cells - 1, max(0, round(math.log(value / low) / math.log(high / low) * (cells - 1))))
