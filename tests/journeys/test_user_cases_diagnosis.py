"""Servers that people asked about in public: what is wrong with them, or that nothing is.

The symptoms of each case are written into small files as engines and benchmarks write them. Figures that a case does
not state (lengths, a first token) are made up, and chosen so that they decide nothing.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from infcalc.api.offer import Offer
from tests.evidence import shapes
from tests.journeys.diagnosed import faults, finding, metrics, serving, symptoms, told

LLAMA_70B, LLAMA_8B, QWEN_7B = (
    "meta-llama/Meta-Llama-3-70B-Instruct",
    "meta-llama/Llama-3.1-8B-Instruct",
    "Qwen/Qwen2.5-7B-Instruct",
)


# Slow, and normal


def test_two_sparks_at_three_tokens_per_second_are_normal() -> None:
    """UC-094, https://github.com/mark-ramsey-ri/vllm-dgx-spark/issues/1: 3 tok/s of 3.87 that memory allows."""
    text = serving(LLAMA_70B, (128, 128), 1, ttft_ms=700, tpot_ms=333)
    (one,) = told(text, gpus=("gb10",), tp=2)
    assert faults(one) == []
    assert one.num_findings == 0
    assert one.verdict.startswith("nothing wrong found")
    normal = finding(one, "normal")
    assert normal.title == "time per token 333 ms is normal: memory bandwidth bound at 77 % of roofline"
    assert normal.evidence[0].line is not None
    assert '"mean_tpot_ms": 333' in normal.evidence[0].text


def test_twenty_times_slower_is_not() -> None:
    text = serving(LLAMA_70B, (128, 128), 1, ttft_ms=700, tpot_ms=1200)
    (one,) = told(text, gpus=("gb10",), tp=2)
    assert faults(one) == ["slower-than-predicted"]


def test_offloaded_weights_are_bound_by_the_link_to_the_host() -> None:
    """UC-098, https://github.com/vllm-project/vllm/pull/6317: 4.6 tok/s with 55 GiB over NVLink-C2C is expected."""
    text = serving(LLAMA_70B, (128, 128), 1, ttft_ms=400, tpot_ms=1000 / 4.6)
    (one,) = told(text, gpus=("gh200",), tp=1, cpu_offload_bytes=55 * 2**30, max_model_len=4096)
    assert faults(one) == []
    assert set(symptoms(one)) == {"weights-offloaded", "normal"}
    assert "host link bound at 60 % of roofline" in finding(one, "normal").title


@pytest.mark.parametrize(("clients", "tpot_ms"), [(1, 10.3), (16, 20.7)])
def test_a_large_mixture_at_few_clients_is_bound_by_overhead(clients: int, tpot_ms: float) -> None:
    """UC-128, agentic-coding-harness-benchmarks PR 51: 96 tok/s alone is 14 % of the roofline, and all there is."""
    text = serving("glm-5.2-fp8", (1024, 1024), clients, ttft_ms=300, tpot_ms=tpot_ms)
    (one,) = told(text, gpus=("h200",), tp=8, max_model_len=200_000, memory_fraction=0.95)
    assert faults(one) == []
    if clients == 1:
        assert "engine overhead bound at 14 % of roofline" in finding(one, "normal").title


def test_few_active_experts_reach_a_third_of_the_roofline() -> None:
    """UC-033, https://github.com/AlexsJones/llmfit/issues/449: 150-180 tok/s where active bytes alone say 472."""
    record = shapes.LLAMA[1] | {
        "model_filename": "Qwen3-30B-A3B-Q4_K_M.gguf",
        "model_type": "qwen3moe 30B.A3B Q4_K - Medium",
        "avg_ns": round(128 / 165 * 1e9),
        "avg_ts": 165.0,
    }
    (one,) = told(json.dumps([record]), models=("qwen3-30b-a3b",))
    assert faults(one) == []
    assert "engine overhead bound" in finding(one, "normal").title


def test_time_per_token_with_the_first_in_it_is_not_called_slow() -> None:
    """UC-048, https://github.com/redhat-performance/configiq/issues/8: 34.9 ms and 25 ms are the same server."""
    report = shapes.guidellm("0.5.4")
    values = report["benchmarks"][0]["metrics"]
    for name, mean in (
        ("time_to_first_token_ms", 2000.0),
        ("time_per_output_token_ms", 34.875),
        ("inter_token_latency_ms", 25.0),
        ("request_latency", 6.975),
        ("output_token_count", 200.0),
    ):
        values[name]["successful"]["mean"] = mean
    (one,) = told(json.dumps(report), gpus=("l4",), tp=1, models=("qwen3-8b",), max_model_len=8192)
    over = [row for found in one.findings for row in found.evidence if row.signal == "measured_over_band_high"]
    over_quiet = [row.because for row in one.looked_at if row.symptom in {"normal", "slower-than-predicted"}]
    assert all("34.9" not in row.said for row in over)
    assert all("34.9" not in text for text in over_quiet)


