"""Files of a machine that is slower than the catalog says, calibrated on, saved, and used."""

from __future__ import annotations

import json
from collections.abc import Sequence
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


def runs(clients: Sequence[int] = CLIENTS, slow: str = SLOW, prefix: str = "c", **changed: float) -> list[str]:
    """Write what a machine with 0.7 of the bandwidth and three times the overhead would measure."""
    Path("slow.yaml").write_text(slow, encoding="utf-8")
    machine = Estimator(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, catalogs=("slow.yaml",)))
    names = []
    for num_clients in clients:
        number = 10 * num_clients
        found = machine.estimate(
            Offer(concurrency=num_clients, input_tokens=1000, output_tokens=200, num_requests=number)
        )
        assert found.tpot_s is not None
        assert found.ttft_s is not None
        assert found.requests_per_s is not None
        rate = found.requests_per_s.value
        result = {
            "backend": "vllm",
            "model_id": "meta-llama/Llama-3.1-8B-Instruct",
            "num_prompts": number,
            "max_concurrency": num_clients,
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
        names.append(f"{prefix}{num_clients}.json")
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


def test_bands_of_the_machines_own_figures_and_where_an_overhead_comes_from(capsys: Capture) -> None:
    names = runs((1, 2, 4, 8, 12, 16, 24, 32, 48, 64))
    infcalc(capsys, "calibrate", *names, *MACHINE, "--output", "overlay.yaml")
    load = (
        "--model",
        "llama3.1-8b",
        *MACHINE,
        "--concurrency",
        "16",
        "--input-tokens",
        "1000",
        "--output-tokens",
        "200",
    )

    def width(*more: str) -> float:
        figure = infcalc(capsys, "estimate", *load, *more, "--json").result["tpot_s"]
        found: float = (figure["high"] - figure["low"]) / figure["value"]
        return found

    assert width("--catalog", "overlay.yaml") < 0.5 * width()
    told = infcalc(capsys, "estimate", *load, "--catalog", "overlay.yaml", "--explain")
    text = " ".join(told.out.split())
    assert "bands of tpot_s (10 figures)" in text
    assert "times as long by infcalc calibrate: 10 runs of 10 files" in text
    # Of another model nothing was measured: it keeps the band of its class.
    other = ("--model", "llama3.1-70b", "--gpu", "h100", "--tp", "4")
    with_it, without = (
        infcalc(capsys, "estimate", *other, *catalog, "--json").result["tpot_s"]
        for catalog in (("--catalog", "overlay.yaml"), ())
    )
    assert with_it["high"] / with_it["value"] == pytest.approx(without["high"] / without["value"], rel=0.05)


def test_what_acts_alike_is_named_with_what_else_would_fit(capsys: Capture) -> None:
    names = runs()
    ran = infcalc(capsys, "calibrate", *names, *MACHINE)
    result = infcalc(capsys, "calibrate", *names, *MACHINE, "--json").result

    (trade,) = (text for text in result["trades"] if "bandwidth" in text and "step of vllm" in text)
    assert "would fit nearly as well" in trade
    assert trade in ran.out
    by_name = {one["factor"]: one for one in result["factors"]}
    assert by_name["bandwidth"]["partner"] == "step of vllm"
    assert abs(by_name["bandwidth"]["correlation"]) > 0.8
    # The machine was made with 0.7 and 3: within two deviations of both.
    for name, true in (("bandwidth", 0.7), ("step", 3.0)):
        one = by_name[name]
        assert (
            one["value"] * (one["low"] / one["value"]) ** 2 <= true <= one["value"] * (one["high"] / one["value"]) ** 2
        )


def test_with_few_figures_bands_stay_and_it_is_said(capsys: Capture) -> None:
    names = runs()
    ran = infcalc(capsys, "calibrate", *names, *MACHINE, "--json")
    assert ran.result["bands"] == []
    assert "bands" not in ran.result["efficiency"]["gpus"]["h100-sxm5-80gb"]["calibration"]
    assert "too few figures for bands of its own" in infcalc(capsys, "calibrate", *names, *MACHINE).out


def test_one_bad_point_among_ten_is_named_and_bends_nothing(capsys: Capture) -> None:
    names = runs((1, 2, 4, 8, 12, 16, 24, 32, 48, 64))
    good = infcalc(capsys, "calibrate", *names, *MACHINE, "--json").result
    bad = json.loads(Path("c12.json").read_text(encoding="utf-8"))
    bad["mean_tpot_ms"] *= 3
    bad["mean_ttft_ms"] *= 3
    for key in ("request_throughput", "output_throughput"):
        bad[key] /= 3
    bad["duration"] *= 3
    Path("c12.json").write_text(json.dumps(bad), encoding="utf-8")

    ran = infcalc(capsys, "calibrate", *names, *MACHINE, "--output", "overlay.yaml")
    result = infcalc(capsys, "calibrate", *names, *MACHINE, "--json").result

    assert ran.code == 0, ran.err
    assert "c12.json: tpot_s" in ran.err
    assert all("c12.json" in text for text in result["outliers"])
    lines = []
    for overlay in (good["efficiency"], result["efficiency"]):
        Path("one.yaml").write_text(yaml.safe_dump(overlay), encoding="utf-8")
        found = infcalc(capsys, "compare", "c48.json", *MACHINE, "--catalog", "one.yaml", "--json").result["lines"]
        lines.append(next(one for one in found if one["quantity"] == "tpot_s")["predicted"])
    assert lines[1] == pytest.approx(lines[0], rel=0.04)


def test_one_file_alone_changes_nothing_and_says_why(capsys: Capture) -> None:
    names = runs()
    ran = infcalc(capsys, "calibrate", names[0], *MACHINE, "--output", "overlay.yaml")

    assert ran.code == 0
    assert "nothing is changed (1 run)" in ran.out
    text = Path("overlay.yaml").read_text(encoding="utf-8")
    assert "nothing is changed" in text
    # What changes nothing is a catalog all the same.
    assert infcalc(capsys, "kv", "--catalog", "overlay.yaml").code == 0


def test_copies_and_repeats_of_a_load_test_no_fit(capsys: Capture) -> None:
    first, *_ = runs()
    for number in range(5):
        Path(f"copy{number}.json").write_text(Path(first).read_text(encoding="utf-8"), encoding="utf-8")
    copied = infcalc(capsys, "calibrate", *(f"copy{number}.json" for number in range(5)), *MACHINE)
    assert "nothing is changed (1 run)" in copied.out
    assert copied.err.count("a copy of a run") == 4

    # The same load measured five times: each tells the others.
    for number in range(5):
        again = json.loads(Path(first).read_text(encoding="utf-8"))
        again["mean_tpot_ms"] *= 1 + number / 1000
        Path(f"copy{number}.json").write_text(json.dumps(again), encoding="utf-8")
    repeated = infcalc(capsys, "calibrate", *(f"copy{number}.json" for number in range(5)), *MACHINE)
    assert "5 runs of 1 different load" in repeated.out


def test_two_files_that_disagree_are_named(capsys: Capture) -> None:
    fast = "gpus:\n  h100-sxm5-80gb:\n    calibration: {engines: {vllm: {step: 0.2}}}\n"
    names = [*runs((1, 4, 16)), *runs((1, 4, 16), slow=fast, prefix="f")]
    ran = infcalc(capsys, "calibrate", *names, *MACHINE)

    assert ran.code == 0
    assert "c1.json and f1.json" in ran.err.replace("f1.json and c1.json", "c1.json and f1.json")
    assert "are they of one machine in one state?" in ran.err
    # Three loads, each measured twice: what is held out is the load.
    assert "6 runs of 3 different loads" in ran.out


@pytest.mark.parametrize("command", ["estimate", "memory", "plan", "compare", "what-if"])
def test_other_commands_take_the_overlay(capsys: Capture, command: str) -> None:
    names = runs()
    infcalc(capsys, "calibrate", *names, *MACHINE, "--output", "overlay.yaml")
    given = {
        "compare": ("c16.json", *MACHINE),
        "plan": ("--model", "llama3.1-8b", "--gpus-from", "h100", "--rate", "1", "--confirm", "0"),
        "what-if": ("--model", "llama3.1-8b", *MACHINE, "--feature", "fp8-kv"),
    }.get(command, ("--model", "llama3.1-8b", *MACHINE))

    with_it, without = (
        infcalc(capsys, command, *given, *catalog, "--json") for catalog in (("--catalog", "overlay.yaml"), ())
    )

    assert with_it.code == without.code == 0, with_it.err
    assert (with_it.result == without.result) is (command == "memory")


@pytest.mark.parametrize("output", ["nowhere/a.yaml", "."])
def test_an_overlay_with_nowhere_to_go_is_refused_before_the_fit(capsys: Capture, output: str) -> None:
    names = runs()
    ran = infcalc(capsys, "calibrate", *names, *MACHINE, "--output", output)
    assert (ran.code, ran.out) == (2, "")
    assert "hint: " in ran.err


def test_an_overlay_is_written_over_an_older_one(capsys: Capture) -> None:
    names = runs()
    Path("overlay.yaml").write_text("gpus: {}\n", encoding="utf-8")
    assert infcalc(capsys, "calibrate", *names, *MACHINE, "--output", "overlay.yaml").code == 0
    assert "calibration" in Path("overlay.yaml").read_text(encoding="utf-8")


def test_a_server_that_drafts_is_left_out_with_the_mend(capsys: Capture) -> None:
    names = runs((4,), spec_decode_acceptance_length=2.5)
    ran = infcalc(capsys, "calibrate", *names, *MACHINE)
    assert ran.code == 2
    assert "without drafting" in ran.err


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "null", "3", '{"a": 1}', "- id: x\n  workload: 3\n  measured: 4\n", "\x00\x01", "# only a comment"],
)
def test_what_is_no_result_is_refused_in_a_sentence(capsys: Capture, text: str) -> None:
    Path("odd.json").write_text(text, encoding="utf-8")
    ran = infcalc(capsys, "calibrate", "odd.json", *MACHINE)
    assert (ran.code, ran.out) == (2, "")
    assert sum(line.startswith("error: ") for line in ran.err.splitlines()) == 1
    assert "hint: " in ran.err


