from __future__ import annotations

import pytest

from infcalc.lowering.ops import mtp_as_model
from infcalc.roofline.step import decode_timer
from infcalc.spec.parallelism import Parallelism
from infcalc.spec.weights import WeightQuantization
from infcalc.speculation.linear import FREE, UniformAcceptance, alpha_of_tokens_per_round
from infcalc.speculation.priced import Drafting, SpeculationRow, drafting_of, rows, speedup_at
from infcalc.speculation.published import PROFILES, Method
from tests.roofline.shapes import A100, DEEPSEEK_V3, H200, LLAMA_8B, LLAMA_70B, MIXTRAL


def test_a_tree_that_gains_alone_loses_in_a_batch() -> None:
    target = decode_timer(LLAMA_70B, A100, parallelism=Parallelism(tp=4))
    (row,) = rows([drafting_of(PROFILES[Method.EAGLE2])], target, batch=1)
    assert row.speedup > 2
    assert row.breakeven_batch is not None
    assert row.breakeven_batch < 32


def test_a_draft_model_is_priced_by_its_own_ops() -> None:
    ranks = Parallelism(tp=4)
    target = decode_timer(LLAMA_70B, A100, parallelism=ranks, context_tokens=128)
    draft = decode_timer(LLAMA_8B, A100, parallelism=ranks, context_tokens=128)
    drafting = drafting_of(PROFILES[Method.DRAFT_MODEL], draft_timer=lambda batch: draft(batch, 1))
    (row,) = rows([drafting], target)
    # Weights that a step reads: 7.5 of 69.5 billion.
    assert row.cost_ratio == pytest.approx(7.5 / 69.5, rel=0.01)


def test_an_unsharded_draft_costs_more_of_a_sharded_target() -> None:
    # sgl-project/sglang issue 6949: the same draft gains at TP 1 and nothing at TP 4.
    draft = decode_timer(LLAMA_8B, A100)
    ratios = []
    for tp in (1, 4):
        target = decode_timer(LLAMA_70B, A100, parallelism=Parallelism(tp=tp))
        (row,) = rows([drafting_of(PROFILES[Method.DRAFT_MODEL], draft_timer=lambda batch: draft(batch, 1))], target)
        ratios.append(row.cost_ratio)
    assert ratios[1] == pytest.approx(4 * ratios[0], rel=0.01)


def test_multi_token_prediction_of_deepseek() -> None:
    # sgl-project/sglang pull request 3582: acceptance length 1.9 at 2 drafts, 77 tokens/s, 1.76x at batch 1.
    model = mtp_as_model(DEEPSEEK_V3)
    assert model is not None
    ranks, weights = Parallelism(tp=8), WeightQuantization(format="fp8_block")
    acceptance = UniformAcceptance(alpha=alpha_of_tokens_per_round(1.9, 2))

    def priced(overhead_s: float) -> SpeculationRow:
        target = decode_timer(DEEPSEEK_V3, H200, parallelism=ranks, quantization=weights, overhead_s=overhead_s)
        draft = decode_timer(model, H200, parallelism=ranks, quantization=weights, overhead_s=overhead_s / 61)
        drafting = drafting_of(
            PROFILES[Method.MTP],
            acceptance=acceptance,
            draft_timer=lambda batch: draft(batch, 1),
            num_draft_tokens=2,
        )
        (row,) = rows([drafting], target)
        return row

    # On the roofline alone the experts of three tokens cost twice those of one ...
    ideal = priced(0.0)
    assert ideal.verify_ratio > 1.5
    assert 0.02 < ideal.cost_ratio < 0.1
    # ... but a measured plain step of 23 ms is nearly all overhead, which hides them.
    real = priced(1.76 / 77 - ideal.plain_step_s)
    assert real.speedup == pytest.approx(1.76, rel=0.1)


def test_verifying_a_mixture_is_dear_at_batch_one_and_cheaper_once_all_experts_are_read() -> None:
    acceptance = UniformAcceptance(alpha=0.7)
    drafting = Drafting(
        method="ngram", acceptance=acceptance, low=acceptance, high=acceptance, num_draft_tokens=(4,), cost=FREE
    )
    target = decode_timer(MIXTRAL, A100, context_tokens=128)
    assert speedup_at(drafting, target, 1, 4) < 1.2
    assert speedup_at(drafting, target, 16, 4) > 2
    assert speedup_at(drafting, target, 512, 4) < 1
