"""Numbers that users asked about in public, each with its source, answered by the package within its stated tolerance.

Cases that need a model the catalog does not have describe it by the figures of the case.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.bounds import roofline
from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.filling import memory
from infcalc.api.fitting import ConcurrencyResult, ConcurrencyRow, concurrency
from infcalc.api.listing import show
from infcalc.api.offer import Offer
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.sizing import KvResult, deployment_budgets, fitting_room, kv
from infcalc.api.speed import estimate
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.catalog.huggingface import from_config
from infcalc.engines.rules import engine_rules
from infcalc.lowering.ops import Decode, StepShape, operations
from infcalc.lowering.tensors import inventory
from infcalc.memory.blocks import PageGroup, PagePlan, Settings, printed
from infcalc.memory.kv import (
    KvKind,
    constant_bytes,
    grouped_bytes_per_token,
    kv_components,
    sequence_bytes,
    slope_bytes_per_token,
)
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import GroupedAttention
from infcalc.spec.model import Model
from infcalc.units import GIB, KIB, MIB
from tests.journeys.published import assert_holds, assert_unchanged, cases_of, checks_of
from tests.journeys.simulated_cases import agents_on_one_card

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases.yaml"
BF16 = KV_FORMATS["bf16"]

Figures = dict[str, float | bool]
ANSWERS: dict[str, Callable[[Path], Figures]] = {}
Answer = Callable[[Path], Figures]


def answers(case: str) -> Callable[[Answer], Answer]:
    def remember(function: Answer) -> Answer:
        ANSWERS[case] = function
        return function

    return remember


@cache
def catalog_model(name: str) -> Model:
    return load(Ask()).model(name).model


def cached(name: str, *, contexts: tuple[int, ...] = (), kv_dtype: str = "bf16", gpus: int = 1) -> KvResult:
    """KV of a model of the catalog."""
    ask = Ask(models=(name,), gpus=("h100-sxm-80gb",), num_gpus=gpus, kv_dtypes=(kv_dtype,))
    return kv(ask, contexts=contexts).result


def served(
    name: str,
    gpu: str,
    *,
    gpus: int = 1,
    engine_version: str | None = None,
    fraction: float | None = None,
    weights: str | None = None,
    kv_dtypes: tuple[str, ...] = ("bf16",),
    contexts: tuple[int, ...] = (),
) -> ConcurrencyResult:
    """Return what a deployment on vLLM holds."""
    ask = Ask(
        models=(name,),
        gpus=(gpu,),
        num_gpus=gpus,
        engine="vllm",
        engine_version=engine_version,
        memory_fraction=fraction,
        weights=weights,
        kv_dtypes=kv_dtypes,
    )
    return concurrency(ask, contexts=contexts).result


def tokens_in(pool_bytes: float, name: str, kv_dtype: str = "bf16") -> int:
    """Tokens that vLLM's blocks of 16 hold in a pool of that size on one GPU."""
    ask = Ask(models=(name,), gpus=("h100-sxm-80gb",), num_gpus=1)
    (deployment,) = resolve(ask, load(ask))
    stage = replace(deployment_budgets(deployment)[0], kv_pool_bytes=int(pool_bytes))
    return fitting_room(deployment, KV_FORMATS[kv_dtype], (stage,), 16).tokens


def exact_sequences(row: ConcurrencyRow) -> float:
    """Sequences before rounding down."""
    return row.kv_pool_bytes / row.kv_bytes_per_gpu


@answers("UC-002")
def _wrong_hidden_size_formula(_: Path) -> Figures:
    return {"kv_gib_at_8192": cached("llama3-8b", contexts=(8192,)).rows[0].kv_bytes / GIB}


@answers("UC-005")
def _traffic_of_one_decode_step(_: Path) -> Figures:
    step = operations(catalog_model("llama3-8b"), StepShape(decodes=(Decode(context_tokens=4096),)), kv=BF16)
    return {"kv_read_bytes_per_step": sum(op.kv_read_bytes for op in step)}


DENSE: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 3584,
    "intermediate_size": 14336,
    "num_hidden_layers": 1,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "vocab_size": 1024,
}