@pytest.mark.parametrize("value", [0, -1, 1e30, "fast", None, [], float("nan")])
@pytest.mark.parametrize("key", ["mean_tpot_ms", "output_throughput", "total_input_tokens", "max_concurrency"])
def test_a_figure_out_of_all_range_is_no_silent_factor(capsys: Capture, key: str, value: object) -> None:
    names = runs()
    broken = json.loads(Path(names[2]).read_text(encoding="utf-8")) | {key: value}
    Path(names[2]).write_text(json.dumps(broken), encoding="utf-8")

    ran = infcalc(capsys, "calibrate", *names, *MACHINE, "--json")

    assert ran.code in {0, 2}
    assert "Traceback" not in ran.err
    if ran.code == 0:
        for one in ran.result["factors"]:
            assert 0.05 <= one["value"] <= 20
            assert one["low"] <= one["value"] <= one["high"]
        assert ran.result["after"]["median_abs_error_fraction"] < 0.05


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
        ("{bands: 3}", "expected a list of bands"),
        ("{bands: [{of: tpot_s}]}", "figures"),
        ("{bands: [{of: speed, model: a, engine: vllm, figures: 9, low: 0.9, high: 1.1}]}", "none of tpot_s"),
        ("{bands: [{of: tpot_s, model: a, engine: vlm, figures: 9, low: 0.9, high: 1.1}]}", "none of vllm"),
        ("{bands: [{of: tpot_s, model: a, engine: vllm, figures: 9, low: 1.2, high: 1.1}]}", "low is above high"),
        ("{bands: [{of: tpot_s, model: a, engine: vllm, figures: 0, low: 0.9, high: 1.1}]}", "figures"),
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
