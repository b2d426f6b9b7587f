from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.api.deployment import Ask, load
from infcalc.engines.rules import Band, EngineRules, FractionBase, engine_rules
from infcalc.memory.blocks import Settings
from infcalc.memory.budget import Additions, Budget, Room, budgets, profile_tokens, room
from infcalc.memory.weights import weights_per_stage
from infcalc.spec.hardware import Gpu
from infcalc.spec.kv import KV_FORMATS, KvFormat
from infcalc.spec.model import Model
from infcalc.spec.parallelism import Parallelism
from infcalc.units import GIB
from tests.shipped import shipped

BF16, FP8 = KV_FORMATS["bf16"], KV_FORMATS["fp8"]


@cache
def gpu(name: str = "h100-sxm5-80gb") -> Gpu:
    return load(Ask()).gpu(name).gpu


def counted(
    model: Model,
    parallelism: Parallelism | None = None,
    *,
    on: Gpu | None = None,
    rules: EngineRules | None = None,
    engine: str = "vllm",
    version: str | None = None,
    fraction: float | None = None,
) -> tuple[Budget, ...]:
    parallelism = parallelism or Parallelism()
    on = on or gpu()
    rules = rules or engine_rules(engine, version, on, tp=parallelism.tp)
    return budgets(
        model,
        on,
        parallelism,
        rules,
        fraction=rules.fraction if fraction is None else fraction,
        quantization=None,
        max_num_seqs=rules.scheduler.max_num_seqs,
        max_num_batched_tokens=rules.scheduler.max_num_batched_tokens,
    )


def held(
    model: Model,
    stages: tuple[Budget, ...],
    parallelism: Parallelism | None = None,
    *,
    kv: KvFormat = BF16,
    context_tokens: int = 4096,
    block_tokens: int = 16,
    engine: str = "vllm",
) -> Room:
    parallelism = parallelism or Parallelism()
    settings = Settings(
        block_tokens=block_tokens,
        max_model_len=max(context_tokens, 8192),
        max_num_batched_tokens=8192,
        dcp=parallelism.dcp,
    )
    rules = engine_rules(engine, None, gpu(), tp=parallelism.tp)
    return room(model, kv, parallelism, stages, rules=rules, settings=settings, context_tokens=context_tokens)


def fitting(
    model: Model, parallelism: Parallelism, *, context_tokens: int = 4096, block_tokens: int = 16, on: Gpu | None = None
) -> Room:
    stages = counted(model, parallelism, on=on)
    return held(model, stages, parallelism, context_tokens=context_tokens, block_tokens=block_tokens)


def usable_blocks(pool_bytes: int, block_bytes: int) -> int:
    """Return the blocks that hold tokens: vLLM keeps one empty."""
    return pool_bytes // block_bytes - 1


# What the fraction is a fraction of


@pytest.mark.parametrize("version", ["0.6.5", "0.19", "0.33"])
@pytest.mark.parametrize("tp", [1, 2, 8])
def test_vllm_splits_its_share_of_the_total_without_a_rest(version: str, tp: int) -> None:
    (one,) = counted(shipped("llama3-8b"), Parallelism(tp=tp), version=version)
    parts = one.weights_bytes + one.loading_bytes + one.activation.value_bytes + one.non_torch.value_bytes
    parts += one.cuda_graph_bytes
    assert one.kv_pool_bytes + parts == one.usable_bytes
    assert one.usable_bytes == int(gpu().cuda_total_bytes * (0.92 if version == "0.33" else 0.9))
    assert one.missing_bytes == 0