@answers("UC-007")
def _explicit_head_dim(_: Path) -> Figures:
    layer = from_config(DENSE | {"head_dim": 256})
    return {"kv_bytes": slope_bytes_per_token(kv_components(layer, BF16))}


@answers("UC-008")
def _head_dim_of_qwen3(_: Path) -> Figures:
    tensors = inventory(catalog_model("qwen3-32b"))
    return {
        "kv_bytes_per_token": cached("qwen3-32b").kv_bytes_per_token,
        "qkv_rows": sum(tensor.rows for tensor in tensors if tensor.name in {"q", "k", "v"}),
    }


@answers("UC-009")
def _mla_caches_one_latent(_: Path) -> Figures:
    return {
        "kv_bytes_per_token": cached("deepseek-v3").kv_bytes_per_token,
        "qwen3_4b_kv_bytes_per_token": cached("qwen3-4b").kv_bytes_per_token,
    }


QWEN35_08B: dict[str, Any] = {
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "dtype": "bfloat16",
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": 24,
        "full_attention_interval": 4,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "attn_output_gate": True,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "max_position_embeddings": 262144,
        "vocab_size": 248320,
    },
    "tie_word_embeddings": True,
    "vision_config": {"model_type": "qwen3_5", "depth": 12},
}


@answers("UC-010")
def _hybrid_with_every_fourth_layer_full(_: Path) -> Figures:
    parts = kv_components(from_config(QWEN35_08B), BF16)
    assert constant_bytes(parts) > 0, "the recurrent state is there, and apart from the growing part"
    return {
        "kv_bytes_per_token": slope_bytes_per_token(parts),
        "kv_bytes_at_131072": sequence_bytes(parts, 131_072) - constant_bytes(parts),
    }


KIMI_VL: dict[str, Any] = {
    "architectures": ["KimiVLForConditionalGeneration"],
    "model_type": "kimi_vl",
    "text_config": {
        "model_type": "deepseek_v3",
        "hidden_size": 2048,
        "intermediate_size": 11264,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "first_k_dense_replace": 1,
        "topk_method": "noaux_tc",
        "vocab_size": 163840,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    },
    "vision_config": {"model_type": "moonvit", "hidden_size": 1152, "num_hidden_layers": 27},
}


@answers("UC-011")
def _latent_attention_nested_in_a_multimodal_config(tmp_path: Path) -> Figures:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(KIMI_VL), encoding="utf-8")
    return {"kv_bytes_per_token": kv(Ask(models=(str(path),), num_gpus=1)).result.kv_bytes_per_token}


@answers("UC-012")
def _fp8_kv_on_one_h100(_: Path) -> Figures:
    found = served(
        "llama3.1-8b", "h100", engine_version="0.19", fraction=0.95, kv_dtypes=("bf16", "fp8"), contexts=(8192,)
    )
    bf16, fp8 = found.rows
    assert bf16.kv_pool_bytes == fp8.kv_pool_bytes
    return {"kv_tokens_bf16": bf16.tokens, "kv_tokens_fp8": fp8.tokens}


@answers("UC-013")
def _weights_in_three_precisions(_: Path) -> Figures:
    def weights_gib(weights: str) -> float:
        found = served("llama3.1-8b", "h100", engine_version="0.19", fraction=0.95, weights=weights)
        return found.weights_bytes / GIB

    return {
        "weights_gib_bf16": weights_gib("bf16"),
        "weights_gib_fp32": weights_gib("fp32"),
        "weights_gib_fp8_runtime": weights_gib("fp8"),
    }


@answers("UC-066")
def _pool_does_not_depend_on_the_longest_sequence(_: Path) -> Figures:
    def tokens(name: str) -> int:
        found = served(name, "h100", engine_version="0.19", fraction=0.95, contexts=(2048, 32_768))
        short, long = found.rows
        assert short.tokens == long.tokens
        assert short.sequences > long.sequences
        return short.tokens

    return {"llama_kv_tokens": tokens("llama3.1-8b"), "qwen_kv_tokens": tokens("qwen2.5-7b")}


