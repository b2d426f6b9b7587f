"""A start-up log from a file or a pipe, in every format, and how what is no log ends."""

from __future__ import annotations

import csv
import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from infcalc.engines.logs.reader import read_log
from infcalc.units import GIB
from tests.engines.logs import samples
from tests.journeys.command import Ran, answer, infcalc

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def log(tmp_path: Path) -> str:
    path = tmp_path / "vllm.log"
    path.write_text(samples.V1_H100, encoding="utf-8")
    return path.name


def refused(ran: Ran, code: int, *texts: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    assert "hint: " in ran.err
    for text in texts:
        assert text in ran.err


def test_the_first_line_is_the_verdict_and_the_second_what_was_assumed(capsys: Capture, log: str) -> None:
    ran = infcalc(capsys, "compare", log, "--gpu", "h100")
    assert ran.code == 0
    first, second = ran.out.splitlines()[:2]
    assert first.startswith("KV pool predicted within ")
    assert "in the log" in first
    assert second.startswith("assumed: ")
    assert "given: model llama3.1-8b, gpu h100-sxm5-80gb" in second
    assert "51.38 GiB" in ran.out
    assert "not stated in the log, so assumed" in ran.out


def test_the_promised_keys_are_there(capsys: Capture, log: str) -> None:
    ran = answer(capsys, "compare", log, "--gpu", "h100")
    assert ran.document["schema"] == "infcalc.compare/1"
    for line in ran.result["lines"]:
        assert {"quantity", "predicted", "measured", "error_fraction", "attributed_to", "parts"} <= set(line)
    pool = next(line for line in ran.result["lines"] if line["quantity"] == "kv_pool_bytes")
    assert sum(part["effect"] for part in pool["parts"]) == pytest.approx(pool["measured"] - pool["predicted"], abs=4)
    assert ran.document["inputs"]["tp"] == {"value": 1, "origin": "given in the log, line 4"}


def test_csv_markdown_and_the_screen_hold_the_numbers_of_json(capsys: Capture, log: str) -> None:
    lines = answer(capsys, "compare", log, "--gpu", "h100").result["lines"]
    table = list(csv.DictReader(io.StringIO(infcalc(capsys, "compare", log, "-g", "h100", "--format", "csv").out)))
    assert [row["quantity"] for row in table] == [line["quantity"] for line in lines]
    for row, line in zip(table, lines, strict=True):
        for key in ("predicted", "measured", "error_fraction", "line"):
            assert row[key] == ("" if line[key] is None else str(line[key]))
    markdown = infcalc(capsys, "compare", log, "-g", "h100", "--format", "markdown").out
    assert "| KV tokens | " in markdown
    assert "420,880" in markdown


def test_explanations_say_where_each_figure_is_from(capsys: Capture, log: str) -> None:
    out = infcalc(capsys, "compare", log, "--gpu", "h100", "--explain").out
    assert "explanation:" in out
    assert "at line 11" in out


def test_a_log_comes_through_a_pipe(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(samples.LLAMA_CPP.encode())))
    result = answer(capsys, "compare", "-").result
    assert (result["engine"], result["verdict"]) == ("llama.cpp", "KV pool predicted exactly: 1.06 GiB")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"")))
    refused(infcalc(capsys, "compare", "-"), 2, "standard input", "empty")
    monkeypatch.setattr(sys, "stdin", None)
    refused(infcalc(capsys, "compare", "-"), 2, "standard input")


def test_gates_work_on_the_worst_error(capsys: Capture, log: str) -> None:
    arguments = ("compare", log, "--gpu", "h100", "--json", "--require")
    assert infcalc(capsys, *arguments, "worst_abs_error_fraction<=5").code == 0
    failed = infcalc(capsys, *arguments, "worst_abs_error_fraction<=0.0000001")
    assert failed.code == 4
    assert json.loads(failed.out)["result"]["lines"]


def test_warnings_go_to_stderr(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "odd.log").write_text(samples.NEGATIVE_GRAPHS, encoding="utf-8")
    ran = infcalc(capsys, "compare", "odd.log", "--gpu", "gb10")
    assert ran.code == 0
    assert "cannot be true" in ran.err
    assert "cannot be true" not in ran.out


