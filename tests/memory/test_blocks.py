from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.api.deployment import Ask, load
from infcalc.engines.rules import EngineRules, engine_rules
from infcalc.memory.blocks import PagePlan, Settings, plan, printed, request_blocks, sequences_in
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.spec.kv import KV_FORMATS
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
