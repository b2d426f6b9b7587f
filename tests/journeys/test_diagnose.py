"""``infcalc diagnose`` as a user meets it: what it finds, what it needs, how it is scripted, and damaged files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infcalc.api import Ask
from infcalc.api.diagnosing import diagnose, diagnose_texts
from infcalc.api.diagnosing_nouns import Diagnosis
from infcalc.api.offer import Offer
from infcalc.diagnosis.rules import RULES
from infcalc.errors import InfcalcError
from tests.engines.logs import samples
from tests.evidence import shapes
from tests.evidence.test_damage import places
from tests.evidence.test_shared_files import DATA, results
from tests.journeys.command import Ran, answer, infcalc
from tests.journeys.diagnosed import faults, finding, metrics, serving, symptoms, told
from tests.shipped import ROOT
from tests.test_docs import keys

Capture = pytest.CaptureFixture[str]
LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
KEYS = {
    *("symptom", "kind", "title", "certainty", "cause", "evidence", "remedy", "flag", "gain_factor"),
    *("gain_factor_low", "gain_factor_high", "remedies", "source"),
}
BUSY: dict[str, Any] = {
    "num_requests_running": 60,
    "num_requests_waiting": 90,
    "kv_cache_usage_perc": 0.99,
    "num_preemptions_total": 400,
    "request_success_total": 4000,
    "request_prompt_tokens": (3000, 4000),
    "request_generation_tokens": (600, 4000),
}


@pytest.fixture(autouse=True)
def _own_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def saved(name: str, text: str) -> str:
    Path(name).write_text(text, encoding="utf-8")
    return name


def refused(ran: Ran, code: int, *texts: str) -> None:
    assert ran.code == code, ran.err
    assert ran.out == ""
    assert ran.err.startswith("error: ")
    for text in texts:
        assert text in ran.err


# As a user meets it


def test_findings_stand_with_lines_remedies_options_and_gains(capsys: Capture) -> None:
    file = saved("metrics.txt", metrics(LLAMA, **BUSY))
    ran = answer(capsys, "diagnose", file, "--gpu", "h100", "--tp", "1", "--max-model-len", "8192")
    result = ran.result
    assert result["num_findings"] == 2
    first = result["findings"][0]
    assert set(first) == KEYS
    assert first["symptom"] == "kv-exhausted"
    assert first["flag"] == "--kv-cache-dtype fp8"
    line = first["evidence"][0]
    assert (line["place"], line["line"]) == ("metrics.txt", 4)
    assert line["text"] == f'vllm:num_preemptions_total{{model_name="{LLAMA}"}} 400'
    gain = first["remedies"][0]["gain"]
    assert gain["gain_factor_low"] < gain["gain_factor"] < gain["gain_factor_high"]
    assert gain["num_gpus"] == gain["num_gpus_before"] == 1
    shown = infcalc(capsys, "diagnose", file, "--gpu", "h100", "--tp", "1", "--max-model-len", "8192").out
    assert shown.startswith("2 findings: the KV cache is full; KV cache in FP8 would bring ")
    assert "metrics.txt:4" in shown
    assert "--kv-cache-dtype fp8" in shown


def test_without_a_deployment_findings_rest_on_measurements_alone(capsys: Capture) -> None:
    file = saved("metrics.txt", metrics("a model that nobody knows", **BUSY))
    ran = infcalc(capsys, "diagnose", file, "--json")
    assert ran.code == 0
    assert [one["symptom"] for one in ran.result["findings"]] == ["kv-exhausted", "queueing"]
    assert all(one["certainty"] == "measured" for one in ran.result["findings"])
    assert all(row["gain"] is None for one in ran.result["findings"] for row in one["remedies"])
    assert any("--model" in row["how"] for row in ran.result["missing"])
    assert ran.result["model"] == ""


def test_where_nothing_fires_it_says_what_was_looked_at_and_what_lacks(capsys: Capture) -> None:
    calm = metrics(LLAMA, num_requests_running=2, num_requests_waiting=0, kv_cache_usage_perc=0.1)
    ran = answer(capsys, "diagnose", saved("metrics.txt", calm))
    assert ran.result["num_findings"] == 0
    assert ran.result["verdict"].startswith("nothing wrong found; ")
    looked, missing = ({row["symptom"] for row in ran.result[key]} for key in ("looked_at", "missing"))
    assert {"kv-exhausted", "queueing"} <= looked
    assert {"graph-capture-missed", "impossible-measurement"} <= missing
    assert looked | missing >= {rule.symptom for rule in RULES}
    assert all(row["how"] for row in ran.result["missing"])


def test_a_deployment_that_cannot_be_is_told_at_once(capsys: Capture) -> None:
    file = saved("metrics.txt", metrics(LLAMA, **BUSY))
    first = infcalc(capsys, "diagnose", file, "--gpu", "h100", "--gpus", "3").out.splitlines()[0]
    assert first.startswith("2 findings: the KV cache is full; no gain is predicted: --gpus 3 (TP 3) cannot split ")


def test_a_gate_holds_or_does_not(capsys: Capture) -> None:
    file = saved("metrics.txt", metrics(LLAMA, **BUSY))
    calm = saved("calm.txt", metrics(LLAMA, num_requests_running=2, num_requests_waiting=0, kv_cache_usage_perc=0.1))
    assert infcalc(capsys, "diagnose", file).code == 0
    assert infcalc(capsys, "diagnose", file, "--require", "num_findings<=0").code == 4
    assert infcalc(capsys, "diagnose", calm, "--require", "num_findings<=0").code == 0


@pytest.mark.parametrize(
    ("text", "arguments", "code", "said"),
    [
        ("", (), 2, "the file is empty"),
        ("hello\n", (), 2, "nothing that is known"),
        ('{"num_prompts": 1', (), 2, "file"),
        (metrics(LLAMA, **BUSY), ("--gpu", "nonesuch"), 5, "nonesuch"),
        (metrics(LLAMA, **BUSY), ("--model", "nonesuch"), 5, "nonesuch"),
        (metrics(LLAMA, **BUSY), ("--gpu", "h100", "--gpu", "a100"), 2, "2 values"),
        (metrics(LLAMA, **BUSY), ("--gpu", "h100", "--model", "llama3.1-8b", "--tp", "3"), 2, "cannot split"),
        (metrics(LLAMA, **BUSY), ("--concurrency", "3", "--rate", "2"), 2, "both"),
        (metrics(LLAMA, **BUSY), ("--benchmark-format", "nonesuch"), 2, "nonesuch"),
        (metrics(LLAMA, **BUSY), ("--format", "plot"), 2, "plot"),
    ],
)
def test_what_cannot_be_is_refused_with_the_mend(
    capsys: Capture, text: str, arguments: tuple[str, ...], code: int, said: str
) -> None:
    refused(infcalc(capsys, "diagnose", saved("file", text), *arguments), code, said)


def test_a_file_that_is_not_there_is_refused(capsys: Capture) -> None:
    refused(infcalc(capsys, "diagnose", "nowhere.txt"), 2, "nowhere.txt")
    refused(infcalc(capsys, "diagnose"), 2)


@pytest.mark.parametrize("form", ["table", "csv", "markdown"])
def test_every_format_holds_the_findings(capsys: Capture, form: str) -> None:
    file = saved("metrics.txt", metrics(LLAMA, **BUSY))
    out = infcalc(capsys, "diagnose", file, "--format", form).out
    assert "kv-exhausted" in out
    assert "queueing" in out


def test_every_key_of_the_result_is_documented(capsys: Capture) -> None:
    file = saved("metrics.txt", metrics(LLAMA, **BUSY))
    result = answer(capsys, "diagnose", file, "--gpu", "h100", "--max-model-len", "8192").result
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    section = page.split("\n## infcalc diagnose\n")[1].split("\n## ")[0]
    assert not {key for key in keys(result) if f"`{key}`" not in section}


def test_how_many_tokens_are_drafted_may_be_said(capsys: Capture) -> None:
    text = metrics(
        LLAMA,
        "sglang",
        num_running_reqs=200,
        num_queue_reqs=0,
        token_usage=0.5,
        spec_accept_length=1.1,
        prompt_tokens_histogram=(500, 100),
        generation_tokens_histogram=(300, 100),
    )
    file = saved("metrics.txt", text)
    unsaid = answer(capsys, "diagnose", file, "--gpu", "h100").result
    assert any("--num-draft-tokens" in row["how"] for row in unsaid["missing"])
    said = answer(capsys, "diagnose", file, "--gpu", "h100", "--num-draft-tokens", "5").result
    assert [one["symptom"] for one in said["findings"] if one["kind"] == "fault"] == ["speculation-losing"]
    # What a benchmark counts of drafting is not hidden by metrics that say nothing of it.
    run = serving(LLAMA, (500, 200), 1, ttft_ms=60, tpot_ms=9, spec_decode_acceptance_length=2.0)
    (one,) = told(run, metrics(LLAMA, num_requests_running=1))
    assert [row.needs for row in one.missing if row.symptom == "speculation-losing"] == ["drafting_measured_speedup"]


# Several files


def test_two_scrapes_tell_what_happened_between() -> None:
    first = metrics(LLAMA, num_preemptions_total=400, request_success_total=4000, kv_cache_usage_perc=0.5)
    later = metrics(LLAMA, num_preemptions_total=400, request_success_total=6000, kv_cache_usage_perc=0.5)
    (one,) = told(first + later)
    assert faults(one) == []
    (other,) = told(later)
    assert faults(other) == ["kv-exhausted"]
    # In two files the same, where all counts grow.
    (apart,) = told(first, later)
    assert faults(apart) == []


def test_a_second_scrape_tells_whether_the_times_are_normal() -> None:
    def scrape(seconds: float, requests: int) -> str:
        return metrics(
            LLAMA,
            num_requests_running=16,
            num_requests_waiting=0,
            kv_cache_usage_perc=0.2,
            request_success_total=requests,
            request_prompt_tokens=(1000, requests),
            request_generation_tokens=(300, requests),
            request_time_per_output_token_seconds=(seconds, requests),
            time_to_first_token_seconds=(0.06, requests),
        )

    (once,) = told(scrape(0.009, 100), gpus=("h100",), tp=1)
    assert "normal" in {row.symptom for row in once.missing}
    assert any(row.what == "a second scrape" for row in once.missing if row.symptom == "normal")
    (twice,) = told(scrape(0.009, 100) + scrape(0.009, 400), gpus=("h100",), tp=1)
    assert finding(twice, "normal").title.startswith("time per token 9 ms is normal: memory bandwidth bound at ")


def test_a_first_token_late_at_the_client_alone_is_the_front_end() -> None:
    run = serving(LLAMA, (500, 200), 32, ttft_ms=600, tpot_ms=12, num_requests=1000)
    server = metrics(LLAMA, request_success_total=1000, time_to_first_token_seconds=(0.1, 1000))
    (one,) = told(run, server)
    found = finding(one, "front-end-bound")
    assert found.certainty == "measured"
    assert {row.place for row in found.evidence} == {"file0", "file1"}
    # Metrics of other requests as well say nothing of this run.
    (other,) = told(run, metrics(LLAMA, request_success_total=9000, time_to_first_token_seconds=(0.1, 9000)))
    assert "front-end-bound" not in faults(other)


def test_a_start_up_log_settles_the_deployment_of_metrics() -> None:
    start = (
        "INFO 05-19 [core.py:77] Initializing a V1 LLM engine (v0.33.0) with config: model='Qwen/Qwen3-0.6B', "
        "dtype=torch.bfloat16, max_seq_len=8192, tensor_parallel_size=1, enforce_eager=True, quantization=None, "
        "kv_cache_dtype=auto\n"
        "INFO 05-19 [gpu_model_runner.py:1] Model loading took 1.2 GiB and 9 seconds\n"
    )
    few: dict[str, Any] = {"num_requests_running": 2, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.1}
    text = metrics("Qwen/Qwen3-0.6B", **few, request_prompt_tokens=(300, 90), request_generation_tokens=(300, 90))
    (one,) = told(start, text, gpus=("h100",))
    assert (one.model, one.engine_version) == ("qwen3-0.6b", "0.33.0")
    found = finding(one, "graph-capture-missed")
    assert found.flag == "without --enforce-eager"
    assert (found.evidence[0].place, found.evidence[0].line) == ("file0", 1)
    assert found.gain_factor is not None
    assert found.gain_factor > 1.1
    (other,) = told(start.replace("enforce_eager=True", "enforce_eager=False"), text, gpus=("h100",))
    assert faults(other) == []


def test_runs_of_one_file_are_told_apart(capsys: Capture) -> None:
    lines = [json.dumps(json.loads(serving(LLAMA, (1000, 200), 8, ttft_ms=90, tpot_ms=ms))) for ms in (9, 90)]
    file = saved("runs.jsonl", "\n".join(lines) + "\n")
    result = answer(capsys, "diagnose", file, "--gpu", "h100", "--tp", "1").result
    first, second = result["side_by_side"]
    assert first["num_findings"] == 0
    assert [one["symptom"] for one in second["findings"] if one["kind"] == "fault"] == ["slower-than-predicted"]
    assert second["findings"][0]["evidence"][0]["line"] == 2


# Interval lines


START = (
    "INFO [core.py:77] Initializing a V1 LLM engine (v0.11.0) with config: model='meta-llama/Llama-3.1-8B-Instruct', "
    "dtype=torch.bfloat16, max_seq_len=16384, tensor_parallel_size=1, quantization=None, kv_cache_dtype=auto\n"
    "INFO [gpu_model_runner.py:2653] Model loading took 14.9889 GiB and 3.8 seconds\n"
)


def interval_lines(prompt: float, answer: float, running: int, waiting: int, usage: float) -> str:
    return "".join(
        f"INFO 01-02 03:04:{number:02d} [loggers.py:118] Engine 000: Avg prompt throughput: "
        f"{prompt if number % 5 else 0.0} tokens/s, Avg generation throughput: {answer} tokens/s, Running: {running} "
        f"reqs, Waiting: {waiting} reqs, GPU KV cache usage: {usage}%, Prefix cache hit rate: 0.0%\n"
        for number in range(20)
    )


def test_a_log_from_start_to_load_is_enough_to_price_a_change() -> None:
    (one,) = told(START + interval_lines(2000.0, 3500.0, 200, 60, 99.0), gpus=("h100",))
    assert faults(one)[0] == "kv-exhausted"
    found = finding(one, "kv-exhausted")
    assert found.certainty == "measured"
    assert found.flag == "--kv-cache-dtype fp8"
    assert found.gain_factor is not None
    assert found.gain_factor > 1.1
    line = found.evidence[0]
    assert line.line is not None
    assert "GPU KV cache usage: 99.0%" in line.text


@pytest.mark.parametrize(("rate", "slow"), [(4200.0, False), (900.0, True)])
def test_lines_without_prompts_tell_whether_decode_is_normal(rate: float, slow: bool) -> None:
    (one,) = told(START + interval_lines(1000.0, rate, 48, 0, 18.0), gpus=("h100",))
    assert faults(one) == (["slower-than-predicted"] if slow else [])
    if not slow:
        assert finding(one, "normal").title.startswith("output tokens/s 4,200 is normal: memory bandwidth bound at ")


def test_drafting_that_loses_is_told_by_the_log_that_names_its_way() -> None:
    speculative = "speculative_config=SpeculativeConfig(method='eagle3', model='draft', num_spec_tokens=5), dtype="
    rounds = (
        "INFO [metrics.py:96] SpecDecoding metrics: Mean acceptance length: {}, Accepted throughput: 420.00 tokens/s, "
        "Drafted throughput: 840.00 tokens/s, Accepted: 4200 tokens, Drafted: 8400 tokens, Per-position acceptance "
        "rate: 0.200, 0.100, Avg Draft acceptance rate: {}%\n"
    )
    for length, share, loses in ((1.3, 6.0, True), (4.3, 66.0, False)):
        lines = interval_lines(2000.0, 2500.0, 64, 0, 30.0).splitlines(keepends=True)
        text = "".join(line + rounds.format(length, share) for line in lines)
        (one,) = told(START.replace("dtype=", speculative, 1) + text, gpus=("h100",))
        assert ("speculation-losing" in faults(one)) is loses
        if loses:
            found = finding(one, "speculation-losing")
            assert "for eagle3 with 5 drafted tokens at batch 64" in found.cause
            assert (found.flag, found.evidence[0].line) == ("without --speculative-config", 4)
            assert [row.flag for row in found.remedies][1] == '--speculative-config {"num_speculative_tokens": 1, ...}'


# Rule by rule: what is not among the cases that users asked about


def test_prompts_that_stall_others_are_found_and_the_stall_is_priced() -> None:
    text = serving(LLAMA, (8000, 200), 16, ttft_ms=900, tpot_ms=25, median_itl_ms=12.0, p99_itl_ms=310.0)
    (one,) = told(text, gpus=("h100",), tp=1)
    found = finding(one, "token-budget-too-large")
    assert found.flag == "--max-num-batched-tokens 4096"
    gain = found.remedies[0].gain
    assert gain is not None
    assert "a step full of a prompt takes" in gain.why


def test_a_budget_far_below_the_default_is_found() -> None:
    text = serving(LLAMA, (8000, 100), 32, ttft_ms=6000, tpot_ms=40)
    (one,) = told(text, gpus=("h100",), tp=1, max_num_batched_tokens=1024)
    found = finding(one, "token-budget-too-small")
    assert found.flag == "--max-num-batched-tokens 8192"
    (other,) = told(text, gpus=("h100",), tp=1)
    assert "token-budget-too-small" not in faults(other)


def test_a_cap_below_what_memory_holds_is_found() -> None:
    text = serving(LLAMA, (500, 200), 256, ttft_ms=5000, tpot_ms=11)
    (one,) = told(text, gpus=("h100",), tp=1, max_num_seqs=32)
    assert faults(one)[0] == "sequences-capped"
    found = finding(one, "sequences-capped")
    assert found.flag == "--max-num-seqs 64"
    assert found.gain_factor is not None
    assert found.gain_factor > 1.3
    (other,) = told(text, gpus=("h100",), tp=1)
    assert "sequences-capped" not in faults(other)


def test_prefixes_that_are_not_found_matter_where_prompts_take_the_time() -> None:
    busy = {"num_requests_running": 40, "num_requests_waiting": 0, "kv_cache_usage_perc": 0.5}
    hits = {"prefix_cache_queries_total": 1_000_000, "prefix_cache_hits_total": 10_000}
    values: dict[str, Any] = {"request_success_total": 200, **busy, **hits}
    long = metrics(LLAMA, request_prompt_tokens=(5000, 200), request_generation_tokens=(100, 200), **values)
    (one,) = told(long, gpus=("h100",), tp=1)
    found = finding(one, "prefix-cache-ineffective")
    assert found.gain_factor is not None
    assert found.gain_factor > 1.3
    short = metrics(LLAMA, request_prompt_tokens=(100, 200), request_generation_tokens=(1000, 200), **values)
    (other,) = told(short, gpus=("h100",), tp=1)
    assert "prefix-cache-ineffective" not in faults(other)


def test_ranks_without_nvlink_are_found_by_the_engines_own_words_and_by_the_model() -> None:
    log = (
        "WARNING 04-16 [custom_all_reduce.py:154] Custom allreduce is disabled because it's not supported on more than "
        "two PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly.\n"
    )
    (told_so,) = told(log)
    assert faults(told_so) == ["tp-over-pcie"]
    assert finding(told_so, "tp-over-pcie").certainty == "measured"
    text = serving("Qwen/Qwen3-32B", (1024, 200), 16, ttft_ms=1000, tpot_ms=40)
    (one,) = told(text, gpus=("l40s",), tp=8)
    found = finding(one, "tp-over-pcie")
    assert found.certainty == "modelled"
    assert "--pipeline-parallel-size 8 --tensor-parallel-size 1" in [row.flag for row in found.remedies]
    (other,) = told(text, gpus=("h100",), tp=8)
    assert "tp-over-pcie" not in faults(other)


def test_a_client_that_does_not_keep_up_is_told() -> None:
    text = serving(LLAMA, (500, 200), 64, ttft_ms=60, tpot_ms=11, request_throughput=8.0, output_throughput=1600.0)
    record = json.loads(text) | {"duration": 640 / 8.0}
    (one,) = told(json.dumps(record), gpus=("h100",), tp=1)
    assert "client-bound" in faults(one)


def test_requests_that_failed_or_were_given_up_are_told() -> None:
    text = serving(LLAMA, (500, 200), 8, ttft_ms=60, tpot_ms=9, num_prompts=100, failed=20)
    (one,) = told(text)
    assert "requests-failed" in faults(one)
    aborted = 'vllm:request_success_total{finished_reason="stop",model_name="m"} 80\n'
    aborted += 'vllm:request_success_total{finished_reason="abort",model_name="m"} 20\n'
    (other,) = told(aborted + metrics("m", num_requests_running=1))
    assert "requests-failed" in faults(other)


def test_an_option_that_a_version_lacks_is_not_written() -> None:
    text = serving("Qwen/Qwen3-32B", (1024, 200), 16, ttft_ms=1000, tpot_ms=40, backend="sglang")
    (one,) = told(text, gpus=("l40s",), tp=8, engine="sglang", engine_version="0.4.1")
    stages = next(row for row in finding(one, "tp-over-pcie").remedies if row.change.startswith("pipeline"))
    assert stages.flag == ""
    assert "0.4.9" in stages.flag_note


def test_gains_are_what_estimate_says_of_both_sides() -> None:
    from infcalc.api import estimate  # noqa: PLC0415 - this test alone

    text = serving(LLAMA, (1000, 300), 64, ttft_ms=390, tpot_ms=32)
    (one,) = told(text, gpus=("h100",), tp=1)
    offered = next(row for found in one.findings for row in found.remedies if row.change == "weights in FP8")
    assert offered.gain is not None
    load = Offer(concurrency=64, num_requests=640, input_tokens=1000, output_tokens=300)
    sides = [
        estimate(Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1, weights=word), load).result.output_tokens_per_s
        for word in (None, "fp8")
    ]
    assert sides[0] is not None
    assert sides[1] is not None
    assert offered.gain.gain_factor == pytest.approx(sides[1].value / sides[0].value, rel=1e-6)


# Damage


ASK = Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1)
GIVEN = Offer(input_tokens=500, output_tokens=200)
SURE = ("impossible-measurement", "contradictory-figures")


def read(text: str, ask: Ask = ASK) -> tuple[Diagnosis, ...] | None:
    try:
        return diagnose_texts([("file", text)], ask, GIVEN).results
    except InfcalcError as problem:
        if not str(problem):
            pytest.fail("an error that says nothing")
        return None


@pytest.mark.parametrize("name", shapes.TEXTS)
def test_every_shape_is_diagnosed(name: str) -> None:
    found = read(shapes.TEXTS[name][1])
    assert found is not None
    for one in found:
        assert one.verdict
        for row in one.findings:
            assert row.evidence
            assert row.kind in {"measurement", "fault", "limit", "normal"}


@pytest.mark.parametrize("name", ["vllm metrics", "sglang metrics", "vllm log", "sglang log", "serve text"])
def test_a_text_cut_anywhere_gives_an_error_or_findings_of_its_lines(name: str) -> None:
    text = shapes.TEXTS[name][1]
    chosen = np.random.default_rng(5).permutation(places(text))[:60]
    for place in sorted(chosen.tolist()):
        found = read(text[:place], Ask())
        for one in found or ():
            for row in (line for finding_ in one.findings for line in finding_.evidence):
                if row.line is not None:
                    assert row.text.removesuffix("...").lstrip(".")[:20] in text[:place]


@pytest.mark.parametrize("name", [*shapes.OBJECTS])
def test_strange_values_give_an_error_or_finite_findings(name: str) -> None:
    value = json.dumps(shapes.OBJECTS[name][1])
    drawn = np.random.default_rng(3)
    numbers = [(start, end) for start, end in spans(value) if end > start]
    for start, end in (numbers[place] for place in drawn.integers(len(numbers), size=6)):
        for strange in ("null", "-1", "1e300", "NaN", '"x"', "0"):
            found = read(value[:start] + strange + value[end:])
            for one in found or ():
                for gain in (row.gain for part in one.findings for row in part.remedies if row.gain is not None):
                    assert np.isfinite(gain.gain_factor)
                    assert gain.gain_factor > 0


def spans(text: str) -> list[tuple[int, int]]:
    """Return where the numbers of a JSON text stand."""
    import re  # noqa: PLC0415 - here alone

    return [match.span() for match in re.finditer(r"(?<=: )[0-9.]+", text)]


@pytest.mark.parametrize("name", ["vllm metrics", "sglang metrics", "vllm log", "sglang log"])
def test_letters_may_be_any(name: str) -> None:
    text = shapes.TEXTS[name][1]
    drawn = np.random.default_rng(17)
    for _ in range(60):
        place = int(drawn.integers(len(text)))
        letter = "0123456789.-eE:{}\"' \n\tnaif%"[int(drawn.integers(27))]
        found = read(text[:place] + letter + text[place + 1 :], Ask())
        for one in found or ():
            assert not set(SURE) & set(symptoms(one))


@pytest.mark.parametrize(
    "name", ["ONE_REQUEST", "FREE_MEMORY", "NO_ROOM", "NEGATIVE_GRAPHS", "OUT_OF_MEMORY", "SGLANG"]
)
def test_start_up_logs_cut_anywhere_are_no_traceback(name: str) -> None:
    text = getattr(samples, name)
    for place in np.random.default_rng(23).integers(len(text), size=25).tolist():
        read(text[:place], Ask(gpus=("h100",)))


# Files of others


ABSENT = "the shared files with published results are not here"


@pytest.mark.skipif(not DATA.exists(), reason=ABSENT)
@pytest.mark.parametrize("deployed", [False, True])
def test_every_result_of_others_is_diagnosed(deployed: bool) -> None:
    for path in results():
        if path.name == "iog_vllm085_all.jsonl":
            continue  # the same runs lie beside it, a file each
        try:
            found = diagnose(str(path), ASK if deployed else Ask(), GIVEN if deployed else None).results
        except InfcalcError as problem:
            # One file has runs of whose lines nothing is left; compare says the same.
            if path.name != "dstack_405b_offline.jsonl":
                pytest.fail(f"{path.name}: {problem}")
            continue
        for one in found:
            assert one.verdict
            # A file by itself is of its own model and GPU: nothing in it contradicts itself, or is impossible.
            if not deployed:
                assert not set(SURE) & set(symptoms(one)), path.name


@pytest.mark.skipif(not DATA.exists(), reason=ABSENT)
def test_a_swept_server_is_normal_until_its_cap_and_queues_beyond() -> None:
    folder = DATA / "bench_inference_perf" / "vllm"
    ask = Ask(
        models=("llama3.1-8b",),
        gpus=("h100",),
        tp=1,
        engine="vllm",
        engine_version="0.11.0",
        memory_fraction=0.9,
        max_model_len=512,
        max_num_seqs=128,
    )
    told_of = [diagnose(str(folder / f"stage_{stage}_lifecycle_metrics.json"), ask).result for stage in range(7)]
    assert [faults(one) for one in told_of[:4]] == [[], [], [], []]
    for one in told_of[4:]:
        assert "queueing" in faults(one)
        assert "sequences-capped" in faults(one)


# What is not said of servers that are well, or of files that are not what they seem


def scraped(requests: int, *, started: float | None = None, **more: Any) -> str:  # noqa: ANN401 - values of metrics
    """Return metrics of a server with some requests behind it."""
    head = "" if started is None else f"process_start_time_seconds {started}\n"
    values: dict[str, Any] = {
        "num_requests_running": 16,
        "num_requests_waiting": 0,
        "kv_cache_usage_perc": 0.3,
        "num_preemptions_total": 0,
        "request_success_total": requests,
        "request_prompt_tokens": (1000, requests),
        "request_generation_tokens": (300, requests),
    }
    return head + metrics(LLAMA, **(values | more))


def test_scrapes_of_one_process_in_the_wrong_order_are_turned() -> None:
    early, late = (scraped(number, started=7.0, num_preemptions_total=number // 10) for number in (1000, 3000))
    for texts in ((early + late,), (late + early,), (late, early)):
        (one,) = told(*texts)
        (row,) = {row.said for row in finding(one, "kv-exhausted").evidence if row.signal == "preemptions_per_request"}
        assert row == "200 preemptions for 2,000 requests"
    answered = diagnose_texts([("a", late + early)])
    assert any("the later scrape stands first" in text for text in answered.warnings)


def test_two_files_whose_counts_fall_are_told_apart_and_said_so() -> None:
    answered = diagnose_texts([("late", scraped(3000)), ("early", scraped(1000))])
    assert len(answered.results) == 2
    assert any("give the earlier scrape first" in text for text in answered.warnings)
    # A server that was started anew is none in the wrong order.
    again = diagnose_texts([("late", scraped(3000, started=1.0)), ("early", scraped(1000, started=9.0))])
    assert not any("earlier scrape" in text for text in again.warnings)


def test_the_same_scrape_twice_is_one() -> None:
    text = scraped(3000, num_preemptions_total=300)
    answered = diagnose_texts([("a", text), ("b", text)])
    (one,) = answered.results
    assert faults(one) == ["kv-exhausted"]
    assert any("no count grew" in text for text in answered.warnings)


def test_a_cache_that_was_full_once_is_not_called_full() -> None:
    (one,) = told(scraped(3000, num_preemptions_total=300))
    assert finding(one, "kv-exhausted").title == "The KV cache is full, or was: it has room now"
    (other,) = told(scraped(3000, num_preemptions_total=300, kv_cache_usage_perc=0.99))
    assert finding(other, "kv-exhausted").title == "The KV cache is full"


def late_first_token(queue_s: float) -> str:
    def at(requests: int) -> str:
        mean: dict[str, Any] = {
            "time_to_first_token_seconds": (1.5, requests),
            "request_time_per_output_token_seconds": (0.008, requests),
            "request_queue_time_seconds": (queue_s, requests),
            "request_prefill_time_seconds": (0.03, requests),
            "request_decode_time_seconds": (2.4, requests),
            "e2e_request_latency_seconds": (queue_s + 2.43 + (1.4 if queue_s < 1 else 0.02), requests),
        }
        return scraped(requests, **mean)

    return at(1000) + at(4000)


@pytest.mark.parametrize(("queue_s", "first"), [(0.001, "front-end-bound"), (1.4, "queueing")])
def test_a_late_first_token_is_a_queue_only_where_it_waited_there(queue_s: float, first: str) -> None:
    (one,) = told(late_first_token(queue_s), gpus=("h100",), tp=1)
    assert faults(one) == [first]


@pytest.mark.parametrize("factor", [1e3, 1e-3])
def test_a_unit_that_is_another_is_named_first(factor: float) -> None:
    text = serving(LLAMA, (1000, 300), 16, ttft_ms=90 * factor, tpot_ms=9 * factor)
    (one,) = told(text, gpus=("h100",), tp=1)
    assert one.findings[0].symptom == "unit-mistaken"
    assert set(faults(one)) <= {"unit-mistaken", "impossible-measurement"}
    (well,) = told(serving(LLAMA, (1000, 300), 16, ttft_ms=90, tpot_ms=9), gpus=("h100",), tp=1)
    assert faults(well) == []
    # Thirty times as slow is slow, not another unit.
    (slow,) = told(serving(LLAMA, (1000, 300), 16, ttft_ms=2700, tpot_ms=270), gpus=("h100",), tp=1)
    assert "unit-mistaken" not in faults(slow)


def test_short_prompts_that_come_one_by_one_do_not_fill_a_step() -> None:
    """Gaps are long for another reason, and half of the budget would hold as many prompts."""
    gaps: dict[str, Any] = {"median_itl_ms": 12.0, "p99_itl_ms": 130.0}
    (one,) = told(serving(LLAMA, (220, 200), 8, ttft_ms=150, tpot_ms=14, **gaps), gpus=("h100",), tp=1)
    assert "token-budget-too-large" not in faults(one)
    (row,) = (row for row in one.looked_at if row.symptom == "token-budget-too-large")
    assert "and a step holds 8,192" in row.because
    (long,) = told(serving(LLAMA, (6000, 200), 8, ttft_ms=400, tpot_ms=14, **gaps), gpus=("h100",), tp=1)
    assert "token-budget-too-large" in faults(long)


def test_what_is_much_faster_than_predicted_is_not_called_normal() -> None:
    (one,) = told(
        serving("meta-llama/Llama-3.1-70B-Instruct", (1000, 300), 32, ttft_ms=300, tpot_ms=14), gpus=("h100",), tp=4
    )
    assert symptoms(one, "normal") == ["faster-than-predicted"]
    assert "more GPUs or replicas" in finding(one, "faster-than-predicted").cause
    assert one.num_findings == 0


def test_what_is_impossible_for_an_assumed_gpu_is_not_called_measured() -> None:
    text = serving(LLAMA, (1000, 300), 1, ttft_ms=20, tpot_ms=2.0)
    (one,) = told(text, gpus=("h100",))
    found = finding(one, "impossible-measurement")
    assert found.certainty == "modelled"
    assert "no number of GPUs is stated" in found.cause
    (other,) = told(text, gpus=("h100",), tp=1)
    assert finding(other, "impossible-measurement").certainty == "measured"


def test_drafting_by_an_unknown_way_is_not_held_against_the_best_one() -> None:
    def at(rounds: int) -> str:
        counts = {"num_drafts": 1, "num_draft_tokens": 5, "num_accepted_tokens": 1.5}
        drafted = {f"spec_decode_{name}_total": rounds * each for name, each in counts.items()}
        each: dict[str, Any] = {"request_time_per_output_token_seconds": (0.0125, rounds)}
        return scraped(rounds, num_requests_running=64, **drafted, **each)

    (one,) = told(at(1000) + at(9000), gpus=("h100",), tp=1)
    assert faults(one) == []


def test_graphs_whose_gain_nobody_knows_are_not_priced_at_nothing() -> None:
    text = serving(LLAMA, (1000, 300), 4, ttft_ms=80, tpot_ms=9)
    (one,) = told(text, gpus=("h100",), tp=1, enforce_eager=True, engine_version="0.11.0")
    found = finding(one, "graph-capture-missed")
    assert (found.flag, found.gain_factor) == ("without --enforce-eager", None)
    assert "2.88 ms in a step" in found.remedies[0].unpriced
    assert "would bring" not in one.verdict
    # Of a small model the launches are the step, and their least time prices it.
    tiny = serving("Qwen/Qwen3-0.6B", (300, 300), 2, ttft_ms=30, tpot_ms=4)
    (small,) = told(tiny, gpus=("h100",), tp=1, enforce_eager=True)
    assert (finding(small, "graph-capture-missed").gain_factor or 0.0) > 1.1
    # Without a deployment the option is still the first thing to do.
    (bare,) = told("INFO Cudagraph is disabled under eager mode\n")
    assert finding(bare, "graph-capture-missed").remedies[0].text == "let the engine capture CUDA graphs"


def test_a_small_budget_is_told_before_the_queue_that_it_makes() -> None:
    text = serving(LLAMA, (8000, 200), 16, ttft_ms=3000, tpot_ms=18)
    (one,) = told(text, gpus=("h100",), tp=1, max_num_batched_tokens=512)
    assert faults(one)[0] == "token-budget-too-small"
    assert finding(one, "token-budget-too-small").flag == "--max-num-batched-tokens 8192"
    assert "first token 2" in one.verdict


def test_ranks_over_pcie_may_be_halved() -> None:
    text = serving("deepseek-ai/DeepSeek-R1-Distill-Qwen-14B", (500, 200), 64, ttft_ms=900, tpot_ms=60)
    (one,) = told(text, gpus=("rtx4090",), tp=8)
    half = next(row for row in finding(one, "tp-over-pcie").remedies if row.change == "half the TP, two replicas")
    assert half.flag == "--tensor-parallel-size 4"
    assert half.gain is not None
    assert (half.gain.num_gpus_before, half.gain.num_gpus) == (8, 8)
    assert half.gain.gain_factor > 1.1


def test_a_cache_that_has_room_under_the_load_is_not_called_full() -> None:
    """The model has room for fewer, and the engine's own gauge knows better."""
    crowd: dict[str, Any] = {"num_requests_running": 1024, "num_requests_waiting": 300}
    (one,) = told(scraped(4000, **crowd, kv_cache_usage_perc=0.4), gpus=("h100",), tp=1)
    assert faults(one) == ["sequences-capped", "queueing"]
    (full,) = told(scraped(4000, **crowd, kv_cache_usage_perc=0.97), gpus=("h100",), tp=1)
    assert faults(full)[0] == "kv-exhausted"
    # Of metrics that were saved after a run, the empty cache says nothing.
    run = serving(LLAMA, (3000, 600), 400, ttft_ms=30_000, tpot_ms=40)
    idle = scraped(4000, num_requests_running=0, kv_cache_usage_perc=0.0)
    (after,) = told(run, idle, gpus=("h100",), tp=1)
    assert "kv-exhausted" in faults(after)


