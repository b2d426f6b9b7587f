"""``infcalc what-if`` as a user meets it."""

from __future__ import annotations

import csv
import io
import json

import pytest

from tests.journeys.command import infcalc

Capture = pytest.CaptureFixture[str]
ASKED = ("what-if", "-m", "llama3-8b", "-g", "h100", "-n", "1", "--users", "8", "--num-requests", "40")
FEW = (*ASKED, "--feature", "fp8-weights,static-batching,expert-parallel")


def test_every_format_holds_the_same_factors(capsys: Capture) -> None:
    rows = json.loads(infcalc(capsys, *FEW, "--json").out)["result"]["rows"]
    assert [row["feature"] for row in rows] == ["fp8-weights", "expert-parallel", "static-batching"]
    assert [row["verdict"] for row in rows][1] == "cannot"
    table = list(csv.DictReader(io.StringIO(infcalc(capsys, *FEW, "--format", "csv").out)))
    for row, line in zip(rows, table, strict=True):
        assert line["verdict"] == row["verdict"]
        if row["throughput_factor"] is not None:
            assert float(line["throughput_factor"]) == row["throughput_factor"]
            assert row["throughput_factor_low"] < row["throughput_factor"] < row["throughput_factor_high"]
    shown = infcalc(capsys, *FEW).out
    assert f"{rows[0]['throughput_factor']:.2f}x" in shown
    assert "needs a mixture of experts" in shown
    assert f"{rows[0]['throughput_factor']:.2f}x" in infcalc(capsys, *FEW, "--format", "markdown").out


def test_the_same_seed_gives_the_same_bytes(capsys: Capture) -> None:
    assert infcalc(capsys, *FEW, "--json").out == infcalc(capsys, *FEW, "--json").out


def test_a_gate_names_a_feature(capsys: Capture) -> None:
    gate = "rows[feature=static-batching].throughput_factor>=1"
    assert infcalc(capsys, *FEW, "--require", gate).code == 4
    assert infcalc(capsys, *FEW, "--require", gate.replace(">=", "<=")).code == 0


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--feature", "turbo"), "'turbo' is not a feature"),
        (("--feature", ""), "--feature"),
        (("-g", "a100"), "2 deployments"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_bad_input_is_refused(capsys: Capture, more: tuple[str, ...], told: str) -> None:
    refused = infcalc(capsys, *ASKED, *more)
    assert refused.code == 2
    assert told in refused.err
    assert "hint: " in refused.err


def test_what_does_not_fit_is_an_answer(capsys: Capture) -> None:
    ran = infcalc(capsys, "what-if", "-m", "llama3-70b", "-g", "h100", "-n", "1")
    assert ran.code == 3
    assert "does not fit" in ran.out
