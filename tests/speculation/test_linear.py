from __future__ import annotations

import math
import random
from itertools import accumulate
from operator import mul
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.speculation.linear import (
    SurvivalAcceptance,
    UniformAcceptance,
    acceptance_of,
    alpha_of_rate,
    alpha_of_tokens_per_round,
    best_num_draft_tokens,
    breakeven_alpha,
    fit_draft_cost,
    operations_increase,
    round_cost,
    speedup,
    survival_of_lengths,
    survival_rates,
    tokens_per_round,
    tokens_per_round_of_counters,
    tokens_per_round_of_rate,
)

PUBLISHED: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parent.parent / "published" / "speculation.yaml").read_text(encoding="utf-8")
)
alphas = st.floats(0, 1)
lengths = st.integers(0, 30)


def uniform(alpha: float) -> UniformAcceptance:
    return UniformAcceptance(alpha=alpha)


@pytest.mark.parametrize("case", PUBLISHED["tokens_per_round"])
def test_published_tokens_per_round(case: dict[str, Any]) -> None:
    value = tokens_per_round(uniform(case["alpha"]), case["num_draft_tokens"])
    assert value == pytest.approx(case["value"], rel=case["rel_tol"])


TABLE = PUBLISHED["best_draft_length"]
CELLS = [
    (alpha, cost, *cell)
    for alpha, row in TABLE["rows"].items()
    for cost, cell in zip(TABLE["cost_ratios"], row, strict=True)
]


@pytest.mark.parametrize(("alpha", "cost", "gain", "length"), CELLS)
def test_published_table_of_best_draft_lengths(alpha: float, cost: float, gain: float, length: int) -> None:
    best = best_num_draft_tokens(uniform(alpha), cost)
    assert round(speedup(uniform(alpha), best, cost), 2) == gain
    assert round(speedup(uniform(alpha), length, cost), 2) == gain
    tie = (alpha, cost) in {(0.5, 0.02), (0.5, 0.20), (0.9, 0.05)}
    assert best == (length - 1 if tie else length)


def test_published_speedup_with_overhead() -> None:
    case = PUBLISHED["measured_speedup"]
    for row in case["rows"]:
        gained = row["tokens_per_round"] / round_cost(row["num_draft_tokens"], case["cost_ratio"], case["fixed_ratio"])
        assert gained == pytest.approx(row["speedup"], rel=row["rel_tol"])
    fitted = fit_draft_cost(
        [(row["num_draft_tokens"], row["tokens_per_round"], row["speedup"]) for row in case["rows"]]
    )
    assert fitted.cost_ratio == pytest.approx(case["cost_ratio"], abs=0.001)
    assert fitted.fixed_ratio == pytest.approx(case["fixed_ratio"], abs=0.001)


def test_published_counters_and_rates_of_one_log() -> None:
    case = PUBLISHED["counters"]
    counted = tokens_per_round_of_counters(case["num_accepted_tokens"], case["num_drafts"])
    assert counted == pytest.approx(case["tokens_per_round"], abs=0.0005)
    listed = acceptance_of(case["rates"])
    assert tokens_per_round(listed, len(case["rates"])) == pytest.approx(1 + sum(case["rates"]))
    # The list lacks the sixth position: it is continued at the last ratio.
    assert tokens_per_round(listed, case["num_draft_tokens"]) == pytest.approx(counted, rel=0.005)


def test_published_multi_token_prediction_speedup() -> None:
    case = PUBLISHED["deepseek_mtp"]
    # One MTP layer, its projection and the head over 61 layers: 1.6 of 37 billion active parameters.
    cost = 1.6 / 37
    gained = case["tokens_per_round"] / round_cost(case["num_draft_tokens"], cost)
    assert gained == pytest.approx(case["speedup"], rel=case["rel_tol"])


@given(alpha=st.floats(0, 0.999), length=lengths)
def test_uniform_acceptance_has_the_closed_form(alpha: float, length: int) -> None:
    closed = (1 - alpha ** (length + 1)) / (1 - alpha)
    assert tokens_per_round(uniform(alpha), length) == pytest.approx(closed, rel=1e-9)


@given(length=lengths)
def test_limits_of_acceptance(length: int) -> None:
    assert tokens_per_round(uniform(1), length) == length + 1
    assert tokens_per_round(uniform(0), length) == 1
    assert tokens_per_round(uniform(0.7), 0) == 1
    assert math.isclose(tokens_per_round(uniform(1 - 1e-12), length), length + 1)


