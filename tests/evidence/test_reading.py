"""Each shape is known by its content, and read into the same nouns."""

from __future__ import annotations

import json

import pytest

from infcalc.errors import FileProblem, UsageError
from infcalc.evidence.nouns import BenchmarkRun, Format, IntervalLog, MetricsSnapshot, Phase, Quantity
from infcalc.evidence.reading import format_of, read_evidence, sniff
from tests.evidence import shapes


def run_of(name: str, number: int = 0) -> BenchmarkRun:
    found = read_evidence(shapes.TEXTS[name][1], "file")[number]
    assert isinstance(found, BenchmarkRun)
    return found


def value(run: BenchmarkRun, quantity: Quantity, statistic: str = "mean") -> float:
    figure = run.figure(quantity, statistic)
    assert figure is not None, f"{quantity} {statistic}"
    return figure.value


@pytest.mark.parametrize("name", shapes.TEXTS)
def test_each_shape_is_known_by_its_content(name: str) -> None:
    form, text = shapes.TEXTS[name]
    assert sniff(text, "a.json") is form
    for one in read_evidence(text, "file"):
        assert one.place.startswith("file")
        assert all("failed" in warning for warning in one.warnings)


@pytest.mark.parametrize("name", shapes.TEXTS)
def test_a_format_that_is_named_is_read_as_that(name: str) -> None:
    form, text = shapes.TEXTS[name]
    assert read_evidence(text, "file", form) == read_evidence(text, "file")


ONE_LOAD = ("sglang", "aiperf", "genai-perf", "sglang text")


@pytest.mark.parametrize("name", ONE_LOAD)
def test_tools_that_saw_the_same_run_say_the_same(name: str) -> None:
    run = run_of(name)
    assert value(run, Quantity.TTFT) == pytest.approx(0.2)
    assert value(run, Quantity.E2E) == pytest.approx(3.0)
    assert value(run, Quantity.REQUESTS_PER_S) == pytest.approx(5.0)
    assert value(run, Quantity.OUTPUT_PER_S) == pytest.approx(640.0)
    assert run.load.num_clients == 16
    assert run.load.input_tokens == pytest.approx(1024)
    assert run.load.output_tokens == pytest.approx(128)


def test_vllm_serve_keeps_load_settings_and_all_statistics() -> None:
    run = run_of("vllm serve")
    assert run.load.requests_per_s == 4.0
    assert run.load.num_requests == 40
    assert run.load.burstiness == 1.0
    assert (run.load.input_tokens, run.load.output_tokens) == (200.0, 100.0)
    assert value(run, Quantity.TTFT, "p99") == pytest.approx(0.045)
    assert value(run, Quantity.TPOT, "median") == pytest.approx(0.0089)
    assert {one.name: one.value for one in run.settings} == {
        "model": "meta-llama/Llama-3.1-8B-Instruct",
        "gpu": "NVIDIA-H100-PCIe",
        "gpus": 1,
        "tp": 1,
        "engine": "vllm",
        "date": "2026-01",
    }


def test_a_key_with_a_stray_colon_is_the_key() -> None:
    assert value(run_of("vllm serve"), Quantity.GOODPUT) == 3.5


def test_two_objects_in_one_file_are_two_runs() -> None:
    runs = read_evidence(shapes.TEXTS["two objects in one file"][1], "file")
    assert [run.place for run in runs] == ["file, run 1 (line 1)", "file, run 2 (line 1)"]


@pytest.mark.parametrize("word", ["inf", float("inf")])
def test_an_endless_rate_is_no_rate(word: object) -> None:
    (run,) = read_evidence(json.dumps(shapes.VLLM_SERVE | {"request_rate": word}), "file")
    assert isinstance(run, BenchmarkRun)
    assert run.load.unlimited
    assert run.load.requests_per_s is None


def test_settings_beside_a_wrapped_result_are_read() -> None:
    run = run_of("vllm serve, wrapped")
    version = run.setting("engine_version")
    assert version is not None
    assert version.value == "0.8.5"
    assert value(run, Quantity.TTFT) == pytest.approx(0.03)


