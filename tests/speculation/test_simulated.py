from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.speculation.branching import Siblings, acceptance_by_rank
from infcalc.speculation.exact import overlap
from infcalc.speculation.linear import UniformAcceptance, survival_rates, tokens_per_round
from infcalc.speculation.simulated import Contender, LawsByDepth, laws_by_depth, simulated
from infcalc.speculation.synthetic import laws_of_overlap
from infcalc.speculation.tree import chain, full_tree
from infcalc.speculation.tree_acceptance import independent_tries, tree_tokens_per_round

BINARY = full_tree(2, 2, 2)
ROUNDS = 60_000


@settings(max_examples=60, deadline=None)
@given(alpha=st.floats(0, 1), size=st.integers(3, 60), seed=st.integers(0, 99))
def test_synthetic_laws_have_the_acceptance_asked_for(alpha: float, size: int, seed: int) -> None:
    target, draft = laws_of_overlap(alpha, size, np.random.default_rng(seed))
    assert target.sum() == pytest.approx(1)
    assert draft.sum() == pytest.approx(1)
    assert overlap(target, draft) == pytest.approx(alpha, abs=1e-9)


def test_extremes_of_synthetic_laws() -> None:
    target, draft = laws_of_overlap(1, 9, np.random.default_rng(0))
    assert (target == draft).all()
    target, draft = laws_of_overlap(0, 9, np.random.default_rng(0))
    assert (target * draft).sum() == 0


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.9])
def test_a_second_try_is_accepted_less_often_than_the_first(alpha: float) -> None:
    for seed in range(20):
        pair = laws_of_overlap(alpha, 32, np.random.default_rng(seed))
        first, second = acceptance_by_rank(*pair, 2, Siblings.WITH_REPLACEMENT)
        assert first == pytest.approx(alpha)
        assert second < independent_tries(alpha, 2)[1]


def independent(alpha: float) -> LawsByDepth:
    """Laws whose draft holds ``alpha`` of the target and otherwise what it never writes: each try is like the first."""
    target = np.array([0.5, 0.3, 0.2, 0.0, 0.0])
    return LawsByDepth(pairs=((target, alpha * target + (1 - alpha) * np.array([0.0, 0.0, 0.0, 0.4, 0.6])),))


@pytest.mark.parametrize("alpha", [0.5, 0.7, 0.8])
def test_tree_and_chains_run_as_the_closed_form_says(alpha: float) -> None:
    """3 x 2 against the chain as deep and the one that verifies as many tokens, at equal acceptance of each try."""
    generator = np.random.default_rng(round(alpha * 10))
    uniform = UniformAcceptance(alpha=alpha)
    for shape, expected in (
        (chain(3), tokens_per_round(uniform, 3)),
        (chain(14), tokens_per_round(uniform, 14)),
        (BINARY, tree_tokens_per_round(BINARY, [independent_tries(alpha, 2)])),
    ):
        found = simulated(Contender(name="one", shape=shape), independent(alpha), ROUNDS, generator)
        assert found.expected_tokens_per_round == pytest.approx(expected)
        assert found.measured.num_rounds == ROUNDS
        assert abs(found.standard_errors) < 3


@pytest.mark.parametrize("siblings", Siblings)
@pytest.mark.parametrize("survival", [(0.58, 0.34, 0.22), (0.9, 0.8, 0.0), (1.0, 0.5, 0.5)])
def test_rates_by_position_are_those_of_the_chain(survival: tuple[float, ...], siblings: Siblings) -> None:
    generator = np.random.default_rng(21)
    laws = laws_by_depth(survival, generator)
    line = simulated(Contender(name="chain", shape=chain(3)), laws, ROUNDS, generator)
    assert line.acceptance.rates == pytest.approx(survival)
    assert line.expected_tokens_per_round == pytest.approx(1 + sum(survival))
    assert abs(line.standard_errors) < 3
    branched = simulated(Contender(name="tree", shape=BINARY, siblings=siblings), laws, ROUNDS, generator)
    assert abs(branched.standard_errors) < 3
    if siblings is not Siblings.BEST:
        assert branched.expected_tokens_per_round >= line.expected_tokens_per_round - 1e-9


@pytest.mark.parametrize("alpha", [0, 1])
def test_certain_acceptance_is_counted_exactly(alpha: float) -> None:
    generator = np.random.default_rng(2)
    laws = laws_by_depth(survival_rates(UniformAcceptance(alpha=alpha), 5), generator)
    found = simulated(Contender(name="chain", shape=chain(5)), laws, 1000, generator)
    assert found.measured.tokens_per_round == (6 if alpha else 1)
    assert (found.measured.standard_error_tokens, found.standard_errors) == (0, 0)


def test_the_seed_decides() -> None:
    def run(seed: int) -> float:
        generator = np.random.default_rng(seed)
        laws = laws_by_depth((0.6, 0.3), generator)
        return simulated(Contender(name="chain", shape=chain(2)), laws, 5000, generator).measured.tokens_per_round

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_what_cannot_be_simulated_is_refused() -> None:
    generator = np.random.default_rng(0)
    with pytest.raises(UsageError, match="no acceptance rate"):
        laws_by_depth((), generator)
    with pytest.raises(UsageError, match=r"acceptance 1\.5"):
        laws_by_depth((0.4, 0.6), generator)
    with pytest.raises(UsageError, match="no round"):
        simulated(Contender(name="chain", shape=chain(2)), laws_by_depth((0.5,), generator), 0, generator)