def test_what_preemptions_throw_away_is_priced_as_prompts() -> None:
    def full(preempted: int) -> Diagnosis:
        text = scraped(
            4000,
            num_requests_running=60,
            num_requests_waiting=80,
            kv_cache_usage_perc=0.99,
            num_preemptions_total=preempted,
            request_prompt_tokens=(3000, 4000),
            request_generation_tokens=(600, 4000),
        )
        (one,) = told(text, gpus=("h100",), tp=1)
        return one

    def cost(one: Diagnosis) -> float:
        return float(finding(one, "kv-exhausted").cause.partition("up to ")[2].partition("%")[0])

    evidence = [line for one in full(400).findings for line in one.evidence]
    share = next(line.value for line in evidence if line.signal == "prefill_time_fraction")
    # A tenth of the requests once more: 3,000 tokens of the prompt and 300 of the answer.
    assert cost(full(400)) == pytest.approx(100 * share * 0.1 * 3300 / 3000, abs=0.06)
    assert cost(full(1600)) == pytest.approx(4 * cost(full(400)), abs=0.25)


def test_a_large_batch_without_a_graph_is_no_fault_where_its_steps_are_long() -> None:
    busy = scraped(4000, num_requests_running=700, kv_cache_usage_perc=0.95)
    (one,) = told(busy, gpus=("h200",), tp=1, max_num_seqs=1024)
    assert "graph-capture-missed" not in faults(one)
    small = busy.replace(LLAMA, "Qwen/Qwen3-0.6B")
    (other,) = told(small, gpus=("h200",), tp=1, max_num_seqs=1024)
    found = finding(other, "graph-capture-missed")
    assert found.remedy.startswith("capture batches as large as those that run")
    assert "700 requests run, and graphs are captured up to 512" in found.cause


@pytest.mark.parametrize(("model", "gpu", "tp"), [("Qwen/Qwen3-32B", "a100-80gb", 2), (LLAMA, "mi300x", 1)])
def test_prompts_that_share_steps_are_no_queue_where_all_clients_run(model: str, gpu: str, tp: int) -> None:
    """First tokens of some seconds are what is predicted of so many clients, and all of them have a place."""
    lengths = (2000, 300) if tp > 1 else (8000, 200)
    (one,) = told(serving(model, lengths, 64, ttft_ms=1640, tpot_ms=91), gpus=(gpu,), tp=tp, max_model_len=16384)
    assert faults(one) == []
    (row,) = (row for row in one.looked_at if row.symptom == "queueing")
    assert "where all clients have a place" in row.because
    (late,) = told(serving(model, lengths, 64, ttft_ms=30_000, tpot_ms=91), gpus=(gpu,), tp=tp, max_model_len=16384)
    assert "queueing" in faults(late)