def test_lengths_of_single_requests_are_kept_without_those_that_failed() -> None:
    detailed = shapes.VLLM_SERVE | {"input_lens": [10, 20, 30], "output_lens": [5, 0, 7], "completed": 2}
    (run,) = read_evidence(json.dumps(detailed), "file")
    assert isinstance(run, BenchmarkRun)
    assert run.load.inputs_tokens == (10.0, 30.0)
    assert run.load.outputs_tokens == (5.0, 7.0)


def test_lengths_of_fewer_requests_than_were_answered_are_not_used() -> None:
    detailed = shapes.VLLM_SERVE | {"input_lens": [10, 20, 30], "output_lens": [5, 0, 7], "completed": 3}
    (run,) = read_evidence(json.dumps(detailed), "file")
    assert isinstance(run, BenchmarkRun)
    assert run.load.inputs_tokens == ()
    assert any("listed lengths are not used" in warning for warning in run.warnings)


def test_requests_that_failed_are_said() -> None:
    (run,) = read_evidence(json.dumps(shapes.VLLM_SERVE | {"completed": 30}), "file")
    assert run.num_failed == 10  # type: ignore[union-attr]
    assert any("10 requests failed" in warning for warning in run.warnings)


def test_rates_that_contradict_their_own_totals_are_said() -> None:
    (run,) = read_evidence(json.dumps(shapes.VLLM_SERVE | {"output_throughput": 4000.0}), "file")
    assert any("output_tokens_per_s is stated as 4,000" in warning for warning in run.warnings)


def test_percentiles_that_fall_are_said() -> None:
    (run,) = read_evidence(json.dumps(shapes.VLLM_SERVE | {"p99_ttft_ms": 1.0}), "file")
    assert any("p99 of ttft_s is below its median" in warning for warning in run.warnings)


def test_drafting_makes_gaps_those_of_chunks() -> None:
    (run,) = read_evidence(json.dumps(shapes.SGLANG_SERVE | {"accept_length": 2.5}), "file")
    assert any("per chunk of accepted tokens" in text for text in run.conversions)


# Definitions


def test_time_per_token_of_guidellm_is_called_by_what_it_is_in_its_version() -> None:
    early, late = run_of("guidellm 0.3"), run_of("guidellm 0.8")
    assert value(early, Quantity.TPOT) == value(late, Quantity.TPOT) == pytest.approx(0.019)
    assert early.figure(Quantity.TPOT_INCLUSIVE) is None
    assert value(late, Quantity.TPOT_INCLUSIVE) == pytest.approx(0.0198)
    assert any("holds the wait for the first token" in text for text in late.conversions)
    assert any("tokens / (tokens - 1)" in text for text in early.conversions)


def test_without_inter_token_latency_the_early_time_per_token_is_multiplied() -> None:
    report = shapes.guidellm("0.3.1")
    del report["benchmarks"][0]["metrics"]["inter_token_latency_ms"]
    (run,) = read_evidence(json.dumps(report), "file")
    assert isinstance(run, BenchmarkRun)
    assert value(run, Quantity.TPOT) == pytest.approx(0.0198 * 101 / 100)


def test_a_version_that_is_not_stated_leaves_the_time_per_token_out() -> None:
    report = shapes.guidellm("")
    (run,) = read_evidence(json.dumps(report), "file")
    assert isinstance(run, BenchmarkRun)
    assert run.figure(Quantity.TPOT_INCLUSIVE) is None
    assert any("version of GuideLLM" in text for text in run.missing)