@answers("UC-023")
def _windows_with_their_own_heads(_: Path) -> Figures:
    parts = kv_components(catalog_model("gemma-4-26b-a4b"), BF16)
    return {
        f"kv_gb_{tokens}": sequence_bytes(parts, tokens, in_flight_tokens=512) / 1e9
        for tokens in (4096, 8192, 32_768, 131_072)
    }


GEMMA4_12B: dict[str, Any] = {
    "architectures": ["Gemma4ForConditionalGeneration"],
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 3840,
        "intermediate_size": 15360,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "num_global_key_value_heads": 1,
        "global_head_dim": 512,
        "attention_k_eq_v": True,
        "sliding_window": 1024,
        "vocab_size": 262144,
        "max_position_embeddings": 262144,
    },
}


@answers("UC-025")
def _one_global_head_grows(_: Path) -> Figures:
    parts = kv_components(from_config(GEMMA4_12B), BF16)
    assert {part.kind: part.layers for part in parts} == {KvKind.SLIDING: 40, KvKind.FULL: 8}
    return {"kv_slope_bytes_per_token": slope_bytes_per_token(parts)}


@answers("UC-026")
def _ten_global_layers_grow(_: Path) -> Figures:
    # Before 0.21 the token line counts the blocks of one group: the pool over it is what all groups allocate.
    ask = Ask(models=("gemma-4-31b",), gpus=("h100",), num_gpus=1, engine_version="0.19.1", kv_dtypes=("bf16",))
    ledger = memory(ask).result
    return {
        "slope_bytes_per_token": cached("gemma-4-31b-nvfp4").kv_bytes_per_token,
        "allocated_bytes_per_token_vllm_pre021": ledger.kv_pool_bytes / ledger.kv_cache_tokens,
    }


@answers("UC-027")
def _windows_or_a_unified_pool(_: Path) -> Figures:
    parts = kv_components(catalog_model("gpt-oss-20b"), BF16)
    return {
        "kv_gib_lower": 32 * sequence_bytes(parts, 8192) / GIB,
        "kv_gib_unified": 32 * 8192 * grouped_bytes_per_token(parts) / GIB,
    }


KIMI_K25: dict[str, Any] = {
    "architectures": ["KimiK25ForConditionalGeneration"],
    "model_type": "kimi_k25",
    "text_config": KIMI_VL["text_config"]
    | {
        "model_type": "kimi_k2",
        "num_hidden_layers": 61,
        "quantization_config": {
            "quant_method": "compressed-tensors",
            "format": "pack-quantized",
            "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*"],
            "config_groups": {
                "group_0": {
                    "targets": ["Linear"],
                    "weights": {
                        "num_bits": 4,
                        "type": "int",
                        "strategy": "group",
                        "group_size": 32,
                        "symmetric": True,
                        "dynamic": False,
                    },
                }
            },
        },
    },
    "vision_config": {"model_type": "moonvit", "vt_hidden_size": 1152},
}


@answers("UC-028")
def _quantized_weights_without_a_kv_scheme(tmp_path: Path) -> Figures:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(KIMI_K25), encoding="utf-8")
    found = kv(Ask(models=(str(path),), num_gpus=1))
    assert {item.name: item.value for item in found.inputs}["weights"] != "bf16"
    assert found.result.kv_dtype == "bf16"
    assert found.result.kv_bytes_per_token == cached("kimi-k2.5").kv_bytes_per_token
    return {"kv_bytes_per_token": found.result.kv_bytes_per_token}


@answers("UC-035")
def _packed_words_are_not_parameters(_: Path) -> Figures:
    derived = show("RedHatAI/NVIDIA-Nemotron-Nano-9B-v2-quantized.w4a16").result.derived
    return {"weights_gb_nemotron_9b_w4a16": float(str(derived["weights_bytes"])) / 1e9}


@answers("UC-037")
def _parameters_of_packed_checkpoints(_: Path) -> Figures:
    llama = show("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16").result.derived
    kimi = show("moonshotai/Kimi-K2.5").result.derived
    return {
        "kimi_k25_params_t": float(str(kimi["parameters"])) / 1e12,
        "llama31_8b_w4a16_params_b": float(str(llama["parameters"])) / 1e9,
    }


