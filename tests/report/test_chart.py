from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.api.bounds import RooflineResult, roofline
from infcalc.api.deployment import Ask
from infcalc.report.chart import roofline_chart
from infcalc.roofline.crossover import Crossover


@pytest.fixture(scope="module")
def result() -> RooflineResult:
    return roofline(Ask(gpus=("h100", "a100-80gb"))).result


def test_the_drawing_has_roof_points_and_crossover(result: RooflineResult) -> None:
    lines = roofline_chart(result).splitlines()
    assert "989 TFLOP/s" in lines[0]
    assert lines[0].rstrip().endswith("_")
    assert {"p", "d"} <= set("".join(lines[:12]))
    assert any("^ crossover 295 FLOP/B of h100-sxm5-80gb in bf16" in line for line in lines)
    assert all(len(line) < 100 for line in lines)


def test_the_roof_rises_and_then_stays(result: RooflineResult) -> None:
    lines = [
        line.split("|", 1)[1] for line in roofline_chart(replace(result, points=result.points[:1])).splitlines()[:12]
    ]
    height = {
        column: row
        for row, line in enumerate(lines)
        for column, mark in enumerate(line)
        if mark in {"/", "_", "p", "d"}
    }
    slope = [height[column] for column in sorted(height)]
    assert slope == sorted(slope, reverse=True)
    assert slope[0] == 11
    assert slope[-1] == 0


def test_the_crossover_stands_under_the_corner_of_the_roof(result: RooflineResult) -> None:
    lines = roofline_chart(result).splitlines()
    axis = next(line for line in lines if line.strip().startswith("+"))
    corner = lines[0].index("_") if "_" in lines[0] else lines[0].index("p")
    assert abs(axis.index("^") - corner) <= 2


def test_nothing_to_draw_is_nothing_drawn() -> None:
    assert roofline_chart(RooflineResult(context_tokens=1, gpus=(), points=())) == ""


def test_a_gpu_without_bf16_is_drawn_in_its_first_precision(result: RooflineResult) -> None:
    only = Crossover(
        gpu="h100-sxm5-80gb",
        precision="fp16",
        peak_flop_per_s=1e12,
        bandwidth_bytes_per_s=1e11,
        crossover_flop_per_byte=10,
    )
    assert "in fp16" in roofline_chart(replace(result, gpus=(only,)))


@pytest.mark.parametrize("flop_per_byte", [1e-9, 1e9])
def test_points_off_the_drawing_stay_at_its_edge(result: RooflineResult, flop_per_byte: float) -> None:
    point = replace(result.points[0], flop_per_byte=flop_per_byte, flop=1.0, time_s=1.0)
    assert "p" in "".join(roofline_chart(replace(result, points=(point,))).splitlines()[:12])
