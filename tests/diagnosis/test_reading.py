"""What metrics, interval lines, benchmarks and start-up lines say of signals, by hand."""

from __future__ import annotations

import json
from typing import Any

import pytest

from infcalc.diagnosis import from_benchmark, from_intervals, from_metrics, from_start
from infcalc.diagnosis.citing import Source
from infcalc.diagnosis.signals import Reading, Signal
from infcalc.evidence.nouns import BenchmarkRun, IntervalLog, MetricsSnapshot
from infcalc.evidence.reading import read_evidence
from infcalc.evidence.window import between
from tests.evidence import shapes


def by_signal(readings: tuple[Reading, ...]) -> dict[Signal, Reading]:
    return {one.signal: one for one in readings}


def of_metrics(text: str, **known: Any) -> dict[Signal, Reading]:  # noqa: ANN401 - options of the reader
    (snapshot,) = read_evidence(text, "m.txt")
    assert isinstance(snapshot, MetricsSnapshot)
    source = Source.of("m.txt", text)
    return by_signal(from_metrics.read_signals(snapshot, lambda key: source.of_key(key, snapshot.place), **known))


def of_log(text: str) -> dict[Signal, Reading]:
    (log,) = read_evidence(text, "s.log")
    assert isinstance(log, IntervalLog)
    return by_signal(from_intervals.read_signals(log, Source.of("s.log", text)))


def of_run(record: dict[str, Any]) -> dict[Signal, Reading]:
    text = json.dumps(record)
    (run,) = read_evidence(text, "r.json")
    assert isinstance(run, BenchmarkRun)
    source = Source.of("r.json", text)
    return by_signal(from_benchmark.read_signals(run, lambda key: source.of_key(key, run.place)))


def vllm(**values: float) -> str:
    return "".join(f'vllm:{name}{{engine="0",model_name="m"}} {value}\n' for name, value in values.items())


def test_shares_of_metrics_are_quotients_of_their_counts() -> None:
    found = of_metrics(
        vllm(
            num_requests_running=12,
            num_requests_waiting=4,
            kv_cache_usage_perc=0.97,
            num_preemptions_total=30,
            request_success_total=600,
            prefix_cache_queries_total=1000,
            prefix_cache_hits_total=50,
            time_to_first_token_seconds_sum=600,
            time_to_first_token_seconds_count=600,
            request_queue_time_seconds_sum=450,
            request_queue_time_seconds_count=600,
            iteration_tokens_total_sum=7600,
            iteration_tokens_total_count=4,
        ),
        budget_tokens=2000,
    )
    assert found[Signal.WAITING_SHARE].value == 0.25
    assert found[Signal.KV_USAGE].value == 0.97
    assert found[Signal.PREEMPTED_SHARE].value == 0.05
    assert found[Signal.PREFIX_HITS].value == 0.05
    assert found[Signal.QUEUE_SHARE].value == 0.75
    assert found[Signal.STEP_FILL].value == 0.95
    cite = found[Signal.KV_USAGE].cites[0]
    assert (cite.place, cite.line) == ("m.txt", 3)
    assert cite.text.endswith(" 0.97")
    assert [cite.line for cite in found[Signal.QUEUE_SHARE].cites] == [10, 11, 8, 9]


def test_what_is_outside_queue_prefill_and_decode_is_the_front_end() -> None:
    parts = {"e2e_request_latency": 10.0, "request_queue_time": 1.0, "request_prefill_time": 2.0}
    values = {
        f"{name}_seconds_{end}": value if end == "sum" else 5.0
        for name, value in (parts | {"request_decode_time": 5.0}).items()
        for end in ("sum", "count")
    }
    found = of_metrics(vllm(num_requests_running=1, **values))
    assert found[Signal.FRONT_END_SHARE].value == pytest.approx(0.2)
    assert found[Signal.FRONT_END].value == pytest.approx(0.4)


def test_engines_of_one_server_are_held_against_their_mean() -> None:
    lines = [
        f'vllm:num_requests_{word}{{engine="{engine}",model_name="m"}} {value}'
        for engine, running, waiting in ((0, 20, 10), (1, 4, 0), (2, 6, 0))
        for word, value in (("running", running), ("waiting", waiting))
    ]
    found = of_metrics("\n".join(lines) + "\n")
    assert found[Signal.IMBALANCE].value == pytest.approx(30 / (40 / 3))
    assert found[Signal.UNDER_WAY].value == 40


def test_queues_between_pools_are_added_up() -> None:
    text = 'sglang:num_running_reqs{model_name="m"} 3\n'
    text += 'sglang:num_prefill_bootstrap_queue_reqs{model_name="m"} 300\n'
    text += 'sglang:num_decode_transfer_queue_reqs{model_name="m"} 2\n'
    assert of_metrics(text)[Signal.HANDOVER_QUEUE].value == 302


def test_interval_lines_are_means_and_cite_their_worst() -> None:
    found = of_log(shapes.TEXTS["vllm log"][1])
    assert found[Signal.RUNNING].value == 16
    assert found[Signal.WAITING].value == 1
    assert found[Signal.WAITING].cites[0].line == 1
    assert found[Signal.KV_USAGE].value == 0.5
    assert found[Signal.PREFIX_HITS].value == 0.125
    assert found[Signal.TOKENS_PER_ROUND].value == 2.5
    assert found[Signal.TOKENS_PER_ROUND].cites[0].line == 3
    assert found[Signal.ACCEPTED].value == 0.5
    assert found[Signal.PREEMPTIONS].value == 0


def test_decode_without_a_graph_is_counted() -> None:
    found = of_log(shapes.TEXTS["sglang log"][1])
    assert found[Signal.UNGRAPHED_SHARE].value == 0.5
    assert found[Signal.UNGRAPHED_SHARE].cites[0].line == 3
    assert found[Signal.PREFIX_HITS].value == 128 / (128 + 4096)


