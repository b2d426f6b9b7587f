from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.speculation.branching import Siblings, acceptance_by_rank, outcomes, proposed
from infcalc.speculation.exact import NO_TOKEN, Laws, acceptance, one_hot, overlap, residual
from tests.speculation.test_exact import laws

pairs = st.integers(1, 4).flatmap(lambda size: st.tuples(laws(size), laws(size)))


def draw_by_draw(target: Laws, draft: Laws, num_children: int, siblings: Siblings) -> tuple[Laws, Laws]:
    """Return the chance of each rank and token to be accepted, and the law of what comes out otherwise."""
    accepted, rest = np.zeros((num_children, len(target))), np.zeros(len(target))
    best = np.argsort(-draft, kind="stable")

    def try_one(left: Laws, law: Laws, rank: int, chance: float) -> None:
        if siblings is Siblings.BEST:
            law = one_hot(best[rank], len(target)) if rank < min(num_children, len(best)) else np.zeros_like(target)
        if rank == num_children or not law.sum():
            rest[:] += chance * left
            return
        for token in np.flatnonzero(law):
            drawn = chance * float(law[token])
            won = float(acceptance(left, law)[token])
            accepted[rank, token] += drawn * won
            others = law.copy()
            if siblings is Siblings.WITHOUT_REPLACEMENT:
                others[token] = 0
                others /= others.sum() or 1
            if won < 1:
                try_one(residual(left, law), others, rank + 1, drawn * (1 - won))

    try_one(target, draft, 0, 1.0)
    return accepted, rest


@given(pair=pairs, num_children=st.integers(1, 4), siblings=st.sampled_from(Siblings))
def test_accepted_children_and_the_rest_add_up_to_the_target(
    pair: tuple[Laws, Laws], num_children: int, siblings: Siblings
) -> None:
    accepted, rest = draw_by_draw(*pair, num_children, siblings)
    assert accepted.sum(axis=0) + rest == pytest.approx(pair[0], abs=1e-9)
    assert outcomes(*pair, num_children, siblings) == pytest.approx(accepted, abs=1e-9)


@given(pair=pairs, num_children=st.integers(1, 4), siblings=st.sampled_from(Siblings))
def test_another_child_never_lowers_acceptance(pair: tuple[Laws, Laws], num_children: int, siblings: Siblings) -> None:
    few, more = (acceptance_by_rank(*pair, number, siblings) for number in (num_children, num_children + 1))
    assert more[:-1] == pytest.approx(few)
    assert min(more) >= 0
    assert sum(more) <= 1 + 1e-9
    if siblings is not Siblings.BEST:
        assert few[0] == pytest.approx(overlap(*pair))


def test_all_children_without_replacement_accept_where_the_draft_covers_the_vocabulary() -> None:
    target, draft = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.1, 0.8])
    assert sum(acceptance_by_rank(target, draft, 3, Siblings.WITHOUT_REPLACEMENT)) == pytest.approx(1)
    assert sum(acceptance_by_rank(target, draft, 3, Siblings.WITH_REPLACEMENT)) < 0.7


@pytest.mark.parametrize("siblings", Siblings)
def test_equal_laws_accept_and_disjoint_ones_do_not(siblings: Siblings) -> None:
    law = np.array([0.6, 0.4, 0.0, 0.0])
    assert acceptance_by_rank(law, law[::-1], 2, siblings) == (0, 0)
    first = 0.6 if siblings is Siblings.BEST else 1
    assert acceptance_by_rank(law, law, 2, siblings)[0] == pytest.approx(first)


def test_laws_equal_but_for_rounding_leave_nothing_below_zero() -> None:
    target = np.array([0.1] * 10)
    draft = target / target.sum()
    for siblings in (Siblings.WITH_REPLACEMENT, Siblings.WITHOUT_REPLACEMENT):
        assert min(acceptance_by_rank(target, draft * (1 + 1e-15), 3, siblings)) >= 0


def test_children_are_proposed_by_their_rule() -> None:
    generator = np.random.default_rng(4)
    many = np.tile([0.5, 0.3, 0.2, 0.0], (4000, 1))
    drawn = {siblings: proposed(many, 4, siblings, generator) for siblings in Siblings}
    assert drawn[Siblings.BEST].tolist() == [[0, 1, 2, 3]] * 4000
    again = drawn[Siblings.WITH_REPLACEMENT]
    assert np.bincount(again.ravel(), minlength=4) / again.size == pytest.approx(many[0], abs=0.02)
    once = drawn[Siblings.WITHOUT_REPLACEMENT]
    # Three tokens can be drawn; then none is left.
    assert np.sort(once[:, :3], axis=1).tolist() == [[0, 1, 2]] * 4000
    assert (once[:, 3] == NO_TOKEN).all()
    # Second after 0: 0.3 and 0.2 of what is left.
    assert (once[once[:, 0] == 0, 1] == 1).mean() == pytest.approx(0.6, abs=0.04)
    assert proposed(many[:1], 6, Siblings.BEST, generator).tolist() == [[0, 1, 2, 3, NO_TOKEN, NO_TOKEN]]
