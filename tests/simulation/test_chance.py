"""How many drafts of a round are accepted: a law of seed, request and round alone."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.simulation.chance import AcceptanceChance, RoundCounts, draw, summed
from infcalc.simulation.fast.drawn import accepted_drafts
from infcalc.speculation.linear import SurvivalAcceptance, UniformAcceptance, survival_rates, tokens_per_round
from infcalc.speculation.spread import tokens_per_round_variance

falling = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(lambda rates: tuple(sorted(rates, reverse=True)))


@given(seed=st.integers(0, 2**63 - 1), rates=falling, request=st.integers(0, 2**31), first=st.integers(0, 10**6))
def test_many_at_once_are_drawn_as_one_by_one(seed: int, rates: tuple[float, ...], request: int, first: int) -> None:
    chance = AcceptanceChance(seed=seed, rates=rates)
    rounds = np.arange(first, first + 20)
    found = accepted_drafts(chance, np.full(20, request), rounds)
    assert found.tolist() == [chance.accepted(request, number) for number in rounds.tolist()]


@given(seed=st.integers(0, 2**63 - 1), request=st.integers(0, 10**6), number=st.integers(0, 10**6))
def test_certain_acceptance_takes_all_and_none_takes_none(seed: int, request: int, number: int) -> None:
    assert AcceptanceChance(seed=seed, rates=(1.0,) * 5).accepted(request, number) == 5
    assert AcceptanceChance(seed=seed, rates=(0.0,) * 5).accepted(request, number) == 0
    assert AcceptanceChance(seed=seed, rates=(1.0, 1.0, 0.0)).accepted(request, number) == 2


@pytest.mark.parametrize(
    "law", [UniformAcceptance(alpha=0.8), UniformAcceptance(alpha=0.3), SurvivalAcceptance(rates=(0.7, 0.3, 0.25))]
)
def test_each_position_survives_as_often_as_the_law_says(law: UniformAcceptance | SurvivalAcceptance) -> None:
    rates = survival_rates(law, 3)
    requests, rounds = np.divmod(np.arange(400_000), 40)
    counts = Counter(accepted_drafts(AcceptanceChance(seed=3, rates=rates), requests, rounds).tolist())
    number = counts.total()
    for position, rate in enumerate(rates, start=1):
        survived = sum(many for accepted, many in counts.items() if accepted >= position) / number
        assert survived == pytest.approx(rate, abs=4 * math.sqrt(rate * (1 - rate) / number))
    mean = 1 + sum(accepted * many for accepted, many in counts.items()) / number
    error = math.sqrt(tokens_per_round_variance(law, 3) / number)
    assert mean == pytest.approx(tokens_per_round(law, 3), abs=4 * error)


def test_seeds_requests_and_rounds_are_drawn_apart() -> None:
    seen = {draw(seed, request, number) for seed in range(20) for request in range(20) for number in range(20)}
    assert len(seen) > 20**3 - 20
    # Neighbours in any of the three say nothing of each other.
    base = np.array([draw(1, one, two) for one in range(60) for two in range(60)], dtype=float)
    for other in (
        [draw(2, one, two) for one in range(60) for two in range(60)],
        [draw(1, one + 1, two) for one in range(60) for two in range(60)],
        [draw(1, one, two + 1) for one in range(60) for two in range(60)],
    ):
        assert abs(np.corrcoef(base, np.array(other, dtype=float))[0, 1]) < 4 / 60


def test_counts_add_up() -> None:
    assert RoundCounts().tokens_per_round is None
    both = summed([RoundCounts(num_rounds=3, num_accepted=4), RoundCounts(num_rounds=1)])
    assert (both.num_rounds, both.num_accepted, both.tokens_per_round) == (4, 4, 2.0)