def test_time_of_steps_with_prompts_is_summed_up() -> None:
    step = "Iteration({}): {} context requests, {} context tokens, 8 generation requests, 8 generation tokens, "
    rows = ((0, 0, 10.0), (1, 2000, 60.0), (0, 0, 10.0))
    lines = [
        f"{step.format(number, prompts, tokens)}iteration elapsed time: {ms} ms"
        for number, (prompts, tokens, ms) in enumerate(rows)
    ]
    assert of_log("\n".join(lines) + "\n")[Signal.PREFILL_SHARE].value == pytest.approx(0.75)


def test_requests_that_were_put_back_are_counted_with_their_lines() -> None:
    line = (
        "[2026-01-02 03:04:06 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_token_ratio: 0.5\n"
    )
    found = of_log(shapes.TEXTS["sglang log"][1] + line)
    assert found[Signal.PREEMPTIONS].value == 1
    assert found[Signal.PREEMPTIONS].cites[0].line == 4


def test_a_benchmark_tells_of_failures_gaps_and_idle_clients() -> None:
    record = shapes.VLLM_SERVE | {
        "request_rate": "inf",
        "max_concurrency": 16,
        "num_prompts": 50,
        "completed": 40,
        "failed": 10,
        "median_itl_ms": 9.0,
        "p99_itl_ms": 90.0,
    }
    found = of_run(record)
    assert found[Signal.FAILED_SHARE].value == 0.2
    assert found[Signal.GAP_TAIL].value == pytest.approx(10)
    # 4 requests/s of 0.921 s each keep 3.7 of 16 clients busy; in a run of 50, they are 84 % of the time 16 at best.
    assert found[Signal.CLIENTS_BUSY].value == pytest.approx(4 * 0.921 / 16 / (1 - 16 / 100))


def test_requests_at_a_rate_keep_no_clients_busy() -> None:
    assert Signal.CLIENTS_BUSY not in of_run(shapes.VLLM_SERVE | {"max_concurrency": 16})


def test_rates_that_no_count_bears_out_contradict_it() -> None:
    found = of_run(shapes.VLLM_SERVE | {"request_throughput": 8.0})
    assert found[Signal.CONTRADICTIONS].value == 1
    assert "one is wrong" in found[Signal.CONTRADICTIONS].shown
    assert of_run(shapes.VLLM_SERVE)[Signal.CONTRADICTIONS].value == 0


PCIE = (
    "WARNING custom_all_reduce.py:154] Custom allreduce is disabled because it's not supported on more than two "
    "PCIe-only GPUs. To silence this warning, specify disable_custom_all_reduce=True explicitly."
)
KERNELS = "WARNING config.py:335] gptq quantization is not fully optimized yet. The speed can be slower than others."


@pytest.mark.parametrize(
    ("line", "signal"),
    [
        ("INFO 05-19 [vllm.py:1081] Cudagraph is disabled under eager mode", Signal.EAGER),
        (PCIE, Signal.PCIE_ONLY),
        (KERNELS, Signal.SLOW_KERNELS),
    ],
)
def test_single_lines_tell_by_their_words(line: str, signal: Signal) -> None:
    source = Source.of("s.log", f"first\n{line}\n{line[:40]}\n")
    (found,) = from_start.read_tells(source)
    assert found.signal is signal
    assert [cite.line for cite in found.cites] == [2]


def test_long_lines_are_cited_around_their_value() -> None:
    text = json.dumps({"padding": "x" * 400, "mean_tpot_ms": 12.5, "tail": "y" * 400})
    (cite,) = Source.of("r.json", text).of_key("mean_tpot_ms", "r.json")
    assert cite.line == 1
    assert cite.text.startswith('..."mean_tpot_ms": 12.5')
    assert len(cite.text) < 300


def test_a_run_is_cited_from_its_own_line() -> None:
    text = '{"mean_tpot_ms": 1.0}\n{"mean_tpot_ms": 2.0}\n'
    (cite,) = Source.of("r.jsonl", text).of_key("mean_tpot_ms", "r.jsonl, run 2 (line 2)")
    assert (cite.line, cite.text) == (2, '{"mean_tpot_ms": 2.0}')
    (absent,) = Source.of("r.jsonl", text).of_key("made up", "r.jsonl")
    assert (absent.line, absent.text) == (None, "made up")


def test_between_two_scrapes_counts_are_differences() -> None:
    first = vllm(num_requests_running=2, kv_cache_usage_perc=0.9, num_preemptions_total=10, request_success_total=100)
    last = vllm(num_requests_running=4, kv_cache_usage_perc=0.5, num_preemptions_total=13, request_success_total=160)
    scrapes = [one for one in read_evidence(first + last, "m.txt") if isinstance(one, MetricsSnapshot)]
    window = between(scrapes)
    assert window is not None
    values = {(str(one.quantity), one.statistic): one.value for one in window.measured}
    assert values["num_preemptions", "total"] == 3
    assert values["num_requests", "total"] == 60
    assert values["num_running", "now"] == 3
    assert values["kv_usage_fraction", "now"] == 0.9
    assert between(scrapes[:1]) is None
    assert between(scrapes[::-1]) is None


def test_a_metric_is_cited_in_its_own_scrape() -> None:
    text = vllm(num_preemptions_total=10) + vllm(num_preemptions_total=13)
    source = Source.of("m.txt", text)
    assert [one.line for one in source.of_key("vllm:num_preemptions_total", "m.txt, scrape 1 of m")] == [1]
    assert [one.line for one in source.of_key("vllm:num_preemptions_total", "m.txt")] == [2]