@answers("UC-043")
def _every_layer_of_scout_is_routed(_: Path) -> Figures:
    derived = show("llama4-scout").result.derived
    return {
        "params_b_text": float(str(derived["parameters"])) / 1e9,
        "active_params_b": float(str(derived["active_parameters"])) / 1e9,
    }


@answers("UC-045")
def _attention_layers_of_a_mamba_hybrid(_: Path) -> Figures:
    found = cached("nemotron-3-nano-30b")
    (attention,) = (part for part in found.kv_components if part.kind == "full")
    assert found.kv_bytes_per_request > 0
    return {"overcount_factor": catalog_model("nemotron-3-nano-30b").num_layers / attention.layers}


@answers("UC-055")
def _kv_of_mistral_small(_: Path) -> Figures:
    ask = Ask(
        models=("mistral-small-24b",),
        gpus=("rtx-4090",),
        num_gpus=1,
        engine="llama.cpp",
        weights="q4_k_m",
        kv_dtypes=("fp16",),
        max_model_len=4096,
    )
    return {
        "kv_mib": cached("mistral-small-24b", contexts=(4096,), kv_dtype="fp16").rows[0].kv_bytes / MIB,
        "total_gib": memory(ask, contexts=(4096,)).result.needed_bytes / GIB,
    }


@answers("UC-065")
def _llama_8b_on_one_and_two_h100(_: Path) -> Figures:
    one, two = (served("llama3-8b", "h100", gpus=gpus, engine_version="0.6.5", fraction=0.9) for gpus in (1, 2))
    return {
        "weights_gib": one.weights_bytes / GIB,
        "kv_gib_tp1": one.rows[0].kv_pool_bytes / GIB,
        "kv_gib_tp2": two.rows[0].kv_pool_bytes / GIB,
    }


@answers("UC-067")
def _the_same_bytes_in_two_engines(_: Path) -> Figures:
    found = cached("qwen3-235b-a22b-fp8", gpus=4, contexts=(367_404,))
    return {
        "kv_bytes_per_token_per_gpu": found.kv_bytes_per_token_per_gpu,
        "sglang_kv_gib": found.rows[0].kv_bytes_per_gpu / GIB,
    }


@answers("UC-068")
def _tokens_of_an_fp8_pool(_: Path) -> Figures:
    return {
        "kv_bytes_per_token_fp8": cached("qwen3-30b-a3b", kv_dtype="fp8").kv_bytes_per_token,
        "max_len_from_5_59_gib": tokens_in(5.59 * GIB, "qwen3-30b-a3b", "fp8"),
    }


@answers("UC-069")
def _context_that_fits_beside_gpt_oss(_: Path) -> Figures:
    parts = kv_components(catalog_model("gpt-oss-120b"), BF16)
    longest = max(
        tokens for tokens in range(0, 131_072, 16) if sequence_bytes(parts, tokens, in_flight_tokens=1024) <= 1.71 * GIB
    )
    return {
        "kv_gib_full_context": sequence_bytes(parts, 131_072, in_flight_tokens=1024) / GIB,
        "max_len_at_1_71_gib": longest,
        "weights_gib_loaded": served("gpt-oss-120b", "h100", engine_version="0.11", fraction=0.95).weights_bytes / GIB,
    }


@answers("UC-072")
def _fp8_checkpoint_with_16_bit_attention(_: Path) -> Figures:
    ask = Ask(models=("llama3.1-405b-fp8",), gpus=("h100",), num_gpus=8, engine_version="0.5.3")
    return {
        "weights_gib_per_gpu": concurrency(ask).result.weights_bytes / GIB,
        "kv_bytes_per_token_per_gpu": kv(ask).result.kv_bytes_per_token_per_gpu,
    }


@answers("UC-076")
def _mla_in_q8_0(_: Path) -> Figures:
    return {"kv_mib": cached("deepseek-v3", contexts=(32_768,), kv_dtype="q8_0").rows[0].kv_bytes / MIB}


@answers("UC-079")
def _kv_of_the_tokens_of_a_warm_up(_: Path) -> Figures:
    return {"kv_gib_total": cached("llama3.1-70b", contexts=(30_816,), gpus=2).rows[0].kv_bytes / GIB}


