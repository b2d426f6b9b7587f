from __future__ import annotations

import pytest

from infcalc.errors import UsageError
from infcalc.speculation.linear import FREE, DraftCost, UniformAcceptance, acceptance_of, speedup
from infcalc.speculation.priced import (
    PRICING_BAND,
    Breakeven,
    Drafting,
    SpeculationRow,
    StepTimer,
    breakeven_batch,
    by_batch,
    draft_memory,
    drafting_of,
    explain_row,
    round_time,
    rows,
    speedup_at,
)
from infcalc.speculation.published import PROFILES, Method
from infcalc.speculation.spread import tokens_per_round_variance
from infcalc.units import GB

PLAIN_S = 0.01


def flat(batch: int, tokens: int) -> float:
    """Verification costs nothing more, at any batch."""
    del batch, tokens
    return PLAIN_S


def knee_at(tokens_free: int) -> StepTimer:
    """Time is flat up to so many tokens and proportional to them beyond."""

    def timer(batch: int, tokens: int) -> float:
        return PLAIN_S * max(1.0, batch * tokens / tokens_free)

    return timer


def chain(alpha: float = 0.8, *lengths: int, cost: DraftCost = FREE, tree: int | None = None) -> Drafting:
    acceptance = UniformAcceptance(alpha=alpha)
    return Drafting(
        method="draft-model",
        acceptance=acceptance,
        low=UniformAcceptance(alpha=alpha / 2),
        high=acceptance,
        num_draft_tokens=lengths or tuple(range(1, 13)),
        cost=cost,
        tree_tokens=tree,
    )


def only(drafting: Drafting, target: StepTimer, **options: int) -> SpeculationRow:
    (row,) = rows([drafting], target, **options)
    return row


def test_left_of_the_knee_the_price_is_the_closed_form() -> None:
    cost = DraftCost(cost_ratio=0.1, fixed_ratio=0.05)
    row = only(chain(cost=cost), flat)
    closed = [speedup(UniformAcceptance(alpha=0.8), length, 0.1, 0.05) for length in range(1, 13)]
    assert row.speedup == pytest.approx(max(closed))
    assert row.num_draft_tokens == 1 + closed.index(max(closed))
    least = speedup(UniformAcceptance(alpha=0.4), row.num_draft_tokens, 0.1, 0.05)
    assert row.speedup_low == pytest.approx(PRICING_BAND[0] * least)
    assert row.speedup_high == pytest.approx(PRICING_BAND[1] * row.speedup)
    assert row.round_s == pytest.approx(PLAIN_S * (1 + row.num_draft_tokens * 0.1 + 0.05))
    assert row.plain_step_s == PLAIN_S
    assert (row.verify_ratio, row.cost_ratio, row.fixed_ratio) == pytest.approx((1, 0.1, 0.05))


def test_round_is_verification_and_drafts_and_fixed_part() -> None:
    drafting = chain(0.8, 4, cost=DraftCost(cost_ratio=0.1, fixed_ratio=0.2))
    target = knee_at(100)
    # 40 sequences x 5 tokens are twice the knee; a plain step of 40 is left of it.
    assert round_time(drafting, target, 40, 4) == pytest.approx(PLAIN_S * (2 + 4 * 0.1 + 0.2))
    # At 200 a plain step takes twice as long, and so does a draft step, but not the fixed part.
    assert round_time(drafting, target, 200, 4) == pytest.approx(PLAIN_S * (10 + 4 * 0.2 + 0.2))


def test_a_tree_verifies_its_nodes_and_the_root() -> None:
    drafting = chain(0.8, 5, tree=60)
    assert drafting.verified_tokens(5) == 61
    assert round_time(drafting, knee_at(61), 2, 5) == pytest.approx(2 * PLAIN_S)


def test_heads_at_once_take_one_pass_and_the_engine_adds_to_a_round() -> None:
    acceptance = UniformAcceptance(alpha=0.8)
    drafting = Drafting(
        method="medusa",
        acceptance=acceptance,
        low=acceptance,
        high=acceptance,
        num_draft_tokens=(4,),
        draft_timer=lambda _: 2e-3,
        fixed_s=1e-3,
        at_once=True,
    )
    assert round_time(drafting, flat, 1, 4) == pytest.approx(PLAIN_S + 2e-3 + 1e-3)
    row = only(drafting, flat)
    assert (row.num_passes, row.num_draft_tokens) == (1, 4)
    assert row.fixed_ratio == pytest.approx(0.1)


