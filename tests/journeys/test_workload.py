"""``infcalc workload`` as a person meets it: every format, the screen, pictures, files that are broken."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from infcalc.report.terminal import show
from infcalc.report.timeline import columns_drawn
from infcalc.report.views.workload import view
from tests.journeys.command import answer, infcalc

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_keys_of_the_contract(capsys: Capture) -> None:
    document = answer(capsys, "workload", "--requests", "100").document
    assert document["schema"] == "infcalc.workload/1"
    result = document["result"]
    assert {"requests", "duration_s", "rate_per_s", "burstiness_cv", "prefix_share_fraction"} <= set(result)
    for part in ("input_tokens", "output_tokens"):
        assert {"mean", "p50", "p90", "p99"} <= set(result[part])


def test_the_screen_says_what_was_assumed_and_draws_the_rate(capsys: Capture) -> None:
    ran = infcalc(capsys, "workload", "--requests", "3000")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].startswith("assumed: arrivals poisson:rate=12")
    assert lines[0].endswith("given: num requests 3,000")
    assert "3,000 requests over" in lines[1]
    assert any("#####" in line for line in lines)
    assert max(map(len, lines[2:])) <= 100


def test_all_formats_hold_the_same_numbers(capsys: Capture) -> None:
    asked = ("workload", "--requests", "200", "--shared-prefix", "num=2,tokens=50")
    result = answer(capsys, *asked).result
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, *asked, "--format", "csv").out)))
    assert [row["row"] for row in rows] == ["result"] + ["interval"] * len(result["over_time"])
    assert float(rows[0]["input_tokens.p90"]) == result["input_tokens"]["p90"]
    assert float(rows[0]["prefix_share_fraction"]) == result["prefix_share_fraction"]
    for row, interval in zip(rows[1:], result["over_time"], strict=True):
        assert all(float(row[key]) == value for key, value in interval.items())
    screen, document = (infcalc(capsys, *asked, *form).out for form in ((), ("--format", "markdown")))
    share = f"{100 * result['prefix_share_fraction']:.1f} %"
    assert share in screen
    assert share in document


def test_a_trace_that_was_saved_says_the_same(capsys: Capture) -> None:
    made = infcalc(capsys, "workload", "--requests", "300", "--turns", "3", "--save-trace", "t.jsonl", "--json")
    assert made.code == 0
    read = answer(capsys, "workload", "t.jsonl").result
    assert {key for key in read if read[key] != made.result[key]} == {"trace_format"}
    assert read["prefix_share_fraction"] > 0.3
    screen = infcalc(capsys, "workload", "t.jsonl").out
    assert "100 sessions of 3.00 turns on average" in screen
    assert "a trace like this: infcalc workload --arrivals gamma:rate=" in " ".join(screen.split())


def test_the_same_seed_gives_the_same_bytes(capsys: Capture) -> None:
    texts = []
    for seed in ("5", "5", "6"):
        infcalc(capsys, "workload", "--requests", "50", "--seed", seed, "--save-trace", "t.csv")
        texts.append(Path("t.csv").read_bytes())
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("options", [("--requests", "300"), ("--requests", "30", "--arrivals", "once")])
@pytest.mark.parametrize(("ending", "begins"), [("png", b"\x89PNG\r\n\x1a\n"), ("svg", b"<?xml")])
def test_a_picture_is_drawn(capsys: Capture, options: tuple[str, ...], ending: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    ran = infcalc(capsys, "workload", *options, "--format", "plot", "--output", f"x.{ending}")
    assert (ran.code, ran.out) == (0, "")
    assert Path(f"x.{ending}").read_bytes().startswith(begins)


@pytest.mark.parametrize("width", [40, 80, 140])
def test_the_drawing_fits_the_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    from infcalc.api import WorkloadAsk, workload  # noqa: PLC0415 - only here

    monkeypatch.setenv("COLUMNS", str(width))
    out = io.StringIO()
    show(view(workload(WorkloadAsk(num_requests=2000))), out)
    drawn = [line for line in out.getvalue().splitlines() if "#" in line]
    assert len(drawn) > 4
    assert max(map(len, drawn)) < width


def test_columns_grow_with_what_they_show() -> None:
    rows = columns_drawn([0, 1, 8], "per s", "3 s", width=30).splitlines()
    heights = [sum("#" in row[place : place + 1] for row in rows) for place in (12, 17, 22)]
    assert heights == [0, 1, 8]
    assert rows[-1].split() == ["0", "s", "3", "s"]


@pytest.mark.parametrize("gate", ["rate_per_s>=1", "input_tokens.p90<100000"])
def test_gates_reach_every_number(capsys: Capture, gate: str) -> None:
    assert infcalc(capsys, "workload", "--requests", "100", "--require", gate).code == 0
    assert infcalc(capsys, "workload", "--requests", "100", "--require", gate.replace(">=1", ">=1e6")).code in {0, 4}


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("missing.csv",), "missing.csv: no such file"),
        (("broken.csv",), "line 3: output_tokens 'x' is not a number"),
        (("broken.csv", "--trace-format", "mooncake"), "not JSON"),
        (("broken.csv", "--trace-format", "parquet"), "--trace-format"),
        (("--arrivals", "poisson:0"), "--arrivals"),
        (("--arrivals", "poisson:-1"), "--arrivals"),
        (("--rate", "3", "--users", "4"), "--users: both --rate and --users"),
        (("--users", "3", "--concurrency", "4"), "--users"),
        (("--save-trace", "none/x.csv"), "none/x.csv"),
        (("--shared-prefix", "num=3"), "--shared-prefix"),
        (("--turns", "0"), "--turns"),
        (("--seed", "-3"), "--seed"),
        (("--think-time", "later", "--users", "3"), "--think-time"),
    ],
)
def test_bad_input_ends_with_2_and_says_where(capsys: Capture, arguments: tuple[str, ...], says: str) -> None:
    Path("broken.csv").write_text("time,input_tokens,output_tokens\n1,2,3\n1,2,x\n", encoding="utf-8")
    ran = infcalc(capsys, "workload", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert "hint: " in ran.err
    assert "Traceback" not in ran.err


def test_a_trace_comes_from_standard_input(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = "".join(f"{json.dumps({'timestamp': 1000 * n, 'input_length': 9, 'output_length': 1})}\n" for n in range(5))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(lines.encode())))
    result = answer(capsys, "workload", "-").result
    assert (result["trace_format"], result["duration_s"]) == ("mooncake", 4)
