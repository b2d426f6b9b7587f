from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from infcalc.api.deployment import Ask, load, resolve
from infcalc.engines.rules import EngineRules, engine_rules
from infcalc.lowering.tensors import inventory
from infcalc.memory.weights import (
    besides_per_stage,
    loaded_per_stage,
    lora_bytes,
    stage_tensors,
    tower_bytes,
    weights_per_stage,
    weights_total_bytes,
)
from infcalc.spec.layers import Shard
from infcalc.spec.parallelism import Parallelism
from infcalc.spec.weights import WeightQuantization
from infcalc.units import GIB, MIB
from tests.shipped import shipped


def test_llama_70b_weighs_141107412992_bytes() -> None:
    assert weights_total_bytes(shipped("llama3.1-70b")) == 141_107_412_992


def test_four_ranks_exceed_the_whole_by_replicated_norms_only() -> None:
    model = shipped("llama3.1-70b")
    (rank,) = weights_per_stage(model, Parallelism(tp=4))
    norms = (2 * 80 + 1) * 8192 * 2
    assert rank * 4 - weights_total_bytes(model) == 3 * norms


@pytest.mark.parametrize("pp", [1, 2, 4, 7])
@pytest.mark.parametrize("name", ["llama3.1-70b", "deepseek-v3", "gpt-oss-120b", "qwen3.5-27b"])
def test_stages_together_hold_an_untied_model(name: str, pp: int) -> None:
    model = shipped(name)
    stages = weights_per_stage(model, Parallelism(pp=pp))
    assert len(stages) == pp
    padding = sum(
        tensor.rank_bytes(Parallelism()) - tensor.bytes_total
        for tensor in inventory(model)
        if tensor.shard is Shard.VOCABULARY
    )
    assert sum(stages) - padding == weights_total_bytes(model)


def test_tied_embeddings_lie_on_the_first_and_the_last_stage() -> None:
    model = shipped("gemma-2-27b")
    table = 256_000 * 4608 * 2
    assert sum(weights_per_stage(model, Parallelism(pp=2))) - weights_total_bytes(model) == table


def test_left_over_layers_go_to_stages_before_the_last() -> None:
    stages = stage_tensors(shipped("deepseek-v3"), Parallelism(pp=4))
    layers = [sum(count for tensor, count in stage if tensor.name == "kv_a") for stage in stages]
    assert layers == [15, 15, 16, 15]
    assert [{t.name for t, _ in stage} & {"embedding", "lm_head", "final_norm"} for stage in stages] == [
        {"embedding"},
        set(),
        set(),
        {"lm_head", "final_norm"},
    ]


def test_mtp_layers_lie_on_the_last_stage() -> None:
    model = shipped("deepseek-v3")
    without = weights_per_stage(model, Parallelism(pp=2))
    with_mtp = weights_per_stage(model, Parallelism(pp=2), with_mtp=True)
    assert with_mtp[0] == without[0]
    assert with_mtp[1] > without[1]


def test_expert_parallelism_spreads_experts_and_only_them() -> None:
    model = shipped("mixtral-8x7b")
    (split,) = weights_per_stage(model, Parallelism(tp=8))
    (spread,) = weights_per_stage(model, Parallelism(tp=8, ep=8))
    assert split == spread
    # Attention-DP: every rank holds attention in full and its share of the experts.
    (data,) = weights_per_stage(model, Parallelism(tp=1, dp=8, ep=8))
    attention = 32 * (2 * 4096 * 4096 + 2 * 1024 * 4096) * 2
    tables = 2 * 32_000 * 4096 * 2
    assert data - spread == (attention + tables) * 7 // 8


# Weights that vLLM 0.11 logged on H100, as listed in the accuracy runs of llm-d-planner.
@pytest.mark.parametrize(
    ("name", "tp", "weights", "gib"),
    [
        ("qwen3-0.6b", 1, "bf16", 1.12),
        ("llama3.1-8b", 1, "bf16", 14.99),
        ("qwen3-32b", 1, "bf16", 61.03),
        ("qwen3-32b", 2, "bf16", 30.59),
        ("llama3.3-70b", 2, "fp8_channel", 33.88),
    ],
)
def test_measured_weights_of_one_gpu(name: str, tp: int, weights: str, gib: float) -> None:
    (rank,) = weights_per_stage(shipped(name), Parallelism(tp=tp), WeightQuantization(format=weights))
    assert rank / GIB == pytest.approx(gib, rel=0.01)


# https://github.com/vllm-project/vllm/issues/6746: 57.75 GiB measured, naive is 47.2.
def test_llama_405b_fp8_leaves_attention_and_edge_layers_wide() -> None:
    (rank,) = weights_per_stage(shipped("llama3.1-405b-fp8"), Parallelism(tp=8))
    assert rank / GIB == pytest.approx(57.75, rel=0.03)
    assert weights_total_bytes(shipped("llama3.1-405b-fp8")) > 480e9


