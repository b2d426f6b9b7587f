from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.speculation.linear import SurvivalAcceptance, UniformAcceptance, survival_rates, tokens_per_round
from infcalc.speculation.spread import measured_tokens, tokens_per_round_variance

falling = st.lists(st.floats(0, 1), min_size=1, max_size=8).map(lambda rates: tuple(sorted(rates, reverse=True)))


@given(rates=falling)
def test_variance_is_that_of_the_law_of_accepted_tokens(rates: tuple[float, ...]) -> None:
    acceptance = SurvivalAcceptance(rates=rates)
    survivors = (1.0, *rates, 0.0)
    law = np.array([earlier - later for earlier, later in pairwise(survivors)])
    tokens = np.arange(1, len(law) + 1)
    mean = float(law @ tokens)
    assert tokens_per_round(acceptance, len(rates)) == pytest.approx(mean)
    expected = float(law @ (tokens - mean) ** 2)
    assert tokens_per_round_variance(acceptance, len(rates)) == pytest.approx(expected, abs=1e-9)


@given(alpha=st.floats(0, 0.99), length=st.integers(0, 20))
def test_variance_of_a_long_uniform_draft_nears_the_geometric_law(alpha: float, length: int) -> None:
    found = tokens_per_round_variance(UniformAcceptance(alpha=alpha), length)
    assert 0 <= found <= alpha / (1 - alpha) ** 2 + 1e-9
    long = tokens_per_round_variance(UniformAcceptance(alpha=min(alpha, 0.8)), 400)
    assert long == pytest.approx(min(alpha, 0.8) / (1 - min(alpha, 0.8)) ** 2)


def test_certain_rounds_do_not_spread() -> None:
    for alpha in (0, 1):
        assert tokens_per_round_variance(UniformAcceptance(alpha=alpha), 7) == 0


def test_counted_rounds_have_the_spread_of_the_formula() -> None:
    acceptance, length, number = UniformAcceptance(alpha=0.7), 4, 100_000
    survivors = np.array(survival_rates(acceptance, length))
    drawn = np.random.default_rng(6).random(number)
    tokens = 1 + (drawn[:, None] < survivors).sum(axis=1)
    found = measured_tokens(dict(enumerate(np.bincount(tokens).tolist())))
    assert found.num_rounds == number
    error = (tokens_per_round_variance(acceptance, length) / number) ** 0.5
    assert found.standard_error_tokens == pytest.approx(error, rel=0.02)
    assert abs(found.tokens_per_round - tokens_per_round(acceptance, length)) < 3 * error
    assert found.tokens_per_round_high - found.tokens_per_round_low == pytest.approx(2 * 1.96 * error, rel=0.02)


def test_the_interval_holds_the_truth_nineteen_times_out_of_twenty() -> None:
    generator = np.random.default_rng(12)
    held = 0
    for _ in range(1000):
        tokens = 1 + (generator.random((400, 1)) < np.array([0.7, 0.49, 0.343])).sum(axis=1)
        found = measured_tokens(dict(enumerate(np.bincount(tokens).tolist())))
        held += found.tokens_per_round_low <= 2.533 <= found.tokens_per_round_high
    assert held == pytest.approx(950, abs=3 * (1000 * 0.95 * 0.05) ** 0.5)


def test_no_rounds_are_no_measurement() -> None:
    with pytest.raises(UsageError, match="no round"):
        measured_tokens({})
    assert measured_tokens({2: 1}).standard_error_tokens == 0