@pytest.mark.parametrize("ratio", [0.6, 1.0, 1.4])
def test_uncalibrated_parts_are_not_called_broken_for_being_far_off(ratio: float) -> None:
    """UC-050, https://github.com/ai-dynamo/aiconfigurator/issues/1205: 45 % of TTFT error is the model's own."""
    asked: dict[str, Any] = {"gpus": ("a10",), "tp": 4, "max_model_len": 4096, "weights": "awq"}
    (one,) = told(serving("Qwen/Qwen3-32B", (1024, 128), 4, ttft_ms=1000 * ratio, tpot_ms=32), **asked)
    assert "slower-than-predicted" not in faults(one)
    assert "impossible-measurement" not in faults(one)
    assert "queueing" not in faults(one)


# Impossible


@pytest.mark.parametrize("measured_s", [2.5, 4.0])
def test_a_prompt_faster_than_peak_is_impossible(measured_s: float) -> None:
    """UC-093, https://github.com/microsoft/MInference/issues/84: 50,000 tokens take 4.5 s at an A100's peak."""
    record = shapes.LATENCY | {
        "avg_latency": measured_s,
        "latencies": [measured_s],
        "percentiles": {"50": measured_s},
        "batch_size": 1,
        "input_len": 50_000,
        "output_len": 1,
    }
    (one,) = told(
        json.dumps(record, indent=1), models=("llama3.1-8b",), gpus=("a100-80gb",), tp=1, max_model_len=60_000
    )
    assert faults(one) == ["impossible-measurement"]
    found = finding(one, "impossible-measurement")
    assert "physically impossible" in found.cause
    assert '"avg_latency"' in found.evidence[0].text
    assert one.findings[0] is found


def test_half_of_peak_is_possible() -> None:
    """UC-093: 3 min for 300,000 tokens is 50 % of peak; 50,000 tokens in 9 s are as good."""
    record = shapes.LATENCY | {
        "avg_latency": 9.0,
        "latencies": [9.0],
        "percentiles": {"50": 9.0},
        "batch_size": 1,
        "input_len": 50_000,
        "output_len": 1,
    }
    (one,) = told(json.dumps(record), models=("llama3.1-8b",), gpus=("a100-80gb",), tp=1, max_model_len=60_000)
    assert faults(one) == []


def test_a_start_up_log_that_cannot_be_true_is_called_so() -> None:
    """UC-090, https://github.com/vllm-project/vllm/issues/44740: a negative estimate of graphs enlarges the pool."""
    from tests.engines.logs.samples import NEGATIVE_GRAPHS  # noqa: PLC0415 - of other tests

    (one,) = told(NEGATIVE_GRAPHS, gpus=("gb10",))
    assert faults(one) == ["contradictory-figures"]
    found = finding(one, "contradictory-figures")
    assert "a negative estimate of CUDA-graph memory" in found.cause
    assert "-20.50 GiB" in " ".join(row.text for row in found.evidence)


# KV-bound


def test_more_clients_than_find_room_fill_the_cache() -> None:
    """UC-124, https://github.com/Tandemn-Labs/tandemn-system/issues/11: 256 clients, room for 72 on an A10G."""
    text = serving(QWEN_7B, (700, 740), 256, ttft_ms=60_000, tpot_ms=40, num_requests=5000)
    (one,) = told(text, gpus=("a10g",), tp=1, max_model_len=4096)
    assert faults(one)[0] == "kv-exhausted"
    assert "queueing" in faults(one)
    found = finding(one, "kv-exhausted")
    assert found.certainty == "modelled"
    room = next(row for row in found.evidence if row.signal == "clients_over_kv_room")
    assert 256 / room.value == pytest.approx(72, rel=0.12)
    fewer = next(row for row in found.remedies if row.change == "as many clients as find room")
    assert fewer.flag == f"--max-num-seqs {int(256 / room.value)}"
    assert found.flag == "--kv-cache-dtype fp8"
    assert found.gain_factor is not None
    assert found.gain_factor_low is not None
    assert found.gain_factor_high is not None
    assert found.gain_factor_low < found.gain_factor < found.gain_factor_high


