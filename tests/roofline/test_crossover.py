from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc.roofline.crossover import crossover, explain_crossover
from tests.roofline.shapes import A100, B200, H100, H200

PUBLISHED: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent.parent / "published" / "roofline.yaml").read_text(encoding="utf-8")
)
GPUS = {gpu.name: gpu for gpu in (A100, B200, H100, H200)}


@pytest.mark.parametrize("case", PUBLISHED["crossover"], ids=lambda case: case["gpu"])
def test_published_crossovers(case: dict[str, Any]) -> None:
    (ridge,) = (one for one in crossover(GPUS[case["gpu"]]) if one.precision == case["precision"])
    assert ridge.crossover_flop_per_byte == pytest.approx(case["flop_per_byte"], rel=case["rel_tol"])


def test_rounded_bandwidth_gives_the_often_quoted_156() -> None:
    ridge = crossover(replace(A100, bandwidth_bytes_per_s=2e12))[0]
    assert ridge.crossover_flop_per_byte == 156


def test_every_precision_of_the_gpu_has_a_crossover() -> None:
    ridges = crossover(B200)
    assert [ridge.precision for ridge in ridges] == ["bf16", "fp8", "fp4"]
    assert ridges[2].crossover_flop_per_byte == 4 * ridges[0].crossover_flop_per_byte
    assert {ridge.gpu for ridge in ridges} == {"b200"}


def test_explanation_shows_the_division() -> None:
    explained = explain_crossover(replace(A100, source="datasheet"))[0]
    assert explained.quantity == "crossover_flop_per_byte[bf16]"
    assert explained.substituted == "312 TFLOP/s / 2.04 TB/s = 153.0 FLOP/B"
    assert [given.source for given in explained.inputs] == ["datasheet", "datasheet"]