def test_chance_agrees_with_the_formula() -> None:
    draws = random.Random(7)  # noqa: S311 - a fixed seed is the point
    rounds, length, alpha = 40_000, 4, 0.7
    total = 0
    for _ in range(rounds):
        accepted = 0
        while accepted < length and draws.random() < alpha:
            accepted += 1
        total += accepted + 1
    assert total / rounds == pytest.approx(tokens_per_round(uniform(alpha), length), abs=0.03)


def test_survival_is_continued_at_its_last_ratio() -> None:
    assert survival_rates(SurvivalAcceptance(rates=(0.8, 0.4)), 4) == pytest.approx((0.8, 0.4, 0.2, 0.1))
    assert survival_rates(SurvivalAcceptance(rates=(0.8, 0.0)), 3) == (0.8, 0.0, 0.0)
    assert survival_rates(SurvivalAcceptance(rates=(0.0, 0.0)), 3) == (0.0, 0.0, 0.0)
    assert survival_rates(SurvivalAcceptance(rates=(0.5,)), 3) == survival_rates(uniform(0.5), 3)
    assert survival_rates(SurvivalAcceptance(rates=(0.8, 0.4, 0.1)), 2) == (0.8, 0.4)


@given(alpha=alphas, length=st.integers(1, 20))
def test_alpha_and_tokens_per_round_invert_each_other(alpha: float, length: int) -> None:
    mean = tokens_per_round(uniform(alpha), length)
    assert alpha_of_tokens_per_round(mean, length) == pytest.approx(alpha, abs=1e-6)
    rate = (mean - 1) / length
    assert tokens_per_round_of_rate(rate, length) == pytest.approx(mean)
    assert alpha_of_rate(rate, length) == pytest.approx(alpha, abs=1e-6)


def test_extremes_of_the_inverse_are_exact() -> None:
    assert alpha_of_tokens_per_round(6, 5) == 1
    assert alpha_of_tokens_per_round(1, 5) == pytest.approx(0, abs=1e-300)


@pytest.mark.parametrize(("mean", "length"), [(0.9, 5), (6.01, 5), (1, 0), (float("nan"), 5)])
def test_impossible_acceptance_lengths_are_refused(mean: float, length: int) -> None:
    with pytest.raises(UsageError, match="impossible"):
        alpha_of_tokens_per_round(mean, length)


@given(alpha=st.floats(0.01, 0.99), cost=st.floats(0.0, 0.99))
def test_drafting_pays_exactly_when_acceptance_exceeds_cost(alpha: float, cost: float) -> None:
    pays = best_num_draft_tokens(uniform(alpha), cost) > 0
    assert pays == (alpha > cost) or math.isclose(alpha, cost)
    if pays:
        assert speedup(uniform(alpha), 1, cost) == pytest.approx((1 + alpha) / (1 + cost))


@given(alpha=alphas, cost=st.floats(0, 1), fixed=st.floats(0, 1))
def test_best_length_is_an_argmax_and_the_shortest(alpha: float, cost: float, fixed: float) -> None:
    best = best_num_draft_tokens(uniform(alpha), cost, fixed, max_draft_tokens=20)
    gains = [speedup(uniform(alpha), length, cost, fixed) for length in range(21)]
    assert gains[best] == pytest.approx(max(gains))
    assert all(gain <= gains[best] * (1 + 1e-12) for gain in gains)


def test_speedup_without_drafts_is_one_whatever_the_overhead() -> None:
    assert speedup(uniform(0.9), 0, 0.1, 0.5) == 1


def test_fixed_cost_can_turn_every_draft_into_a_loss() -> None:
    assert best_num_draft_tokens(uniform(0.5), 0.1, 2.0) == 0


def test_operations_increase_is_that_of_the_paper() -> None:
    alpha, length, ratio = 0.8, 5, 0.05
    paper = (1 - alpha) * (length * ratio + length + 1) / (1 - alpha ** (length + 1))
    assert operations_increase(uniform(alpha), length, ratio) == pytest.approx(paper)
    assert operations_increase(uniform(0), 3, 0.5) == 5.5
    assert operations_increase(uniform(0.3), 0, 0.5) == 1