def test_preemptions_of_the_same_server_are_measured() -> None:
    """UC-124: 480 preemptions in 5,000 requests; UC-123, vllm PR 44594: 1,065 of them."""
    text = metrics(
        QWEN_7B,
        num_requests_running=72,
        num_requests_waiting=184,
        kv_cache_usage_perc=0.99,
        num_preemptions_total=480,
        request_success_total=5000,
        request_prompt_tokens=(700, 5000),
        request_generation_tokens=(740, 5000),
    )
    (one,) = told(text, gpus=("a10g",), tp=1, max_model_len=4096)
    assert faults(one) == ["kv-exhausted", "queueing"]
    found = finding(one, "kv-exhausted")
    assert found.certainty == "measured"
    assert [row.text.rpartition(" ")[2] for row in found.evidence][:2] == ["480", "480"]


def test_reserve_keeps_sequences_from_being_computed_twice() -> None:
    """UC-123, https://github.com/vllm-project/vllm/pull/44594: 128 clients of 6,000 tokens on 16 GiB of KV."""
    text = metrics(QWEN_7B, num_preemptions_total=1065, request_success_total=640, kv_cache_usage_perc=0.97)
    (one,) = told(text)
    found = finding(one, "kv-exhausted")
    assert found.certainty == "measured"
    assert found.gain_factor is None
    assert found.flag == "--kv-cache-dtype fp8"
    assert any("which deployment" in row.how or "--gpu" in row.how for row in one.missing)


@pytest.mark.parametrize(("usage", "waiting", "full"), [(0.46, 0, False), (0.92, 0, False), (0.9995, 8, True)])
def test_past_the_cache_throughput_falls(usage: float, waiting: int, full: bool) -> None:
    """UC-126, agentic-coding-harness-benchmarks PR 178: best at a KV peak of 92 %, 60 % less at 99.95 %."""
    text = metrics("minimax-m3", num_requests_running=12, num_requests_waiting=waiting, kv_cache_usage_perc=usage)
    (one,) = told(text)
    assert ("kv-exhausted" in faults(one)) is full
    assert bool(faults(one)) is full


def test_seven_running_of_ten_wait_for_the_cache_of_a_small_card() -> None:
    """UC-131, agentic-coding-harness-benchmarks PR 138: KV at 100 % from 7 clients on, first tokens after 160 s."""
    text = metrics(
        "qwen3.8-27b",
        num_requests_running=7,
        num_requests_waiting=3,
        kv_cache_usage_perc=1.0,
        time_to_first_token_seconds=(160.0, 100),
        request_queue_time_seconds=(152.0, 100),
    )
    (one,) = told(text)
    assert set(faults(one)) == {"kv-exhausted", "queueing"}
    shares = [row.value for row in finding(one, "queueing").evidence if "queue_share" in row.signal]
    assert not shares or shares[0] == pytest.approx(0.95)


def test_places_that_memory_cannot_hold_are_named() -> None:
    """UC-136, https://github.com/vllm-project/vllm/issues/9658: 512 places, with room up to 880 tokens each."""
    start = (
        "INFO 10-24 [core.py:77] Initializing a V1 LLM engine (v0.9.0) with config: "
        "model='meta-llama/Llama-3.1-70B-Instruct', dtype=torch.bfloat16, max_seq_len=32768, tensor_parallel_size=4, "
        "quantization=None, kv_cache_dtype=auto\n"
        "INFO 10-24 [cli_args.py:1] non-default args: {'max_num_seqs': 512, 'gpu_memory_utilization': 0.9}\n"
        "INFO 10-24 [gpu_model_runner.py:1] Model loading took 32.9 GiB and 40 seconds\n"
    )
    for tokens, full in ((3000, True), (300, False)):
        given = Offer(concurrency=512, input_tokens=tokens, output_tokens=tokens)
        (one,) = told(start, given=given, gpus=("a100-80gb",))
        assert ("kv-exhausted" in faults(one)) is full


def test_an_8_bit_cache_is_no_mend_where_the_cache_is_not_full() -> None:
    """UC-100, https://github.com/vllm-project/vllm/issues/42058: twice the room, 0.997 to 1.032 times as fast."""
    text = serving("Qwen/Qwen3-8B", (4000, 256), 8, ttft_ms=500, tpot_ms=19)
    (one,) = told(text, gpus=("a100-80gb",), tp=1)
    assert faults(one) == []
    offered = [row for found in one.findings for row in found.remedies if row.change == "KV cache in FP8"]
    assert all(row.gain is None or row.gain.gain_factor < 1.12 for row in offered)


