from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.api.deployment import Ask, Deployment, load, resolve
from infcalc.api.ledger import deployment_ledger
from infcalc.api.sizing import deployment_budgets, page_settings
from infcalc.engines.rules import TokenLine
from infcalc.memory.blocks import PagePlan, plan, printed, request_blocks
from infcalc.memory.ledger import Ledger, ledger, longest_that_fits
from infcalc.spec.kv import KV_FORMATS
from infcalc.units import GIB

BF16 = KV_FORMATS["bf16"]


def deployment(model: str = "llama3-8b", gpu: str = "h100", gpus: int = 1, **asked: object) -> Deployment:
    ask = Ask(**{"models": (model,), "gpus": (gpu,), "num_gpus": gpus} | asked)  # type: ignore[arg-type]
    (found,) = resolve(ask, load(ask))
    return found


def book(of: Deployment, context_tokens: int = 4096) -> Ledger:
    return deployment_ledger(of, BF16, context_tokens=context_tokens)


def cut(of: Deployment) -> PagePlan:
    return plan(of.model, BF16, of.parallelism, of.rules, page_settings(of))


def counted(found: Ledger) -> int:
    return sum(line.num_bytes for line in found.lines if line.name != "towers")


@pytest.mark.parametrize("model", ["llama3-8b", "qwen3.8-27b", "gpt-oss-20b"])
def test_lines_and_pool_fill_what_vllm_takes_and_the_reserve_is_the_rest(model: str) -> None:
    found = book(deployment(model))
    assert counted(found) + found.kv_pool_bytes == found.usable_bytes
    assert found.usable_bytes + found.reserve_bytes == found.total_bytes


@pytest.mark.parametrize(("engine", "fraction"), [("sglang", 0.8), ("tensorrt-llm", 0.8), ("llama.cpp", None)])
def test_what_other_engines_leave_alone(engine: str, fraction: float | None) -> None:
    found = book(deployment(engine=engine, memory_fraction=fraction, max_model_len=4096))
    parts = {line.name: line.num_bytes for line in found.lines}
    held = parts["weights"] + parts.get("loading", 0) + parts["non_torch"] + found.kv_pool_bytes
    if engine != "sglang":
        # SGLang's activation and graphs live in what is left alone.
        held += parts["activation"] + parts["cuda_graphs"]
    assert found.reserve_bytes == found.total_bytes - held
    share = 1 - (fraction or 1.0)
    base = found.total_bytes - (held - found.kv_pool_bytes if engine == "tensorrt-llm" else parts["non_torch"])
    assert found.reserve_bytes == pytest.approx(share * base, abs=2)


def test_towers_are_within_the_weights() -> None:
    found = book(deployment("qwen3.8-27b"))
    names = [line.name for line in found.lines]
    assert names.index("towers") == names.index("weights") + 1
    assert found.line("towers").num_bytes == 2 * 460_730_096
    plain = book(deployment("qwen3.5-27b"))
    assert found.line("weights").num_bytes > plain.line("weights").num_bytes - GIB
    assert plain.line("lora").num_bytes == 0
    of = deployment("qwen3.8-27b", gpus=2, pp=2)
    first, second = deployment_budgets(of)
    starved = ledger(
        of.model,
        of.gpu,
        BF16,
        of.parallelism,
        of.rules,
        stages=(first, replace(second, kv_pool_bytes=GIB)),
        settings=page_settings(of),
        context_tokens=4096,
    )
    assert (starved.stage, starved.line("towers").num_bytes) == (1, 0)


def test_adapters_and_drafts_have_lines_of_their_own() -> None:
    of = deployment()
    more = replace(of, additions=replace(of.additions, draft_bytes=3 * GIB, lora_rank=16))
    plain, found = book(of), book(more)
    assert found.line("draft").num_bytes == 3 * GIB
    assert found.line("lora").num_bytes == 83_886_080
    assert found.line("weights").num_bytes == plain.line("weights").num_bytes
    assert plain.kv_pool_bytes - found.kv_pool_bytes == 3 * GIB + 83_886_080


def test_what_is_needed_is_every_line_and_one_longest_sequence() -> None:
    of = deployment(max_model_len=8192)
    found = book(of)
    assert found.request_bytes == 8192 * 131_072
    assert found.needed_bytes == counted(found) + found.request_bytes
    assert (found.missing_bytes, found.fits) == (0, True)


