"""Rows of ``what-if`` against arithmetic on the model's own dimensions: bytes of a step, room of a cache, lessons."""

from __future__ import annotations

import re

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import SimulationResult
from infcalc.api.what_if import what_if
from infcalc.api.what_if_nouns import Feature, FeatureRow, Verdict
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.units import GIB

# Llama 3 8B: hidden size, layers, width of K and V, of the feed-forward, vocabulary.
HIDDEN, LAYERS, KV_WIDTH, WIDTH, VOCABULARY = 4096, 32, 1024, 14336, 128_256
LINEAR = LAYERS * (2 * HIDDEN * HIDDEN + 2 * HIDDEN * KV_WIDTH + 3 * HIDDEN * WIDTH)
HEAD = VOCABULARY * HIDDEN
KV_BYTES_PER_TOKEN = 2 * LAYERS * KV_WIDTH * 2
PROMPT, ANSWER, CLIENTS = 600, 100, 16
EIGHT = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1)
LOAD = WorkloadAsk(num_clients=CLIENTS, num_requests=320, input_tokens=str(PROMPT), output_tokens=str(ANSWER))
SEVENTY = Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=8, weights="fp8", kv_dtypes=("fp8",))


def row(feature: Feature, ask: Ask = EIGHT, load: WorkloadAsk = LOAD) -> FeatureRow:
    (found,) = what_if(ask, SimulationAsk(load=load), features=(str(feature),)).result.rows
    return found


def run(ask: Ask = EIGHT, load: WorkloadAsk = LOAD) -> SimulationResult:
    return simulate(ask, SimulationAsk(load=load)).result


def gib(text: str, name: str) -> tuple[float, float]:
    """Return what a step reads of ``name`` before and after, in GiB, as a reason tells it."""
    sizes = {"MiB": 1 / 1024, "GiB": 1.0}
    found = re.search(rf"([\d.]+) (MiB|GiB) -> ([\d.]+) (MiB|GiB) of {name}", text)
    assert found is not None, text
    before, unit, after, other = found.groups()
    return float(before) * sizes[unit], float(after) * sizes[other]


def room(text: str) -> float:
    """Return by how much the room for tokens grew, as a reason tells it."""
    found = re.search(r"room for ([\d.]+)(k|M) -> ([\d.]+)(k|M) tokens", text)
    assert found is not None, text
    before, unit, after, other = found.groups()
    return float(after) / float(before) * {"kk": 1, "kM": 1000, "MM": 1}[unit + other]


@pytest.mark.parametrize(
    ("feature", "bits"),
    [
        (Feature.FP8_WEIGHTS, 8.0),
        # AWQ: 4 bit, and 16 and 4 bit of scale and zero point for each 128.
        (Feature.INT4_WEIGHTS, 4 + 20 / 128),
    ],
)
def test_a_step_reads_the_linear_layers_in_fewer_bits_and_the_head_as_before(feature: Feature, bits: float) -> None:
    before, after = gib(row(feature).why, "weights")
    assert before == pytest.approx((LINEAR + HEAD) * 2 / GIB, rel=0.01)
    assert after == pytest.approx((LINEAR * bits / 8 + HEAD * 2) / GIB, rel=0.01)


@pytest.mark.parametrize(("feature", "bits"), [(Feature.FP8_KV, 8.0), (Feature.INT4_KV, 4 + 32 / 128)])
def test_a_step_reads_the_caches_of_all_in_fewer_bits_and_the_pool_holds_more(feature: Feature, bits: float) -> None:
    told = row(feature).why
    before, after = gib(told, "cache")
    # All clients but those whose first token is on its way, each with half of its answer.
    base = run()
    assert base.ttft_s is not None
    assert base.e2e_s is not None
    decoding = CLIENTS * (1 - base.ttft_s.mean / base.e2e_s.mean)
    assert before == pytest.approx(decoding * (PROMPT + ANSWER / 2) * KV_BYTES_PER_TOKEN / GIB, rel=0.05)
    assert after / before == pytest.approx(bits / 16, rel=0.03)
    assert room(told) == pytest.approx(16 / bits, rel=0.02)


