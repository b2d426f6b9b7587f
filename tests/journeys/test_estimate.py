"""``infcalc estimate`` as people and scripts ask it."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.command import answer, infcalc

Capture = pytest.CaptureFixture[str]
FIGURE = {"value", "low", "high", "basis"}
KEYS = {
    "ttft_s",
    "tpot_s",
    "e2e_s",
    "output_tokens_per_s",
    "output_tokens_per_s_per_user",
    "requests_per_s",
    "usd_per_million_output_tokens",
}
SMALL = ("-m", "llama3-8b", "-g", "h100", "-n", "1")


def test_the_contract_of_the_document(capsys: Capture) -> None:
    document = answer(capsys, "estimate").document
    result = document["result"]
    assert document["schema"] == "infcalc.estimate/1"
    assert set(result) >= KEYS | {"batch", "step"}
    for key in KEYS:
        assert set(result[key]) == FIGURE
        assert result[key]["low"] <= result[key]["value"] <= result[key]["high"]
        assert result[key]["basis"] in {"calibrated", "modelled", "uncalibrated"}
    assert result["step"]["parts"]
    for part in result["step"]["parts"]:
        assert set(part["time_s"]) == FIGURE
        assert part["bound_by"] in {"compute", "memory", "link", "latency"}
    inputs = document["inputs"]
    assert inputs["input_tokens"]["origin"] == "reference scenario"
    assert "2026" in inputs["usd_per_gpu_hour"]["origin"]
    assert inputs["pace"]["source"]


def test_every_time_rate_and_price_is_a_figure(capsys: Capture) -> None:
    result = answer(capsys, "estimate", *SMALL, "--rate", "2", "--sweep", "input-tokens=256,512").result
    exact = {"floor_s", "limits", "usd_per_hour", "num_requests"}

    def walk(value: Any, name: str) -> None:  # noqa: ANN401 - JSON
        if name in exact:
            return
        if isinstance(value, dict):
            if set(value) == FIGURE:
                return
            for key, item in value.items():
                walk(item, key)
        elif isinstance(value, list):
            for item in value:
                walk(item, name)
        else:
            timed = name.endswith("_s") or "_per_s" in name or name.startswith("usd")
            assert not timed or value is None, name

    walk(result, "")


def test_screen_markdown_csv_and_json_hold_the_same_numbers(capsys: Capture) -> None:
    asked = ("estimate", *SMALL, "--concurrency", "32", "--input-tokens", "1000", "--output-tokens", "200")
    result = answer(capsys, *asked).result
    table = infcalc(capsys, *asked).out
    markdown = infcalc(capsys, *asked, "--format", "markdown").out
    (row,) = csv.DictReader(io.StringIO(infcalc(capsys, *asked, "--format", "csv").out))
    for key in KEYS:
        assert float(row[key]) == result[key]["value"]
        assert float(row[f"{key}_low"]) == result[key]["low"]
        assert float(row[f"{key}_high"]) == result[key]["high"]
    shown = f"{result['output_tokens_per_s']['value']:,.0f}"
    assert shown in table
    assert shown in markdown
    assert "32" in row["batch"] or float(row["batch"]) == pytest.approx(result["batch"])


def test_a_curve_is_a_row_per_point_and_names_its_knee(capsys: Capture) -> None:
    asked = ("estimate", *SMALL, "--sweep", "batch=1..64", "--input-tokens", "500", "--output-tokens", "100")
    ran = infcalc(capsys, *asked)
    assert ran.code == 0
    assert "throughput per latency" in ran.out
    (heading,) = (line for line in ran.out.splitlines() if line.startswith("batch  "))
    assert heading.split()[-1] == "remark"
    result = answer(capsys, *asked).result
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, *asked, "--format", "csv").out)))
    assert [float(row["batch"]) for row in rows] == [1, 2, 4, 8, 16, 32, 64]
    assert [float(row["tpot_s"]) for row in rows] == [point["tpot_s"]["value"] for point in result["sweep"]["points"]]


@pytest.mark.parametrize("sweep", [("--sweep", "batch=1..64"), ("--sweep", "rate=1..64"), ()], ids=str)
@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_picture_is_written(capsys: Capture, tmp_path: Path, sweep: tuple[str, ...], ending: str) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / f"curve.{ending}"
    ran = infcalc(capsys, "estimate", *SMALL, *sweep, "--format", "plot", "--output", str(path))
    assert ran.code == 0, ran.err
    head = path.read_bytes()
    assert head.startswith(b"\x89PNG") if ending == "png" else b"<svg" in head
    if ending == "svg" and sweep == ("--sweep", "batch=1..64"):
        assert b"time per token, ms" in head or b"knee" in head or len(head) > 5000


def test_unstable_is_said_plainly(capsys: Capture) -> None:
    ran = infcalc(capsys, "estimate", *SMALL, "--rate", "500")
    assert ran.code == 0
    assert "unstable: requests arrive faster than they are answered" in ran.out
    assert "stable up to" in ran.out
    assert "grows without end" in ran.out
    result = answer(capsys, "estimate", *SMALL, "--rate", "500").result
    assert result["stable"] is False
    assert result["ttft_s"] is None
    assert 0 < result["highest_stable_requests_per_s"]["value"] < 500


def test_what_does_not_fit_ends_with_3_and_what_would(capsys: Capture) -> None:
    ran = infcalc(capsys, "estimate", "-m", "deepseek-v3", "-g", "h100", "-n", "8")
    assert ran.code == 3
    assert "does not fit" in ran.out
    assert "--gpus 16" in ran.out
    result = answer(capsys, "estimate", "-m", "deepseek-v3", "-g", "h100", "-n", "8", code=3).result
    assert result["fits"] is False
    assert result["missing_bytes"] > 0
    assert result["tpot_s"] is None


def test_a_sanity_verdict_comes_first(capsys: Capture) -> None:
    ran = infcalc(capsys, "estimate", "--batch", "1", "--measured", "tpot=12ms")
    assert ran.code == 0
    assert ran.out.startswith("time per token 12 ms is physically impossible")
    slow = infcalc(capsys, "estimate", "--batch", "1", "--measured", "tpot=60ms")
    assert "of the roofline" in slow.out.splitlines()[0]
    assert "Where it is lost" in slow.out
    (one,) = answer(capsys, "estimate", "--batch", "1", "--measured", "tpot=60ms").result["measured"]
    assert one["possible"] is True
    assert one["verdict"] == "slower than estimated"
    assert one["causes"]


def test_an_explanation_breaks_a_step_into_its_ops(capsys: Capture) -> None:
    ran = infcalc(capsys, "estimate", "--concurrency", "100", "--explain")
    assert "One decode step (100 sequences of 3,072 tokens)" in ran.out
    assert "One prefill step (2,048 tokens of a prompt)" in ran.out
    for word in ("gate_up", "attention (full)", "all-reduce", "bound by", "explanation:"):
        assert word in ran.out


def test_models_and_gpus_stand_side_by_side(capsys: Capture) -> None:
    asked = ("estimate", "-m", "llama3-8b", "-m", "qwen3-8b", "-g", "h100", "-g", "a100", "-n", "1", "--batch", "8")
    assert len(answer(capsys, *asked).result["side_by_side"]) == 4
    ran = infcalc(capsys, *asked)
    assert ran.out.count("qwen3-8b") >= 2
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, *asked, "--format", "csv").out)))
    assert [(row["model"], row["gpu"]) for row in rows] == [
        (model, gpu) for model in ("llama3-8b", "qwen3-8b") for gpu in ("h100-sxm5-80gb", "a100-sxm4-80gb")
    ]


def test_gates_hold_on_figures(capsys: Capture) -> None:
    asked = ("estimate", *SMALL, "--concurrency", "8", "--require")
    assert infcalc(capsys, *asked, "tpot_s<=0.05").code == 0
    assert infcalc(capsys, *asked, "tpot_s.high<=0.05").code == 0
    assert infcalc(capsys, *asked, "tpot_s<=0.001").code == 4
    gone = infcalc(capsys, "estimate", *SMALL, "--rate", "500", "--require", "ttft_s<=1")
    assert gone.code == 4
    assert "no such figure" in gone.err
    assert infcalc(capsys, *asked, "speed<=1").code == 2


def test_objectives_and_users(capsys: Capture) -> None:
    asked = ("estimate", *SMALL, "--users", "100", "--think-time", "30s")
    result = answer(capsys, *asked).result
    assert result["batch"] < 100
    kept = infcalc(capsys, *asked, "--slo", "ttft=2s,tpot=50ms")
    assert kept.code == 0
    assert "met with" in kept.out
    missed = infcalc(capsys, *asked, "--slo", "tpot=1ms")
    assert missed.code == 4
    assert "not met" in missed.err


def test_a_price_and_a_utilisation_are_taken(capsys: Capture) -> None:
    half = answer(capsys, "estimate", *SMALL, "--concurrency", "8", "--price", "2 USD/h", "--utilization", "0.5").result
    full = answer(capsys, "estimate", *SMALL, "--concurrency", "8", "--price", "$2").result
    ratio = half["usd_per_million_output_tokens"]["value"] / full["usd_per_million_output_tokens"]["value"]
    assert ratio == pytest.approx(2)
    assert full["usd_per_hour"] == 2


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--batch", "-4"), "from 1"),
        (("--batch", "two"), "not a whole number"),
        (("--batch", "1,2"), "this command takes one"),
        (("--rate", "0"), "above 0"),
        (("--rate", "-1"), "above 0"),
        (("--rate", "fast"), "--rate"),
        (("--batch", "4", "--rate", "2"), "give one"),
        (("--users", "4", "--concurrency", "2"), "give one"),
        (("--users", "0"), "from 1"),
        (("--think-time", "30s"), "--users"),
        (("--think-time", "soon", "--users", "4"), "500ms"),
        (("--num-requests", "-5"), "from 1"),
        (("--prefix-hit", "1.2"), "0.8"),
        (("--utilization", "0"), "above 0"),
        (("--price", "cheap"), "2.5 USD/h"),
        (("--price", "0"), "out of range"),
        (("--input-tokens", "gauss:mean=3"), "lognormal"),
        (("--input-tokens", "lognormal:mean=3,cv=99"), "cv"),
        (("--input-tokens", "16k"), "8,192"),
        (("--output-tokens", "0"), "out of range"),
        (("--context", "64k"), "8,192"),
        (("--context", "4k", "--context", "8k"), "--sweep"),
        (("--context", "4k", "--input-tokens", "1k", "--output-tokens", "1k"), "together"),
        (("--sweep", "speed=1..4"), "one of batch"),
        (("--sweep", "batch"), "batch=1..1024"),
        (("--sweep", "batch=8..1"), "1..8"),
        (("--sweep", "batch=0..8"), "from 1"),
        (("--sweep", "batch=1..8", "--batch", "4"), "leave --batch out"),
        (("--measured", "tpot=12"), "12ms or 12s"),
        (("--measured", "tpot"), "quantity=value"),
        (("--measured", "speed=12ms"), "tpot=12ms"),
        (("--measured", "tpot=12 parsec"), "12 parsec"),
        (("--measured", "tpot=0ms"), "above 0"),
        (("--measured", "tpot=1ms,tpot=2ms"), "twice"),
        (("--slo", "ttft-p95=500ms"), "simulation"),
        (("--slo", "fast"), "ttft=500ms"),
        (("--kv-dtype", "fp8", "--kv-dtype", "bf16"), "one"),
        (("--format", "plot"), "--output"),
    ],
    ids=" ".join,
)
def test_bad_input_ends_with_2_and_the_mend(capsys: Capture, options: tuple[str, ...], said: str) -> None:
    ran = infcalc(capsys, "estimate", *SMALL, *options)
    assert ran.code == 2, ran.out + ran.err
    assert ran.out == ""
    assert said in ran.err
    assert "hint" in ran.err
    assert "Traceback" not in ran.err


def test_units_of_time_are_understood(capsys: Capture) -> None:
    for text in ("tpot=12ms", "tpot=0.012s", "tpot=12000us"):
        (one,) = answer(capsys, "estimate", *SMALL, "--batch", "1", "--measured", text).result["measured"]
        assert one["measured"] == pytest.approx(0.012)


def test_the_same_question_has_the_same_answer(capsys: Capture) -> None:
    first, second = (answer(capsys, "estimate", *SMALL, "--concurrency", "7").out for _ in range(2))
    assert json.loads(first) == json.loads(second)
    assert first == second