def test_the_four_meanings_of_a_fraction_on_one_example() -> None:
    # 100 GiB in total, a fraction of one half, 20 of weights, 4 of activation, 2 of buffers and 1 of graphs.
    model = shipped("llama3-8b")
    weights = sum(weights_per_stage(model, Parallelism()))
    on = replace(gpu(), cuda_total_bytes=5 * weights)

    def part(share: float) -> Band:
        size = int(weights * share)
        return Band(value_bytes=size, low_bytes=size, high_bytes=size, source="example")

    rules = replace(
        engine_rules("vllm", None, on, tp=1),
        non_torch=part(0.1),
        cuda_graph_bytes=int(weights * 0.05),
        allocation_bytes=0,
        profile=replace(
            engine_rules("vllm", None, on, tp=1).profile, hidden_copies=0, sampler_hidden_copies=0, encoder=False
        ),
        # Activation from the sampler alone.
        sampler_logit_copies=0.2 * weights / (256 * model.vocab_size * 4),
    )
    pools = {}
    for base in FractionBase:
        one = budgets(
            model,
            on,
            Parallelism(),
            replace(rules, fraction_base=base),
            fraction=None if base is FractionBase.NONE else 0.5,
            quantization=None,
            max_num_seqs=256,
            max_num_batched_tokens=1,
        )
        pools[base] = one[0].kv_pool_bytes / weights
    assert pools == {
        FractionBase.TOTAL: pytest.approx(5 * 0.5 - 1 - 0.2 - 0.1 - 0.05),
        FractionBase.FREE_BEFORE_WEIGHTS: pytest.approx((5 - 0.1) * 0.5 - 1),
        FractionBase.FREE_AFTER_WEIGHTS: pytest.approx((5 - 1 - 0.2 - 0.1 - 0.05) * 0.5),
        FractionBase.NONE: pytest.approx(5 - 1 - 0.2 - 0.1),
    }


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
def test_bands_hold_their_value(engine: str) -> None:
    for name in ("llama3-8b", "gpt-oss-20b"):
        (one,) = counted(shipped(name), engine=engine)
        assert one.kv_pool_low_bytes <= one.kv_pool_bytes <= one.kv_pool_high_bytes
        for band in (one.activation, one.non_torch):
            assert band.low_bytes <= band.value_bytes <= band.high_bytes
        fits = held(shipped(name), (one,), engine=engine)
        assert fits.sequences_low <= fits.sequences <= fits.sequences_high


def test_the_ends_of_the_band_are_a_share_of_the_root_of_the_squared_deviations() -> None:
    (one,) = counted(shipped("llama3-8b"), version="0.26")
    assert one.cuda_graph_bytes > 0
    parts = (one.activation, one.non_torch, one.graphs)
    above = sum((part.value_bytes - part.low_bytes) ** 2 for part in parts) ** 0.5
    below = sum((part.high_bytes - part.value_bytes) ** 2 for part in parts) ** 0.5
    assert one.kv_pool_high_bytes - one.kv_pool_bytes == pytest.approx(0.8 * above, abs=2)
    assert one.kv_pool_bytes - one.kv_pool_low_bytes == pytest.approx(0.8 * below, abs=2)


def test_what_lacks_is_what_one_more_gpu_of_memory_would_cure() -> None:
    model = shipped("llama3-70b")
    (one,) = counted(model)
    assert (one.kv_pool_bytes, one.kv_pool_low_bytes) == (0, 0)
    assert one.missing_bytes > 0
    larger = replace(gpu(), cuda_total_bytes=gpu().cuda_total_bytes + int(one.missing_bytes / 0.92) + GIB)
    (cured,) = counted(model, on=larger)
    assert cured.missing_bytes == 0
    assert 0 < cured.kv_pool_bytes < GIB


@given(fraction=st.floats(0.3, 1.0), more=st.floats(0.0, 0.3))
def test_a_larger_fraction_never_gives_a_smaller_pool(fraction: float, more: float) -> None:
    model = shipped("llama3-8b")
    (less,), (most,) = counted(model, fraction=fraction), counted(model, fraction=min(1.0, fraction + more))
    assert less.kv_pool_bytes <= most.kv_pool_bytes
    assert less.missing_bytes >= most.missing_bytes


# How many fit


@pytest.mark.parametrize("name", ["llama3-70b", "gpt-oss-120b", "qwen3-235b-a22b-fp8"])
def test_more_gpus_never_hold_fewer_sequences(name: str) -> None:
    found = [fitting(shipped(name), Parallelism(tp=tp)).sequences for tp in (1, 2, 4, 8)]
    assert all(before <= after for before, after in pairwise(found))
    assert found[-1] > found[0]