def test_freed_weights_are_room_for_tokens() -> None:
    told = row(Feature.FP8_WEIGHTS).why
    tokens = run().cache_tokens
    assert room(told) == pytest.approx(1 + LINEAR / KV_BYTES_PER_TOKEN / tokens, rel=0.02)


def test_a_token_alone_is_bound_by_what_a_step_reads() -> None:
    load = WorkloadAsk(num_clients=1, num_requests=8, input_tokens="64", output_tokens="200")
    for feature, bits in ((Feature.FP8_WEIGHTS, 8.0), (Feature.INT4_WEIGHTS, 4 + 20 / 128)):
        found = row(feature, load=load)
        least = (LINEAR * bits / 8 + HEAD * 2) / ((LINEAR + HEAD) * 2)
        # What the engine adds to a step does not shrink.
        assert found.tpot_factor is not None
        assert least < found.tpot_factor < (1 + least) / 2 + 0.1


def test_without_paging_a_sequence_takes_the_longest() -> None:
    load = WorkloadAsk(num_clients=100, num_requests=400, input_tokens="600", output_tokens="100")
    found = row(Feature.CONTIGUOUS_KV, load=load)
    seats = run().cache_tokens // 8192
    told = re.search(r"answers in a step (\d+) -> (\d+)", found.why)
    assert told is not None
    # Some of those seated wait for their first token.
    assert 0.7 * seats < int(told[2]) <= seats < int(told[1]) <= 100


def test_without_a_cache_each_step_computes_all_that_stands_before() -> None:
    found = row(Feature.NO_KV_CACHE)
    base = run()
    told = re.search(
        r"a step of (\d+) answers at ([\d,]+) tokens.*: ([\d.]+) ms for ([\d.]+) ms; ([\d.]+) GiB", found.why
    )
    assert told is not None, found.why
    decodes, context = int(told[1]), int(told[2].replace(",", ""))
    step_s, decode_s = float(told[3]) / 1e3, float(told[4]) / 1e3
    assert context == PROMPT + ANSWER // 2
    # Two FLOP for each weight and token, at 45 to 95 % of 989 TFLOP/s.
    ideal_s = 2 * LINEAR * decodes * context / 989e12
    assert ideal_s / 0.95 < step_s < ideal_s / 0.45
    # A token waits for such a step in place of a decode step; what prompts add to steps is as before.
    assert base.tpot_s is not None
    assert found.tpot_factor == pytest.approx((base.tpot_s.mean - decode_s + step_s) / base.tpot_s.mean, rel=0.02)
    # Requests hold what they have of the cache: share of its tokens times bytes of one.
    assert base.kv_usage_fraction is not None
    held = base.kv_usage_fraction.mean * base.cache_tokens * KV_BYTES_PER_TOKEN
    assert float(told[5]) == pytest.approx(held / GIB, abs=0.006 * max(1.0, held / GIB))
    assert held < CLIENTS * (PROMPT + ANSWER) * KV_BYTES_PER_TOKEN


def test_naive_attention_sends_every_score_through_memory() -> None:
    prompt = 8000
    load = WorkloadAsk(num_clients=4, num_requests=40, input_tokens=str(prompt), output_tokens="50")
    found = row(Feature.NAIVE_ATTENTION, load=load)
    told = re.search(r"bound to ([\d.]+) ms for ([\d.]+) ms", found.why)
    assert told is not None
    naive_s, flash_s = float(told[1]) / 1e3, float(told[2]) / 1e3
    # 32 heads of scores, written and read, and so their softmax, in 16 bit at 3.35 TB/s.
    scores = LAYERS * 32 * prompt * prompt * 2 * 4 / 3.35e12
    assert naive_s - flash_s == pytest.approx(scores, rel=0.25)
    assert found.ttft_factor == pytest.approx(naive_s / flash_s, rel=0.01)


