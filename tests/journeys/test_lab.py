"""``infcalc lab`` from the command line, on models so small that nobody waits."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path

import pytest
import yaml

from tests.journeys.command import infcalc

Capture = pytest.CaptureFixture[str]
TINY = ("lab", "--quick", "--hidden", "64", "--layers", "1", "--tokens", "20", "--context", "16", "--repeat", "1")


@pytest.fixture(autouse=True)
def _own_surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
        # What the command sets is taken back after the test.
        monkeypatch.setenv(name, os.environ.get(name, "2"))


def test_the_document_is_that_of_the_contract(capsys: Capture) -> None:
    ran = infcalc(capsys, *TINY, "--seed", "3", "--json")
    assert ran.code == 0
    assert "..." in ran.err
    document = ran.document
    assert document["schema"] == "infcalc.lab/1"
    assert {"bandwidth_bytes_per_s", "peak_flop_per_s"} <= set(ran.result["machine"])
    for row in ran.result["rows"]:
        assert {"case", "measured_s", "predicted_s", "error_fraction"} <= set(row)
        assert row["error_fraction"] == pytest.approx(row["predicted_s"] / row["measured_s"] - 1)
    assert document["inputs"]["seed"] == {"value": 3, "origin": "given (--seed)"}
    assert document["inputs"]["num_threads"]["value"] == int(os.environ["OPENBLAS_NUM_THREADS"])
    assert ran.result["same_tokens"] is True


def test_a_table_says_how_often_the_first_token_was_projected(capsys: Capture) -> None:
    ran = infcalc(capsys, *TINY, "--threads", "1")
    assert ran.code == 0
    said = "projected 19 times by the time token 20 is produced, with one once"
    assert said in ran.out
    assert "bit for bit" in ran.out
    assert "cpu clock" in " ".join(ran.out.split())
    assert "infcalc" not in ran.err


def test_csv_markdown_and_explanations(capsys: Capture) -> None:
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, *TINY, "--format", "csv").out)))
    assert [row["case"] for row in rows][:2] == ["decode, contiguous cache", "decode, paged cache"]
    assert float(rows[0]["measured_s"]) > 0
    told = infcalc(capsys, *TINY, "--format", "markdown", "--explain").out
    assert "| step |" in " ".join(told.split())
    assert "Williams" in told


def test_a_plot_is_drawn(capsys: Capture, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "lab.svg"
    ran = infcalc(capsys, *TINY, "--format", "plot", "--output", str(path))
    assert (ran.code, ran.out) == (0, "")
    assert path.read_text(encoding="utf-8").startswith("<?xml")


def test_other_commands_know_the_computer_that_was_measured(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "here.yaml"
    written = infcalc(capsys, "lab", "measure", "--quick", "--repeat", "1", "--name", "my box", "--output", str(path))
    assert (written.code, written.out) == (0, "")
    entry = yaml.safe_load(path.read_text(encoding="utf-8"))["gpus"]["my box"]
    assert {"memory", "bandwidth", "fp32", "source", "date", "efficiency"} <= set(entry)
    given = ("--catalog", str(path), "--gpu", "my-box", "--gpus", "1", "--model", "llama3.2-1b", "--json")
    roofline = infcalc(capsys, "roofline", *given)
    assert roofline.code == 0, roofline.err
    (one,) = roofline.result["gpus"]
    assert f"{one['bandwidth_bytes_per_s'] / 1e9:.6g} GB/s" == entry["bandwidth"]
    assert f"{one['peak_flop_per_s'] / 1e9:.6g} GFLOPS" == entry["fp32"]
    estimate = infcalc(capsys, "estimate", *given, "--batch", "1", "--engine", "llama.cpp")
    assert estimate.code == 0, estimate.err
    # The weights alone, 16 bits each, read once per token.
    assert estimate.result["tpot_s"]["value"] > 2 * 1.2e9 / one["bandwidth_bytes_per_s"]
    lab = infcalc(capsys, *TINY, "--catalog", str(path), "--gpu", "my-box", "--json")
    assert lab.result["machine"]["gpu"] == "my box"
    for command in (("kv",), ("memory",), ("concurrency",)):
        assert infcalc(capsys, *command, *given, "--engine", "llama.cpp").code in {0, 3}


def test_measure_answers_in_every_format(capsys: Capture) -> None:
    quick = ("lab", "measure", "--quick", "--repeat", "1")
    assert "gpus:\n  this-cpu:" in infcalc(capsys, *quick).out
    found = json.loads(infcalc(capsys, *quick, "--json").out)["result"]
    assert yaml.safe_load(found["overlay"])["gpus"]["this-cpu"]
    assert found["machine"]["gpu"] == "this-cpu"
    table = infcalc(capsys, *quick, "--format", "table").out
    assert "decode attention, through block tables" in table


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("lab", "dance"), 2, "'dance'"),
        (("lab", "--size", "huge"), 2, "--size"),
        (("lab", "--hidden", "100"), 2, "--hidden"),
        (("lab", "--threads", "0"), 2, "--threads"),
        (("lab", "--threads", "1000", "--quick"), 2, "cores that this process may use"),
        (("lab", "--tokens", "few"), 2, "--tokens"),
        (("lab", "--context", "16", "--context", "32"), 2, "--context"),
        (("lab", "--quick", "--gpu", "no-such-gpu"), 5, "no-such-gpu"),
        (("lab", "--hidden", "16384", "--layers", "128"), 3, "are needed"),
        ((*TINY, "--require", "predicted_s<0"), 4, "predicted_s<0"),
        ((*TINY, "--format", "plot"), 2, "--output"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_refused_says_what_and_the_mend(
    capsys: Capture, arguments: tuple[str, ...], code: int, text: str
) -> None:
    ran = infcalc(capsys, *arguments)
    assert ran.code == code, ran.err
    error = next(line for line in ran.err.splitlines() if line.startswith("error: "))
    assert text in error + ran.err.partition("error: ")[2]
    assert "Traceback" not in ran.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("lab", "measure", "--output", "nowhere/a.yaml"),
        ("lab", "--output", "nowhere/a.txt"),
        ("lab", "--format", "plot"),
        ("lab", "--require", "no gate"),
        ("lab", "--output", "."),
    ],
    ids=" ".join,
)
def test_what_has_nowhere_to_go_is_refused_before_anything_is_measured(
    capsys: Capture, arguments: tuple[str, ...]
) -> None:
    ran = infcalc(capsys, *arguments)
    assert (ran.code, ran.out) == (2, "")
    # Each part of a measurement is told as it begins.
    assert "..." not in ran.err
    assert "hint: " in ran.err
