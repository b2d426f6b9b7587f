from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.speculation.exact import (
    NO_TOKEN,
    Laws,
    acceptance,
    greedy,
    match_chance,
    one_hot,
    overlap,
    residual,
    sampled,
    tempered,
    verify_chain,
    verify_match,
)


@st.composite
def laws(draw: st.DrawFn, size: int | None = None) -> Laws:
    number = draw(st.integers(1, 7)) if size is None else size
    weights = draw(st.lists(st.sampled_from([0.0, 0.0, 1e-12, 0.1, 0.5, 1.0, 3.0]), min_size=number, max_size=number))
    weights[draw(st.integers(0, number - 1))] += 1
    return np.array(weights) / sum(weights)


pairs = st.integers(1, 7).flatmap(lambda size: st.tuples(laws(size), laws(size)))


@given(pair=pairs)
def test_accepted_and_resampled_tokens_add_up_to_the_target(pair: tuple[Laws, Laws]) -> None:
    target, draft = pair
    accepted = draft * acceptance(target, draft)
    made = accepted + (1 - accepted.sum()) * residual(target, draft)
    assert made == pytest.approx(target, abs=1e-12)
    assert accepted.sum() == pytest.approx(overlap(target, draft))
    assert 0 <= match_chance(target, draft) <= overlap(target, draft) + 1e-12


@given(pair=pairs)
def test_overlap_is_one_less_total_variation(pair: tuple[Laws, Laws]) -> None:
    target, draft = pair
    assert overlap(target, draft) == pytest.approx(1 - np.abs(target - draft).sum() / 2)


@given(target=laws())
def test_the_residual_of_nothing_and_of_itself_is_the_target(target: Laws) -> None:
    assert residual(target, np.zeros_like(target)) == pytest.approx(target)
    assert (residual(target, target) == target).all()


@given(pair=pairs)
def test_a_greedy_draft_is_accepted_with_the_targets_probability(pair: tuple[Laws, Laws]) -> None:
    target, draft = pair
    certain = greedy(draft)
    assert certain.sum() == 1
    assert overlap(target, certain) == target[draft.argmax()]
    assert overlap(greedy(target), certain) == (target.argmax() == draft.argmax())


def test_temperature() -> None:
    logits = np.array([[0.0, 1.0, 2.0], [5.0, 5.0, -np.inf]])
    assert tempered(logits, 0.0).tolist() == [[0, 0, 1], [1, 0, 0]]
    assert tempered(logits, 0.5)[0] == pytest.approx(np.exp([-4, -2, 0]) / np.exp([-4, -2, 0]).sum())
    assert tempered(logits, 1e-4)[1].tolist() == [0.5, 0.5, 0.0]
    assert tempered(logits, 1e6)[0] == pytest.approx([1 / 3] * 3, abs=1e-5)


class Constant(np.random.Generator):
    """Chance that always says the same."""

    value = 0.0

    def random(self, size: object = None) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:  # type: ignore[override]
        assert isinstance(size, tuple)
        return np.full(size, self.value)


@given(law=laws())
def test_a_token_without_probability_is_never_drawn(law: Laws) -> None:
    held = np.flatnonzero(law)
    for value, token in ((0.0, held[0]), (np.nextafter(1.0, 0.0), held[-1])):
        chance = Constant(np.random.PCG64(0))
        chance.value = value
        assert sampled(law, chance) == token
    drawn = sampled(np.tile(law, (200, 1)), np.random.default_rng(0))
    assert set(drawn.tolist()) <= set(held.tolist())


def test_a_law_without_mass_has_no_token() -> None:
    drawn = sampled(np.array([[0.0, 0.0], [0.0, 1.0]]), np.random.default_rng(0))
    assert drawn.tolist() == [NO_TOKEN, 1]


def test_verification_stops_at_the_first_rejection() -> None:
    # Certain laws leave nothing to chance: drafts 1, 2, 3 against a target that writes 1, 2, 0, 3.
    target = one_hot(np.array([[1, 2, 0, 3]]), 4)
    for drafts, accepted, following in (([1, 2, 3], 2, 0), ([1, 2, 0], 3, 3), ([0, 2, 0], 0, 1)):
        tokens = np.array([drafts])
        for verdict in (
            verify_chain(tokens, one_hot(tokens, 4), target, np.random.default_rng(0)),
            verify_match(tokens, target, np.random.default_rng(0)),
        ):
            assert (verdict.num_accepted.tolist(), verdict.next_tokens.tolist()) == ([accepted], [following])