def test_an_override_replaces_the_checkpoints_own_storage() -> None:
    model = shipped("gpt-oss-120b")
    assert weights_total_bytes(model) / GIB == pytest.approx(60.8, rel=0.005)
    assert weights_total_bytes(model, WeightQuantization(format="bf16")) == 2 * 116_829_156_672


# As engines load them


@cache
def rules(gpu: str = "h100", version: str | None = None, *, tp: int = 1, engine: str = "vllm") -> EngineRules:
    return engine_rules(engine, version, load(Ask()).gpu(gpu).gpu, tp=tp)


def added(name: str, tp: int, here: EngineRules) -> int:
    """Return what an engine holds beyond the inventory on one of ``tp`` ranks."""
    ranks = Parallelism(tp=tp)
    (loaded,), (plain,) = loaded_per_stage(shipped(name), ranks, here), weights_per_stage(shipped(name), ranks)
    return loaded - plain


def test_towers_are_divided_by_ranks_and_lie_on_the_first_stage() -> None:
    model = shipped("qwen3.8-27b")
    assert model.unmodelled_parameters == 460_730_096
    assert [tower_bytes(model, Parallelism(tp=tp), rules()) for tp in (1, 2, 3)] == [
        921_460_192,
        460_730_096,
        307_153_398,
    ]
    assert tower_bytes(model, Parallelism(), rules(engine="llama.cpp")) == 0
    stages = Parallelism(pp=2)
    held = zip(loaded_per_stage(model, stages, rules()), weights_per_stage(model, stages), strict=True)
    assert [loaded - plain for loaded, plain in held] == [921_460_192, 0]


def test_copies_of_latent_projections_follow_the_version() -> None:
    # 61 layers; 16 heads on a rank, (128 + 128) x 512 elements unpacked to 16 bit.
    unpacked = 61 * 16 * 256 * 512 * 2
    assert added("deepseek-v3", 8, rules(version="0.5", tp=8)) == 0
    assert added("deepseek-v3", 8, rules(version="0.33", tp=8)) == unpacked
    # 0.7 multiplied the up-projection into output and query, in 8 bits: 16 x 512 x (7168 + 1536) elements more.
    assert added("deepseek-v3", 8, rules(version="0.7.3", tp=8)) == unpacked + 61 * 16 * 512 * (7168 + 1536)
    # The V2 Lite checkpoint is in 16 bit and has no query latent.
    lite = added("deepseek-v2-lite", 1, rules(version="0.7.3"))
    assert lite == 27 * 16 * (256 * 512 + 512 * (2048 + 2048)) * 2
    assert added("llama3-8b", 1, rules()) == 0


def test_copies_of_mtp_layers_lie_on_the_last_stage() -> None:
    model, here, stages = shipped("deepseek-v3"), rules(tp=8), Parallelism(tp=8, pp=2)
    grown = [
        after - before
        for before, after in zip(
            loaded_per_stage(model, stages, here), loaded_per_stage(model, stages, here, with_mtp=True), strict=True
        )
    ]
    plain = [
        after - before
        for before, after in zip(
            weights_per_stage(model, stages), weights_per_stage(model, stages, with_mtp=True), strict=True
        )
    ]
    assert grown == [0, plain[1] + 16 * 256 * 512 * 2]


@pytest.mark.parametrize(
    ("gpu", "tp", "inner", "outer"),
    [
        # Experts of gpt-oss are 2,880 wide both ways: their input becomes 3,072, their inner width what kernels take.
        ("h100", 1, 2880, 3072),
        ("a100-80gb", 1, 2944, 3072),
        ("b200", 1, 3072, 3072),
        ("h100", 2, 1440, 3072),
        ("a100-80gb", 2, 1536, 3072),
    ],
)
def test_experts_in_mxfp4_are_padded(gpu: str, tp: int, inner: int, outer: int) -> None:
    experts = 3 * 24 * 32 * 2880 * 2880 * 17 // 32 // tp
    padded = experts * (inner * tp) * outer // (2880 * 2880)
    assert added("gpt-oss-20b", tp, rules(gpu, tp=tp)) == padded - experts


def test_double_quantized_scales_are_unpacked() -> None:
    model, ranks = shipped("llama3-8b"), Parallelism()
    double, plain = (WeightQuantization(format=name) for name in ("nf4_dq", "nf4"))
    assert weights_per_stage(model, ranks, double) < weights_per_stage(model, ranks, plain)
    assert loaded_per_stage(model, ranks, rules(), double) == loaded_per_stage(model, ranks, rules(), plain)


@pytest.mark.parametrize(("name", "tp", "gib"), [("llama3.1-8b", 1, 14.99), ("qwen2.5-14b", 2, 13.95)])
def test_printed_weights_hold_what_loading_takes(name: str, tp: int, gib: float) -> None:
    ranks, here = Parallelism(tp=tp), rules(tp=tp)
    (loaded,), (besides,) = (
        loaded_per_stage(shipped(name), ranks, here),
        besides_per_stage(shipped(name), ranks, here),
    )
    assert (loaded + besides) / GIB == pytest.approx(gib, rel=0.002)


