"""Results of benchmarks, metrics and interval lines from files, in every format; and what users asked about them."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engines.logs import samples
from tests.evidence import shapes
from tests.evidence.test_shared_files import DATA, NO_RESULTS
from tests.journeys.command import Ran, infcalc

Capture = pytest.CaptureFixture[str]
KEYS = {"quantity", "statistic", "predicted", "measured", "error_fraction", "attributed_to", "parts"}


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saved(name: str, value: object) -> str:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return name


def line(result: dict[str, Any], quantity: str, statistic: str = "mean") -> dict[str, Any]:
    found: dict[str, Any] = next(
        one for one in result["lines"] if (one["quantity"], one["statistic"]) == (quantity, statistic)
    )
    return found


def refused(ran: Ran, code: int, *texts: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "hint: " in ran.err
    for text in texts:
        assert text in ran.err


@pytest.mark.parametrize("name", shapes.TEXTS)
def test_every_shape_is_compared_or_says_what_it_lacks(capsys: Capture, name: str) -> None:
    file = saved("file", shapes.TEXTS[name][1])
    ran = infcalc(
        capsys,
        "compare",
        file,
        "-m",
        "llama3.1-8b",
        "-g",
        "h100",
        "--input-tokens",
        "200",
        "--output-tokens",
        "50",
        "--json",
    )
    if name in {"aiperf csv", "vllm log"}:
        refused(ran, 2, "no line is of" if name == "vllm log" else "neither rate, concurrency")
        return
    assert ran.code == 0, ran.err
    results = ran.result.get("side_by_side", [ran.result])
    for result in results:
        assert result["lines"]
        for one in result["lines"]:
            assert set(one) >= KEYS
        assert any(one["predicted"] is not None for one in result["lines"])


def test_the_verdict_comes_first_and_says_whether_it_is_normal(capsys: Capture) -> None:
    ran = infcalc(capsys, "compare", saved("result.json", shapes.VLLM_SERVE))
    first, second = ran.out.splitlines()[:2]
    assert first.startswith("time per token 9 ms measured, ")
    assert " of the roofline; " in first
    assert "published figures of its class" in first
    assert second.startswith("assumed: ")
    assert "given: model llama3.1-8b, gpu h100-pcie-80gb" in second


def test_csv_markdown_and_the_screen_hold_the_numbers_of_json(capsys: Capture) -> None:
    file = saved("result.json", shapes.VLLM_SERVE)
    lines = infcalc(capsys, "compare", file, "--json").result["lines"]
    table = list(csv.DictReader(io.StringIO(infcalc(capsys, "compare", file, "--format", "csv").out)))
    assert len(table) == len(lines)
    for row, one in zip(table, lines, strict=True):
        for key in ("quantity", "statistic", "predicted", "measured", "error_fraction", "roofline_fraction", "at"):
            assert row[key] == ("" if one[key] is None else str(one[key]))
    markdown = infcalc(capsys, "compare", file, "--format", "markdown").out
    assert "| time per token | mean | " in markdown


def test_several_files_stand_side_by_side_with_a_row_each(capsys: Capture) -> None:
    files = [
        saved(f"c{size}.json", shapes.VLLM_SERVE | {"request_rate": "inf", "max_concurrency": size})
        for size in (1, 8, 32)
    ]
    ran = infcalc(capsys, "compare", *files)
    assert ran.code == 0
    assert [text.partition(":")[0] for text in ran.out.splitlines()[:3]] == files
    assert "Measured, and how far the prediction is off" in ran.out
    assert "over the 3 runs of llama3.1-8b on 1 x h100-pcie-80gb: " in " ".join(ran.out.split())
    results = infcalc(capsys, "compare", *files, "--json").result["side_by_side"]
    assert [result["place"] for result in results] == files
    rows = list(csv.DictReader(io.StringIO(infcalc(capsys, "compare", *files, "--format", "csv").out)))
    assert {row["place"] for row in rows} == set(files)


def test_a_log_and_a_benchmark_stand_side_by_side(capsys: Capture) -> None:
    files = [saved("vllm.log", samples.V1_H100), saved("result.json", shapes.VLLM_SERVE)]
    ran = infcalc(capsys, "compare", *files, "--gpu", "h100", "--json")
    log, run = ran.result["side_by_side"]
    assert log["evidence"] == "start-up log"
    assert run["evidence"] == "vllm-serve"
    screen = infcalc(capsys, "compare", *files, "--gpu", "h100").out
    assert "KV pool" in screen
    assert "time per token" in screen


def test_a_log_with_both_is_a_start_up_log_unless_its_lines_are_asked_for(capsys: Capture) -> None:
    both = (
        samples.V1_H100 + "\n" + shapes.VLLM_LOG.replace("Avg prompt throughput: 512.0", "Avg prompt throughput: 0.0")
    )
    file = saved("vllm.log", both)
    assert infcalc(capsys, "compare", file, "-g", "h100", "--json").result["evidence"] == "start-up log"
    ran = infcalc(capsys, "compare", file, "-g", "h100", "--benchmark-format", "interval-log", "--json")
    assert ran.result["evidence"] == "interval lines"
    # The deployment is that of the start-up lines.
    assert ran.result["model"] == "llama3.1-8b"


def test_a_comparison_can_be_gated(capsys: Capture) -> None:
    asked = ("compare", saved("result.json", shapes.VLLM_SERVE), "--require")
    assert infcalc(capsys, *asked, "lines[quantity=tpot_s,statistic=mean].error_fraction<=0.5").code == 0
    assert infcalc(capsys, *asked, "worst_abs_error_fraction<=0.0001").code == 4


def test_explanations_say_how_each_line_came_about(capsys: Capture) -> None:
    out = infcalc(capsys, "compare", saved("result.json", shapes.VLLM_SERVE), "--explain").out
    assert "predicted + parts of the difference = measured" in out
    assert "(at mean_tpot_ms)" in " ".join(out.split())


def test_standard_input_and_simulation(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO(json.dumps(shapes.VLLM_SERVE).encode())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(raw, encoding="utf-8"))
    ran = infcalc(capsys, "compare", "-", "--simulate", "--json")
    assert ran.code == 0, ran.err
    assert line(ran.result, "ttft_s", "p99")["predicted"] is not None


@pytest.mark.parametrize(
    ("value", "arguments", "code", "text"),
    [
        (json.dumps(shapes.VLLM_SERVE)[:-9], (), 2, "cut off"),
        (shapes.VLLM_SERVE | {"mean_tpot_ms": -3}, (), 2, "mean_tpot_ms is -3"),
        (shapes.VLLM_SERVE | {"model_id": "acme/none"}, (), 5, "acme/none"),
        (shapes.VLLM_SERVE | {"gpu_name": "GTX 9090"}, (), 5, "--gpu NAME"),
        (shapes.VLLM_SERVE, ("--benchmark-format", "xml"), 2, "no format of benchmarks"),
        (shapes.VLLM_SERVE, ("--benchmark-format", "prometheus"), 2, "metric"),
        (shapes.VLLM_SERVE, ("--gpu", "h100", "--gpu", "a100"), 2, "--gpu"),
        (shapes.VLLM_SERVE, ("--concurrency", "4", "--rate", "3"), 2, "--concurrency"),
        (shapes.PROMETHEUS, ("-g", "h100", "--simulate", "--output-tokens", "9"), 2, "--simulate"),
        ({"anything": 1}, (), 2, "results of benchmarks that are read"),
        ("", (), 2, "empty"),
    ],
)
def test_what_cannot_be_compared_says_why(
    capsys: Capture, value: object, arguments: tuple[str, ...], code: int, text: str
) -> None:
    refused(infcalc(capsys, "compare", saved("file.json", value), *arguments), code, text)


def test_a_file_that_is_not_there_is_named(capsys: Capture) -> None:
    refused(infcalc(capsys, "compare", "no.json"), 2, "no.json")


# What users asked


def served(**changes: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a result
    """Return a result with nothing measured but what is given."""
    bare = {
        key: value for key, value in shapes.VLLM_SERVE.items() if not key.endswith("_ms") and "throughput" not in key
    }
    return {
        **bare,
        "request_throughput": None,
        "gpu_name": None,
        "gpu_count": None,
        "tensor_parallel_size": None,
        **changes,
    }


def test_a_first_token_faster_than_its_arithmetic_is_impossible(capsys: Capture) -> None:
    """Llama-3-8B on one A100: 2.5 s for a prompt of 50,000 tokens, and 3 minutes for 300,000 (one is a clock's slip).

    https://github.com/microsoft/MInference/issues/84, 2024-11-18.
    """
    asked = ("-m", "llama3.1-8b", "-g", "a100-80gb", "--batch", "1", "--output-tokens", "1", "--json")
    for prompt, seconds, possible in ((50_000, 2.5, False), (50_000, 7.0, True)):
        result = served(total_input_tokens=40 * prompt, total_output_tokens=40, mean_ttft_ms=1000 * seconds)
        ran = infcalc(capsys, "compare", saved("result.json", result), *asked)
        assert ran.code == 0, ran.err
        assert ran.result["impossible"] == ([] if possible else ["ttft_s"])
    one = line(ran.result, "ttft_s")
    # At 100 % of peak it takes 4.5 s.
    assert one["roofline_fraction"] * 7.0 == pytest.approx(4.5044, rel=0.1)


def test_slow_but_normal_is_near_the_roofline(capsys: Capture) -> None:
    """Llama-3-70B in bf16 over two DGX Sparks: some 3 tokens/s, where 60 to 100 were hoped for.

    https://github.com/mark-ramsey-ri/vllm-dgx-spark/issues/1, 2025-11-15.
    """
    result = served(
        model_id="llama3-70b", request_rate="inf", max_concurrency=1, mean_tpot_ms=333.0, median_tpot_ms=333.0
    )
    ran = infcalc(capsys, "compare", saved("result.json", result), "-g", "gb10", "--tp", "2", "--json")
    assert ran.code == 0, ran.err
    one = line(ran.result, "tpot_s")
    assert ran.result["impossible"] == []
    assert one["roofline_fraction"] == pytest.approx(0.77, abs=0.05)
    hoped = served(model_id="llama3-70b", request_rate="inf", max_concurrency=1, mean_tpot_ms=1000 / 80)
    ran = infcalc(capsys, "compare", saved("result.json", hoped), "-g", "gb10", "--tp", "2", "--json")
    assert ran.result["impossible"] == ["tpot_s"]


def test_two_times_per_token_are_told_apart(capsys: Capture) -> None:
    """TTFT 2.0 s, 25 ms between tokens, 200 tokens: 25.0 ms, or with the first token 34.9 ms.

    https://github.com/redhat-performance/configiq/issues/8, 2026-07-31.
    """
    report = shapes.guidellm("0.8.1")
    metrics = report["benchmarks"][0]["metrics"]
    for key, mean in (
        ("time_to_first_token_ms", 2000.0),
        ("inter_token_latency_ms", 25.0),
        ("time_per_output_token_ms", 34.875),
        ("request_latency", 6.975),
    ):
        metrics[key] = {"successful": {"mean": mean}}
    metrics["output_token_count"] = {"successful": {"mean": 200.0}}
    ran = infcalc(capsys, "compare", saved("report.json", report), "-g", "h100", "--json")
    assert ran.code == 0, ran.err
    each, inclusive = (line(ran.result, name) for name in ("tpot_s", "tpot_inclusive_s"))
    assert (each["measured"], inclusive["measured"]) == (0.025, 0.034875)
    assert inclusive["predicted"] > each["predicted"]
    assert any("holds the wait for the first token" in note for note in ran.document["assumptions"])


def test_a_card_that_was_not_measured_has_a_wide_band(capsys: Capture) -> None:
    """45 % error in TTFT on A100 and worse on A10: what was not calibrated must say so by its band.

    https://github.com/ai-dynamo/aiconfigurator/issues/1205, 2026-06-05.
    """
    result = served(model_id="qwen3-32b", request_rate="inf", max_concurrency=4, mean_ttft_ms=900.0)
    ran = infcalc(capsys, "compare", saved("result.json", result), "-g", "a10", "--tp", "4", "--json")
    assert ran.code == 0, ran.err
    first = line(ran.result, "ttft_s")
    assert first["predicted_high"] >= 1.45 * first["predicted"]


# Files of others

DEPLOYED: dict[str, tuple[str, ...]] = {
    "dstack_405b_offline.jsonl": (
        *("-m", "meta-llama/Llama-3.1-405B-FP8", "-g", "h100", "--tp", "8"),
        *("--batch", "16", "--input-tokens", "128", "--output-tokens", "2048"),
    ),
    "dstack_8xH100": ("-g", "h100", "--tp", "8"),
    "dstack_sglang": ("-g", "h200", "--tp", "8", "--engine", "sglang"),
    "guidellm": ("-m", "llama3.1-8b", "-g", "h100"),
    "summary_lifecycle": ("-m", "llama3.1-8b", "-g", "h100", "--max-model-len", "512", "--concurrency", "128"),
    "lifecycle": ("-m", "llama3.1-8b", "-g", "h100", "--max-model-len", "512"),
    "prometheus": ("-m", "llama3.1-8b", "-g", "h100", "--max-model-len", "512", "--concurrency", "128"),
    "RTX4090_Llama-3.1-8B": ("-m", "llama3.1-8b", "-g", "rtx-4090", "--max-model-len", "32768"),
    "RTXPRO6000_Llama-3.1-8B": ("-m", "llama3.1-8b", "-g", "rtx-pro-6000"),
    "RTXPRO6000_Qwen3-30B": ("-m", "qwen3-30b-a3b", "-g", "rtx-pro-6000"),
    "RTXPRO6000_Qwen3-32B": ("-m", "qwen3-32b", "-g", "rtx-pro-6000"),
}
FILES = [
    path
    for folder in ("bench_*", "engine_traces")
    for path in sorted(DATA.glob(f"{folder}/**/*"))
    if path.is_file() and path.name not in NO_RESULTS
]


def _cached(path: Path) -> tuple[str, ...]:
    """Return what of prompts is in the cache: of ten under each of ten system prompts, nearly all, where it is on."""
    engine = path.with_name("engine.json")
    if not engine.exists() or "--no-enable-prefix-caching" in engine.read_text(encoding="utf-8"):
        return ()
    return ("--prefix-hit", "0.9")


@pytest.mark.skipif(not DATA.exists(), reason="the shared files with published results are not here")
def test_every_published_file_is_compared(capsys: Capture) -> None:
    assert FILES
    for path in FILES:
        options = next((given for key, given in DEPLOYED.items() if key in str(path)), ())
        ran = infcalc(capsys, "compare", str(path), *options, *_cached(path), "--json")
        assert ran.code == 0, f"{path}: {ran.err}"
        for result in ran.result.get("side_by_side", [ran.result]):
            assert any(one["predicted"] is not None for one in result["lines"]), path
            if "guidellm" not in path.name:
                assert result["impossible"] == [], f"{path}: {result['place']}: {result['verdict']}"