def test_a_refusal_to_start_comes_with_the_length_that_fits() -> None:
    """UC-069 and UC-068, https://github.com/vllm-project/vllm/issues/27508: the full context is refused."""
    from tests.engines.logs.samples import ONE_REQUEST  # noqa: PLC0415 - of other tests

    (one,) = told(ONE_REQUEST, gpus=("h100",))
    found = finding(one, "engine-refused")
    assert "10.00 GiB of KV, and 4.45 GiB are left" in found.cause
    assert "--max-model-len" in " ".join(row.text for row in found.remedies)
    assert found.evidence[0].line == 4


# Drafting


def plain_and_drafted(plain_per_s: float, drafted_per_s: float, rounds: float) -> tuple[str, str]:
    shared: dict[str, Any] = {"ttft_ms": 200, "backend": "sglang"}
    one = serving("Qwen/QwQ-32B", (512, 512), 1, tpot_ms=1000 / plain_per_s, **shared)
    shared["spec_decode_acceptance_length"] = rounds
    return one, serving("Qwen/QwQ-32B", (512, 512), 1, tpot_ms=1000 / drafted_per_s, **shared)


@pytest.mark.parametrize(("tp", "plain", "drafted", "loses"), [(1, 21, 30, False), (4, 61, 59, True)])
def test_drafting_that_wins_alone_may_lose_on_four_ranks(tp: int, plain: float, drafted: float, loses: bool) -> None:
    """UC-112, https://github.com/sgl-project/sglang/issues/6949: TP1 21 -> 30 tok/s, TP4 61 -> 59."""
    _, one = told(*plain_and_drafted(plain, drafted, 2.0), gpus=("a100-80gb",), tp=tp)
    assert ("speculation-losing" in faults(one)) is loses
    if loses:
        found = finding(one, "speculation-losing")
        assert found.certainty == "measured"
        assert next(row.value for row in found.evidence if "speedup" in row.signal) == pytest.approx(59 / 61)
        assert "without --speculative-algorithm" in [row.flag for row in found.remedies]


@pytest.mark.parametrize(
    ("model", "gpu", "tp", "length", "rounds"),
    [
        # UC-110, vllm PR 16035: 1.36x and 1.29x; UC-116, sglang PR 3582: 1.76x with 2 drafts of the model's own.
        ("meta-llama/Meta-Llama-3-8B-Instruct", "h100", 1, 2, 1.89),
        ("meta-llama/Meta-Llama-3-8B-Instruct", "h100", 1, 4, 2.08),
        ("deepseek-ai/DeepSeek-V3", "h200", 8, 2, 1.9),
    ],
)
def test_drafting_that_pays_is_not_called_losing(model: str, gpu: str, tp: int, length: int, rounds: float) -> None:
    text = metrics(
        model,
        num_requests_running=1,
        num_requests_waiting=0,
        request_prompt_tokens=(512, 100),
        request_generation_tokens=(256, 100),
        spec_decode_num_drafts_total=100_000,
        spec_decode_num_draft_tokens_total=100_000 * length,
        spec_decode_num_accepted_tokens_total=100_000 * (rounds - 1),
    )
    (one,) = told(text, gpus=(gpu,), tp=tp)
    assert faults(one) == []
    (row,) = (row for row in one.looked_at if row.symptom == "speculation-losing")
    assert float(row.because.partition("x predicted")[0]) > 1.2
    assert f"with {length} drafted tokens at batch 1" in row.because


def test_few_accepted_tokens_under_load_lose() -> None:
    """Gain falls with load: 100 requests in flight and few accepted drafts cost more than they bring."""
    text = metrics(
        LLAMA_8B,
        num_requests_running=256,
        num_requests_waiting=0,
        kv_cache_usage_perc=0.6,
        request_success_total=5000,
        request_prompt_tokens=(500, 5000),
        request_generation_tokens=(500, 5000),
        spec_decode_num_drafts_total=1_000_000,
        spec_decode_num_draft_tokens_total=7_000_000,
        spec_decode_num_accepted_tokens_total=250_000,
    )
    (one,) = told(text, gpus=("h100",), tp=1)
    found = finding(one, "speculation-losing")
    assert found.certainty == "modelled"
    off = next(row for row in found.remedies if row.change == "without drafting")
    assert off.gain is not None
    assert off.gain.gain_factor > 1.1
    assert off.flag == "without --speculative-config"


# Prefixes, routers, precisions, pools


