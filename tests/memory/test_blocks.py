from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.api.deployment import Ask, load
from infcalc.engines.rules import EngineRules, engine_rules
from infcalc.memory.blocks import (
    PagePlan,
    Settings,
    context_cells,
    decoding_blocks,
    decoding_bytes,
    plan,
    printed,
    request_blocks,
    sequences_in,
    tokens_of,
    window_blocks,
    window_cells,
)
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.memory.ledger import request_bytes
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import RecurrentMixer
from infcalc.spec.parallelism import Parallelism
from infcalc.units import GIB
from tests.shipped import shipped


@cache
def rules(version: str, gpu: str = "h100", tp: int = 1, engine: str = "vllm") -> EngineRules:
    return engine_rules(engine, version, load(Ask()).gpu(gpu).gpu, tp=tp)


def cut(name: str, version: str, settings: Settings, *, kv: str = "bf16", tp: int = 1, gpu: str = "h100") -> PagePlan:
    return plan(shipped(name), KV_FORMATS[kv], Parallelism(tp=tp), rules(version, gpu, tp), settings)


def lengths(tokens: int, batched: int, *, drafts: int = 0, with_mtp: bool = False) -> Settings:
    return Settings(
        block_tokens=16,
        max_model_len=tokens,
        max_num_batched_tokens=batched,
        num_draft_tokens=drafts,
        with_mtp=with_mtp,
    )


# Start-up logs that print the pool and what follows from it: (model, version, TP, KV, longest, batched tokens, pool in
# GiB, tokens per block, groups, tokens printed, concurrency printed).
LOGS = [
    ("qwen3-next-80b", "0.10.2", 2, "bf16", 262_144, 8192, 44.59, 544, 4, 973_760, 14.77),
    ("qwen3-next-80b", "0.13", 2, "fp8", 32_768, 8192, 17.585, 1072, 4, 767_552, 84.29),
    ("nemotron-3-nano-4b-fp8", "0.13", 1, "fp8", 8192, 2048, 11.15, 992, 7, 208_320, 98.2),
    ("gemma-3-27b", "0.11", 1, "bf16", 4096, 8192, 109.86, 16, 7, 205_696, 50.05),
    ("gpt-oss-120b", "0.11.2", 1, "bf16", 98_304, 2048, 8.9927, 16, 2, 130_960, 2.606),
    ("qwen3.6-27b", "0.20", 2, "fp8", 262_144, 2048, 9.84, 1568, 4, 619_202, 2.36),
    ("qwen3.8-27b", "0.27", 1, "bf16", 262_144, 2048, 19.54, 784, 4, 313_650, 1.2),
    ("qwen3.6-35b-a3b", "0.24", 1, "fp8", 131_072, 8192, 6.01, 2096, 4, 569_878, 4.35),
]


@pytest.mark.parametrize("log", LOGS, ids=[f"{log[0]}-{log[1]}" for log in LOGS])
def test_blocks_tokens_and_concurrency_of_start_up_logs(log: tuple[object, ...]) -> None:
    name, version, tp, kv, longest, batched, pool_gib, block, groups, tokens, concurrency = log
    settings = lengths(int(str(longest)), int(str(batched)))
    found = cut(str(name), str(version), settings, kv=str(kv), tp=int(str(tp)))
    assert (found.block_tokens, len(found.groups)) == (block, groups)
    _, printed_tokens, printed_concurrency = printed(
        int(float(str(pool_gib)) * GIB), found, rules(str(version), "h100", int(str(tp))), settings
    )
    assert printed_tokens == tokens
    assert printed_concurrency == pytest.approx(float(str(concurrency)), abs=0.006)


def test_a_draft_layer_joins_the_full_group_and_grows_the_state() -> None:
    plain = cut("qwen3.8-27b", "0.27", lengths(262_144, 2048))
    drafting = cut("qwen3.8-27b", "0.27", lengths(262_144, 2048, drafts=1, with_mtp=True))
    assert (plain.groups[0].layers, drafting.groups[0].layers) == (16, 17)
    assert (plain.block_tokens, drafting.block_tokens) == (784, 800)
    assert drafting.padding_fraction > plain.padding_fraction


def test_old_versions_pad_latents_or_store_their_heads() -> None:
    settings = lengths(8192, 2048)
    widths = {
        version: cut("deepseek-r1", version, settings, tp=8).block_bytes / 16 for version in ("0.7.3+v0", "0.9", "0.33")
    }
    assert widths == {"0.7.3+v0": 61 * 640 * 2, "0.9": 70_272, "0.33": 70_272}
    lite = cut("deepseek-v2-lite", "0.5.0", settings)
    # 27 layers of 16 heads, each key and value padded to 256.
    assert lite.block_bytes / 16 == 27 * 16 * 256 * 2 * 2