def test_by_batch_gives_the_best_length_at_each() -> None:
    points = by_batch([chain(0.8)], knee_at(256), (1, 64, 512))
    assert [point.batch for point in points] == [1, 64, 512]
    for point in points:
        row = only(chain(0.8), knee_at(256), batch=point.batch)
        assert (point.num_draft_tokens, point.speedup) == (row.num_draft_tokens, row.speedup)
        assert point.tokens_per_round == row.tokens_per_round


def test_known_draft_work_replaces_the_measured_ratio() -> None:
    acceptance = UniformAcceptance(alpha=0.8)
    drafting = Drafting(
        method="draft-model",
        acceptance=acceptance,
        low=acceptance,
        high=acceptance,
        num_draft_tokens=(3,),
        cost=DraftCost(cost_ratio=9.0, fixed_ratio=0.1),
        draft_timer=lambda batch: 1e-3 * batch,
    )
    assert round_time(drafting, flat, 2, 3) == pytest.approx(PLAIN_S + 3 * 2e-3 + 0.1 * PLAIN_S)
    assert only(drafting, flat, batch=2).cost_ratio == pytest.approx(0.2)


def test_right_of_the_knee_drafts_get_shorter_and_then_lose() -> None:
    free = chain(0.8)
    target = knee_at(256)
    lengths = [only(free, target, batch=batch).num_draft_tokens for batch in (1, 64, 128, 256)]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] > lengths[-1] == 1
    assert only(free, target, batch=512).speedup == pytest.approx(0.9)


def test_breakeven_is_the_largest_batch_with_a_gain() -> None:
    # A free draft of 3 at alpha 0.8 yields 2.952 tokens: it gains while 4 b < 2.952 x 100 x max(1, b / 100).
    state, batch = breakeven_batch(chain(0.8, 3), knee_at(100), 3)
    assert (state, batch) == (Breakeven.AT_BATCH, 73)
    assert speedup_at(chain(0.8, 3), knee_at(100), 73, 3) > 1
    assert speedup_at(chain(0.8, 3), knee_at(100), 74, 3) < 1


@pytest.mark.parametrize("max_batch", [100, 128, 4096, 74])
def test_breakeven_does_not_depend_on_where_the_search_starts(max_batch: int) -> None:
    assert breakeven_batch(chain(0.8, 3), knee_at(100), 3, max_batch=max_batch) == (Breakeven.AT_BATCH, 73)


def test_gain_at_every_batch_and_at_none() -> None:
    assert breakeven_batch(chain(0.8, 3), flat, 3) == (Breakeven.ALWAYS, None)
    assert breakeven_batch(chain(0.8, 3), knee_at(100), 3, max_batch=64) == (Breakeven.ALWAYS, None)
    dear = chain(0.5, 3, cost=DraftCost(cost_ratio=1.0))
    assert breakeven_batch(dear, flat, 3) == (Breakeven.NEVER, None)
    assert breakeven_batch(dear, flat, 3, max_batch=1) == (Breakeven.NEVER, None)
    assert only(dear, flat).speedup < 1


def test_gain_that_dips_and_recovers_counts_to_its_last_batch() -> None:
    def mixture(batch: int, tokens: int) -> float:
        # More tokens touch more experts until all are read; then memory hides them until the knee.
        return PLAIN_S * max(min(batch * tokens, 32), batch * tokens / 16)

    drafting = chain(0.8, 3)
    assert speedup_at(drafting, mixture, 1, 3) < 1 < speedup_at(drafting, mixture, 32, 3)
    state, batch = breakeven_batch(drafting, mixture, 3)
    assert state is Breakeven.AT_BATCH
    assert batch is not None
    assert 32 <= batch < 512


