"""A roofline drawn with characters: intensity to the right, attainable rate upwards, both logarithmic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.units import format_si

if TYPE_CHECKING:
    from infcalc.api.bounds import RooflineResult
    from infcalc.roofline.crossover import Crossover

_WIDTH = 60
_HEIGHT = 12
LOWEST_FLOP_PER_BYTE, HIGHEST_FLOP_PER_BYTE = 0.25, 16384.0
"""Ends of the intensity axis of every drawing of a roofline."""
_LEFT, _RIGHT = LOWEST_FLOP_PER_BYTE, HIGHEST_FLOP_PER_BYTE
_SHOWN_PRECISION = "bf16"


def roofline_chart(result: RooflineResult) -> str:
    """Return the drawing for the first GPU: the roof, ``d`` for decode, ``p`` for prefill (``*`` where both meet)."""
    roof = roof_of(result, result.points[0].gpu) if result.points else None
    if roof is None:
        return ""
    points = [point for point in result.points if point.gpu == roof.gpu and point.attention_io == "flash"]
    top = roof.peak_flop_per_s
    bottom = roof.bandwidth_bytes_per_s * _LEFT
    grid = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    for column in range(_WIDTH):
        intensity = _LEFT * (_RIGHT / _LEFT) ** (column / (_WIDTH - 1))
        attainable = min(top, roof.bandwidth_bytes_per_s * intensity)
        grid[_row(attainable, bottom, top)][column] = "_" if attainable == top else "/"
    for point in points:
        row, column = _row(min(point.flop_per_s, top), bottom, top), _column(point.flop_per_byte)
        mark = point.phase[0]
        grid[row][column] = mark if grid[row][column] in {" ", "_", "/", mark} else "*"
    edge = _column(roof.crossover_flop_per_byte)
    ticks = [" "] * _WIDTH
    for value in (1, 10, 100, 1000):
        ticks[_column(value) : _column(value) + len(str(value))] = str(value)
    labels = {0: format_si(top, "FLOP/s"), _HEIGHT - 1: format_si(bottom, "FLOP/s")}
    lines = [f"{labels.get(number, ''):>14} |{''.join(row).rstrip()}" for number, row in enumerate(grid)]
    axis = ["-"] * _WIDTH
    axis[edge] = "^"
    lines += [
        f"{'':14} +{''.join(axis)}",
        f"{'':15} {''.join(ticks).rstrip()}  FLOP/B",
        f"{'':15} ^ crossover {roof.crossover_flop_per_byte:.0f} FLOP/B of {roof.gpu} in {roof.precision}",
        f"{'':15} d decode, p prefill, * both",
    ]
    return "\n".join(lines)


def roof_of(result: RooflineResult, gpu: str) -> Crossover | None:
    """Return the roof that is drawn for ``gpu``: the highest that its points compute under; None without any.

    Without points it is that of bf16, else of the GPU's first precision.
    """
    mine = [one for one in result.gpus if one.gpu == gpu]
    used = {point.precision for point in result.points if point.gpu == gpu} or {_SHOWN_PRECISION}
    under = [one for one in mine if one.precision in used] or mine[:1]
    return max(under, key=lambda one: one.peak_flop_per_s, default=None)


def _row(value: float, bottom: float, top: float) -> int:
    share = math.log(max(value, bottom) / bottom) / math.log(top / bottom)
    return min(_HEIGHT - 1, max(0, round((1 - share) * (_HEIGHT - 1))))


def _column(intensity: float) -> int:
    share = math.log(min(max(intensity, _LEFT), _RIGHT) / _LEFT) / math.log(_RIGHT / _LEFT)
    return round(share * (_WIDTH - 1))
