"""Files of a machine that is slower than the catalog says, calibrated on, saved, and used."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from infcalc.api import Ask, Offer
from infcalc.api.estimator import Estimator
from infcalc.catalog.efficiency import ENGINES
from infcalc.engines.pace import PACED
from tests import measured
from tests.journeys.command import infcalc

Capture = pytest.CaptureFixture[str]
SLOW = "gpus:\n  h100-sxm5-80gb:\n    calibration: {bandwidth: 0.7, engines: {vllm: {step: 3}}}\n"
CLIENTS = (1, 4, 16, 32, 64, 128)
MACHINE = ("--gpu", "h100", "--tp", "1")


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def runs(**changed: int) -> list[str]:
    """Write what a machine with 0.7 of the bandwidth and three times the overhead would measure."""
    Path("slow.yaml").write_text(SLOW, encoding="utf-8")
    slow = Estimator(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, catalogs=("slow.yaml",)))
    names = []
    for clients in CLIENTS:
        number = 10 * clients
        found = slow.estimate(Offer(concurrency=clients, input_tokens=1000, output_tokens=200, num_requests=number))
        assert found.tpot_s is not None
        assert found.ttft_s is not None
        assert found.requests_per_s is not None
        rate = found.requests_per_s.value
        result = {
            "backend": "vllm",
            "model_id": "meta-llama/Llama-3.1-8B-Instruct",
            "num_prompts": number,
            "max_concurrency": clients,
            "request_rate": "inf",
            "duration": number / rate,
            "completed": number,
            "total_input_tokens": number * 1000,
            "total_output_tokens": number * 200,
            "request_throughput": rate,
            "output_throughput": rate * 200,
            "mean_ttft_ms": found.ttft_s.value * 1e3,
            "mean_tpot_ms": found.tpot_s.value * 1e3,
        }
        names.append(f"c{clients}.json")
        Path(names[-1]).write_text(json.dumps(result | changed), encoding="utf-8")
    return names


def test_a_slower_machine_is_learned_saved_and_used(capsys: Capture) -> None:
    names = runs()

    ran = infcalc(capsys, "calibrate", *names, *MACHINE, "--output", "overlay.yaml")

    assert ran.code == 0, ran.err
    assert "fitted to 6 runs" in ran.out
    assert "wrote overlay.yaml" in ran.err
    errors = []
    for catalog in ((), ("--catalog", "overlay.yaml")):
        found = infcalc(capsys, "compare", "c16.json", *MACHINE, *catalog, "--json").result
        (line,) = (one for one in found["lines"] if one["quantity"] == "tpot_s")
        errors.append(abs(line["error_fraction"]))
    assert errors[0] > 0.2
    assert errors[1] < 0.02


def test_the_overlay_in_json_is_the_one_that_is_saved(capsys: Capture) -> None:
    names = runs()
    infcalc(capsys, "calibrate", *names, *MACHINE, "--output", "overlay.yaml")
    result = infcalc(capsys, "calibrate", *names, *MACHINE, "--json").result

    assert result["efficiency"] == yaml.safe_load(Path("overlay.yaml").read_text(encoding="utf-8"))
    assert result["after"]["median_abs_error_fraction"] < 0.1 * result["before"]["median_abs_error_fraction"]
    assert not result["kept_prior"]


def test_what_is_learned_again_with_its_overlay_changes_nothing_more(capsys: Capture) -> None:
    names = runs()
    infcalc(capsys, "calibrate", *names, *MACHINE, "--output", "overlay.yaml")
    again = infcalc(capsys, "calibrate", *names, *MACHINE, "--catalog", "overlay.yaml", "--json").result

    assert again["before"]["median_abs_error_fraction"] < 0.02
    assert again["after"]["median_abs_error_fraction"] <= again["before"]["median_abs_error_fraction"]


def test_the_same_in_csv_markdown_and_json(capsys: Capture) -> None:
    names = runs()
    result = infcalc(capsys, "calibrate", *names, *MACHINE, "--json").result
    text = infcalc(capsys, "calibrate", *names, *MACHINE, "--format", "csv").out
    shown = infcalc(capsys, "calibrate", *names, *MACHINE, "--format", "markdown").out

    for one in result["factors"]:
        assert str(one["value"]) in text
    assert f"{result['after']['median_abs_error_fraction']:.1%}" in shown


def test_runs_that_failed_are_left_out_and_an_answer_without_any_is_refused(capsys: Capture) -> None:
    names = runs(completed=5, failed=3)

    ran = infcalc(capsys, "calibrate", *names, *MACHINE)

    assert ran.code == 2
    assert ran.out == ""
    assert "failed" in ran.err


@pytest.mark.parametrize("cut", range(0, 400, 20))
def test_a_file_cut_off_is_refused_or_read_never_a_traceback(capsys: Capture, cut: int) -> None:
    names = runs()
    text = Path(names[0]).read_text(encoding="utf-8")
    Path("cut.json").write_text(text[:cut], encoding="utf-8")

    ran = infcalc(capsys, "calibrate", "cut.json", *MACHINE)

    assert ran.code in {0, 2}
    assert "Traceback" not in ran.err


def test_metrics_do_not_say_their_load(capsys: Capture) -> None:
    Path("metrics.txt").write_text('vllm:num_requests_running{model_name="llama3.1-8b"} 3\n', encoding="utf-8")

    ran = infcalc(capsys, "calibrate", "metrics.txt", *MACHINE)

    assert ran.code == 2
    assert "do not say which load" in ran.err


def test_a_calibration_may_speak_of_every_engine_whose_pace_is_known() -> None:
    assert ENGINES == PACED


@pytest.mark.parametrize(
    ("block", "text"),
    [
        ("{bandwidth: -1}", "must be from"),
        ("{engines: {vlm: {step: 2}}}", "unknown engine"),
        ("{engines: {vllm: {steps: 2}}}", "steps"),
        ("{engines: 3}", "expected"),
        ("[1]", "expected"),
    ],
)
def test_a_wrong_calibration_in_a_catalog_is_told_with_its_line(capsys: Capture, block: str, text: str) -> None:
    Path("wrong.yaml").write_text(f"gpus:\n  h100:\n    calibration: {block}\n", encoding="utf-8")

    ran = infcalc(capsys, "estimate", "--gpu", "h100", "--catalog", "wrong.yaml")

    assert ran.code == 2
    assert "wrong.yaml:3" in ran.err
    assert text in ran.err


@pytest.mark.parametrize("cluster", ["trtllm_v014_online|llama-3.1-70b|NVIDIA H100 SXM"])
def test_half_of_the_runs_of_a_cluster_lower_the_error_on_the_other(cluster: str, tmp_path: Path) -> None:
    page = measured.script("calibration_page")
    entries = yaml.safe_load((measured.ROOT / "tests/published/serving_measured.yaml").read_text(encoding="utf-8"))

    pairs = [pair for half in page.halves(page.clusters(entries)[cluster], tmp_path) for pair in half.tpot]

    before, after = page.medians(pairs)
    assert before > page.BAR
    assert after <= page.BAR
