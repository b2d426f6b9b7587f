"""``infcalc simulate`` as people run it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.simulation_ask import SimulationAsk
from tests.evidence.shapes import VLLM_SERVE
from tests.journeys.command import answer, infcalc

Capture = pytest.CaptureFixture[str]
SMALL = ("simulate", "-m", "llama3-8b", "-g", "a100-80gb", "-n", "1", "--num-requests", "120", "--rate", "6")
KEYS = {
    "requests",
    "duration_s",
    "ttft_s",
    "tpot_s",
    "itl_s",
    "e2e_s",
    "queue_s",
    "output_tokens_per_s",
    "goodput_fraction",
    "preemptions",
    "kv_usage_fraction",
    "slot_utilization_fraction",
    "prefix_hit_rate_fraction",
    "steps",
}


def test_the_keys_of_the_contract_are_there(capsys: Capture) -> None:
    ran = answer(capsys, *SMALL)
    assert ran.document["schema"] == "infcalc.simulate/1"
    assert set(ran.result) >= KEYS
    for key in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "queue_s"):
        assert {"mean", "p50", "p90", "p99"} <= set(ran.result[key])
    assert {"mean", "max"} == set(ran.result["kv_usage_fraction"])
    assert len(ran.result["over_time"]) == 60


def test_the_screen_shows_percentiles_goodput_and_the_cache_over_time(capsys: Capture) -> None:
    ran = infcalc(capsys, *SMALL, "--slo", "ttft=500ms,tpot=50ms")
    assert ran.code == 0
    for text in ("first token (TTFT)", "between tokens (ITL)", "goodput: ", "KV cache in use over time", "p99"):
        assert text in ran.out
    assert "the front end takes" in ran.out


def test_the_same_seed_gives_the_same_bytes_and_another_does_not(capsys: Capture) -> None:
    first = infcalc(capsys, *SMALL, "--seed", "5", "--json").out
    assert first == infcalc(capsys, *SMALL, "--seed", "5", "--json").out
    assert first != infcalc(capsys, *SMALL, "--seed", "6", "--json").out


def test_every_request_is_written_as_csv_and_as_json_lines(capsys: Capture, tmp_path: Path) -> None:
    table, lines = tmp_path / "requests.csv", tmp_path / "requests.jsonl"
    ran = answer(capsys, *SMALL, "--save-requests", str(table))
    answer(capsys, *SMALL, "--save-requests", str(lines))
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    same = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len(same) == 120
    assert [float(row["first_token_s"]) for row in rows] == [row["first_token_s"] for row in same]
    waits = [float(row["first_token_s"]) - float(row["arrival_s"]) for row in rows]
    assert sum(waits) / len(waits) == pytest.approx(ran.result["ttft_s"]["mean"])
    for row in same:
        assert row["arrival_s"] <= row["scheduled_s"] < row["first_token_s"] <= row["last_token_s"]
        assert (row["outcome"], row["preemptions"], row["hit_tokens"]) == ("finished", 0, 0)


def test_a_trace_of_a_file_is_served_with_what_it_shares(capsys: Capture, tmp_path: Path) -> None:
    trace = tmp_path / "trace.jsonl"
    made = ("workload", "--rate", "4", "--num-requests", "60", "--shared-prefix", "tokens=512")
    infcalc(capsys, *made, "--save-trace", str(trace))
    ran = answer(capsys, "simulate", str(trace), "-m", "llama3-8b", "-n", "1")
    assert ran.result["requests"] == 60
    assert ran.result["prefix_hit_rate_fraction"] > 0.4


def test_pictures_of_runs_and_of_sweeps(capsys: Capture, tmp_path: Path) -> None:
    for name, more in (("runs", ("--compare", "static,vllm")), ("one", ())):
        path = tmp_path / f"{name}.png"
        assert infcalc(capsys, *SMALL, *more, "--format", "plot", "--output", str(path)).code == 0
        assert path.read_bytes().startswith(b"\x89PNG")
    path = tmp_path / "sweep.svg"
    swept = (*SMALL[:-2], "--sweep", "rate=2,4,8", "--format", "plot", "--output", str(path))
    assert infcalc(capsys, *swept).code == 0
    assert "the knee" in path.read_text(encoding="utf-8") or path.stat().st_size > 10_000


def test_csv_and_markdown_hold_each_run(capsys: Capture) -> None:
    more = ("--compare", "static,continuous,vllm,sglang")
    table = infcalc(capsys, *SMALL, *more, "--format", "csv").out
    rows = list(csv.DictReader(table.splitlines()))
    assert [row["policy"] for row in rows if row["row"] == "compare"] == ["static", "continuous", "vllm", "sglang"]
    assert sum(row["row"] == "moment" for row in rows) == 60
    assert "| static" in infcalc(capsys, *SMALL, *more, "--format", "markdown").out


def test_exit_codes_say_what_happened(capsys: Capture, tmp_path: Path) -> None:
    assert infcalc(capsys, *SMALL, "--slo", "ttft-p99=1ms").code == 4
    unfit = infcalc(capsys, "simulate", "--gpu", "rtx-4090", "--gpus", "1")
    assert unfit.code == 3
    assert "does not fit" in unfit.out
    assert infcalc(capsys, *SMALL, "--require", "ttft_s.p99<=0.001").code == 4
    assert infcalc(capsys, *SMALL, "--require", "goodput_fraction>=0.99").code == 0
    broken = tmp_path / "broken.csv"
    broken.write_text("arrival_s,input_tokens,output_tokens\n0,5,5\n1,x,5\n2,5,-1\n", encoding="utf-8")
    refused = infcalc(capsys, "simulate", str(broken))
    assert refused.code == 2
    assert "2 faults" in refused.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("what-if", "-m", "llama3-8b", "-g", "h100", "-n", "1", "--num-requests", "20", "--feature", "fp8-kv"),
        ("plan", "-m", "llama3-8b", "--gpus-from", "h100", "--users", "4", "--confirm", "1"),
        ("report", "-m", "llama3-8b", "-g", "h100", "-n", "1", "--gpus-from", "h100", "--users", "4"),
        ("compare", "measured.json", "--simulate"),
    ],
    ids=lambda arguments: arguments[0],
)
def test_ctrl_c_in_a_run_that_others_stand_on_ends_the_command(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    from infcalc.api.simulation_runs import run_of  # noqa: PLC0415 - what is broken off

    monkeypatch.setattr("infcalc.api.simulation_site.run_of", lambda *given: replace(run_of(*given), partial=True))
    monkeypatch.chdir(tmp_path)
    Path("measured.json").write_text(json.dumps(VLLM_SERVE), encoding="utf-8")
    ended = infcalc(capsys, *arguments)
    assert (ended.code, ended.out) == (130, ""), "a part of a run is no answer"
    assert "interrupted" in ended.err


def test_ctrl_c_ends_with_what_was_simulated_so_far(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from infcalc.api import simulation_runs  # noqa: PLC0415 - what is broken off

    ran = simulation_runs._every_step  # noqa: SLF001

    def broken_off(setting: Any, load: Any, progress: Any) -> Any:  # noqa: ANN401 - handed on
        del progress

        def stop(done: int, total: int) -> None:
            assert done <= total
            raise KeyboardInterrupt

        return ran(setting, load, stop)

    monkeypatch.setattr(simulation_runs, "_every_step", broken_off)
    monkeypatch.setattr(simulation_runs, "_STEPS_BETWEEN", 500)
    ended = infcalc(capsys, *SMALL, "--step-by-step", "--json")
    assert ended.code == 130
    assert ended.result["partial"] is True
    assert 0 < ended.result["completed"] < 120
    assert any("broken off" in warning for warning in ended.document["warnings"])


def test_each_figure_explains_itself(capsys: Capture) -> None:
    ran = infcalc(capsys, *SMALL, "--explain", "--price", "2")
    for text in ("output_tokens_per_s", "kv_usage_fraction", "goodput_fraction", "usd_per_million_output_tokens"):
        assert text in ran.out


POOLS = ("--prefill-replicas", "1", "--decode-replicas", "2")
SCALED = ("--autoscale", "max=3,kv=0.005,start=2s,window=2s,every=1s")


def test_pools_of_prefill_and_decode_stand_beside_plain_replicas(capsys: Capture) -> None:
    shown = infcalc(capsys, *SMALL, *POOLS, "--explain").out
    for text in (
        "on 1 x 1 (prefill) + 2 x 1 (decode) x a100",
        "Handing over 120 caches",
        "Pools",
        "Beside plain replicas on 3 GPUs",
        "prefill busy",
        "the link of 50 GB/s",
        "disaggregation.transfer_s = ",
    ):
        assert text in shown
    ran = answer(capsys, *SMALL, *POOLS)
    told = ran.result["disaggregation"]
    assert {"mean", "p50", "p90", "p99"} <= set(told["transfer_s"])
    assert told["link"]["num_transfers"] == 120
    assert ran.document["inputs"]["prefill_replicas"]["value"] == 1
    table = infcalc(capsys, *SMALL, *POOLS, "--format", "csv").out
    rows = list(csv.DictReader(table.splitlines()))
    assert [row["row"] for row in rows[:3]] == ["result", "aggregated", "moment"]
    assert float(rows[0]["disaggregation.transfer_s.mean"]) == told["transfer_s"]["mean"]
    assert float(rows[1]["output_tokens_per_s"]) == told["aggregated"][0]["output_tokens_per_s"]


def test_replicas_that_come_and_go_are_shown_over_time(capsys: Capture, tmp_path: Path) -> None:
    shown = infcalc(capsys, *SMALL, *SCALED, "--explain").out
    for text in ("1 to 3 x 1 x a100", "GPU-seconds paid", "Replicas that take requests, over time", "scaling.gpu_s = "):
        assert text in shown
    ran = answer(capsys, *SMALL, *SCALED)
    told = ran.result["scaling"]
    assert told["num_added"] > 0
    rows = list(csv.DictReader(infcalc(capsys, *SMALL, *SCALED, "--format", "csv").out.splitlines()))
    counts = [int(row["num_serving"]) for row in rows if row["row"] == "replicas"]
    assert counts == [one["num_serving"] for one in told["replicas_over_time"]]
    picture = tmp_path / "replicas.svg"
    assert infcalc(capsys, *SMALL, *SCALED, "--format", "plot", "--output", str(picture)).code == 0
    plain = tmp_path / "plain.svg"
    assert infcalc(capsys, *SMALL, "--format", "plot", "--output", str(plain)).code == 0
    panels = [path.read_text(encoding="utf-8").count('<g id="axes_') for path in (picture, plain)]
    assert panels == [5, 4]


@pytest.mark.parametrize("more", [POOLS, SCALED], ids=["pools", "autoscale"])
def test_the_same_seed_gives_the_same_bytes_of_pools_and_of_replicas_that_scale(
    capsys: Capture, more: tuple[str, ...]
) -> None:
    first = infcalc(capsys, *SMALL, *more, "--seed", "5", "--json").out
    assert first == infcalc(capsys, *SMALL, *more, "--seed", "5", "--json").out


@pytest.mark.parametrize("more", [POOLS, SCALED], ids=["pools", "autoscale"])
def test_ctrl_c_ends_pools_and_replicas_that_scale_too(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    from infcalc.api.simulation_runs import Books  # noqa: PLC0415 - what is broken off

    ran, steps = Books.observe, 0

    def observe(self: Books, place: int, step: Any) -> None:  # noqa: ANN401 - handed on
        nonlocal steps
        steps += 1
        if steps > 500:
            raise KeyboardInterrupt
        ran(self, place, step)

    monkeypatch.setattr(Books, "observe", observe)
    ended = infcalc(capsys, *SMALL, *more, "--json")
    assert ended.code == 130
    assert ended.result["partial"] is True
    assert 0 < ended.result["completed"] < 120


@pytest.mark.parametrize(
    ("arguments", "place", "mend"),
    [
        (("--prefill-replicas", "2"), "--prefill-replicas: one pool without the other", "--decode-replicas 1"),
        (("--decode-replicas", "2"), "--decode-replicas: one pool without the other", "--prefill-replicas 1"),
        (("--kv-link", "50GB/s"), "--kv-link: is of pools", "add --prefill-replicas"),
        (("--prefill-tp", "2"), "--prefill-tp: is of pools", "add --prefill-replicas"),
        (("--aggregated", "best"), "--aggregated: is of pools", "add --prefill-replicas"),
        ((*POOLS, "--replicas", "3"), "--replicas: replicas beside pools", "drop --replicas"),
        ((*POOLS, "--policy", "static"), "--policy: static batching has no pools", "vllm, sglang"),
        ((*POOLS, "--engine", "llama.cpp"), "--policy: continuous batching has no pools", "vllm, sglang"),
        ((*POOLS, "--contiguous"), "--contiguous", "drop it"),
        ((*POOLS, "--compare", "vllm,sglang"), "--compare: several policies beside pools", "--policy"),
        ((*POOLS, *SCALED), "--autoscale: pools", "plain replicas"),
        ((*POOLS, "--kv-link", "slow"), "--kv-link", "write 50GB/s"),
        ((*POOLS, "--aggregated", "all"), "--aggregated: 'all'", "best, same, none"),
        ((*POOLS, "--prefill-tp", "3"), "--prefill-tp: --tp 3 cannot split", "1, 2, 4, 8"),
        ((*POOLS, "--decode-tp", "0"), "--decode-tp", "from 1"),
        (("--prefill-replicas", "0", "--decode-replicas", "1"), "--prefill-replicas: 0 is out of range", "from 1"),
        ((*SCALED, "--replicas", "2"), "--replicas: a fixed number", "drop --replicas"),
        (("--autoscale", "queue=4"), "--autoscale: max is missing", "min=1,max=8"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_pools_and_scaling_that_cannot_be_are_refused_with_their_mend(
    capsys: Capture, arguments: tuple[str, ...], place: str, mend: str
) -> None:
    ran = infcalc(capsys, *SMALL, *arguments)
    assert ran.code == 2
    assert ran.out == ""
    head, hint = ran.err.rstrip().split("\n")
    assert place in head
    assert mend in hint


def test_the_library_has_it_too() -> None:
    from infcalc import api  # noqa: PLC0415 - as a user of the library does

    assert api.SimulationAsk is SimulationAsk
    assert callable(api.simulate)


DRAFTED = ("-m", "llama3-8b", "-g", "h100", "-n", "1", "--num-requests", "80", "--method", "eagle3")


def test_drafts_stand_beside_the_same_requests_without_them(capsys: Capture) -> None:
    ran = infcalc(capsys, "simulate", *DRAFTED, "--rate", "6", "--num-draft-tokens", "4", "--acceptance", "0.7")
    assert ran.code == 0
    assert "eagle3 x 4: 2." in ran.out
    assert "tokens per round; against the same requests without drafting a token comes 1." in ran.out
    assert "none" in ran.out
    how = ("--rate", "6", "--num-draft-tokens", "4", "--acceptance", "0.7", "--json")
    found = json.loads(infcalc(capsys, "simulate", *DRAFTED, *how).out)["result"]
    assert {"method", "num_draft_tokens", "rounds", "tokens_per_round", "acceptance", "speedup"} <= set(found)
    assert [run["method"] for run in found["compare"]] == ["eagle3", None]
    assert found["speedup"] > 1.2
    assert found["compare"][1]["tokens_per_round"] is None


def test_a_sweep_says_up_to_where_drafting_pays(capsys: Capture) -> None:
    loses = ("--num-draft-tokens", "6", "--acceptance", "0.1", "--sweep", "rate=2,8")
    ran = infcalc(capsys, "simulate", *DRAFTED, *loses)
    assert "eagle3 x 6 pays nowhere: at rate 2 a request takes" in ran.out
    gains = ("--num-draft-tokens", "3", "--acceptance", "0.9", "--sweep", "rate=2,8")
    assert "eagle3 x 3 pays at every value of the sweep" in infcalc(capsys, "simulate", *DRAFTED, *gains).out


def test_ctrl_c_in_the_run_beside_leaves_a_partial_answer(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    from infcalc.api import simulation_runs, simulation_site  # noqa: PLC0415 - only here

    whole = simulation_runs.run_of

    def broken(setting: Any, load: Any, progress: Any) -> Any:  # noqa: ANN401
        found = whole(setting, load, progress)
        return found if setting.chance is not None else replace(found, partial=True)

    monkeypatch.setattr(simulation_site, "run_of", broken)
    ran = infcalc(capsys, "simulate", *DRAFTED, "--rate", "6", "--json")
    assert ran.code == 130
    assert json.loads(ran.out)["result"]["partial"]


@pytest.mark.parametrize(
    ("options", "place"),
    [
        (("--acceptance", "0.8"), "--acceptance"),
        (("--method", "eagle3,mtp"), "--method"),
        (("--method", "eagle3", "--engine", "sglang"), "--policy"),
        (("--method", "eagle3", "--num-draft-tokens", "0"), "--num-draft-tokens"),
    ],
)
def test_drafts_that_cannot_be_are_refused_with_the_mend(capsys: Capture, options: tuple[str, ...], place: str) -> None:
    ran = infcalc(capsys, "simulate", *options)
    assert ran.code == 2
    assert place in ran.err
    assert "hint" in ran.err
