from __future__ import annotations

import pytest

from infcalc.roofline.step import decode_timer
from infcalc.spec.parallelism import Parallelism
from infcalc.speculation.branching import Siblings
from infcalc.speculation.contest import BINARY, ContestRow, contest, explain_contest, priced_shape
from infcalc.speculation.linear import (
    Acceptance,
    DraftCost,
    SurvivalAcceptance,
    UniformAcceptance,
    speedup,
    tokens_per_round,
)
from infcalc.speculation.priced import Drafting, drafting_of, speedup_at
from infcalc.speculation.published import PROFILES, Method
from infcalc.speculation.tree import chain
from infcalc.speculation.tree_acceptance import independent_tries, tree_acceptance, tree_speedup
from tests.roofline.shapes import A100, LLAMA_8B, LLAMA_70B

COST = DraftCost(cost_ratio=0.1)


def flat(batch: int, tokens: int) -> float:
    return 1.0 + 0 * batch * tokens


def drafting(acceptance: Acceptance) -> Drafting:
    return Drafting(
        method="chain", acceptance=acceptance, low=acceptance, high=acceptance, num_draft_tokens=(4,), cost=COST
    )


def held(acceptance: Acceptance, *, num_rounds: int = 30_000, seed: int = 0) -> dict[str, ContestRow]:
    found = contest(drafting(acceptance), flat, num_draft_tokens=4, num_rounds=num_rounds, batches=(1, 64), seed=seed)
    return {row.name: row for row in found}


@pytest.mark.parametrize("rates", [(0.58, 0.34, 0.22, 0.15), (0.9, 0.85, 0.8, 0.75), (0.4, 0.1, 0.0, 0.0)])
def test_counts_agree_with_the_closed_form_and_chains_with_their_rates(rates: tuple[float, ...]) -> None:
    found = held(SurvivalAcceptance(rates=rates))
    assert list(found) == [
        "chain of 3",
        "chain of 4",
        "chain of 14",
        "tree 3 x 2, repeats",
        "tree 3 x 2, distinct",
        "best of 14, distinct",
    ]
    for row in found.values():
        assert abs(row.standard_errors) < 3
        assert row.tokens_per_round_low < row.tokens_per_round < row.tokens_per_round_high
        assert row.accepted_per_round_tokens == row.tokens_per_round - 1
        error = (row.tokens_per_round_high - row.tokens_per_round) / 1.96
        assert error == pytest.approx(row.deviation_tokens / row.num_rounds**0.5, rel=0.05)
    assert found["chain of 4"].expected_tokens_per_round == pytest.approx(1 + sum(rates))
    expected = tokens_per_round(SurvivalAcceptance(rates=rates), 14)
    assert found["chain of 14"].expected_tokens_per_round == pytest.approx(expected)


def test_at_equal_verified_tokens_each_freedom_is_worth_something() -> None:
    found = held(UniformAcceptance(alpha=0.6), num_rounds=1000)
    equal = [row for row in found.values() if row.verified_tokens == 15]
    assert [row.siblings for row in equal] == [
        None,
        Siblings.WITH_REPLACEMENT,
        Siblings.WITHOUT_REPLACEMENT,
        Siblings.WITHOUT_REPLACEMENT,
    ]
    line, again, once, best = (row.prices[0].speedup for row in equal)
    assert line < again < once < best
    assert found["chain of 3"].expected_tokens_per_round < found["tree 3 x 2, repeats"].expected_tokens_per_round


def test_prices_left_of_the_knee_are_the_closed_form() -> None:
    found = held(UniformAcceptance(alpha=0.7), num_rounds=10)
    for name, length in (("chain of 3", 3), ("chain of 14", 14)):
        for price in found[name].prices:
            assert price.speedup == pytest.approx(speedup(UniformAcceptance(alpha=0.7), length, 0.1))
    tree = found["tree 3 x 2, distinct"]
    assert tree.prices[0].speedup == pytest.approx(tree.expected_tokens_per_round / 1.3)


@pytest.mark.parametrize("alpha", [0.5, 0.6, 0.7, 0.8])
def test_the_tree_wins_alone_and_the_short_chain_in_a_batch(alpha: float) -> None:
    """3 x 2 against chains of 3 and 14 at equal acceptance of each try: 70B drafted by 8B on four A100."""
    ranks = Parallelism(tp=4)
    target = decode_timer(LLAMA_70B, A100, parallelism=ranks, context_tokens=512)
    draft = decode_timer(LLAMA_8B, A100, parallelism=ranks, context_tokens=512)
    base = drafting_of(
        PROFILES[Method.DRAFT_MODEL],
        acceptance=UniformAcceptance(alpha=alpha),
        draft_timer=lambda batch: draft(batch, 1),
    )
    tries = [independent_tries(alpha, 2)]
    shapes = {"short": chain(3), "long": chain(14), "tree": BINARY}
    gains = {
        batch: {
            name: speedup_at(priced_shape(base, shape, tree_acceptance(shape, tries)), target, batch, shape.depth)
            for name, shape in shapes.items()
        }
        for batch in (1, 64)
    }
    assert gains[1]["tree"] > gains[1]["short"] > gains[1]["long"]
    # 64 x 15 tokens lie right of the knee: verification takes several times a plain step.
    assert max(gains[64].values()) == gains[64]["short"]
    assert max(gains[64]["tree"], gains[64]["long"]) < 1


def test_a_priced_tree_verifies_its_nodes_and_drafts_its_levels() -> None:
    tries = [independent_tries(0.7, 2)]
    priced = priced_shape(drafting(UniformAcceptance(alpha=0.7)), BINARY, tree_acceptance(BINARY, tries))
    assert (priced.num_draft_tokens, priced.verified_tokens(3)) == ((3,), 15)
    assert speedup_at(priced, flat, 1, 3) == pytest.approx(tree_speedup(BINARY, tries, 0.1))
    line = priced_shape(priced, chain(5), SurvivalAcceptance(rates=(0.5,) * 5))
    assert (line.tree_tokens, line.verified_tokens(5)) == (None, 6)


@pytest.mark.parametrize("alpha", [0, 1])
def test_certain_acceptance_has_no_spread(alpha: float) -> None:
    found = held(UniformAcceptance(alpha=alpha), num_rounds=50)
    for row in found.values():
        assert row.tokens_per_round == (row.num_draft_tokens + 1 if alpha else 1)
        assert row.expected_tokens_per_round == pytest.approx(row.tokens_per_round)
    assert found["best of 14, distinct"].num_draft_tokens == (14 if alpha else 1)


def test_an_explanation_says_what_was_counted() -> None:
    row = held(UniformAcceptance(alpha=0.5), num_rounds=400)["chain of 3"]
    said = explain_contest(row)
    assert said.substituted.startswith("1.8750 (counted ")
    assert "over 400 rounds" in said.substituted