@answers("UC-084")
def _slope_and_constant_apart(_: Path) -> Figures:
    found = cached("deepseek-v4-flash", contexts=(4096, 65_536, 1_048_576), kv_dtype="fp8_ds_mla")
    constant = found.kv_bytes_per_request + sum(part.max_bytes or 0 for part in found.kv_components)
    exact = all(row.kv_bytes == constant + found.kv_bytes_per_token * row.context_tokens for row in found.rows)
    return {"reports_slope_and_constant": exact and constant > 0 and found.kv_bytes_per_token > 0}


BLOCK_OF_THE_LOG = 1600
LENGTHS_OF_THE_LOG = {8192: 31.74, 262_144: 4.11}


@answers("UC-086")
def _concurrency_between_two_measured_lengths(_: Path) -> Figures:
    # The model's config is not published: its page groups are those with which both printed lines come out of one pool.
    rules = engine_rules("vllm", "0.28", load(Ask()).gpu("dgx-spark-gb10").gpu, tp=1)

    def printed_concurrency(groups: tuple[int, int], length: int) -> float:
        full = PageGroup(layers=1, block_tokens=BLOCK_OF_THE_LOG)
        recurrent = PageGroup(layers=1, block_tokens=BLOCK_OF_THE_LOG, recurrent=True)
        cut = PagePlan(
            block_bytes=1,
            block_tokens=BLOCK_OF_THE_LOG,
            groups=(*[full] * groups[0], *[recurrent] * groups[1]),
        )
        settings = Settings(block_tokens=BLOCK_OF_THE_LOG, max_model_len=length, max_num_batched_tokens=2048)
        return printed(10**9, cut, rules, settings)[2]

    def mismatch(groups: tuple[int, int]) -> float:
        first, last = (printed_concurrency(groups, length) / seen for length, seen in LENGTHS_OF_THE_LOG.items())
        return abs(first / last - 1)

    best = min(((full, recurrent) for full in range(1, 5) for recurrent in range(1, 41)), key=mismatch)
    assert mismatch(best) < 0.002
    pool = LENGTHS_OF_THE_LOG[8192] / printed_concurrency(best, 8192)
    return {"concurrency_32768": pool * printed_concurrency(best, 32_768)}


@answers("UC-100")
def _fp8_kv_doubles_capacity(_: Path) -> Figures:
    bf16, fp8 = served("qwen3-8b", "a100-80gb", engine_version="0.26", kv_dtypes=("bf16", "fp8")).rows
    whole = {
        kv_dtype: [
            fast("qwen3-8b", "a100-80gb", prompt, 256, clients=8, kv_dtypes=(kv_dtype,), engine_version="0.26")
            for prompt in (1000, 4000, 8000, 16_000)
        ]
        for kv_dtype in ("bf16", "fp8")
    }
    ratios = [plain / narrow for plain, narrow in zip(whole["bf16"], whole["fp8"], strict=True)]
    return {
        "kv_tokens_bf16": bf16.tokens,
        "kv_tokens_fp8": fp8.tokens,
        "e2e_speedup": sum(ratios) / len(ratios),
    }


def fast(name: str, gpu: str, prompt: int, answer: int, *, clients: int, **asked: Any) -> float:  # noqa: ANN401
    """Return the seconds of a whole request on one GPU."""
    ask = Ask(models=(name,), gpus=(gpu,), num_gpus=1, **asked)
    offer = Offer(concurrency=clients, input_tokens=prompt, output_tokens=answer)
    found = estimate(ask, offer).result.e2e_s
    assert found is not None
    return found.value


@answers("UC-101")
def _weights_alone_in_four_bits(_: Path) -> Figures:
    def throughput(weights: str, batch: int) -> float:
        ask = Ask(models=("llama2-13b",), gpus=("a100-80gb",), num_gpus=1, weights=weights)
        found = estimate(ask, Offer(batch=batch, input_tokens=64, output_tokens=128)).result.output_tokens_per_s
        assert found is not None
        return found.value

    return {f"awq_over_fp16_b{batch}": throughput("awq", batch) / throughput("fp16", batch) for batch in (8, 256)}


