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
_LEFT, _RIGHT = 0.25, 16384.0
_SHOWN_PRECISION = "bf16"


def roofline_chart(result: RooflineResult) -> str:
    """Return the drawing for the first GPU: the roof, ``d`` for decode, ``p`` for prefill (``*`` where both meet)."""
    roof = _roof(result)
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
        achieved = point.flop / point.time_s
        row, column = _row(min(achieved, top), bottom, top), _column(point.flop_per_byte)
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


def _roof(result: RooflineResult) -> Crossover | None:
    gpu = result.points[0].gpu if result.points else None
    mine = [one for one in result.gpus if one.gpu == gpu]
    return next((one for one in mine if one.precision == _SHOWN_PRECISION), mine[0] if mine else None)


def _row(value: float, bottom: float, top: float) -> int:
    share = math.log(max(value, bottom) / bottom) / math.log(top / bottom)
    return min(_HEIGHT - 1, max(0, round((1 - share) * (_HEIGHT - 1))))


def _column(intensity: float) -> int:
    share = math.log(min(max(intensity, _LEFT), _RIGHT) / _LEFT) / math.log(_RIGHT / _LEFT)
    return round(share * (_WIDTH - 1))