def test_what_is_missing_of_the_longest_sequence() -> None:
    # 131,072 bytes a token: 8,192 tokens are one GiB. All but half of that is taken by a draft.
    of = deployment(max_model_len=8192)
    pool = book(of).kv_pool_bytes
    tight = replace(of, additions=replace(of.additions, draft_bytes=pool - GIB // 2))
    found = book(tight)
    assert (found.missing_bytes, found.missing_before_kv_bytes, found.fits) == (GIB // 2, 0, False)
    over = book(replace(of, additions=replace(of.additions, draft_bytes=pool + GIB)))
    assert (over.missing_bytes, over.missing_before_kv_bytes, over.kv_pool_bytes) == (2 * GIB, GIB, 0)
    none = book(replace(of, additions=replace(of.additions, draft_bytes=pool + 20 * GIB)))
    assert (none.kv_pool_bytes_low, none.kv_pool_bytes, none.kv_pool_bytes_high) == (0, 0, 0)


@pytest.mark.parametrize("gpus", [1, 2])
def test_blocks_and_sequences_are_those_of_the_pool(gpus: int) -> None:
    of = deployment(gpus=gpus, max_model_len=8192)
    found = book(of)
    assert found.block_bytes == 16 * 131_072 // gpus
    assert found.kv_blocks == found.kv_pool_bytes // found.block_bytes
    assert found.sequences == (found.kv_blocks - 1) // 256
    assert found.kv_cache_tokens_low <= found.kv_cache_tokens <= found.kv_cache_tokens_high
    assert found.sequences_low <= found.sequences <= found.sequences_high


def tokens_of(of: Deployment, pool_bytes: int) -> int:
    return printed(pool_bytes, cut(of), of.rules, page_settings(of))[1]


def test_the_least_rank_of_a_machine_may_lie_lower() -> None:
    of = deployment("llama3-70b", gpus=8, max_model_len=8192)
    found, (budget,) = book(of), deployment_budgets(of)
    spread = round(of.rules.rank_spread_fraction * of.gpu.cuda_total_bytes)
    assert found.kv_cache_tokens == tokens_of(of, budget.kv_pool_bytes)
    assert found.kv_cache_tokens_low == tokens_of(of, budget.kv_pool_low_bytes - spread)
    assert found.kv_pool_bytes_low == budget.kv_pool_low_bytes
    alone = deployment("llama3-8b", max_model_len=8192)
    assert book(alone).kv_cache_tokens_low == tokens_of(alone, deployment_budgets(alone)[0].kv_pool_low_bytes)


def test_the_least_rank_of_several_machines_sets_the_blocks() -> None:
    of = deployment("llama3-70b", gpus=16, max_model_len=8192)
    found, (budget,) = book(of), deployment_budgets(of)
    spread = round(of.rules.machines_spread_fraction * of.gpu.cuda_total_bytes)
    assert spread > GIB
    assert found.kv_pool_bytes == budget.kv_pool_bytes
    assert found.kv_cache_tokens == tokens_of(of, budget.kv_pool_bytes - spread)
    below = budget.kv_pool_bytes - budget.kv_pool_low_bytes
    assert found.kv_pool_bytes_low == budget.kv_pool_bytes - round((below**2 + (2 * spread) ** 2) ** 0.5)
    assert found.kv_cache_tokens_low == tokens_of(of, found.kv_pool_bytes_low)


def test_attention_ranks_each_hold_their_sequences() -> None:
    of = deployment("deepseek-v3", "h200", 8, dp=8, ep=8, max_model_len=8192)
    found = book(of)
    assert found.sequences == (found.kv_blocks - 1) // 256 * 8
    assert found.sequences % 8 == 0


def test_the_stage_with_the_fewest_tokens_governs() -> None:
    of = deployment("llama3-70b", gpus=4, pp=2, max_model_len=8192)
    first, second = deployment_budgets(of)
    halved = replace(second, kv_pool_bytes=first.kv_pool_bytes // 2)
    for stages, expected in (((first, halved), 1), ((replace(first, kv_pool_bytes=GIB), second), 0)):
        found = ledger(
            of.model,
            of.gpu,
            BF16,
            of.parallelism,
            of.rules,
            stages=stages,
            settings=page_settings(of),
            context_tokens=4096,
        )
        assert found.stage == expected


@given(pool_gib=st.floats(0.01, 60))
@pytest.mark.parametrize("model", ["llama3-8b", "gpt-oss-20b", "qwen3.5-27b", "deepseek-v4-flash", "gemma-3-27b"])
def test_the_longest_that_fits_fits_and_one_more_block_does_not(model: str, pool_gib: float) -> None:
    of = deployment(model)
    settings, pages, pool = page_settings(of), cut(of), int(pool_gib * GIB)
    longest = longest_that_fits(pool, pages, of.rules, settings)

    def taken(length: int) -> int:
        if pages.fixed_bytes_per_request:
            return pages.fixed_bytes_per_request + pages.block_bytes * -(-length // pages.block_tokens)
        return pages.block_bytes * request_blocks(pages, length, of.rules, settings)

    assert longest == 0 or taken(longest) <= pool
    assert longest == of.max_model_len or taken(longest + 1) > pool


def test_the_widest_band_is_the_largest_doubt() -> None:
    found = book(deployment("qwen3.8-27b", "dgx-spark-gb10"))
    widest = max(found.lines, key=lambda line: line.high_bytes - line.low_bytes)
    assert found.largest_doubt.startswith(f"{widest.name} between ")
    assert widest.name == "non_torch"


def test_page_groups_are_told_in_words() -> None:
    assert set(book(deployment("gemma-3-27b", max_model_len=8192)).page_groups) == {
        "1 x (10 layers, full, 16 tokens a block)",
        "6 x (10 layers, window of 1,024, 16 tokens a block)",
    }
    assert book(deployment()).page_groups == ()
    assert any("recurrent" in text for text in book(deployment("qwen3.5-27b")).page_groups)


def test_the_token_line_is_that_of_the_engine() -> None:
    assert book(deployment()).token_line.startswith(TokenLine.CONCURRENCY.value)
    assert book(deployment(engine="sglang")).token_line.startswith(TokenLine.POOL.value)