def test_a_refusal_says_what_would_start(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "refused.log").write_text(samples.ONE_REQUEST, encoding="utf-8")
    ran = infcalc(capsys, "compare", "refused.log", "--gpu", "h100")
    assert ran.code == 0
    assert ran.out.startswith("the engine refused to start: one sequence of the maximum length (40,960 tokens)")
    assert "what would start instead of line 4: --max-model-len 18224" in ran.out


def test_what_cannot_be_compared_ends_with_2(capsys: Capture, tmp_path: Path, log: str) -> None:
    (tmp_path / "no.log").write_text("GET / 200\n", encoding="utf-8")
    (tmp_path / "binary").write_bytes(b"\x7fELF\x00\x01")
    refused(infcalc(capsys, "compare", "no.log"), 2, "no.log", "'Available KV cache memory'", "'KV buffer size ='")
    refused(infcalc(capsys, "compare", "binary"), 2, "binary", "zero bytes")
    refused(infcalc(capsys, "compare", "missing.log"), 2, "missing.log", "no such file")
    refused(infcalc(capsys, "compare", "."), 2, "directory")
    refused(infcalc(capsys, "compare", log), 2, "GPU", "--gpu NAME", "h100-sxm5-80gb")
    refused(infcalc(capsys, "compare"), 2, "FILE")
    refused(infcalc(capsys, "compare", log, "--gpu", "h100", "--gpu", "l4"), 2, "--gpu")


def test_unknown_names_end_with_5(capsys: Capture, tmp_path: Path, log: str) -> None:
    refused(infcalc(capsys, "compare", log, "--gpu", "h1000"), 5, "h1000")
    text = samples.V1_H100.replace("meta-llama/Llama-3.1-8B-Instruct", "acme/Llama-9-8B")
    (tmp_path / "unknown.log").write_text(text, encoding="utf-8")
    refused(infcalc(capsys, "compare", "unknown.log", "--gpu", "h100"), 5, "acme/Llama-9-8B", "--model")
    assert infcalc(capsys, "compare", "unknown.log", "--gpu", "h100", "--model", "llama3.1-8b").code == 0


# What a log says that cannot be used is told, by its name and line


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "some.log").write_text(text, encoding="utf-8")
    return "some.log"


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("tensor_parallel_size=1", "tensor_parallel_size=0", "line 4: tp 0 is left out, for it is not a whole number"),
        ("tensor_parallel_size=1", "tensor_parallel_size=two", "line 4: tp two is left out"),
        ("pipeline_parallel_size=1", "pipeline_parallel_size=0", "line 4: pp 0 is left out"),
        ("'max_model_len': 16384, ", "'max_num_seqs': 0, ", "line 2: max num seqs 0 is left out"),
        ("'max_model_len': 16384, ", "'cpu_offload_gb': -5, ", "line 2: cpu offload -5 is left out"),
        (
            "'gpu_memory_utilization': 0.9",
            "'gpu_memory_utilization': 1.9",
            "line 2: memory fraction 1.9 is left out, for it is not above 0 and at most 1; --memory-fraction says",
        ),
        ("kv_cache_dtype=auto", "kv_cache_dtype=fp3", "line 4: a KV cache in 'fp3' is not known"),
    ],
)
def test_a_setting_that_cannot_be_is_told(capsys: Capture, tmp_path: Path, before: str, after: str, told: str) -> None:
    assert before in samples.V1_H100
    # The last line settles the fraction whatever was asked.
    asked = samples.V1_H100.partition("(EngineCore_DP0 pid=71) INFO 08-05 12:01:30 [gpu_worker.py:391]")[0]
    path = write(tmp_path, asked.replace(before, after))
    ran = infcalc(capsys, "compare", path, "--gpu", "h100")
    assert ran.code == 0
    assert told in ran.err
    assert told.partition(":")[0] not in infcalc(capsys, "compare", write(tmp_path, samples.V1_H100), "-g", "h100").err


