from __future__ import annotations

from typing import Any

import pytest

from infcalc.api.deployment import Ask, kv_format, load, resolve
from infcalc.api.rounds import Rig, head_of, passes_of, rig_of, target_timer
from infcalc.roofline.passes import head_pass_s
from infcalc.speculation.heads import eagle3_head
from infcalc.speculation.linear import UniformAcceptance, alpha_of_tokens_per_round
from infcalc.speculation.priced import drafting_of, round_time, rows, speedup_at
from infcalc.speculation.published import EAGLE3_CHAIN, EAGLE_CHAIN, PROFILES, Method, Publication


def rig(model: str, gpu: str, context_tokens: float = 512, **asked: Any) -> Rig:  # noqa: ANN401 - fields of Ask
    ask = Ask(models=(model,), gpus=(gpu,), **asked)
    catalog = load(ask)
    (deployment,) = resolve(ask, catalog)
    form, _, _ = kv_format(deployment, None)
    return rig_of(deployment, form, catalog.efficiency(deployment.gpu), context_tokens=context_tokens)


def speedup(of: Rig, method: Method, num_draft_tokens: int, tokens: float, batch: int = 1) -> float:
    profile = PROFILES[method]
    drafting = drafting_of(
        profile,
        acceptance=UniformAcceptance(alpha=alpha_of_tokens_per_round(tokens, num_draft_tokens)),
        num_draft_tokens=num_draft_tokens,
        draft_timer=passes_of(of, profile).timer,
        fixed_s=of.fixed_s(tree=profile.tree_tokens is not None),
    )
    return speedup_at(drafting, target_timer(of), batch, num_draft_tokens)


@pytest.mark.parametrize(("published", "method"), [(EAGLE_CHAIN, Method.EAGLE), (EAGLE3_CHAIN, Method.EAGLE3)])
def test_rounds_of_vllm_take_as_long_as_was_measured(published: Publication, method: Method) -> None:
    # vllm-project/vllm issue 20780. What the engine adds to a pass and a round is the mean of both heads there.
    of = rig("llama3.1-8b", "h100", num_gpus=1, engine_version="0.9.2")
    for one in published.measured:
        assert one.speedup is not None
        found = speedup(of, method, one.num_draft_tokens, one.tokens_per_round)
        assert found == pytest.approx(one.speedup, rel=0.17)


@pytest.mark.parametrize(("length", "tokens", "measured"), [(2, 1.89, 1.364), (4, 2.08, 1.288)])
def test_another_report_on_the_same_engine(length: int, tokens: float, measured: float) -> None:
    # vllm-project/vllm pull request 16035: 128.6 tokens/s without drafts; in nobody's view when values were set.
    of = rig("llama3-8b", "h100", num_gpus=1, engine_version="0.8.3")
    assert speedup(of, Method.EAGLE, length, tokens) == pytest.approx(measured, rel=0.08)


def test_a_full_batch_gains_less_with_shorter_drafts() -> None:
    # EAGLE-3 paper: 1.38x at batch 64 on SGLang and H100.
    of = rig("llama3.1-8b", "h100", num_gpus=1, engine="sglang")
    profile = PROFILES[Method.EAGLE3]
    drafting = drafting_of(profile, draft_timer=passes_of(of, profile).timer, fixed_s=of.fixed_s(tree=False))
    alone, full = rows([drafting], target_timer(of)), rows([drafting], target_timer(of), batch=64)
    assert alone[0].speedup > full[0].speedup
    assert alone[0].num_draft_tokens > full[0].num_draft_tokens
    assert full[0].speedup_low <= 1.38 <= full[0].speedup_high


def test_batch_expansion_verifies_as_many_sequences_as_positions() -> None:
    old = rig("llama3-8b", "h100", num_gpus=1, engine_version="0.7.3")
    new = rig("llama3-8b", "h100", num_gpus=1, engine_version="0.9.2")
    assert target_timer(old)(10, 5) == pytest.approx(target_timer(old)(50, 1))
    # Where drafts ride in the step of their sequence, its context is read once.
    assert target_timer(new)(10, 5) < target_timer(new)(50, 1)


def test_drafting_on_the_first_engine_of_vllm_loses_with_a_hundred_sequences() -> None:
    # AccelMark suite A, vLLM 0.7.3 with EAGLE, 4 draft tokens, 100 requests in flight: 0.34x on H100.
    of = rig("llama3-8b", "h100", num_gpus=1, engine_version="0.7.3")
    assert speedup(of, Method.EAGLE, 4, 2.39, batch=100) < 0.7
    assert speedup(of, Method.EAGLE, 4, 2.39) > 1.4 * speedup(of, Method.EAGLE, 4, 2.39, batch=100)


def test_attention_ranks_share_the_batch_and_idle_ones_are_not_priced() -> None:
    of = rig("deepseek-v3", "h200", tp=1, dp=8, ep=8)
    target = target_timer(of)
    assert target(8, 1) == pytest.approx(target(7, 1), rel=0.05)
    assert target(1, 1) < target(8, 1)


def test_a_wide_tree_costs_more_than_a_chain_of_its_depth() -> None:
    of = rig("llama3.1-8b", "h100", num_gpus=1)
    chain, tree = PROFILES[Method.EAGLE3], PROFILES[Method.EAGLE3_TREE]
    drafted = [
        drafting_of(
            profile, num_draft_tokens=7, draft_timer=passes_of(of, profile).timer, fixed_s=of.fixed_s(tree=False)
        )
        for profile in (chain, tree)
    ]
    one, other = (round_time(drafting, target_timer(of), 32, 7) for drafting in drafted)
    assert other > 1.5 * one


def test_heads_at_once_take_one_pass_and_lookups_none() -> None:
    of = rig("llama2-7b", "a100", num_gpus=1)
    medusa, ngram = (passes_of(of, PROFILES[method]) for method in (Method.MEDUSA, Method.NGRAM))
    assert drafting_of(PROFILES[Method.MEDUSA]).num_passes(4) == 1
    assert medusa.timer is not None
    assert medusa.timer(1) > 0
    assert ngram.timer is not None
    assert ngram.timer(64) == 0
    assert ngram.weights_bytes == 0


def test_a_pass_of_a_head_has_what_the_engine_adds_to_a_layer() -> None:
    of = rig("llama3.1-8b", "h100", num_gpus=1, engine_version="0.9.2")
    timer = passes_of(of, PROFILES[Method.EAGLE3]).timer
    assert timer is not None
    kernels_s = head_pass_s(head_of(eagle3_head(of.deployment.model), of), of.curves, tokens=1, cached_tokens=512)
    assert timer(1) - kernels_s == pytest.approx(of.pace.per_layer_s + of.added.pass_s)