def test_records_of_sparse_latents_keep_their_width() -> None:
    # 656 bytes and an indexer key of 132 in each of 61 layers.
    assert cut("deepseek-v3.2", "0.33", lengths(8192, 2048), kv="fp8_ds_mla").block_bytes == 16 * 61 * (656 + 132)


def test_before_page_groups_windows_kept_every_token() -> None:
    settings = lengths(8192, 2048)
    for version in ("0.6.4", "0.9"):
        found = cut("gemma-3-27b", version, settings)
        assert (len(found.groups), found.block_bytes) == (1, 62 * 8192 * 16)


@pytest.mark.parametrize(("version", "tokens"), [("0.8.5", 30_000 * 16), ("0.19", 30_000 * 16), ("0.33", 30_000 * 16)])
def test_plain_models_print_the_same_whatever_the_line_means(version: str, tokens: int) -> None:
    settings = lengths(8000, 2048)
    found = cut("llama3.1-8b", version, settings)
    blocks, printed_tokens, concurrency = printed(30_000 * found.block_bytes, found, rules(version), settings)
    assert (blocks, printed_tokens) == (30_000, tokens)
    assert concurrency == pytest.approx(60, rel=0.001)


def test_the_newest_token_line_of_a_hybrid_model_rises_with_the_length() -> None:
    pool = 40 * GIB
    printed_tokens = []
    for longest in (8192, 65_536, 262_144):
        settings = lengths(longest, 2048)
        printed_tokens.append(printed(pool, cut("qwen3.8-27b", "0.27", settings), rules("0.27"), settings)[1])
    assert printed_tokens == sorted(printed_tokens)
    assert printed_tokens[-1] > 1.5 * printed_tokens[0]


def test_decode_context_parallelism_multiplies_the_printed_tokens() -> None:
    alone = Settings(block_tokens=64, max_model_len=8192, max_num_batched_tokens=2048)
    split = Settings(block_tokens=64, max_model_len=8192, max_num_batched_tokens=2048, dcp=8)
    found = cut("deepseek-v3", "0.19", alone, tp=8)
    pool = 1000 * found.block_bytes
    assert (
        printed(pool, found, rules("0.19", tp=8), split)[1] == 8 * printed(pool, found, rules("0.19", tp=8), alone)[1]
    )


@given(tokens=st.integers(1, 131_072), blocks=st.integers(1, 200_000))
def test_sequences_of_a_plain_model_are_whole_blocks(tokens: int, blocks: int) -> None:
    settings = lengths(131_072, 2048)
    found = cut("llama3.1-8b", "0.33", settings)
    here = rules("0.33")
    pool = blocks * found.block_bytes
    assert sequences_in(pool, found, tokens, here, settings) == (blocks - 1) // -(-tokens // 16)


@given(shorter=st.integers(1, 100_000), more=st.integers(0, 100_000))
@pytest.mark.parametrize(
    "name", ["gpt-oss-20b", "qwen3-next-80b", "deepseek-v4-flash", "llama4-scout", "glm-5.3-flash"]
)
def test_a_longer_sequence_never_takes_fewer_blocks(name: str, shorter: int, more: int) -> None:
    settings = lengths(200_000, 2048)
    found = cut(name, "0.33", settings, kv="bf16")
    here = rules("0.33")
    assert request_blocks(found, shorter, here, settings) <= request_blocks(found, shorter + more, here, settings)
    less, most = (sequences_in(100 * GIB, found, length, here, settings) for length in (shorter + more, shorter))
    assert less <= most


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm", "llama.cpp"])
def test_other_engines_hold_a_token_in_its_own_bytes(engine: str) -> None:
    settings = Settings(block_tokens=32, max_model_len=4096, max_num_batched_tokens=2048)
    model = shipped("llama3.1-8b")
    here = rules_of(engine)
    found = plan(model, KV_FORMATS["bf16"], Parallelism(), here, settings)
    assert found.block_bytes == 32 * slope_bytes_per_token(kv_components(model, KV_FORMATS["bf16"]))


@cache
def rules_of(engine: str) -> EngineRules:
    return engine_rules(engine, None, load(Ask()).gpu("h100").gpu, tp=1)


