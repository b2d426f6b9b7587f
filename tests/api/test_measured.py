"""Predictions beside measurements: the path of an estimate, parts that add up, limits, places among published runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from infcalc.api.comparing import compare
from infcalc.api.deployment import Ask
from infcalc.api.measured_causes import Loss
from infcalc.api.measured_files import compare_measured
from infcalc.api.measured_normal import position, position_text
from infcalc.api.measured_nouns import FigureLine, RunComparison
from infcalc.api.measured_pattern import pattern_of, patterns
from infcalc.api.offer import Offer
from infcalc.api.peer_table import PEERS, SHARES
from infcalc.api.speed import estimate
from infcalc.errors import FileProblem, UnknownName, UsageError
from tests import measured
from tests.evidence import shapes

serving_peers = measured.script("serving_peers")
ASK = Ask(gpus=("h100",))


def compared(record: object, ask: Ask = ASK, given: Offer | None = None, **how: Any) -> RunComparison:  # noqa: ANN401
    text = record if isinstance(record, str) else json.dumps(record)
    found: RunComparison = compare_measured(text, ask, given, place="file", **how).result
    return found


def line(found: RunComparison, quantity: str, statistic: str = "mean") -> FigureLine:
    return next(one for one in found.lines if (one.quantity, one.statistic) == (quantity, statistic))


def test_what_is_predicted_is_what_estimate_says_of_the_same_load() -> None:
    found = compared(shapes.VLLM_SERVE | {"date": ""})
    ask = Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1)
    offer = Offer(requests_per_s=4.0, num_requests=40, input_tokens=200, output_tokens=100)
    told = estimate(ask, offer).result
    for quantity in ("ttft_s", "tpot_s", "e2e_s", "output_tokens_per_s", "requests_per_s"):
        figure = getattr(told, quantity)
        one = line(found, quantity)
        assert (one.predicted, one.predicted_low, one.predicted_high) == (figure.value, figure.low, figure.high)


@pytest.mark.parametrize("name", ["vllm serve", "sglang", "guidellm 0.8", "aiperf", "inference-perf", "vllm latency"])
def test_no_measured_figure_goes_into_its_own_prediction(name: str) -> None:
    def altered(value: Any, key: str = "", factor: float = 1.0) -> Any:  # noqa: ANN401
        if isinstance(value, dict):
            times = any(word in key for word in ("latency", "time_", "throughput", "per_second"))
            return {
                inner: altered(one, f"{key}.{inner}", 2.0 if times or _is_figure(inner) else factor)
                for inner, one in value.items()
            }
        if isinstance(value, list):
            return [altered(one, key, factor) for one in value]
        return value * factor if type(value) is float else value

    value = shapes.OBJECTS[name][1]
    ask = Ask(models=("llama3.1-8b",), gpus=("h100",))
    given = Offer(concurrency=8) if name == "vllm latency" else None
    before, after = compared(value, ask, given), compared(altered(value), ask, given)
    assert [one.measured for one in before.lines] != [one.measured for one in after.lines]
    assert {(one.quantity, one.statistic): one.predicted for one in before.lines} == {
        (one.quantity, one.statistic): one.predicted for one in after.lines
    }


def _is_figure(key: str) -> bool:
    return key.endswith(("_ms", "_throughput")) or key == "avg_latency"


@pytest.mark.parametrize(
    "name", ["vllm serve", "sglang", "guidellm 0.8", "aiperf", "inference-perf", "vllm throughput"]
)
def test_parts_of_a_difference_add_up_to_it(name: str) -> None:
    found = compared(shapes.TEXTS[name][1], Ask(models=("llama3.1-8b",), gpus=("h100",)), _load(name))
    explained = [one for one in found.lines if one.predicted is not None]
    assert explained
    for one in explained:
        assert one.predicted is not None
        assert sum(part.effect for part in one.parts) == pytest.approx(one.measured - one.predicted, abs=1e-9, rel=1e-6)


def _load(name: str) -> Offer | None:
    return Offer(concurrency=16) if name == "sglang" else None


def test_causes_of_a_predicted_time_add_up_to_it() -> None:
    found = compared(shapes.VLLM_SERVE)
    assert sum(one.time_s for one in found.token_shares) == pytest.approx(line(found, "tpot_s").predicted, rel=1e-3)
    assert sum(one.time_s for one in found.first_token_shares) == pytest.approx(
        line(found, "ttft_s").predicted, rel=1e-3
    )
    assert sum(one.share_fraction for one in found.token_shares) == pytest.approx(1)


def test_a_slower_step_is_told_from_prompts_between_steps() -> None:
    base = shapes.VLLM_SERVE | {"request_rate": 1.0}
    guess = line(compared(base), "itl_s", "mean").predicted
    assert guess is not None
    steady = 1000 * guess
    slow = base | {"median_itl_ms": 2 * steady, "mean_tpot_ms": 2 * steady + 0.1}
    parts = {part.cause: part.effect for part in line(compared(slow), "tpot_s").parts}
    assert parts[Loss.BANDWIDTH] > 10 * abs(parts[Loss.INTERFERENCE])
    woven = base | {"median_itl_ms": steady, "mean_tpot_ms": 2 * steady}
    parts = {part.cause: part.effect for part in line(compared(woven), "tpot_s").parts}
    assert parts[Loss.INTERFERENCE] > 5 * abs(parts[Loss.BANDWIDTH])


def test_waits_of_a_few_are_queueing() -> None:
    found = compared(shapes.VLLM_SERVE | {"mean_ttft_ms": 500.0, "median_ttft_ms": 28.0})
    parts = line(found, "ttft_s").parts
    assert parts[-1].cause == Loss.QUEUEING
    assert parts[-1].effect > 0.4


def test_clients_that_idle_are_no_fault_of_the_server() -> None:
    record = shapes.SGLANG_SERVE | {"request_rate": float("inf"), "request_throughput": 1.0, "duration": 100.0}
    found = compared(record | {"output_throughput": 128.0}, Ask(models=("llama3.1-8b",), gpus=("h100",)))
    parts = {part.cause: part for part in line(found, "requests_per_s").parts}
    assert parts[Loss.CLIENT].effect < 0
    assert "of the 16 clients were busy" in parts[Loss.CLIENT].why


# What is impossible


def test_what_no_machine_can_do_is_impossible_and_stands_in_the_verdict() -> None:
    found = compared(shapes.VLLM_SERVE | {"mean_tpot_ms": 1.0})
    assert "tpot_s" in found.impossible
    assert "physically impossible" in found.verdict
    assert line(found, "tpot_s").roofline_fraction is not None


def test_too_little_room_predicted_makes_nothing_impossible() -> None:
    # Of 70B in bf16 on two cards, room for a few requests is predicted; a server with more of it is no wonder.
    slow = {f"{statistic}_tpot_ms": 120.0 for statistic in ("mean", "median", "p99")} | {"mean_e2el_ms": 14_000.0}
    busy = {"request_rate": 16.0, "request_throughput": 3.0, "output_throughput": 300.0, "duration": 13.333}
    busy |= {f"{statistic}_ttft_ms": 2000.0 for statistic in ("mean", "median", "p99")}
    busy |= {"total_input_tokens": 120_000, "total_token_throughput": 9300.0}
    record = shapes.VLLM_SERVE | {"model_id": "llama3-70b"} | slow | busy
    ask = Ask(gpus=("h100",), tp=2)
    found = compare_measured(json.dumps(record), ask, None, place="file")
    assert found.result.impossible == ()
    assert any("room for" in talk and "--memory-fraction" in talk for talk in found.warnings)


def test_a_rate_under_a_rate_says_nothing_of_the_roofline() -> None:
    found = compared(shapes.VLLM_SERVE)
    assert line(found, "requests_per_s").roofline_fraction is None
    assert line(found, "tpot_s").roofline_fraction == pytest.approx(0.5, abs=0.3)


# What is normal


def test_the_table_of_published_runs_is_that_of_the_published_runs() -> None:
    assert serving_peers.TABLE.read_text(encoding="utf-8") == serving_peers.table(measured.cases()), (
        "stale: run `python scripts/serving_peers.py`"
    )


def test_places_among_published_runs_rise_with_speed() -> None:
    kind = "NVIDIA dense, calibrated, current engine"
    ratios = [0.3, 0.8, 0.95, 1.0, 1.1, 2.0]
    times = [position("tpot_s", kind, ratio, at_rate=False) for ratio in ratios]
    rates = [position("output_tokens_per_s", kind, ratio, at_rate=False) for ratio in ratios]
    slower = [[one.slower_fraction for one in places if one is not None] for places in (times, rates)]
    assert slower[0] == sorted(slower[0], reverse=True)
    assert slower[1] == sorted(slower[1])
    assert min(slower[0]) == SHARES[0]
    assert max(slower[1]) == SHARES[-1]


def test_the_middle_of_published_runs_is_the_half() -> None:
    for quantity, rows in PEERS.items():
        for name, (_, _, ratios) in rows.items():
            assert list(ratios) == sorted(ratios)
            assert len(ratios) == len(SHARES)
            if " at a rate" in quantity:
                continue
            place = position(quantity, name or "unknown", ratios[SHARES.index(0.5)], at_rate=False)
            assert place is not None
            assert place.slower_fraction == pytest.approx(0.5, abs=0.001)
            assert f"{place.num_figures} published" in position_text(place)


def test_a_quantity_of_which_nothing_is_published_has_no_place() -> None:
    assert position("queue_s", "NVIDIA dense", 1.0, at_rate=False) is None


# What is stated, given and missing


def test_options_overrule_the_file() -> None:
    found = compared(shapes.VLLM_SERVE, Ask(models=("qwen3-8b",), gpus=("a100",), tp=2), Offer(concurrency=4))
    assert (found.model, found.gpu, found.num_gpus) == ("qwen3-8b", "a100-sxm4-80gb", 2)
    assert found.load == "4 clients, 40 requests"


def test_each_value_says_where_it_is_from() -> None:
    answer = compare_measured(json.dumps(shapes.VLLM_SERVE), Ask(tp=1), None, place="file")
    origins = {item.name: item.origin for item in answer.inputs}
    assert origins["model"] == "given in the file (model_id)"
    assert origins["gpu"] == "given in the file (gpu_name)"
    assert origins["tp"] == "given"
    assert any(note.startswith("not stated in the file, so assumed: ") for note in answer.assumptions)


def test_the_command_line_of_an_engine_is_read() -> None:
    wrapped = {
        "gpu": "NVIDIA-H100-PCIe",
        "engine_args": "--tensor-parallel-size 2 --max-num-seqs 8 --kv-cache-dtype fp8 --gpu-memory-utilization 0.8",
        "result": {
            key: value for key, value in shapes.VLLM_SERVE.items() if key not in {"gpu_count", "tensor_parallel_size"}
        },
    }
    answer = compare_measured(json.dumps(wrapped), Ask(), None, place="file")
    inputs = {item.name: (item.value, item.origin) for item in answer.inputs}
    assert inputs["tp"] == (2, "given in the file (engine_args --tensor-parallel-size)")
    assert inputs["max_num_seqs"][0] == 8
    assert inputs["kv_dtype"][0] == "fp8"
    assert inputs["memory_fraction"][0] == 0.8


@pytest.mark.parametrize(
    ("record", "ask", "words"),
    [
        ({"model_id": None}, ASK, "the model is neither stated nor given"),
        ({"gpu_name": None}, Ask(), "the GPU is neither stated nor given"),
        ({"request_rate": None, "max_concurrency": None}, ASK, "neither rate, concurrency"),
        ({"total_output_tokens": None}, ASK, "how long prompts or answers are"),
    ],
)
def test_what_is_neither_stated_nor_given_is_asked_for(record: dict[str, Any], ask: Ask, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        compared(shapes.VLLM_SERVE | record, ask)
    assert words in caught.value.message
    assert caught.value.hint


def test_a_model_that_is_not_known_is_named_with_those_that_are_near() -> None:
    with pytest.raises(UnknownName) as caught:
        compared(shapes.VLLM_SERVE | {"model_id": "acme/Llama-9-9B"})
    assert caught.value.exit_code == 5


def test_a_rate_with_a_cap_is_the_slower_of_both() -> None:
    paced = compared(shapes.VLLM_SERVE | {"request_rate": 400.0, "max_concurrency": 2})
    free = compared(shapes.VLLM_SERVE | {"request_rate": 400.0})
    closed = compared(shapes.VLLM_SERVE | {"request_rate": "inf", "max_concurrency": 2})
    assert line(paced, "requests_per_s").predicted == line(closed, "requests_per_s").predicted
    assert line(free, "requests_per_s").predicted > 2 * line(closed, "requests_per_s").predicted  # type: ignore[operator]


def test_runs_that_cannot_be_predicted_are_left_out_and_said() -> None:
    text = json.dumps(shapes.VLLM_SERVE) + json.dumps(shapes.VLLM_SERVE | {"model_id": "acme/none"})
    answer = compare_measured(text, ASK, None, place="file")
    assert len(answer.results) == 1
    assert any(talk.startswith("left out: ") and "acme/none" in talk for talk in answer.warnings)


def test_means_that_are_no_whole_number_are_of_lengths_that_scatter() -> None:
    answer = compare_measured(json.dumps(shapes.VLLM_SERVE | {"total_output_tokens": 4031}), ASK, None, place="file")
    assert any("lengths scatter" in note for note in answer.assumptions)
    assert {item.name: item.value for item in answer.inputs}["output_tokens"] == "exponential:mean=100.775"


# Percentiles


def test_percentiles_are_predicted_by_a_simulation_of_the_same_load() -> None:
    plain, told = compared(shapes.VLLM_SERVE), compared(shapes.VLLM_SERVE, simulated=True)
    assert line(plain, "ttft_s", "p99").predicted is None
    assert "--simulate" in line(plain, "ttft_s", "p99").attributed_to
    first, tail = line(told, "ttft_s", "median"), line(told, "ttft_s", "p99")
    assert first.predicted is not None
    assert tail.predicted is not None
    assert 0 < first.predicted <= tail.predicted
    assert tail.predicted_low is None
    assert compared(shapes.VLLM_SERVE, simulated=True) == told
    assert compared(shapes.VLLM_SERVE, simulated=True, seed=5) != told


# Metrics, lines, tests of llama-bench

METRICS = (
    shapes.PROMETHEUS
    + 'vllm:request_generation_tokens_count{engine="0",model_name="Qwen/Qwen3-8B"} 100.0\n'
    + 'vllm:request_generation_tokens_sum{engine="0",model_name="Qwen/Qwen3-8B"} 10000.0\n'
)


def test_metrics_are_compared_at_the_requests_that_are_under_way() -> None:
    found = compared(METRICS)
    assert found.evidence == "metrics"
    assert found.load == "15 clients"
    assert line(found, "ttft_s").measured == pytest.approx(0.09)
    assert line(found, "itl_s").predicted is not None
    given = compared(METRICS, ASK, Offer(concurrency=40))
    assert given.load == "40 clients"


def test_a_step_of_decode_is_compared_with_its_interval() -> None:
    found = compared(shapes.SGLANG_LOG, Ask(models=("llama3.1-8b",), gpus=("h100",)))
    (one,) = found.lines
    assert one.statistic == "10 running, 2,048 tokens each, median of 1"
    assert one.measured == 450.0
    assert one.predicted is not None
    assert 900 < one.predicted < 2000
    fast = shapes.SGLANG_LOG.replace("450.00", "90000.00")
    assert compared(fast, Ask(models=("llama3.1-8b",), gpus=("h100",))).impossible == ("output_tokens_per_s",)


def test_lines_with_prompts_or_drafts_are_not_decode() -> None:
    with pytest.raises(FileProblem, match="answers alone"):
        compared(shapes.VLLM_LOG, Ask(models=("llama3.1-8b",), gpus=("h100",)))


def test_a_prompt_alone_and_an_answer_alone_are_compared_as_such() -> None:
    ask = Ask(models=("llama3.1-8b",), gpus=("rtx-4090",))
    prompt, one = compare_measured(shapes.LLAMA_MARKDOWN, ask, None, place="file").results
    assert {found.quantity for found in prompt.lines} == {"prefill_s", "input_tokens_per_s"}
    for found, rate, time in (
        (prompt, "input_tokens_per_s", "prefill_s"),
        (one, "output_tokens_per_s_per_user", "tpot_s"),
    ):
        number, taken_s = line(found, rate).predicted, line(found, time).predicted
        assert number is not None
        assert taken_s is not None
        assert number * taken_s == pytest.approx(512 if found is prompt else 1, rel=1e-6)
    assert one.weights == "q4_k_m"
    assert prompt.impossible == one.impossible == ()


# Several


def row(size: float, measured_s: float, bandwidth: float, overhead: float) -> Any:  # noqa: ANN401
    return measured_s, bandwidth + overhead, {Loss.BANDWIDTH: bandwidth, Loss.OVERHEAD: overhead}, size


def test_misses_that_grow_with_the_bytes_are_bandwidth_and_those_that_stay_are_overhead() -> None:
    steps = [(1, 5e-3), (32, 8e-3), (128, 20e-3)]
    slow = [row(size, 1.3 * moved + 1e-3, moved, 1e-3) for size, moved in steps]
    heavy = [row(size, moved + 4e-3, moved, 1e-3) for size, moved in steps]
    (first, *_), (second, *_) = patterns(slow), patterns(heavy)
    assert first.cause is Loss.BANDWIDTH
    assert first.factor_fraction == pytest.approx(1.3)
    assert first.after_fraction < 1e-9
    assert second.cause is Loss.OVERHEAD
    assert second.factor_fraction == pytest.approx(4)


def runs(*changes: dict[str, Any]) -> list[RunComparison]:
    return [compared(shapes.VLLM_SERVE | {"request_rate": "inf"} | change) for change in changes]


def test_several_runs_of_one_deployment_tell_a_pattern() -> None:
    sizes = (1, 16, 128)
    found = runs(*({"max_concurrency": size, "num_prompts": 400} for size in sizes))
    slow = [
        replace(
            one,
            lines=tuple(
                replace(x, measured=1.5 * (x.predicted or 1)) if x.quantity == "tpot_s" else x for x in one.lines
            ),
        )
        for one in found
    ]
    (text,) = pattern_of(slow)
    assert text.startswith("over the 3 runs of llama3.1-8b on 1 x h100-")
    assert "times what is assumed" in text
    exact = [
        replace(
            one, lines=tuple(replace(x, measured=x.predicted or 1) if x.quantity == "tpot_s" else x for x in one.lines)
        )
        for one in found
    ]
    assert "predicted within" in pattern_of(exact)[0]
    assert pattern_of(found[:2]) == []


def test_no_file_is_no_question() -> None:
    with pytest.raises(UsageError):
        compare([])


# Servers that draft


DRAFTS = shapes.VLLM_SERVE | {"spec_decode_acceptance_length": 3.0}


def test_a_server_that_drafts_may_be_faster_than_the_floor_of_plain_steps() -> None:
    plain = compared(shapes.VLLM_SERVE | {"mean_tpot_ms": 3.0})
    drafts = compared(DRAFTS | {"mean_tpot_ms": 3.0})

    assert "tpot_s" in plain.impossible
    assert not drafts.impossible
    one = line(drafts, "tpot_s")
    assert one.predicted is not None
    assert f"{one.predicted / 0.003:.2g} times as fast" in one.attributed_to
    assert "a round of 3 tokens takes 9 ms" in one.attributed_to
    # Nothing is said of how normal it is among servers that do not draft.
    assert (one.slower_fraction, one.roofline_fraction, drafts.normal) == (None, None, None)
    assert "with drafting" in drafts.verdict


def test_a_server_that_drafts_is_held_to_the_floor_of_its_rounds() -> None:
    drafts = compared(DRAFTS | {"mean_tpot_ms": 0.5})
    assert "tpot_s" in drafts.impossible
    assert "physically impossible" in drafts.verdict


def test_drafting_leaves_prompts_as_they_are_and_what_it_changes_is_no_error() -> None:
    plain, drafts = compared(shapes.VLLM_SERVE), compared(DRAFTS | {"mean_tpot_ms": 3.0})

    assert line(drafts, "ttft_s").parts == line(plain, "ttft_s").parts
    assert not line(drafts, "tpot_s").parts
    firsts = [abs(one.error_fraction or 0) for one in drafts.lines if one.quantity == "ttft_s"]
    assert drafts.worst_abs_error_fraction == max(firsts)


def test_it_is_said_that_files_do_not_tell_replicas_or_pools() -> None:
    answer = compare_measured(json.dumps(DRAFTS), ASK, None, place="a.json", form=None, explain=False)
    assert any("replica" in text and "pools" in text for text in answer.assumptions)
    assert any("files do not say how" in text for text in answer.warnings)