def test_a_high_hit_rate_is_no_high_speedup() -> None:
    """UC-118, https://github.com/vllm-project/vllm/pull/53395: 94.6 % of tokens found at 64 clients, +6 %."""
    text = metrics(
        "Qwen/Qwen3-32B",
        num_requests_running=64,
        num_requests_waiting=0,
        kv_cache_usage_perc=0.3,
        num_preemptions_total=0,
        request_success_total=3000,
        request_prompt_tokens=(300, 3000),
        request_generation_tokens=(600, 3000),
        prefix_cache_queries_total=900_000,
        prefix_cache_hits_total=851_310,
    )
    (one,) = told(text, gpus=("h100",), tp=4)
    assert faults(one) == []
    found = finding(one, "prefix-cache-spent")
    assert found.kind == "limit"
    worth = float(found.cause.rpartition("worth +")[2].partition("%")[0])
    assert worth == pytest.approx(6.0, rel=0.4)


def test_affinity_crowds_one_of_two_workers() -> None:
    """UC-122, https://github.com/sgl-project/sglang/issues/21199: one shared prefix, hits alike, load not."""

    def worker(started: float, running: int, waiting: int) -> str:
        head = f"process_start_time_seconds {started}\n"
        hits: dict[str, Any] = {"prefix_cache_queries_total": 1_960_000, "prefix_cache_hits_total": 509_600}
        busy: dict[str, Any] = {
            "num_requests_running": running,
            "num_requests_waiting": waiting,
            "kv_cache_usage_perc": 0.4,
        }
        return head + metrics("moonshotai/Kimi-K2.5", request_success_total=200, **busy, **hits)

    crowded, idle = told(worker(1.0, 22, 14), worker(2.0, 6, 0))
    assert "uneven-load" in faults(crowded)
    assert "uneven-load" not in faults(idle)
    hits = [row for row in crowded.looked_at if row.symptom == "prefix-cache-ineffective"]
    assert "26.0%" in hits[0].because
    even = told(worker(1.0, 14, 7), worker(2.0, 14, 7))
    assert all("uneven-load" not in faults(one) for one in even)


@pytest.mark.parametrize(("clients", "tpot_ms", "spent"), [(8, 11, False), (256, 85, True)])
def test_four_bit_weights_bring_nothing_to_a_large_batch(clients: int, tpot_ms: float, spent: bool) -> None:
    """UC-101, https://github.com/casper-hansen/AutoAWQ/issues/106: faster up to batch 32, half as fast at 256."""
    text = serving("meta-llama/Llama-2-13b-hf", (128, 128), clients, ttft_ms=300, tpot_ms=tpot_ms)
    (one,) = told(text, gpus=("a100-80gb",), tp=1, weights="awq")
    assert ("weight-only-spent" in faults(one)) is spent
    if spent:
        wide = next(row for row in finding(one, "weight-only-spent").remedies if row.change == "weights in 16 bit")
        assert wide.gain is not None
        assert wide.gain.gain_factor >= 1


@pytest.mark.parametrize(("engine", "tpot_ms"), [("vllm", 31.2), ("sglang", 23.1)])
def test_tensor_parallelism_across_machines_is_named(engine: str, tpot_ms: float) -> None:
    """UC-106 and UC-107: TP 16 on two machines; without RDMA TP 8 in each, and two stages."""
    text = serving("deepseek-ai/DeepSeek-R1", (128, 128), 1, ttft_ms=400, tpot_ms=tpot_ms, backend=engine)
    (one,) = told(text, models=("deepseek-r1",), gpus=("h100",), tp=16)
    assert faults(one) == ["tp-over-network"]
    flags = {"vllm": "--pipeline-parallel-size 2 --tensor-parallel-size 8", "sglang": "--pp-size 2 --tp-size 8"}
    assert finding(one, "tp-over-network").flag == flags[engine]
    inside = serving("deepseek-ai/DeepSeek-R1", (128, 128), 1, ttft_ms=400, tpot_ms=14, backend=engine)
    (other,) = told(inside, models=("deepseek-r1",), gpus=("h200",), tp=8)
    assert "tp-over-network" not in faults(other)


def test_waiting_between_pools_is_not_the_transfer() -> None:
    """UC-146, https://github.com/sgl-project/sglang/issues/6411: 100,000 tokens of MLA take 0.14 s, not 22 s."""
    text = metrics(
        "deepseek-ai/DeepSeek-R1",
        "sglang",
        num_running_reqs=30,
        num_queue_reqs=0,
        token_usage=0.2,
        num_prefill_bootstrap_queue_reqs=300,
        prompt_tokens_histogram=(100_000, 10),
        generation_tokens_histogram=(500, 10),
    )
    (one,) = told(text, gpus=("h20",), tp=8)
    found = finding(one, "kv-transfer-waits")
    assert "141 ms for 100,000 tokens" in found.cause