@answers("UC-123")
def _tokens_of_16_gib(_: Path) -> Figures:
    # So much of the card's memory leaves 16 GiB for the cache.
    ask = Ask(
        models=("qwen2.5-7b",),
        gpus=("gb200",),
        num_gpus=1,
        memory_fraction=0.185613,
        max_num_seqs=128,
        max_model_len=8192,
    )
    sent = WorkloadAsk(arrivals="once", num_requests=512, input_tokens="1000", output_tokens="5000")
    ran = simulate(ask, SimulationAsk(load=sent)).result
    assert ran.cache_tokens == 299_584
    return {"kv_tokens": tokens_in(16 * GIB, "qwen2.5-7b"), "tok_s": ran.output_tokens_per_s}


@answers("UC-131")
def _recurrent_state_is_not_quantized(_: Path) -> Figures:
    # The case tells no length, but that 7 requests fill the pool: the longest length of which 7 fit. The 27B hybrids
    # of the family are alike.
    contexts = tuple(range(16 * KIB, 64 * KIB, KIB))
    found = served("qwen3.5-27b", "l40s", weights="fp8", kv_dtypes=("fp8",), contexts=contexts)
    filling = [row for row in found.rows if row.sequences == 7][-1]
    return {"best_concurrency": agents_on_one_card(), "fp8_kv_token_ratio": filling.gain_over_fp16}


@answers("UC-135")
def _five_users_of_a_full_context(_: Path) -> Figures:
    def users(gpu: str, gpus: int, kv_dtype: str) -> float:
        found = served(
            "llama3.3-70b",
            gpu,
            gpus=gpus,
            engine_version="0.6",
            fraction=0.9,
            weights="fp8",
            kv_dtypes=(kv_dtype,),
            contexts=(131_072,),
        )
        return exact_sequences(found.rows[0])

    ask = Ask(models=("llama3.3-70b",), gpus=("h100",), num_gpus=4, weights="fp8")
    points = roofline(ask, contexts=(131_072,), batches=(5,)).result.points
    (step,) = (point for point in points if (point.phase, point.attention_io) == ("decode", "flash"))
    return {
        "kv_gib_per_user": cached("llama3.3-70b", contexts=(131_072,)).rows[0].kv_bytes / GIB,
        "users_4xh100_util09": users("h100", 4, "bf16"),
        "users_2xh200_fp8kv": users("h200", 2, "fp8"),
        "tpot_floor_ms": step.time_s * 1e3,
    }


@answers("UC-138")
def _gpus_for_a_hundred_requests_without_gqa(_: Path) -> Figures:
    found = served(
        "llama2-13b", "a100-80gb", engine_version="0.2", fraction=0.9, kv_dtypes=("fp16",), contexts=(1024, 4096)
    )
    short, long = (math.ceil(100 / row.sequences) for row in found.rows)
    return {"kv_bytes_per_token": found.rows[0].kv_bytes_per_token, "gpus_1024": short, "gpus_4096": long}


@pytest.mark.parametrize(("case", "check"), checks_of(PUBLISHED))
def test_a_published_number_comes_out(case: str, check: dict[str, Any], tmp_path: Path) -> None:
    assert_holds(check, ANSWERS[case](tmp_path)[check["key"]])


def test_every_case_is_answered_or_left_for_later_with_a_reason() -> None:
    cases = cases_of(PUBLISHED)
    checked = {case["id"] for case in cases if case.get("checks")}
    assert checked == set(ANSWERS)
    later = {(case["id"], check["key"]): check["reason"] for case in cases for check in case.get("later", ())}
    assert all(len(reason.split()) >= 3 for reason in later.values())
    assert set(later) == {
        ("UC-035", "weights_gb_qwen38_27b_int4"),
        ("UC-038", "total_params_b"),
    }


def test_no_number_or_tolerance_was_changed() -> None:
    assert_unchanged(PUBLISHED, {"kv", "quant", "import"})


def test_a_head_dim_of_null_falls_back_to_the_derived_one() -> None:
    mixer = from_config(DENSE | {"head_dim": None}).layers[0].layer.mixer
    assert isinstance(mixer, GroupedAttention)
    assert mixer.head_dim == 3584 // 16
