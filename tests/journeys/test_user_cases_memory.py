"""Numbers that users asked about in public on memory, concurrency, flags and offload, each with its source.

Written against the answers of the api, so that they hold whatever the ledger behind them is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.deployment import Ask, kv_format, load, resolve
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.api.filling import memory
from infcalc.api.fitting import ConcurrencyResult, concurrency
from infcalc.api.ledger import deployment_ledger
from infcalc.api.sizing import kv
from infcalc.api.slots import slots_of
from infcalc.api.users import Load
from infcalc.lowering.ops import Decode, StepShape, operations
from infcalc.memory.offload import link_time_s
from infcalc.memory.weights import weights_total_bytes
from infcalc.roofline.step import step_time
from infcalc.units import GIB, parse_quantity
from infcalc.workload.lengths import parse_lengths
from infcalc.workload.residence import Part, demand, requests_within
from tests.journeys.published import assert_holds, assert_unchanged, cases_of, checks_of

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases_memory.yaml"
OTHERS = PUBLISHED.with_name("user_cases.yaml")
FEATURES = {"fit", "concurrency", "flags", "offload"}

Figures = dict[str, float | str]
ANSWERS: dict[str, Callable[[], Figures]] = {}
Answer = Callable[[], Figures]


def answers(case: str) -> Callable[[Answer], Answer]:
    def remember(function: Answer) -> Answer:
        ANSWERS[case] = function
        return function

    return remember


def held(
    name: str,
    gpu: str,
    version: str | None,
    *,
    gpus: int = 1,
    contexts: tuple[int, ...] = (),
    requests: Load | None = None,
    **asked: Any,  # noqa: ANN401 - fields of Ask
) -> ConcurrencyResult:
    """Return what a deployment holds: vLLM with a 16-bit cache unless said otherwise."""
    ask = Ask(
        **{"engine": "vllm", "kv_dtypes": ("fp16",)}
        | {"models": (name,), "gpus": (gpu,), "num_gpus": gpus, "engine_version": version}
        | asked
    )
    return concurrency(ask, contexts=contexts, requests=requests).result


@answers("UC-015")
def _buffers_outside_the_allocator() -> Figures:
    one, two, four = (held("llama3.1-8b", "h100", "0.19", gpus=gpus).non_torch_bytes / GIB for gpus in (1, 2, 4))
    return {"non_torch_gib_tp1": one, "non_torch_gib_tp2": two, "non_torch_gib_tp4": four}


@answers("UC-016")
def _what_a_fraction_is_taken_of() -> Figures:
    return {"usable_gib": held("llama3.1-8b", "h100", "0.19", memory_fraction=0.95).usable_bytes / GIB}


@answers("UC-014")
def _activation_fell_with_a_version() -> Figures:
    before, after = (held("qwen3-14b", "h100", version).activation_bytes / GIB for version in ("0.16.0", "0.17.0"))
    return {"activation_gib_v0.16": before, "activation_gib_v0.17": after}


@answers("UC-034")
def _a_file_and_the_context_that_is_run() -> Figures:
    # The layers of the 9B are not published with the case: the file's bytes stand for its weights, and the cache of the
    # 27B of the family, which is larger, bounds its own.
    ask = Ask(models=("qwen3.5-27b",), gpus=("rtx-4090",), num_gpus=1, engine="llama.cpp", max_model_len=8192)
    (deployment,) = resolve(ask, load(ask))
    held = replace(deployment, additions=replace(deployment.additions, weights_bytes=5_680_529_408))
    form, _, _ = kv_format(held, "fp16")
    return {"required_gib_at_8192": deployment_ledger(held, form, context_tokens=8192).needed_bytes / GIB}


@answers("UC-053")
def _decimal_and_binary_gigabytes() -> Figures:
    return {"gib_of_24_gb": parse_quantity("24 GB", "bytes") / GIB}


@answers("UC-058")
def _what_a_models_own_drafts_add() -> Figures:
    ask = Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8, engine="llama.cpp", weights="q4_k_m")
    items = speculate(ask, DraftAsk(methods=("mtp",)), contexts=(132_864,)).result.memory
    by_name = {item.name: item.num_bytes for item in items}
    # One latent of 576 elements in 16 bit for each token of the same context.
    assert by_name["draft kv"] == 132_864 * 1152
    return {"draft_memory_line_items": " ".join(name for name, num_bytes in by_name.items() if num_bytes)}


@answers("UC-091")
def _slots_of_one_context() -> Figures:
    ask = Ask(models=("llama3-8b",), num_gpus=1, engine="llama.cpp", max_model_len=4096, max_num_seqs=4)
    (deployment,) = resolve(ask, load(ask))
    slots = slots_of(deployment)
    assert slots is not None
    return {"ctx_per_slot": slots.slot_tokens, "ctx_flag_needed": slots.context_flag_tokens}


@answers("UC-075")
def _small_model_small_limits() -> Figures:
    # The TensorRT backend of 2024 captures no CUDA graphs unless told to.
    found = held(
        "qwen2.5-0.5b",
        "rtx-a6000",
        "0.9",
        engine="tensorrt-llm",
        weights="int8",
        max_num_seqs=1,
        max_num_batched_tokens=512,
        enforce_eager=True,
        contexts=(512,),
    )
    (row,) = found.rows
    parts = found.weights_bytes + found.activation_bytes + found.non_torch_bytes + found.cuda_graph_bytes
    return {"kv_bytes_per_token": row.kv_bytes_per_token, "min_footprint_mb": (parts + row.kv_bytes_per_gpu) / 1e6}


@answers("UC-081")
def _longest_context_that_vllm_takes_by_itself() -> Figures:
    return {"max_model_len": held("qwen3-8b", "a10", "0.22").rows[0].tokens}


@answers("UC-098")
def _weights_over_a_link() -> Figures:
    # 55 GiB of 131 lie in the memory of the CPU; the rest is read where it is.
    (deployment,) = resolve(ask := Ask(models=("llama3-70b",), gpus=("gh200-96gb",), num_gpus=1), load(ask))
    moved = 55 * GIB
    step = step_time(operations(deployment.model, StepShape(decodes=(Decode(context_tokens=512),))), deployment.gpu)
    rest_s = step.time_s * (1 - moved / weights_total_bytes(deployment.model))
    c2c = deployment.gpu.scale_up
    assert c2c is not None
    assert "C2C" in c2c.name
    return {
        "tok_s_c2c": 1 / (link_time_s(moved, c2c.bytes_per_s) + rest_s),
        "tok_s_pcie5": 1 / (link_time_s(moved, deployment.gpu.pcie_bytes_per_s or 0) + rest_s),
    }


@answers("UC-124")
def _running_requests_of_a_full_pool() -> Figures:
    pool = kv(Ask(models=("qwen2.5-7b",), num_gpus=1), contexts=(77_088,)).result
    one = demand(parse_lengths("1000"), parse_lengths("140"), (Part(bytes_per_token=pool.kv_bytes_per_token),))
    size = pool.rows[0].kv_bytes
    return {"running": requests_within(size, one), "kv_gib": size / GIB}


@answers("UC-136")
def _five_hundred_at_once() -> Figures:
    found = held("llama3.1-70b", "a100-80gb", "0.6.3", gpus=4, memory_fraction=0.9, contexts=(32_768,))
    (row,) = found.rows
    return {"kv_tokens_per_replica": row.tokens, "mean_len_for_512": row.tokens / 512}


@pytest.mark.parametrize(("case", "check"), checks_of(PUBLISHED))
def test_a_published_number_comes_out(case: str, check: dict[str, Any]) -> None:
    assert_holds(check, ANSWERS[case]()[check["key"]])


def test_every_case_is_answered() -> None:
    assert {case["id"] for case in cases_of(PUBLISHED)} == set(ANSWERS)
    assert [case["id"] for case in cases_of(PUBLISHED) if not case.get("checks") or case.get("later")] == []


def test_no_number_or_tolerance_was_changed() -> None:
    assert_unchanged(PUBLISHED, FEATURES, (OTHERS,))


# The same cases, asked as their users would.


@pytest.mark.parametrize("version", ["0.8", "0.10", "0.14"])
def test_a_pool_that_was_predicted_runs_as_many_requests(version: str) -> None:
    # UC-124: 72 of 256 run on one A10G; max_num_seqs is no capacity.
    found = held("qwen2.5-7b", "a10g", version, requests=Load(input_tokens=1000, output_tokens=140))
    (row,) = found.rows
    assert row.requests == pytest.approx(72, rel=0.12)
    assert row.requests_low is not None
    assert row.requests_high is not None
    assert row.requests_low <= 72 <= row.requests_high
    assert found.max_num_seqs == 256


def test_512_at_once_needs_short_requests() -> None:
    # UC-136: 13 requests of full length, 512 only if 880 tokens are alive on average.
    short = held(
        "llama3.1-70b",
        "a100-80gb",
        "0.6.3",
        gpus=4,
        memory_fraction=0.9,
        max_num_seqs=512,
        requests=Load(input_tokens=780, output_tokens=200),
    )
    assert short.rows[0].mean_live_tokens == 880
    assert short.rows[0].requests == pytest.approx(512, rel=0.1)
    full = held("llama3.1-70b", "a100-80gb", "0.6.3", gpus=4, memory_fraction=0.9, contexts=(32_768,))
    assert 12 <= full.rows[0].sequences <= 15


def test_the_advertised_window_is_no_workload() -> None:
    # UC-034: a tool sized a 9B model for its 262,144 tokens.
    found = held("qwen3.5-27b", "h100", None)
    assert [row.context_tokens for row in found.rows] == [4096]
    (deployment,) = resolve(ask := Ask(models=("qwen3.5-27b",), num_gpus=1), load(ask))
    assert deployment.model.max_context_tokens == 262_144


# What other tools get wrong


def test_an_mla_latent_is_not_split_over_tp() -> None:
    # Split over TP 8 a GPU would seem to hold eight times the tokens it does.
    one, eight = (
        kv(Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=gpus)).result.kv_bytes_per_token_per_gpu
        for gpus in (1, 8)
    )
    assert one == eight == 70_272


def test_deepseek_v3_does_not_fit_on_eight_h100() -> None:
    ask = Ask(models=("deepseek-v3",), gpus=("h100",), num_gpus=8)
    found = concurrency(ask)
    assert found.exit_code == 3
    assert 78 * GIB < found.result.weights_bytes < 80 * GIB
    assert found.result.missing_bytes > 0
    assert {row.sequences for row in found.result.rows} == {0}


def test_deepseek_v3_on_eight_h200_holds_a_hundred_and_fifty_sequences() -> None:
    (row,) = held("deepseek-v3", "h200", None, gpus=8, kv_dtypes=("bf16",), contexts=(4096,)).rows
    assert 130 <= row.sequences <= 185
    assert 130 <= row.sequences_low <= row.sequences <= row.sequences_high <= 185


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
def test_blocks_are_those_of_one_gpu(gpus: int) -> None:
    # Pooled memory over the block of one GPU would be TP times the tokens.
    (row,) = held("llama3-8b", "h100", "0.19", gpus=gpus).rows
    share = 131_072 // gpus
    assert row.kv_bytes_per_gpu == 4096 * share
    assert row.tokens == row.kv_pool_bytes // share // 16 * 16


def test_kv_is_part_of_what_is_needed() -> None:
    # Weights alone would fit: 131 GiB on two H100 of 80 GB.
    found = held("llama3-70b", "h100", "0.19", gpus=2, contexts=(8192, 131_072))
    assert found.weights_bytes < found.usable_bytes
    short, long = found.rows
    assert short.sequences > 0
    assert long.sequences == 0
    ask = Ask(models=("llama3.1-70b",), gpus=("h100",), num_gpus=2, engine_version="0.19", max_model_len=131_072)
    answer = memory(ask)
    whole = answer.result
    besides = sum(line.num_bytes for line in whole.lines)
    # One block of 16 tokens is kept empty.
    assert whole.needed_bytes == besides + (131_072 + 16) * 163_840
    assert besides < whole.usable_bytes < whole.needed_bytes
    assert (answer.exit_code, whole.fits) == (3, False)


def test_gqa_is_not_ignored() -> None:
    # 64 query heads on 8 KV heads: eight times less than a cache of every head.
    found = kv(Ask(models=("llama3-70b",), num_gpus=4)).result
    assert found.gqa_saving_factor == 8
    assert found.mha_kv_bytes_per_token == 8 * found.kv_bytes_per_token == 8 * 327_680


def test_prompts_do_not_all_prefill_at_once() -> None:
    # A step takes max_num_batched_tokens whatever waits: the peak knows neither prompt length nor number of sequences.
    short, long = (
        held("llama3-8b", "h100", None, contexts=(context,), max_num_batched_tokens=8192) for context in (512, 8192)
    )
    assert short.activation_bytes == long.activation_bytes < 8 * GIB