@given(length=st.integers(1, 10), cost=st.floats(0, 1), fixed=st.floats(0, 0.5))
def test_breakeven_acceptance_gains_nothing(length: int, cost: float, fixed: float) -> None:
    alpha = breakeven_alpha(length, cost, fixed)
    if alpha is None:
        assert speedup(uniform(1), length, cost, fixed) < 1
    else:
        assert speedup(uniform(alpha), length, cost, fixed) == pytest.approx(1, abs=1e-6)


def test_breakeven_acceptance_needs_a_draft() -> None:
    assert breakeven_alpha(0, 0.1) is None


@given(cost=st.floats(0, 0.5), fixed=st.floats(0, 0.5))
def test_cost_is_recovered_from_exact_measurements(cost: float, fixed: float) -> None:
    measured = [
        (length, tokens_per_round(uniform(0.7), length), speedup(uniform(0.7), length, cost, fixed))
        for length in (1, 2, 4, 7)
    ]
    fitted = fit_draft_cost(measured)
    assert fitted.cost_ratio == pytest.approx(cost, abs=1e-9)
    assert fitted.fixed_ratio == pytest.approx(fixed, abs=1e-9)


def test_a_fit_below_zero_goes_through_the_origin() -> None:
    fitted = fit_draft_cost([(1, 1.05, 1.0), (2, 1.2, 1.0)])
    assert fitted.cost_ratio == pytest.approx((1 * 0.05 + 2 * 0.2) / 5)
    assert fitted.fixed_ratio == 0


@pytest.mark.parametrize("measured", [[], [(2, 2.0, 1.5)], [(2, 2.0, 1.5), (2, 2.1, 1.6)], [(1, 1.5, 0), (2, 2, 1)]])
def test_a_cost_needs_two_lengths(measured: list[tuple[int, float, float]]) -> None:
    with pytest.raises(UsageError, match="two or more draft lengths"):
        fit_draft_cost(measured)


@given(conditional=st.lists(st.floats(0.05, 1), min_size=6, max_size=6))
def test_survival_from_lengths_reproduces_them(conditional: list[float]) -> None:
    truth = SurvivalAcceptance(rates=tuple(accumulate(conditional, mul)))
    measured = [(length, tokens_per_round(truth, length)) for length in (1, 2, 3, 4, 5, 6)]
    assert survival_of_lengths(measured) == pytest.approx(truth.rates, abs=1e-6)


def test_survival_between_lengths_falls_geometrically() -> None:
    rates = survival_of_lengths([(2, 1 + 0.6 + 0.36), (4, 1 + 0.6 + 0.36 + 0.18 + 0.09)])
    assert rates == pytest.approx((0.6, 0.36, 0.18, 0.09))


@pytest.mark.parametrize("measured", [[], [(2, 2.0), (4, 1.9)], [(1, 1.0), (2, 1.5)], [(1, 1.2), (2, 1.9)]])
def test_lengths_that_nothing_can_yield_are_refused(measured: list[tuple[int, float]]) -> None:
    with pytest.raises(UsageError):
        survival_of_lengths(measured)


@pytest.mark.parametrize("rates", [[1.2], [-0.1], [float("nan")], [0.5, 0.6], [], [0.5, float("nan")]])
def test_bad_acceptance_is_refused(rates: list[float]) -> None:
    with pytest.raises(UsageError):
        acceptance_of(rates)


@pytest.mark.parametrize("length", [-1, 10**9])
def test_bad_draft_lengths_are_refused(length: int) -> None:
    with pytest.raises(UsageError, match="draft tokens"):
        tokens_per_round(uniform(0.5), length)


@pytest.mark.parametrize("cost", [-0.1, float("nan"), float("inf")])
def test_bad_costs_are_refused(cost: float) -> None:
    with pytest.raises(UsageError, match="cost of a draft step"):
        speedup(uniform(0.5), 2, cost)
    with pytest.raises(UsageError, match="fixed cost"):
        speedup(uniform(0.5), 2, 0.1, cost)
    with pytest.raises(UsageError, match="operations"):
        operations_increase(uniform(0.5), 2, cost)


@pytest.mark.parametrize(("accepted", "drafts"), [(1, 0), (-1, 5), (float("nan"), 5)])
def test_bad_counters_are_refused(accepted: float, drafts: float) -> None:
    with pytest.raises(UsageError, match="not a measurement"):
        tokens_per_round_of_counters(accepted, drafts)