def test_idle_ends_of_large_tensors_and_the_table_of_positions() -> None:
    # Qwen2.5 14B at TP 2, MiB of a layer: qkv 35, o 25, gate_up 135 and down 67.5 leave 1, 1, 1 and 0.5 of steps of 2.
    # Positions: 32,768 x 128 elements of 2 bytes.
    model, ranks = shipped("qwen2.5-14b"), Parallelism(tp=2)
    positions = 32_768 * 128 * 2
    assert besides_per_stage(model, ranks, rules(tp=2)) == (48 * 7 * MIB // 2 + positions,)
    # An engine that reads the device's free memory counts every rest: 1.5 of the embedding and of the head, too.
    assert besides_per_stage(model, ranks, rules(tp=2, engine="sglang")) == (
        48 * 7 * MIB // 2 + 2 * 3 * MIB // 2 + positions,
    )
    assert besides_per_stage(model, ranks, rules(tp=2, engine="llama.cpp")) == (0,)


def test_positions_of_latent_attention_are_those_of_its_rotated_part() -> None:
    model, ranks = shipped("deepseek-v3"), Parallelism(tp=8)
    without = replace(model, max_context_tokens=None)
    (whole,), (rest,) = (besides_per_stage(one, ranks, rules(tp=8)) for one in (model, without))
    assert whole - rest == (model.max_context_tokens or 0) * 64 * 2
    recurrent = shipped("mamba-2.8b")
    longer = replace(recurrent, max_context_tokens=2**20)
    assert besides_per_stage(longer, Parallelism(), rules()) == (
        besides_per_stage(replace(recurrent, max_context_tokens=None), Parallelism(), rules())
    )
    assert besides_per_stage(longer, Parallelism(), rules())[0] % 1024 == 0
    wide = shipped("gemma-4-31b")
    (whole,), (rest,) = (
        besides_per_stage(one, Parallelism(), rules()) for one in (wide, replace(wide, max_context_tokens=None))
    )
    assert whole - rest == (wide.max_context_tokens or 0) * 128 * 2


def test_adapters_hold_both_factors_of_every_linear_layer() -> None:
    # Llama 3 8B, rank 16: q and o 4096 + 4096, k and v 4096 + 1024, three of the feed-forward 4096 + 14336.
    model = shipped("llama3-8b")
    one = 32 * 16 * 2 * (2 * 8192 + 2 * 5120 + 3 * 18_432)
    assert lora_bytes(model, Parallelism(), rank=16) == one
    assert lora_bytes(model, Parallelism(tp=2), rank=32, num_adapters=3) == 3 * one
    # Experts have none.
    experts = shipped("mixtral-8x7b")
    assert lora_bytes(experts, Parallelism(), rank=16) < 32 * 16 * 2 * (2 * 8192 + 2 * 5120 + 18_432)


def test_experts_of_a_layer_lie_in_one_tensor() -> None:
    # gpt-oss 20B, MiB of a layer: 32 experts in 4 bits fill 253.125 (gate and up) and leave 0.875; down, attention,
    # embedding and head leave more than one, which is used for others. Positions: 131,072 x 64 elements.
    (besides,) = besides_per_stage(shipped("gpt-oss-20b"), Parallelism(), rules())
    assert besides == 24 * 7 * MIB // 8 + 131_072 * 64 * 2


def test_llama_cpp_leaves_the_input_embedding_in_host_memory() -> None:
    # llama.cpp prints 4,403 MiB for the CUDA0 buffer of Llama 3.1 8B in Q4_K_M.
    def loaded(name: str, pp: int = 1, *, on_host: bool = True) -> tuple[int, ...]:
        ask = Ask(models=(name,), gpus=("rtx-4090",), tp=1, pp=pp, engine="llama.cpp", weights="q4_k_m")
        (of,) = resolve(ask, load(ask))
        rules = replace(of.rules, host_embedding=on_host)
        return loaded_per_stage(of.model, of.parallelism, rules, of.quantization)

    assert round(loaded("llama3.1-8b")[0] / MIB) == 4403
    # Q4_K is 4.5 bits.
    embedding = 128_256 * 4096 * 9 // 16
    assert loaded("llama3.1-8b", on_host=False)[0] - loaded("llama3.1-8b")[0] == embedding
    (first, last), (whole, same) = loaded("llama3.1-8b", 2), loaded("llama3.1-8b", 2, on_host=False)
    assert (whole - first, same - last) == (embedding, 0)
    # Tied, it is on the GPU once: as the head.
    assert loaded("llama3.2-1b") == loaded("llama3.2-1b", on_host=False)
    (first, last), (whole, same) = loaded("llama3.2-1b", 2), loaded("llama3.2-1b", 2, on_host=False)
    assert (whole > first, same == last) == (True, True)