def test_published_profile_with_what_the_user_knows() -> None:
    profile = PROFILES[Method.EAGLE3]
    published = drafting_of(profile)
    assert published.num_draft_tokens == (1, 2, 3, 4, 5, 6, 7)
    assert published.low != published.acceptance != published.high
    assert "issue 20780" in published.acceptance_source
    own = drafting_of(profile, acceptance=acceptance_of([0.58, 0.34, 0.22]), num_draft_tokens=3)
    assert own.num_draft_tokens == (3,)
    assert own.low == own.acceptance == own.high
    assert own.acceptance_source == "given"
    row = only(own, flat)
    assert row.tokens_per_round == pytest.approx(2.14)
    assert row.tokens_per_round_low == row.tokens_per_round == row.tokens_per_round_high
    assert drafting_of(PROFILES[Method.EAGLE2]).num_draft_tokens == (6,)


@pytest.mark.parametrize("method", list(Method))
@pytest.mark.parametrize("knee", [1, 3, 8, 64, 4096])
def test_published_range_holds_the_typical_value_at_every_length(method: Method, knee: int) -> None:
    row = only(drafting_of(PROFILES[method]), knee_at(knee))
    assert row.speedup_low <= row.speedup <= row.speedup_high
    assert row.acceptance_low <= row.acceptance <= row.acceptance_high


def test_row_states_the_uniform_acceptance_of_its_length() -> None:
    row = only(chain(0.8, 4), flat)
    assert row.acceptance == pytest.approx(0.8)
    assert row.acceptance_low == pytest.approx(0.4)
    assert row.survival_rates == pytest.approx((0.8, 0.64, 0.512, 0.4096))
    assert row.verified_tokens == 5


@pytest.mark.parametrize("knee", [1, 8, 64])
@pytest.mark.parametrize("length", [1, 3, 7])
def test_at_the_acceptance_that_is_needed_there_is_neither_gain_nor_loss(length: int, knee: int) -> None:
    cost = DraftCost(cost_ratio=0.1)
    row = only(chain(0.8, length, cost=cost), knee_at(knee))
    needed = row.breakeven_acceptance
    assert (needed is None) == (knee == 1)
    if needed is None:
        assert speedup_at(chain(1.0, length, cost=cost), knee_at(knee), 1, length) < 1
    else:
        assert speedup_at(chain(needed, length, cost=cost), knee_at(knee), 1, length) == pytest.approx(1)
        assert (row.speedup > 1) == (needed < 0.8)
    variance = tokens_per_round_variance(chain(0.8, length).acceptance, length)
    assert row.deviation_tokens == pytest.approx(variance**0.5)


def test_bad_input_is_refused() -> None:
    with pytest.raises(UsageError, match="batch 0"):
        rows([chain()], flat, batch=0)
    with pytest.raises(UsageError, match="not a draft"):
        drafting_of(PROFILES[Method.EAGLE], num_draft_tokens=0)
    with pytest.raises(UsageError, match="no draft length"):
        rows([chain(0.8, 0)], flat)


def test_memory_of_drafting_has_its_line_items() -> None:
    # github.com/ggml-org/llama.cpp/issues/23472: draft weights, draft KV and a second compute buffer.
    items = draft_memory(
        draft_weights_bytes=2 * GB,
        draft_kv_bytes_per_token=4096,
        target_kv_bytes_per_token=131_072,
        vocab_size=128_256,
        batch=8,
        context_tokens=4096,
        num_draft_tokens=4,
    )
    sizes = {item.name: item.num_bytes for item in items}
    assert sizes == {
        "draft weights": 2 * GB,
        "draft kv": 8 * 4096 * 4096,
        "look-ahead kv": 8 * 4 * (4096 + 131_072),
        "draft compute (logits)": 8 * 4 * 128_256 * 4,
    }
    assert items[1].why == "8 x 4096 tokens x 4096 B"


def test_explanation_of_a_row() -> None:
    row = only(chain(0.8, 2, cost=DraftCost(cost_ratio=0.1)), flat)
    tokens, gain, needed, breakeven = explain_row(row)
    assert tokens.substituted == "1 + 0.8 + 0.64 = 2.440"
    assert gain.substituted.startswith("2.440 x 10 ms / 12 ms = 2.033 (verify 3 tokens 1.000 + 2 passes x 0.100")
    # 1 + a + a^2 = 1.2.
    assert needed.substituted == "E = 1.200 of 3: 0.171"
    assert breakeven.substituted == "always"
    (hopeless,) = rows([chain(1.0, 2, cost=DraftCost(cost_ratio=2.0))], flat)
    assert explain_row(hopeless)[2].substituted == "E = 5.000 of 3: more than certain acceptance yields"
