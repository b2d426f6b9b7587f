from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.api.deployment import Ask, Deployment, load, resolve
from infcalc.api.ledger import deployment_ledger
from infcalc.api.sizing import deployment_budgets, fitting_room, page_settings
from infcalc.engines.rules import TokenLine
from infcalc.memory.blocks import PagePlan, plan, printed, request_blocks, sequences_in
from infcalc.memory.kv import constant_bytes, kv_components
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
    # Of vLLM's blocks one holds no tokens.
    assert found.held_back_bytes == found.block_bytes == 16 * 131_072
    assert found.needed_bytes == counted(found) + found.request_bytes + found.held_back_bytes
    assert (found.missing_bytes, found.fits) == (0, True)


def test_what_is_missing_of_the_longest_sequence() -> None:
    # 131,072 bytes a token: 8,192 tokens are one GiB. All but half of that is taken by a draft.
    of = deployment(max_model_len=8192)
    pool = book(of).kv_pool_bytes
    tight = replace(of, additions=replace(of.additions, draft_bytes=pool - GIB // 2))
    found = book(tight)
    empty = found.held_back_bytes
    assert (found.missing_bytes, found.missing_before_kv_bytes, found.fits) == (GIB // 2 + empty, 0, False)
    over = book(replace(of, additions=replace(of.additions, draft_bytes=pool + GIB)))
    assert (over.missing_bytes, over.missing_before_kv_bytes, over.kv_pool_bytes) == (2 * GIB + empty, GIB, 0)
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


@pytest.mark.parametrize(
    ("gpu", "asked"),
    [
        ("h100", {"num_gpus": 16, "tp": 16}),
        ("a100-80gb", {"num_gpus": 16, "tp": 16, "dcp": 2}),
        ("dgx-spark-gb10", {"num_gpus": 2, "weights": "int4"}),
    ],
)
def test_no_more_fits_than_the_engines_own_blocks_hold(gpu: str, asked: dict[str, object]) -> None:
    of = deployment("llama3-70b", gpu, **asked)  # type: ignore[arg-type]
    found, settings = book(of), page_settings(of)
    taken = -(-4096 // (found.block_tokens * settings.dcp))
    assert found.sequences == (found.kv_blocks - 1) // taken
    fits = fitting_room(of, BF16, deployment_budgets(of), 4096)
    assert (fits.sequences, fits.tokens) == (found.sequences, found.kv_blocks * 16 * settings.dcp)
    assert fits.sequences_low == (found.kv_blocks_low - 1) // taken
    longest = longest_that_fits(deployment_budgets(of)[0].least_pool_bytes, cut(of), of.rules, settings)
    assert longest == min(of.max_model_len, found.kv_blocks * 16 * settings.dcp)


def test_what_the_least_rank_lacks_is_missing() -> None:
    of = deployment("llama3-70b", "h100", 16, max_model_len=8192)
    pool, behind = book(of).kv_pool_bytes, deployment_budgets(of)[0].behind_bytes
    need = book(of).request_bytes + book(of).held_back_bytes
    for more, missing in ((pool - behind - need, 0), (pool - need, behind), (pool + GIB, behind + need + GIB)):
        full = replace(of, additions=replace(of.additions, draft_bytes=more))
        assert (book(full).missing_bytes, book(full).fits) == (missing, missing == 0)


def test_recurrent_states_of_sglang_have_slots_in_a_pool_of_their_own() -> None:
    # SGLang 0.5.23: rest x 0.9 / 1.9 for states, in slots of one request each; what is left of the pool for attention.
    of = deployment("qwen3-next-80b", "h200", 2, engine="sglang")
    found, pages = book(of), cut(of)
    slot = constant_bytes(kv_components(of.model, BF16, parallelism=of.parallelism))
    assert pages.slot_bytes == slot
    slots = int(found.kv_pool_bytes * 0.9 / 1.9) // slot
    assert found.num_state_slots == slots
    assert found.kv_cache_tokens == found.kv_blocks == (found.kv_pool_bytes - slots * slot) // 12_288
    assert 2.2e6 < found.kv_cache_tokens < 2.4e6
    assert book(of, 16).sequences == slots
    assert found.sequences == found.kv_blocks // 4096 < slots
    # Each draft token keeps a copy of the state.
    drafting = plan(of.model, BF16, of.parallelism, of.rules, replace(page_settings(of), num_draft_tokens=2))
    assert drafting.slot_bytes > 3 * slot - 1
    assert book(deployment("qwen3-next-80b", "h200", 2)).num_state_slots is None
    assert book(deployment("qwen3-8b", "h200", 2, engine="sglang")).num_state_slots is None


@given(pool_gib=st.floats(0.01, 60))
def test_what_fits_beside_slots_is_what_both_pools_hold(pool_gib: float) -> None:
    of = deployment("qwen3-next-80b", "h200", 2, engine="sglang")
    settings, pages, pool = page_settings(of), cut(of), int(pool_gib * GIB)
    longest = longest_that_fits(pool, pages, of.rules, settings)
    assert (longest > 0) <= (sequences_in(pool, pages, longest, of.rules, settings) >= 1)


@pytest.mark.parametrize("engine", ["sglang", "tensorrt-llm"])
def test_engines_that_check_no_length_need_room_for_what_is_asked(engine: str) -> None:
    of = deployment("llama3.1-8b", "rtx-4090", engine=engine, weights="fp8")
    pool = book(of, 4096).kv_pool_bytes
    longest = pool // 131_072
    assert 4096 < longest < of.max_model_len == 131_072
    found, beyond = book(of, 4096), book(of, longest + 64)
    assert (found.request_tokens, found.fits) == (4096, True)
    assert (beyond.request_tokens, beyond.fits) == (longest + 64, False)
    refused = book(deployment("llama3.1-8b", "rtx-4090", weights="fp8"), 4096)
    assert (refused.request_tokens, refused.fits) == (131_072, False)


def test_attention_ranks_each_hold_their_sequences() -> None:
    of = deployment("deepseek-v3", "h200", 8, dp=8, ep=8, max_model_len=8192)
    found = book(of)
    assert found.block_tokens == 64
    assert found.sequences == (found.kv_blocks - 1) // 64 * 8
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
            return pages.fixed_bytes_per_request + pages.block_bytes * (1 - (-length // pages.block_tokens))
        return pages.block_bytes * (1 + request_blocks(pages, length, of.rules, settings))

    assert longest == 0 or taken(longest) <= pool
    assert longest == of.max_model_len or taken(longest + 1) > pool


@given(pool_gib=st.floats(0.001, 60))
@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm", "llama.cpp"])
@pytest.mark.parametrize("model", ["llama3-8b", "gpt-oss-20b", "qwen3.5-27b", "deepseek-v4-flash", "gemma-3-27b"])
def test_where_one_longest_sequence_fits_there_is_room_for_one(model: str, engine: str, pool_gib: float) -> None:
    of = deployment(model, engine=engine)
    settings, pages, pool = page_settings(of), cut(of), int(pool_gib * GIB)
    longest = longest_that_fits(pool, pages, of.rules, settings)
    assert not longest or sequences_in(pool, pages, longest, of.rules, settings) >= 1


def test_the_empty_block_holds_no_sequence() -> None:
    # A pool of exactly 2,022 blocks: 2,021 of them hold tokens.
    of = deployment("qwen3-32b", max_model_len=32_352)
    pages = cut(of)
    assert longest_that_fits(2022 * pages.block_bytes, pages, of.rules, page_settings(of)) == 2021 * 16
    pool = book(of).kv_pool_bytes
    full = replace(of, additions=replace(of.additions, draft_bytes=pool - 2022 * pages.block_bytes))
    found = book(full, 32_352)
    assert (found.kv_blocks, found.sequences, found.fits, found.missing_bytes) == (2022, 0, False, pages.block_bytes)


def test_attention_ranks_without_experts_are_engines_of_one_machine() -> None:
    alone, several = (deployment("llama3-8b", gpus=64, tp=1, dp=64), deployment("llama3-8b", gpus=1))
    pools = [book(one).kv_pool_bytes for one in (alone, several)]
    assert pools[0] == pools[1]
    assert not alone.warnings
    experts = deployment("qwen3-30b-a3b", gpus=64, tp=1, dp=64)
    assert any("several machines" in text for text in experts.warnings)


def test_a_doubt_names_what_its_high_end_comes_from() -> None:
    # The sampler is the peak; the high end is that of a video, which 0.11 profiles.
    found = book(deployment("qwen3-vl-30b-a3b", "rtx-3090", 4, engine_version="0.11.0", max_model_len=4096))
    assert found.line("activation").source.startswith("sampler of the profiling run")
    assert "at the high end up to 3.2 times the largest picture:" in found.largest_doubt
    plain = book(deployment("llama3-8b", engine_version="0.11.0"))
    assert "at the high end" not in plain.largest_doubt


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


def test_the_pool_of_an_rtx_4090_lies_within_its_band() -> None:
    # vLLM 0.19.0, Llama 3.1 8B, 256 sequences, 25,250,627,584 bytes x 0.9: 2,588 blocks, as if the sampler sorted.
    of = deployment("llama3.1-8b", "rtx-4090", engine_version="0.19.0", memory_fraction=0.9, max_num_seqs=256)
    on = replace(of, gpu=replace(of.gpu, cuda_total_bytes=25_250_627_584))
    found = book(on)
    assert found.kv_blocks_low <= 2588 <= found.kv_blocks <= found.kv_blocks_high
    assert "may still sort" in found.line("activation").high_source
    # A known sampler leaves no such doubt.
    later = book(replace(deployment("llama3.1-8b", "rtx-4090", engine_version="0.26", max_num_seqs=256), gpu=on.gpu))
    assert later.line("activation").high_source == ""


def test_the_token_line_is_that_of_the_engine() -> None:
    assert book(deployment()).token_line.startswith(TokenLine.CONCURRENCY.value)
    assert book(deployment(engine="sglang")).token_line.startswith(TokenLine.POOL.value)