def test_both_tables_of_guidellm_say_what_its_report_says() -> None:
    for name in ("guidellm csv 0.3", "guidellm csv 0.5"):
        run = run_of(name)
        assert value(run, Quantity.TTFT) == pytest.approx(0.1)
        assert value(run, Quantity.TTFT, "p99") == pytest.approx(0.18)
        assert value(run, Quantity.TPOT) == pytest.approx(0.019)
        assert run.load.num_clients == 8
        assert run.load.output_tokens == 101
    assert value(run_of("guidellm csv 0.5"), Quantity.TPOT_INCLUSIVE) == pytest.approx(0.0198)
    assert run_of("guidellm csv 0.3").figure(Quantity.TPOT_INCLUSIVE) is None


def test_inference_perf_counts_chunks_so_its_time_per_token_is_derived() -> None:
    run = run_of("inference-perf")
    assert value(run, Quantity.TPOT) == pytest.approx((1.05 - 0.05) / 63)
    assert run.figure(Quantity.ITL) is None
    assert run.figure(Quantity.TPOT, "median") is None
    assert any("2.12 x too small" in text for text in run.conversions)


def test_inference_perf_that_counts_tokens_is_taken_as_it_is() -> None:
    report = json.loads(json.dumps(shapes.INFERENCE_PERF))
    report["successes"]["latency"]["time_per_output_token"]["mean"] = 0.0160
    (run,) = read_evidence(json.dumps(report), "file")
    assert isinstance(run, BenchmarkRun)
    assert value(run, Quantity.TPOT) == 0.016


def test_what_prometheus_counted_for_inference_perf_has_lengths_from_rates() -> None:
    report = {
        "load_summary": {},
        "successes": {
            "count": 9000,
            "rate": 100.0,
            "prompt_len": {"mean": 0, "rate": 20000.0},
            "output_len": {"mean": 3343, "rate": 6400.0},
            "queue_len": {"mean": 7},
            "request_latency": {"mean": 1.0, "median": 0.9, "p99": 1.5},
            "time_to_first_token": {"mean": 0.04},
            "time_per_output_token": {"mean": 0.015},
        },
        "failures": {},
    }
    (run,) = read_evidence(json.dumps(report), "file")
    assert isinstance(run, BenchmarkRun)
    assert (run.load.input_tokens, run.load.output_tokens) == (200.0, 64.0)
    # Their lengths are made of them: compared with them they would agree with themselves.
    assert run.figure(Quantity.REQUESTS_PER_S) is run.figure(Quantity.OUTPUT_PER_S) is None
    assert value(run, Quantity.TPOT) == 0.015
    assert "rate or concurrency that was asked for" in run.missing


def test_offline_throughput_counts_prompts_so_answers_are_counted_from_lengths() -> None:
    run = run_of("vllm throughput")
    assert value(run, Quantity.TOTAL_PER_S) == 1536.0
    assert value(run, Quantity.OUTPUT_PER_S) == 1024.0
    (early,) = read_evidence(json.dumps(shapes.THROUGHPUT | {"total_num_tokens": 20000}), "file")
    assert isinstance(early, BenchmarkRun)
    assert early.figure(Quantity.OUTPUT_PER_S) is None
    assert any("answers ended early" in warning for warning in early.warnings)


def test_trtllm_bench_and_its_text_say_the_same() -> None:
    report, text = run_of("trtllm-bench"), run_of("trtllm text")
    for quantity in (Quantity.REQUESTS_PER_S, Quantity.OUTPUT_PER_S, Quantity.TTFT, Quantity.TPOT, Quantity.E2E):
        assert value(report, quantity) == value(text, quantity)
    assert value(text, Quantity.TPOT, "p99") == pytest.approx(0.014)
    assert report.load.unlimited
    assert text.load.unlimited
    for run in (report, text):
        ranks = run.setting("tp")
        assert ranks is not None
        assert ranks.value == 2


@pytest.mark.parametrize("name", ["llama-bench", "llama-bench lines", "llama-bench csv", "llama-bench markdown"])
def test_llama_bench_is_a_prompt_and_an_answer_of_one(name: str) -> None:
    prompt, answer = run_of(name, 0), run_of(name, 1)
    assert value(prompt, Quantity.INPUT_PER_S) == 10000.0
    assert prompt.load.input_tokens == 512
    assert value(answer, Quantity.PER_USER) == 100.0
    assert value(answer, Quantity.TPOT) == pytest.approx(0.01)
    assert answer.load.context_tokens == (4096 if name.endswith("markdown") else 0)