def test_pools_are_the_best_of_several_splits_against_the_best_plain_layout() -> None:
    load = WorkloadAsk(num_clients=48, num_requests=192, input_tokens="3000", output_tokens="150")
    found = row(Feature.DISAGGREGATION, SEVENTY, load)
    plain = {
        tp: simulate(
            Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=tp, tp=tp, weights="fp8", kv_dtypes=("fp8",)),
            SimulationAsk(load=load, num_replicas=8 // tp),
        ).result.loaded_output_tokens_per_s
        or 0.0
        for tp in (1, 2, 4, 8)
    }
    best = max(plain, key=lambda tp: plain[tp])
    assert f"against {8 // best} x TP {best}, the best plain replicas" in found.why
    assert best != 8
    assert found.num_gpus == 8
    assert found.throughput_factor is not None
    assert found.throughput_factor > 1.2
    assert found.verdict in {Verdict.PAYS, Verdict.MAY_PAY}
    # All GPUs are in one of the pools.
    told = re.match(r"(\d) x TP (\d) for prefill and (\d) x TP (\d) for decode, the best of 4 splits", found.why)
    assert told is not None, found.why
    first, first_tp, second, second_tp = (int(number) for number in told.groups())
    assert first * first_tp + second * second_tp == 8


def test_drafting_takes_memory_from_the_cache() -> None:
    found = row(Feature.SPECULATION)
    assert "head llama3-8b-eagle3" in found.why
    # 293,617,664 of its layer and 131,072,000 of its head, in 16 bit, and 4,096 bytes for each token of the cache.
    tokens = run().cache_tokens
    held = tokens * KV_BYTES_PER_TOKEN - (293_617_664 + 131_072_000) * 2
    assert room(found.why) == pytest.approx(held / (KV_BYTES_PER_TOKEN + 4096) / tokens, rel=0.01)


def test_a_way_of_drafting_is_one_that_the_engine_and_the_model_have() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8, engine="sglang")
    load = WorkloadAsk(num_clients=1, num_requests=6, input_tokens="512", output_tokens="128")
    found = row(Feature.SPECULATION, ask, load)
    assert found.verdict in {Verdict.PAYS, Verdict.MAY_PAY}
    assert "by the scheduler of vLLM" in found.why
    assert "head deepseek-v3-eagle3" in found.why or "the model's own layers" in found.why


def test_of_experts_a_step_reads_those_that_are_touched() -> None:
    # Qwen3 30B A3B for one user: 48 layers of width 2,048, 32 query and 4 KV heads of 128, 8 of 128 experts of 768.
    attention = 2 * 2048 * 32 * 128 + 2 * 2048 * 4 * 128
    experts, router = 8 * 3 * 2048 * 768, 2048 * 128
    head = 151_936 * 2048
    load = WorkloadAsk(num_clients=1, num_requests=6, input_tokens="64", output_tokens="64")
    told = row(Feature.FP8_WEIGHTS, Ask(models=("qwen3-30b-a3b",), gpus=("h100",), num_gpus=1), load).why
    before, after = gib(told, "weights")
    assert before == pytest.approx(2 * (48 * (attention + experts + router) + head) / GIB, rel=0.01)
    assert after == pytest.approx((48 * (attention + experts + 2 * router) + 2 * head) / GIB, rel=0.01)


def test_twice_the_ranks_read_half_the_weights_each_on_as_many_gpus() -> None:
    load = WorkloadAsk(num_clients=8, num_requests=64, input_tokens="600", output_tokens="100")
    found = row(Feature.TP_DOUBLED, EIGHT, load)
    assert found.num_gpus == 2
    before, after = gib(found.why, "weights")
    assert after / before == pytest.approx(0.5, rel=0.02)
    # Two replicas of one GPU with half the users each, against one of two GPUs with all of them.
    two = simulate(EIGHT, SimulationAsk(load=load, num_replicas=2)).result
    one = simulate(Ask(models=("llama3-8b",), gpus=("h100",), tp=2, num_gpus=2), SimulationAsk(load=load)).result
    assert two.usd_per_month == one.usd_per_month
    assert two.loaded_output_tokens_per_s is not None
    assert one.loaded_output_tokens_per_s is not None
    assert found.throughput_factor == pytest.approx(one.loaded_output_tokens_per_s / two.loaded_output_tokens_per_s)