def test_what_the_user_says_instead_needs_no_warning(capsys: Capture, tmp_path: Path) -> None:
    path = write(tmp_path, samples.V1_H100.replace("tensor_parallel_size=1", "tensor_parallel_size=0"))
    assert "tp 0" not in infcalc(capsys, "compare", path, "--gpu", "h100", "--tp", "1").err


def test_a_second_engine_and_a_second_start_are_told(capsys: Capture, tmp_path: Path) -> None:
    both = infcalc(capsys, "compare", write(tmp_path, samples.V1_H100 + samples.SGLANG), "--gpu", "h100")
    assert both.code == 0
    engine = "sglang" if "is of sglang" in both.err else "vllm"
    assert f"is of {engine}: only" in both.err
    assert "give each engine's log a file of its own" in both.err
    first = samples.V1_H100.replace("51.38", "40.00").replace("420,880", "300,000")
    twice = infcalc(capsys, "compare", write(tmp_path, first + samples.V1_H100), "--gpu", "h100")
    assert "the log holds 2 starts: the last is read (its figures begin at line " in twice.err


@pytest.mark.parametrize("text", [text for group in samples.ALL.values() for text in group])
def test_one_start_of_one_engine_leaves_nothing_out(text: str) -> None:
    log = read_log(text)
    assert log is not None
    assert log.left_out == ()


def test_a_far_miss_is_told_as_a_multiple(capsys: Capture, tmp_path: Path) -> None:
    asked = ("compare", write(tmp_path, samples.V1_H100.replace("51.38", "2.00")), "--gpu", "h100")
    ran = infcalc(capsys, *asked)
    assert "times as large as the log has it" in ran.out.splitlines()[0]
    assert " x" in next(line for line in ran.out.splitlines() if line.startswith("KV pool  "))
    assert "%" not in ran.out.splitlines()[0]
    small = infcalc(capsys, *asked, "--model", "llama3-8b", "--memory-fraction", "0.25")
    assert small.code == 0


def test_an_offload_of_the_log_reaches_the_prediction(capsys: Capture, tmp_path: Path) -> None:
    def predicted(text: str, *more: str) -> dict[str, float]:
        ran = answer(capsys, "compare", write(tmp_path, text), "--gpu", "h100", *more)
        return {line["quantity"]: line["predicted"] for line in ran.result["lines"]}

    plain = predicted(samples.V1_H100)
    text = samples.V1_H100.replace("'max_model_len'", "'cpu_offload_gb': 4, 'max_model_len'")
    moved = predicted(text)
    assert moved["kv_pool_bytes"] - plain["kv_pool_bytes"] == pytest.approx(4 * GIB, rel=0.1)
    assert plain["weights_bytes"] - moved["weights_bytes"] == pytest.approx(4 * GIB, rel=0.1)
    assert predicted(text, "--cpu-offload-gb", "2")["kv_pool_bytes"] < moved["kv_pool_bytes"]


def test_adapters_that_the_log_does_not_state_may_be_added(capsys: Capture, log: str) -> None:
    def pool(*more: str) -> float:
        lines = answer(capsys, "compare", log, "--gpu", "h100", *more).result["lines"]
        found: float = next(line["predicted"] for line in lines if line["quantity"] == "kv_pool_bytes")
        return found

    assert pool("--lora-rank", "64", "--max-loras", "4") < pool()


def test_a_fraction_that_ran_is_not_judged_and_one_that_is_asked_is(capsys: Capture, log: str) -> None:
    assert "does not start" not in infcalc(capsys, "compare", log, "--gpu", "h100").err
    assert "vllm does not start" in infcalc(capsys, "compare", log, "--gpu", "h100", "--memory-fraction", "1").err


def test_the_lines_of_a_comparison_can_be_gated(capsys: Capture, log: str) -> None:
    asked = ("compare", log, "--gpu", "h100", "--require")
    assert infcalc(capsys, *asked, "lines[quantity=weights_bytes].error_fraction<=0.01").code == 0
    assert infcalc(capsys, *asked, "lines[quantity=weights_bytes].measured<=1").code == 4
