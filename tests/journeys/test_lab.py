"""``infcalc lab`` from the command line, on models so small that nobody waits."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
from pathlib import Path

import pytest
import yaml

from tests.api.stand_in_torch import StandIn
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
        (("lab", "--device", "cuda"), 2, "infcalc lab measure --device"),
        (("lab", "measure", "--device", "tpu"), 2, "one of cuda, cpu"),
        (("lab", "measure", "--device", "cpu", "--repeat", "0"), 2, "--repeat"),
        (("lab", "measure", "--device", "cuda", "--gpu", "no-such-gpu"), 5, "no-such-gpu"),
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
        ("lab", "measure", "--device", "cuda", "--output", "nowhere/a.yaml"),
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


# A device of torch


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    made = StandIn(refused=("float8_e4m3fn",), memory_bytes=20e9, bandwidth_share=0.4)
    monkeypatch.setitem(sys.modules, "torch", made)
    return made


DEVICE = ("lab", "measure", "--device", "cuda", "--repeat", "2")


@pytest.mark.usefixtures("standin")
def test_a_gpu_is_measured_saved_and_used(capsys: Capture) -> None:
    ran = infcalc(capsys, *DEVICE, "--output", "mine.yaml")
    assert ran.code == 0, ran.err
    assert "as h100-sxm5-80gb: reaches" in ran.out
    assert "wrote mine.yaml" in ran.err
    block = yaml.safe_load(Path("mine.yaml").read_text(encoding="utf-8"))["gpus"]["h100-sxm5-80gb"]["efficiency"]
    assert block["source"] == "infcalc lab measure --device cuda: torch 9.9.9+standin"

    given = ("--gpu", "h100", "--tp", "1", "--model", "llama3.1-8b", "--batch", "64", "--json")
    with_it, without = (
        infcalc(capsys, "estimate", *given, *catalog).result["tpot_s"]["value"]
        for catalog in (("--catalog", "mine.yaml"), ())
    )
    # The stand-in reads its memory more slowly than a real one.
    assert with_it > 1.3 * without


@pytest.mark.usefixtures("standin")
def test_what_a_device_reaches_in_every_format(capsys: Capture) -> None:
    found = infcalc(capsys, *DEVICE, "--json")
    result = found.result
    assert {"bandwidth_bytes_per_s", "peak_flop_per_s", "torch_version", "known"} <= set(result["machine"])
    assert yaml.safe_load(result["overlay"])["gpus"]["h100-sxm5-80gb"]
    for row in result["kernels"]:
        assert row["time_s_low"] <= row["time_s"] <= row["time_s_high"]
        assert row["error_fraction"] is None or row["error_fraction"] == pytest.approx(
            row["predicted_s"] / row["time_s"] - 1
        )
    assert any("no kernel for float8" in one["why"] for one in result["left_out"])
    lines = list(csv.DictReader(io.StringIO(infcalc(capsys, *DEVICE, "--format", "csv").out)))
    assert len(lines) == len(result["kernels"])
    shown = infcalc(capsys, *DEVICE, "--format", "markdown").out
    assert "| prefill attention |" in " ".join(shown.split())
    assert "Left out" in shown


def test_torch_that_is_missing_is_told_with_the_mend(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    ran = infcalc(capsys, *DEVICE)
    assert (ran.code, ran.out) == (2, "")
    assert "torch is not installed" in ran.err
    assert "pip install 'infcalc[torch]'" in ran.err


def test_a_gpu_that_torch_does_not_see_is_told_with_the_mend(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", StandIn(cuda=False, built=None))
    ran = infcalc(capsys, *DEVICE)
    assert (ran.code, ran.out) == (2, "")
    assert "sees no CUDA device" in ran.err
    assert "--device cpu" in ran.err