def test_a_trace_of_an_engine_is_summed_up() -> None:
    run = run_of("engine trace")
    assert value(run, Quantity.TTFT) == pytest.approx(0.1)
    assert value(run, Quantity.TPOT) == pytest.approx(0.02)
    assert run.load.requests_per_s == pytest.approx(1.0)
    assert run.load.inputs_tokens == (100, 101, 102, 103)


# Metrics


def test_metrics_of_vllm_are_gauges_counters_and_means() -> None:
    (found,) = read_evidence(shapes.PROMETHEUS, "file")
    assert isinstance(found, MetricsSnapshot)
    values = {(one.quantity, one.statistic): one.value for one in found.measured}
    assert values[Quantity.RUNNING, "now"] == 12
    assert values[Quantity.WAITING, "now"] == 3
    assert values[Quantity.KV_USAGE, "now"] == 0.75
    assert values[Quantity.PREFIX_HITS, "total"] == 0.25
    assert values[Quantity.PREEMPTIONS, "total"] == 4
    assert values[Quantity.TTFT, "mean"] == pytest.approx(0.09)
    assert values[Quantity.TTFT, "p90"] == pytest.approx(0.1 + 0.1 * 30 / 40)
    assert values[Quantity.ITL, "mean"] == pytest.approx(0.02)
    assert values[Quantity.INPUT_LENGTH, "mean"] == 200
    assert {one.name: one.value for one in found.settings}["num_gpu_blocks"] == 2588
    assert "e2e_s" in found.missing


OF_SERIES = "".join(line for line in shapes.PROMETHEUS.splitlines(True) if "cache_config_info" not in line)
"""Without what has no label of its own."""


def test_engines_of_one_server_are_added_up() -> None:
    second = OF_SERIES.replace('engine="0"', 'engine="1"')
    (found,) = read_evidence(shapes.PROMETHEUS + second, "file")
    assert isinstance(found, MetricsSnapshot)
    running, usage = found.figure(Quantity.RUNNING, "now"), found.figure(Quantity.KV_USAGE, "now")
    assert running is not None
    assert usage is not None
    assert (running.value, usage.value) == (24, 0.75)


def test_scrapes_behind_one_another_are_snapshots_and_models_are_apart() -> None:
    both = shapes.PROMETHEUS + shapes.PROMETHEUS
    assert [one.place for one in read_evidence(both, "file")] == [
        "file, scrape 1 of Qwen/Qwen3-8B",
        "file, scrape 2 of Qwen/Qwen3-8B",
    ]
    other = OF_SERIES.replace("Qwen3-8B", "Qwen3-4B")
    models = [one.model for one in read_evidence(shapes.PROMETHEUS + other, "file") if isinstance(one, MetricsSnapshot)]
    assert sorted(models) == ["Qwen/Qwen3-4B", "Qwen/Qwen3-8B"]


def test_metrics_of_sglang_have_the_same_names() -> None:
    (found,) = read_evidence(shapes.PROMETHEUS_SGLANG, "file")
    assert isinstance(found, MetricsSnapshot)
    values = {(str(one.quantity), one.statistic): one.value for one in found.measured}
    assert values["num_waiting", "now"] == 5
    assert values["kv_usage_fraction", "now"] == 0.98
    assert values["pool_tokens", "now"] == 400000
    assert values["ttft_s", "mean"] == 0.5


# Interval lines


def test_lines_of_vllm_tell_of_intervals_and_of_drafting() -> None:
    (log,) = read_evidence(shapes.VLLM_LOG, "file")
    assert isinstance(log, IntervalLog)
    first, second = log.lines
    assert first.phase is Phase.ALL
    assert (first.num_running, first.num_waiting, first.output_tokens_per_s) == (16, 2, 640.5)
    assert (first.kv_usage_fraction, first.prefix_hit_fraction) == (0.425, 0.12)
    assert second.tokens_per_round == 2.5
    assert second.draft_acceptance_fraction == 0.5