def test_mla_gains_from_tp_only_by_its_weights() -> None:
    model, on = shipped("deepseek-v3"), gpu("h200-sxm-141gb")
    (eight,), (sixteen,) = (counted(model, Parallelism(tp=tp), on=on) for tp in (8, 16))
    latents = [fitting(model, Parallelism(tp=tp), on=on) for tp in (8, 16)]
    assert latents[0].kv_bytes_per_gpu == latents[1].kv_bytes_per_gpu == 70_272 * 4096
    assert latents[1].sequences / latents[0].sequences == pytest.approx(
        sixteen.least_pool_bytes / eight.least_pool_bytes, rel=0.01
    )


@given(context_tokens=st.integers(1, 200_000), block_tokens=st.sampled_from([1, 16, 32, 64, 256]))
def test_a_context_takes_whole_blocks(context_tokens: int, block_tokens: int) -> None:
    model = shipped("llama3-8b")
    stages = counted(model)
    fits = held(model, stages, context_tokens=context_tokens, block_tokens=block_tokens)
    taken = -(-context_tokens // block_tokens)
    assert fits.sequences == usable_blocks(stages[0].kv_pool_bytes, 131_072 * block_tokens) // taken
    assert fits.blocked_bytes == taken * 131_072 * block_tokens
    assert fits.tokens % block_tokens == 0
    assert fits.kv_bytes_per_gpu == 131_072 * context_tokens


def test_longer_contexts_hold_fewer_sequences() -> None:
    lengths = (1, 16, 17, 33)
    found = [fitting(shipped("llama3-8b"), Parallelism(), context_tokens=tokens).sequences for tokens in lengths]
    assert found[0] == found[1]
    assert found[1] > found[2] > found[3]


def test_the_pool_holds_the_same_tokens_whatever_their_sequences() -> None:
    tokens = {
        fitting(shipped("llama3-8b"), Parallelism(), context_tokens=length).tokens for length in (16, 4096, 65_536)
    }
    (only,) = tokens
    (one,) = counted(shipped("llama3-8b"))
    assert only == one.kv_pool_bytes // (131_072 * 16) * 16


def test_fp8_holds_twice_the_sequences() -> None:
    model = shipped("llama3-8b")
    stages = counted(model)
    bf16, fp8 = (held(model, stages, kv=form).sequences for form in (BF16, FP8))
    assert fp8 in {2 * bf16, 2 * bf16 + 1}


def test_the_fullest_pipeline_stage_decides() -> None:
    model, parallelism = shipped("llama3-70b"), Parallelism(tp=2, pp=2)
    stages = counted(model, parallelism)
    alone = [usable_blocks(stage.kv_pool_bytes, 81_920 * 16) // 256 for stage in stages]
    assert fitting(model, parallelism).sequences == min(alone)
    # Take memory from the other stage, and it decides instead.
    starved = tuple(
        replace(stage, kv_pool_bytes=stage.kv_pool_bytes // 2) if stage.stage == 1 else stage for stage in stages
    )
    fits = held(model, starved, parallelism)
    assert (fits.stage, fits.sequences) == (1, usable_blocks(starved[1].kv_pool_bytes, 81_920 * 16) // 256)


def test_at_each_end_of_the_band_its_own_fullest_stage_decides() -> None:
    model, parallelism = shipped("llama3-70b"), Parallelism(tp=2, pp=2)
    first, second = counted(model, parallelism)
    stages = (first, replace(second, kv_pool_low_bytes=0, kv_pool_high_bytes=2 * first.kv_pool_high_bytes))
    fits = held(model, stages, parallelism)
    assert fits.sequences_low == 0
    assert fits.sequences_high == usable_blocks(first.kv_pool_high_bytes, 81_920 * 16) // 256


def test_attention_data_parallelism_multiplies_sequences() -> None:
    model = shipped("deepseek-v3")
    on = gpu("h200-sxm-141gb")
    alone = counted(model, Parallelism(tp=8), on=on)
    one = held(model, alone, Parallelism(tp=8))
    many = held(model, alone, Parallelism(tp=8, dp=4))
    assert (many.sequences, many.tokens) == (4 * one.sequences, 4 * one.tokens)
    assert (many.sequences_low, many.sequences_high) == (4 * one.sequences_low, 4 * one.sequences_high)
    assert many.kv_bytes_per_gpu == one.kv_bytes_per_gpu


def test_decode_context_parallelism_splits_a_latent_cache_by_position() -> None:
    model, on = shipped("deepseek-v3"), gpu("h200-sxm-141gb")
    stages = counted(model, Parallelism(tp=8), on=on)
    whole, split = (held(model, stages, Parallelism(tp=8, dcp=dcp), block_tokens=64) for dcp in (1, 8))
    assert split.kv_bytes_per_gpu * 8 == whole.kv_bytes_per_gpu
    assert split.sequences == usable_blocks(stages[0].kv_pool_bytes, 70_272 * 64) // 8
    assert split.sequences >= 8 * whole.sequences


def test_a_recurrent_state_counts_once_per_sequence() -> None:
    model = shipped("mamba-2.8b")
    stages = counted(model)
    short, long = (held(model, stages, context_tokens=tokens) for tokens in (1, 1_000_000))
    assert short.sequences == long.sequences > 0


# Measured on machines


@pytest.mark.parametrize("name", ["llama3.1-8b", "qwen2.5-7b"])
def test_budget_of_an_h100(name: str) -> None:
    # llm-d-planner accuracy report, vLLM 0.19 on H100, 2026-04-24 (UC-016): 79.19 GiB x 0.95 = 75.23 GiB, not 76.00.
    (one,) = counted(shipped(name), version="0.19", fraction=0.95)
    assert one.usable_bytes / GIB == pytest.approx(75.23, rel=0.005)


@pytest.mark.parametrize(("name", "pool_gib"), [("llama3.1-8b", 58.11), ("qwen2.5-7b", 58.53)])
def test_kv_pool_of_an_h100(name: str, pool_gib: float) -> None:
    # The same report (UC-066): what vLLM 0.19 has left for KV at fraction 0.95.
    (one,) = counted(shipped(name), version="0.19", fraction=0.95)
    assert one.kv_pool_bytes / GIB == pytest.approx(pool_gib, rel=0.03)
    assert one.kv_pool_low_bytes <= pool_gib * GIB <= one.kv_pool_high_bytes


# What else takes memory


def test_several_kinds_of_layers_hold_what_whole_sequences_do() -> None:
    model = shipped("gpt-oss-20b")
    fits = held(model, counted(model))
    assert fits.tokens == fits.sequences * 4096
    assert fits.pages is not None
    assert (fits.pages.null_blocks, held(model, (replace(counted(model)[0], kv_pool_bytes=0),)).pages) == (
        1,
        replace(fits.pages, null_blocks=0, paged_bytes=0),
    )


def test_a_model_that_caches_nothing_has_no_room_to_speak_of() -> None:
    model = shipped("llama3-8b")
    bare = replace(model, layers=tuple(replace(run, layer=replace(run.layer, mixer=None)) for run in model.layers))
    fits = held(bare, counted(bare))
    assert (fits.sequences, fits.sequences_low, fits.sequences_high, fits.tokens) == (0, 0, 0, 0)
    assert (fits.stage, fits.kv_bytes_per_gpu, fits.blocked_bytes, fits.pages) == (0, 0, 0, None)


def test_unified_memory_counts_a_share_of_the_weights_besides() -> None:
    on = gpu("dgx-spark-gb10")
    (one,) = counted(shipped("llama3-8b"), on=on)
    more = round(0.06 * one.weights_bytes)
    here = engine_rules("vllm", None, on, tp=1).non_torch
    assert one.non_torch.value_bytes == here.value_bytes + more
    assert one.non_torch.low_bytes == here.low_bytes + more // 2
    assert one.non_torch.high_bytes == here.high_bytes + more * 3 // 2


def test_what_lacks_before_a_share_is_taken_lacks_in_whole() -> None:
    (one,) = counted(shipped("llama3-70b"), engine="tensorrt-llm", fraction=0.5)
    parts = one.weights_bytes + one.loading_bytes + one.activation.value_bytes + one.non_torch.value_bytes
    assert one.missing_bytes == parts + one.cuda_graph_bytes - gpu().cuda_total_bytes > 0


@pytest.mark.parametrize(
    ("version", "length", "given_tokens", "expected"),
    [
        # V1 chunks; V0 runs the longest sequence whole, but no fewer than 2,048 tokens, and chunks beyond 32k.
        ("0.33", 131_072, None, 2048),
        ("0.6.4", 20_000, None, 20_000),
        ("0.6.4", 1000, None, 2048),
        ("0.6.4", 32_768, None, 32_768),
        ("0.6.4", 32_769, None, 512),
        ("0.6.4", 20_000, 4096, 4096),
        ("0.6.4", None, None, 512),
        ("0.2.7", 100_000, None, 100_000),
    ],
)
def test_tokens_of_the_profiling_run(version: str, length: int | None, given_tokens: int | None, expected: int) -> None:
    here = engine_rules("vllm", version, gpu("a100-sxm4-80gb"), tp=1)
    tokens = profile_tokens(
        here,
        max_num_batched_tokens=given_tokens or here.scheduler.max_num_batched_tokens,
        max_model_len=length,
        given=given_tokens is not None,
    )
    assert tokens == expected


def with_additions(name: str, additions: Additions, parallelism: Parallelism | None = None) -> tuple[Budget, ...]:
    parallelism = parallelism or Parallelism()
    rules = engine_rules("vllm", None, gpu(), tp=parallelism.tp)
    return budgets(
        shipped(name),
        gpu(),
        parallelism,
        rules,
        fraction=0.9,
        quantization=None,
        max_num_seqs=16,
        max_num_batched_tokens=2048,
        additions=additions,
    )


def test_what_is_added_takes_from_the_pool_of_its_stage() -> None:
    stages = Parallelism(pp=2)
    plain = with_additions("llama3-8b", Additions(), stages)
    drafted = with_additions("llama3-8b", Additions(draft_bytes=GIB), stages)
    assert [before.kv_pool_bytes - after.kv_pool_bytes for before, after in zip(plain, drafted, strict=True)] == [
        0,
        GIB,
    ]
    assert [one.draft_bytes for one in drafted] == [0, GIB]
    adapted = with_additions("llama3-8b", Additions(lora_rank=16, num_adapters=2), stages)
    # 83,886,080 bytes for each adapter, half of them on each stage.
    assert [one.lora_bytes for one in adapted] == [83_886_080, 83_886_080]
    assert [before.kv_pool_bytes - after.kv_pool_bytes for before, after in zip(plain, adapted, strict=True)] == [
        83_886_080,
        83_886_080,
    ]
    assert {(one.draft_bytes, one.lora_bytes, one.offload_bytes) for one in plain} == {(0, 0, 0)}


def test_offloaded_weights_leave_their_room_to_the_pool() -> None:
    (plain,) = with_additions("llama3-8b", Additions())
    (moved,) = with_additions("llama3-8b", Additions(offload_bytes=4 * GIB))
    assert (plain.offload_bytes, moved.offload_bytes) == (0, 4 * GIB)
    assert plain.weights_bytes - moved.weights_bytes == moved.kv_pool_bytes - plain.kv_pool_bytes == 4 * GIB


def test_weights_that_stand_in_hold_all_that_loading_takes() -> None:
    (one,) = with_additions("qwen3.8-27b", Additions(weights_bytes=30 * GIB))
    assert (one.weights_bytes, one.loading_bytes) == (30 * GIB, 0)


def test_pictures_pass_the_first_stage_only() -> None:
    first, second = with_additions("qwen3.8-27b", Additions(), Parallelism(pp=2))
    assert first.activation.value_bytes == round(1.84 * GIB)
    assert second.activation.value_bytes < GIB
    for one in with_additions("qwen3.8-27b", Additions(with_encoder=False), Parallelism(pp=2)):
        assert one.activation.value_bytes < GIB