def test_windows_keep_what_is_in_flight_and_a_block_to_leave() -> None:
    # Gemma 3 27B, 1 full and 6 windowed groups; 1,023 + 2,049 tokens are 192 blocks, one token more is a 193rd.
    for batched, blocks in ((2049, 192), (2050, 193)):
        settings = lengths(8192, batched)
        found = cut("gemma-3-27b", "0.19", settings)
        assert request_blocks(found, 8192, rules("0.19"), settings) == 512 + 6 * (blocks + 1)
    # From 0.20 two steps are in flight.
    settings = lengths(8192, 2048)
    found = cut("gemma-3-27b", "0.33", settings)
    assert request_blocks(found, 8192, rules("0.33"), settings) == 512 + 6 * (-(-(1023 + 4096) // 16) + 1)
    assert request_blocks(found, 100, rules("0.33"), settings) == 7 + 6 * (7 + 1)


def test_decoding_keeps_the_window_and_the_block_that_it_leaves() -> None:
    settings = lengths(8192, 2048)
    found = cut("gemma-3-27b", "0.33", settings)
    held = [decoding_blocks(found, tokens, rules("0.33"), settings) for tokens in (16, 1024, 1025, 8192)]
    assert held == [7, 64 + 6 * 64, 65 + 6 * 65, 512 + 6 * 65]


def test_recurrent_layers_take_pages_by_version_drafts_and_prefix_caching() -> None:
    def taken(version: str, settings: Settings) -> tuple[int, int]:
        found = cut("qwen3-next-80b", version, settings, tp=2)
        here = rules(version, tp=2)
        full = -(-8192 // found.block_tokens)
        return (
            request_blocks(found, 8192, here, settings) - full,
            decoding_blocks(found, 8192, here, settings) - full,
        )

    plain = lengths(8192, 2048)
    assert taken("0.19", plain) == (3, 3)
    assert taken("0.33", plain) == (6, 6)
    assert taken("0.33", replace(plain, prefix_caching=False)) == (3, 3)
    assert taken("0.33", replace(plain, num_draft_tokens=2)) == (12, 12)


def test_filled_up_groups_and_padded_pages_are_waste() -> None:
    # 52 windowed layers fill 6 groups of 10.
    assert cut("gemma-3-27b", "0.33", lengths(8192, 2048)).padding_fraction == pytest.approx(8 / 70)
    found = cut("qwen3-next-80b", "0.33", lengths(8192, 2048))
    page = found.block_bytes // 12
    (state,) = {
        run.layer.mixer for run in shipped("qwen3-next-80b").layers if isinstance(run.layer.mixer, RecurrentMixer)
    }
    held = (state.state_elements * state.state_bits + state.conv_elements * state.conv_bits) // 8
    assert page == found.block_tokens * 2048
    assert page - 16 * 2048 < held <= page
    assert found.padding_fraction == pytest.approx(36 * (page - held) / (48 * page))


def test_a_second_pool_costs_its_share_of_every_token() -> None:
    # SGLang, Gemma 3 27B: 10 full layers, and 52 windowed of which 0.8 of the tokens are held; 8,192 bytes each.
    settings = Settings(block_tokens=16, max_model_len=8192, max_num_batched_tokens=2048)
    here = rules_of("sglang")
    found = plan(shipped("gemma-3-27b"), KV_FORMATS["bf16"], Parallelism(), here, settings)
    assert found.block_bytes == round(16 * 8192 * (10 + 0.8 * 52))
    assert [window_blocks(found, tokens) for tokens in (16, 256, 1024, 8192)] == [2, 20, 80, 80]
    # Short sequences end the second pool first, long ones the first.
    assert sequences_in(1600 * found.block_bytes, found, 256, here, settings) == 1600 // 20
    assert sequences_in(1600 * found.block_bytes, found, 8192, here, settings) == 1600 // 512
    assert window_blocks(cut("gemma-3-27b", "0.33", lengths(8192, 2048)), 8192) == 0


def test_llama_cpp_allocates_each_sequence_its_windows() -> None:
    settings = Settings(block_tokens=16, max_model_len=8192, max_num_batched_tokens=512)
    here = rules_of("llama.cpp")
    found = plan(shipped("gemma-3-27b"), KV_FORMATS["bf16"], Parallelism(), here, settings)
    windows = 52 * 8192 * (1024 + 512)
    assert (found.block_bytes, found.fixed_bytes_per_request) == (16 * 10 * 8192, windows)
    assert decoding_bytes(found, 4096, settings) == windows + 4096 * 10 * 8192
    assert sequences_in(10 * (windows + 4096 * 81_920), found, 4096, here, settings) == 10
    assert sequences_in(10 * (windows + 4096 * 81_920) - 1, found, 4096, here, settings) == 9
    assert tokens_of(10 * windows, found, settings) == 0


@pytest.mark.parametrize(
    ("slots", "unified", "full_cells", "cells"),
    # Four windows and one micro-batch in one stream, or four streams of a window and a micro-batch each.
    [(1, True, 32_768, 1536), (4, True, 32_768, 4608), (4, False, 32_768, 6144), (3, False, 33_024, 4608)],
)
def test_windows_and_cells_of_llama_cpp_are_those_of_all_slots(
    slots: int, unified: bool, full_cells: int, cells: int
) -> None:
    settings = Settings(
        block_tokens=256, max_model_len=32_768, max_num_batched_tokens=512, num_slots=slots, unified_cache=unified
    )
    here = rules_of("llama.cpp")
    found = plan(shipped("gemma-3-27b"), KV_FORMATS["bf16"], Parallelism(), here, settings)
    assert (context_cells(32_768, settings), window_cells(1024, settings)) == (full_cells, cells)
    assert request_bytes(found, 32_768, here, settings) == 8192 * (10 * full_cells + 52 * cells)
    # A further sequence takes a slot of its own.
    assert decoding_bytes(found, 4096, settings) == 8192 * (10 * 4096 + 52 * 1536)


def test_states_of_llama_cpp_are_those_of_all_slots() -> None:
    settings = Settings(block_tokens=256, max_model_len=4096, max_num_batched_tokens=512)
    here, model = rules_of("llama.cpp"), shipped("qwen3-next-80b")
    one, four = (
        plan(model, KV_FORMATS["bf16"], Parallelism(), here, replace(settings, num_slots=slots)) for slots in (1, 4)
    )
    assert four.fixed_bytes_per_request == 4 * one.fixed_bytes_per_request
    assert four.decoding_bytes_per_request == one.decoding_bytes_per_request == one.fixed_bytes_per_request


def test_compressed_caches_hold_a_window_and_the_inputs_of_their_compressors() -> None:
    # DeepSeek V4 Flash: 2 layers with a window alone, 21 that compress 4 tokens to one, 20 that compress 128; an entry
    # takes 584 bytes, an indexer's 132. Compressors keep fp32 inputs like a window of 8 or of what they compress.
    settings = lengths(8192, 2048)
    model, here = shipped("deepseek-v4-flash"), rules("0.33")
    found = plan(model, KV_FORMATS["fp8_ds_mla"], Parallelism(), here, settings)
    per_token = 21 * 584 / 4 + 20 * 584 / 128 + 21 * 132 / 4
    assert found.block_bytes == round(16 * per_token)

    def held(flight: int) -> int:
        window = 584 * (128 + flight)
        four = (2 * 1024 + 2 * 256) * 4 * (8 + flight)
        many = 2 * 512 * 4 * (128 + flight)
        return round(1.25 * (2 * window + 21 * (window + four) + 20 * (window + many)))

    assert found.decoding_bytes_per_request == held(0)
    assert found.fixed_bytes_per_request == held(2 * 2048)
    one = found.fixed_bytes_per_request + 512 * found.block_bytes
    assert printed(3 * one, found, here, settings)[2] == 3
    assert tokens_of(3 * one, found, settings) == 0


def test_one_kind_of_layer_fills_its_blocks_whatever_the_length() -> None:
    settings = lengths(8192, 2048)
    plain, several = cut("llama3.1-8b", "0.33", settings), cut("gemma-3-27b", "0.33", settings)
    assert tokens_of(100 * plain.block_bytes + 1, plain, settings) == 1600
    assert tokens_of(100 * plain.block_bytes, plain, replace(settings, dcp=2)) == 3200
    assert tokens_of(100 * several.block_bytes, several, settings) == 0


def test_llama_cpp_prints_whole_multiples_of_256_cells() -> None:
    settings = Settings(block_tokens=256, max_model_len=4097, max_num_batched_tokens=512)
    here = rules_of("llama.cpp")
    found = plan(shipped("llama3.1-8b"), KV_FORMATS["bf16"], Parallelism(), here, settings)
    assert printed(10 * GIB, found, here, settings)[1:] == (4352, 4352 / 4097)


def test_a_narrower_page_takes_more_tokens() -> None:
    # Gemma 4 31B: windows of 16 heads of 256 take 16,384 bytes a token, full layers 4 heads of 512, which is half.
    found = cut("gemma-4-31b", "0.33", lengths(8192, 2048))
    assert {(group.window_tokens, group.block_tokens) for group in found.groups} == {(1024, 16), (None, 32)}
    assert (found.block_tokens, found.block_bytes) == (16, 10 * 16 * 16_384)
    assert found.padding_fraction == 0


def test_the_other_engines_print_what_their_pool_holds() -> None:
    settings = Settings(block_tokens=32, max_model_len=4096, max_num_batched_tokens=2048)
    for engine in ("sglang", "tensorrt-llm"):
        here = rules_of(engine)
        found = plan(shipped("llama3.1-8b"), KV_FORMATS["bf16"], Parallelism(), here, settings)
        assert printed(1000 * found.block_bytes + 1, found, here, settings) == (1000, 32_000, 32_000 / 4096)