def test_lines_of_sglang_tell_of_prefills_and_decodes() -> None:
    (log,) = read_evidence(shapes.SGLANG_LOG, "file")
    assert isinstance(log, IntervalLog)
    prefill, decode, drafted = log.lines
    assert (prefill.phase, prefill.new_tokens, prefill.cached_tokens) == (Phase.PREFILL, 4096, 128)
    assert (decode.held_tokens, decode.graph, decode.num_waiting) == (20480, True, 0)
    assert (drafted.tokens_per_round, drafted.graph) == (2.1, False)


def test_an_iteration_is_a_step() -> None:
    text = (
        "INFO Iteration(7): 2 context requests, 512 context tokens, 10 generation requests, 10 generation tokens, "
        "iteration elapsed time: 25.50 ms\n"
    )
    (log,) = read_evidence(text, "file")
    assert isinstance(log, IntervalLog)
    (line,) = log.lines
    assert (line.phase, line.num_running, line.new_tokens) == (Phase.STEP, 12, 512)
    assert line.step_s == pytest.approx(0.0255)


def test_requests_that_were_put_back_are_told() -> None:
    text = (
        shapes.SGLANG_LOG
        + "KV cache pool is full. Retract requests. #retracted_reqs: 3, #new_token_ratio: 0.5 -> 0.6\n"
    )
    (log,) = read_evidence(text, "file")
    assert isinstance(log, IntervalLog)
    assert log.retractions == (4,)


# Errors


@pytest.mark.parametrize("text", ["", "nothing\n", "[]", "{}", '{"model_type": "llama"}', "a,b\n1,2\n"])
def test_what_is_no_measurement_is_refused(text: str) -> None:
    with pytest.raises(FileProblem):
        read_evidence(text, "file")


def test_all_faults_of_a_run_are_said_at_once() -> None:
    with pytest.raises(FileProblem) as caught:
        read_evidence(json.dumps(shapes.VLLM_SERVE | {"duration": "ten", "mean_ttft_ms": -1}), "file")
    assert "2 faults" in caught.value.message
    assert "duration is 'ten', not a number" in caught.value.message
    assert "mean_ttft_ms is -1" in caught.value.message


def test_a_cut_document_is_refused_with_its_place() -> None:
    text = json.dumps(shapes.VLLM_SERVE)
    with pytest.raises(FileProblem, match="cut off at line 1"):
        read_evidence(text[:-20], "file")


def test_a_format_that_is_not_the_files_gives_no_silent_nothing() -> None:
    for form in Format:
        for name in ("vllm serve", "serve text", "engine trace", "vllm metrics"):
            own, text = shapes.TEXTS[name]
            if form is own:
                continue
            try:
                found = read_evidence(text, "file", form)
            except FileProblem as problem:
                assert problem.hint  # noqa: PT017 - each says what to do
                continue
            # Two tools with the keys of one ancestor may be read as each other.
            assert {own, form} == {Format.VLLM_SERVE, Format.SGLANG_SERVE}
            assert all(one.measured for one in found if isinstance(one, BenchmarkRun))


def test_an_object_of_another_kind_among_runs_is_refused() -> None:
    with pytest.raises(FileProblem, match="no result as the others are"):
        read_evidence(json.dumps(shapes.VLLM_SERVE) + '\n{"model_type": "llama"}\n', "file")


def test_a_format_that_is_none_is_refused_with_those_there_are() -> None:
    assert format_of("vllm_serve") is Format.VLLM_SERVE
    assert format_of(None) is format_of("auto") is None
    with pytest.raises(UsageError) as caught:
        format_of("csv")
    assert "llama-bench-csv" in str(caught.value.hint)
