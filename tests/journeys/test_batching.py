"""``infcalc batching`` as people run it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.journeys.command import answer, infcalc

Capture = pytest.CaptureFixture[str]


def test_without_an_option_fifty_requests_on_eight_slots_show_what_continuous_batching_saves(capsys: Capture) -> None:
    ran = answer(capsys, "batching")
    assert ran.document["schema"] == "infcalc.batching/1"
    result = ran.result
    assert (result["num_requests"], result["num_slots"]) == (50, 8)
    found = {one["policy"]: one for one in result["policies"]}
    assert list(found) == ["static", "continuous", "sarathi", "vllm", "sglang", "tensorrt-llm"]
    assert found["static"]["slot_utilization_fraction"] < 0.8 < found["continuous"]["slot_utilization_fraction"]
    assert found["continuous"]["throughput_factor"] > 1.5
    assert result["fastest"] == "continuous"
    for one in found.values():
        assert one["slot_utilization_fraction"] >= 0.8 or one["policy"] == "static"
        assert one["latency_p50_s"] <= one["latency_p99_s"]
        assert all(0 <= stretch["used_fraction"] <= 1 for stretch in one["curve"])
    inputs = ran.document["inputs"]
    assert inputs["output_tokens"] == {"value": "pareto:min=32,max=1024,alpha=1.2", "origin": "default"}


def test_the_screen_says_who_wins_why_and_what_it_saves(capsys: Capture) -> None:
    ran = infcalc(capsys, "batching", "--policy", "static,vllm")
    assert ran.code == 0
    for text in ("the tokens, and an answer", "while requests wait", "longest answer", "USD under vllm"):
        assert text in ran.out
    drawn = [line for line in ran.out.splitlines() if line.startswith(("static ", "vllm "))]
    assert any("|8" in line and line.rstrip().endswith("1") for line in drawn)
    equal = infcalc(capsys, "batching", "--requests", "16", "--output-tokens", "50", "--policy", "static,continuous")
    assert "no policy gains" in equal.out


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(capsys: Capture) -> None:
    asked = ("batching", "--requests", "12", "--rate", "2", "--json", "--seed")
    first = infcalc(capsys, *asked, "3").out
    assert first == infcalc(capsys, *asked, "3").out != infcalc(capsys, *asked, "4").out


def test_unit_steps_count_steps(capsys: Capture) -> None:
    ran = infcalc(capsys, "batching", "--requests", "8", "--output-tokens", "7", "--unit-steps", "--policy", "vllm")
    assert "7 steps" in ran.out
    assert "every step counts as one second" in " ".join(ran.out.split())
    assert "USD" not in ran.out.split("Each policy")[0]


def test_a_model_that_does_not_fit_exits_with_3_and_says_what_is_missing(capsys: Capture) -> None:
    ran = infcalc(capsys, "batching", "--gpu", "rtx-4090", "--gpus", "1")
    assert ran.code == 3
    assert "does not fit" in ran.out
    assert infcalc(capsys, "batching", "--gpu", "rtx-4090", "--gpus", "1", "--format", "csv").code == 3


def test_gates_hold_on_a_policy(capsys: Capture) -> None:
    gate = "policies[policy=continuous].throughput_factor"
    assert infcalc(capsys, "batching", "--require", f"{gate}>=1.5").code == 0
    assert infcalc(capsys, "batching", "--require", f"{gate}>=50").code == 4


def test_several_deployments_stand_side_by_side(capsys: Capture, tmp_path: Path) -> None:
    asked = ("batching", "-m", "llama3-8b", "-m", "qwen3-8b", "-g", "h100", "-n", "1", "--requests", "10")
    several = json.loads(infcalc(capsys, *asked, "--json").out)["result"]["side_by_side"]
    assert [one["model"] for one in several] == ["llama3-8b", "qwen3-8b"]
    shown = infcalc(capsys, *asked).out
    assert shown.count("slots in use over time") == 2
    pytest.importorskip("matplotlib")
    assert infcalc(capsys, *asked, "--format", "plot", "--output", str(tmp_path / "x.svg")).code == 0


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (("--requests", "0"), "--requests"),
        (("--slots", "99999"), "--slots"),
        (("--rate", "-1"), "--rate"),
        (("--policy", "lifo"), "--policy"),
        (("--output-tokens", "pareto:min=9"), "--output-tokens"),
        (("--utilization", "2"), "--utilization"),
    ],
)
def test_what_cannot_be_is_told_with_place_and_mend(capsys: Capture, arguments: tuple[str, ...], place: str) -> None:
    ran = infcalc(capsys, "batching", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.startswith(f"error: {place}: ")
    assert "hint: " in ran.err


def test_a_gate_on_the_use_of_slots_is_one_on_policies_not_on_the_curve(capsys: Capture) -> None:
    asked = ("batching", "--policy", "continuous,vllm")
    assert infcalc(capsys, *asked, "--require", "slot_utilization_fraction>=0.8").code == 0
    both = infcalc(capsys, "batching", "--require", "slot_utilization_fraction>=0.8")
    # Static fails it, and is the only figure named.
    assert both.code == 4
    assert both.err.count("0.") == 2
    one = "policies[policy=vllm].slot_utilization_fraction>=0.8"
    assert infcalc(capsys, "batching", "--require", one).code == 0


def test_a_folder_that_is_missing_is_told_before_anything_runs(capsys: Capture, tmp_path: Path) -> None:
    ran = infcalc(capsys, "batching", "--requests", "0", "--output", str(tmp_path / "none" / "a.txt"))
    assert (ran.code, ran.out) == (2, "")
    assert "does not exist" in ran.err
