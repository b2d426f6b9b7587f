"""``infcalc plan`` as people run it."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from infcalc.api.plan_nouns import FrontPoint
from infcalc.report.front_chart import front_chart
from tests.journeys.command import answer, infcalc

Capture = pytest.CaptureFixture[str]
SMALL = ("plan", "-m", "llama3.1-8b", "--gpus-from", "l40s,h100", "--pp", "1", "--confirm", "0", "--users", "40")
CHAT = ("--input-tokens", "lognormal:mean=800,cv=1", "--output-tokens", "lognormal:mean=200,cv=1")
KEYS = {
    "gpu",
    "gpus_per_replica",
    "replicas",
    "total_gpus",
    "tp",
    "pp",
    "dp",
    "ep",
    "weights",
    "kv_dtype",
    "engine",
    "ttft_s",
    "tpot_s",
    "output_tokens_per_s",
    "usd_per_hour",
    "usd_per_month",
    "usd_per_million_output_tokens",
    "binding_constraint",
}
BANDED = ("ttft_s", "tpot_s", "output_tokens_per_s", "usd_per_hour", "usd_per_month", "usd_per_million_output_tokens")


def test_the_keys_of_the_contract_are_there(capsys: Capture) -> None:
    ran = answer(capsys, *SMALL, *CHAT)
    assert ran.document["schema"] == "infcalc.plan/1"
    plans = ran.result["plans"]
    assert plans
    for one in plans:
        assert set(one) >= KEYS
        assert one["total_gpus"] == one["replicas"] * one["gpus_per_replica"]
        for key in BANDED:
            assert {"value", "low", "high", "basis"} == set(one[key])
            assert one[key]["low"] <= one[key]["value"] <= one[key]["high"]
        assert one["usd_per_month"]["value"] == pytest.approx(730 * one["usd_per_hour"]["value"])
    assert all(one["reason"] for one in ran.result["rejected"])
    # 3,600 seconds of tokens are paid by an hour.
    best = plans[0]
    tokens = best["output_tokens_per_s"]["value"] * 3600
    assert best["usd_per_million_output_tokens"]["value"] == pytest.approx(best["usd_per_hour"]["value"] / tokens * 1e6)


def test_without_options_the_reference_model_is_planned_for_a_hundred_users(capsys: Capture) -> None:
    ran = infcalc(capsys, "plan", "--confirm", "0")
    assert ran.code == 0
    assert "llama3-70b" in ran.out
    assert "users 100" in ran.out
    assert "assumed: " in ran.out
    assert "to start it: infcalc launch --model llama3-70b" in ran.out


def test_the_screen_shows_ranking_rejected_and_the_front(capsys: Capture) -> None:
    ran = infcalc(capsys, *SMALL, *CHAT, "--slo", "ttft-p95=1s,tpot-p95=12ms")
    assert ran.code == 0
    for text in ("Plans by cost, the best first", "Rejected, by reason", "would pass with", "binding: ", "USD a month"):
        assert text in ran.out


def test_csv_and_markdown_hold_what_json_holds(capsys: Capture) -> None:
    result = answer(capsys, *SMALL, *CHAT).result
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, *SMALL, *CHAT, "--format", "csv").out)))
    mine = [row for row in rows if row["row"] == "plan"]
    assert [float(row["usd_per_hour.value"]) for row in mine] == [
        one["usd_per_hour"]["value"] for one in result["plans"]
    ]
    assert sum(row["row"] == "rejected" for row in rows) == len(result["rejected"])
    markdown = infcalc(capsys, *SMALL, *CHAT, "--format", "markdown").out
    assert f"| {result['plans'][0]['gpu']}" in markdown or result["plans"][0]["gpu"] in markdown


def test_what_cannot_be_met_exits_with_four_and_names_the_nearest(capsys: Capture) -> None:
    ran = infcalc(capsys, *SMALL, *CHAT, "--slo", "tpot=0.1ms")
    assert ran.code == 4
    assert "nothing on offer keeps all limits" in ran.out
    assert "--slo tpot=" in ran.out
    ran = answer(capsys, *SMALL, *CHAT, "--slo", "tpot=0.1ms", code=4)
    assert ran.result["plans"] == []
    assert ran.result["rejected"]


def test_gates_hold_for_plans(capsys: Capture) -> None:
    assert infcalc(capsys, *SMALL, *CHAT, "--require", "plans.usd_per_month<=100000").code == 0
    assert infcalc(capsys, *SMALL, *CHAT, "--require", "plans.usd_per_month<=1").code == 4


def test_the_way_from_a_naive_deployment(capsys: Capture) -> None:
    words = (
        "plan",
        "--from-naive",
        "--confirm",
        "0",
        "--allow",
        "fp8",
        "--prefix-hit",
        "0.5",
        "--gpus-from",
        "a100,h100,h200",
    )
    lengths = ("--input-tokens", "lognormal:mean=1000,cv=1", "--output-tokens", "lognormal:mean=300,cv=1")
    result = answer(capsys, *words, *lengths).result
    steps = result["story"]
    assert [one["step"].split(":")[0] for one in steps] == [
        "naive",
        "continuous batching",
        "paging",
        "KV in fp8",
        "prefix cache",
        "speculation",
        "right GPU, split and precision",
    ]
    factor = 1.0
    for one in steps:
        factor *= one["saving_factor"]
        assert one["total_factor"] == pytest.approx(factor)
    assert steps[-1]["usd_per_month"] == pytest.approx(result["plans"][0]["usd_per_month"]["value"])
    # Each feature by itself: no step makes it dearer, and paging gives more room.
    assert all(one["saving_factor"] >= 1 for one in steps)
    assert steps[2]["slots_per_replica"] > steps[1]["slots_per_replica"]
    assert steps[-1]["total_factor"] > 3


def test_a_trace_gives_lengths_and_rate(capsys: Capture, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    lines = [f"{0.5 * number},{100 + 7 * (number % 50)},{20 + number % 30}" for number in range(400)]
    trace.write_text("arrival_s,input_tokens,output_tokens\n" + "\n".join(lines), encoding="utf-8")
    result = answer(capsys, "plan", str(trace), *SMALL[1:-2], "--confirm", "0").result
    assert result["rate_per_s"] == pytest.approx(2.0, rel=0.01)
    assert result["input_tokens"] == pytest.approx(100 + 7 * 24.5, rel=0.02)
    assert result["load"] == "rate"


def test_drafting_is_a_choice_and_its_worth_a_line(capsys: Capture) -> None:
    words = ("plan", "-m", "llama3.1-8b", "--gpus-from", "l40s,h100", "--pp", "1", "--users", "4", "--confirm", "1")
    drafts = ("--slo", "tpot-p95=18ms", "--method", "eagle3,ngram", "--num-draft-tokens", "3")
    result = answer(capsys, *words, *CHAT, *drafts).result
    best = result["plans"][0]
    assert (best["method"], best["draft_model"], best["num_draft_tokens"]) == ("eagle3", "llama3-8b-eagle3", 3)
    assert best["confirmation"]["confirmed"]
    assert best["confirmation"]["trials"][-1] == {"replicas": best["replicas"], "confirmed": True}
    (worth,) = result["options"]
    assert worth["option"] == "speculation"
    assert worth["on_usd_per_month"] < worth["off_usd_per_month"]
    assert worth["pays"] is True
    screen = infcalc(capsys, *words, *CHAT, *drafts).out
    assert "eagle3 3" in screen
    assert "speculation: " in screen
    assert "--draft-model llama3-8b-eagle3 --num-draft-tokens 3" in screen
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, *words, *CHAT, *drafts, "--format", "csv").out)))
    assert [row["option"] for row in rows if row["row"] == "option"] == ["speculation"]


def test_what_prompts_of_a_trace_share_is_found_and_its_worth_said(capsys: Capture, tmp_path: Path) -> None:
    trace = tmp_path / "shared.jsonl"
    made = ("workload", "--rate", "4", "--num-requests", "300", "--input-tokens", "600", "--output-tokens", "60")
    saved = infcalc(capsys, *made, "--shared-prefix", "num=2,tokens=400,share=1", "--save-trace", str(trace))
    assert saved.code == 0, saved.err
    words = ("plan", str(trace), "-m", "llama3.1-8b", "--gpus-from", "l40s", "--pp", "1", "--confirm", "1")
    ran = answer(capsys, *words)
    (worth,) = ran.result["options"]
    assert worth["option"] == "prefix-cache"
    assert worth["on_ttft_s"] < worth["off_ttft_s"]
    assert ran.document["inputs"]["prefix_hit_fraction"]["value"] > 0.3
    assert "--prefix-caching" in ran.result["plans"][0]["launch_command"]
    assert any("prompts of the file share" in text for text in ran.document["assumptions"])
    # Who says that nothing is found is believed.
    bare = answer(capsys, *words, "--prefix-hit", "0")
    assert bare.result["options"] == []
    assert bare.result["plans"][0]["ttft_s"]["value"] > ran.result["plans"][0]["ttft_s"]["value"]


def test_a_picture_is_drawn(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "plan.png"
    ran = infcalc(capsys, *SMALL, *CHAT, "--format", "plot", "--output", str(path))
    assert ran.code == 0, ran.err
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("--budget", "lots"), 2, "--budget"),
        (("--spare", "some"), 2, "--spare"),
        (("--headroom", "much"), 2, "--headroom"),
        (("--objective", "fun"), 2, "--objective"),
        (("--rate", "3"), 2, "--rate"),
        (("--gpus-from", "h1000"), 5, "h1000"),
        (("--allow", "tiny"), 2, "--allow"),
        (("--method", "medusa"), 2, "--method"),
        (("--num-draft-tokens", "3"), 2, "--num-draft-tokens"),
        (("--draft-model", "nobody"), 5, "nobody"),
        (("--format", "plot"), 2, "--output"),
    ],
)
def test_bad_input_is_told_with_its_place(capsys: Capture, words: tuple[str, ...], code: int, text: str) -> None:
    ran = infcalc(capsys, *SMALL, *CHAT, *words)
    assert ran.code == code
    assert text in ran.err
    assert "hint:" in ran.err or "did you mean" in ran.err


def test_a_request_that_no_hardware_admits_is_not_mended_by_more_of_it(capsys: Capture) -> None:
    ran = infcalc(capsys, "plan", "--gpus-from", "h100", "--output-tokens", "100000", "--confirm", "0")
    assert ran.code == 4
    head = ran.out.splitlines()[0]
    assert "llama3-70b was made for 8,192 (mend, as a first step: at most 8,192 together" in head
    assert "memory" in ran.out, "what else is wrong still stands in the table"


def test_the_title_of_the_front_is_folded_at_a_narrow_width() -> None:
    points = tuple(
        FrontPoint(
            gpu="h100-sxm5-80gb",
            replicas=1,
            total_gpus=1,
            tp=1,
            pp=1,
            weights="bf16",
            kv_dtype="bf16",
            engine="vllm",
            method=None,
            num_draft_tokens=0,
            usd_per_hour=cost / 730,
            usd_per_month=cost,
            e2e_s=1000 / cost,
            ttft_s=0.1,
            tpot_s=0.01,
            output_tokens_per_s=100.0,
        )
        for cost in (1000.0, 2000.0)
    )
    for width in (40, 58, 100):
        title = [line for line in front_chart(points, width).splitlines() if "|" not in line][: 1 + 62 // width]
        assert "(plans that none beats in both)" in " ".join(title)
        assert all(len(line) <= width for line in title)
