from __future__ import annotations

import pytest

from infcalc.errors import UsageError
from infcalc.speculation.linear import (
    UniformAcceptance,
    best_num_draft_tokens,
    fit_draft_cost,
    speedup,
    tokens_per_round,
)
from infcalc.speculation.published import (
    EAGLE3_CHAIN,
    EAGLE_CHAIN,
    MTP_DEEPSEEK,
    PROFILES,
    SMALL_DRAFT,
    Drafter,
    Method,
    Profile,
    Publication,
    Tag,
    method_of,
)

ALL = list(PROFILES.values())


def test_every_method_has_a_profile() -> None:
    assert set(PROFILES) == set(Method)
    assert all(PROFILES[method].method is method for method in Method)


@pytest.mark.parametrize("profile", ALL, ids=lambda profile: profile.method.value)
def test_range_is_in_order_and_every_figure_has_its_source(profile: Profile) -> None:
    length = profile.max_draft_tokens
    low, typical, high = (
        tokens_per_round(entry.acceptance(), length) for entry in (profile.low, profile.typical, profile.high)
    )
    assert 1 < low <= typical <= high <= length + 1
    for entry in (profile.low, profile.typical, profile.high):
        assert entry.source
        assert entry.date
        assert entry.tag in Tag
    assert (profile.drafter is Drafter.MODEL) == bool(profile.cost_source)
    assert (profile.tree_tokens is None) == (not profile.tree_source)


@pytest.mark.parametrize(
    "entry", [entry for profile in ALL for entry in (profile.low, profile.typical, profile.high) if entry.measured]
)
def test_acceptance_reproduces_what_was_measured(entry: Publication) -> None:
    for one in entry.measured:
        assert tokens_per_round(entry.acceptance(), one.num_draft_tokens) == pytest.approx(one.tokens_per_round)


@pytest.mark.parametrize(
    ("entry", "best", "cost_ratio", "fixed_s"),
    [
        (EAGLE_CHAIN, 3, 0.10, (0.6e-3, 1.3e-3)),
        (EAGLE3_CHAIN, 4, 0.14, (0.6e-3, 1.3e-3)),
        (MTP_DEEPSEEK, 3, 0.082, None),
    ],
)
def test_measured_speedups_lie_on_a_line_of_cost_per_draft(
    entry: Publication, best: int, cost_ratio: float, fixed_s: tuple[float, float] | None
) -> None:
    # vllm-project/vllm issue 20780: c about 0.10 and 0.14 per draft step, 0.7 to 1.1 ms of 7.07 ms fixed.
    cost = fit_draft_cost(
        [(one.num_draft_tokens, one.tokens_per_round, one.speedup) for one in entry.measured if one.speedup]
    )
    for one in entry.measured:
        modelled = speedup(entry.acceptance(), one.num_draft_tokens, cost.cost_ratio, cost.fixed_ratio)
        assert modelled == pytest.approx(one.speedup, rel=0.03)
    assert best_num_draft_tokens(entry.acceptance(), cost.cost_ratio, cost.fixed_ratio, max_draft_tokens=7) == best
    assert cost.cost_ratio == pytest.approx(cost_ratio, abs=0.006)
    if fixed_s is not None:
        assert fixed_s[0] < cost.fixed_ratio * 7.07e-3 < fixed_s[1]


def test_tiny_drafts_are_accepted_less_often() -> None:
    tiny, small = (profile.typical.acceptance() for profile in (SMALL_DRAFT, PROFILES[Method.DRAFT_MODEL]))
    assert tokens_per_round(tiny, 5) == pytest.approx(2.19)
    assert tokens_per_round(tiny, 5) < tokens_per_round(small, 5)


def test_stated_alpha_is_taken_as_it_is() -> None:
    assert PROFILES[Method.DRAFT_MODEL].typical.acceptance() == UniformAcceptance(alpha=0.68)


@pytest.mark.parametrize(
    ("word", "method"),
    [
        ("EAGLE-3", Method.EAGLE3),
        ("eagle3_tree", Method.EAGLE3_TREE),
        ("n-gram", Method.NGRAM),
        ("Prompt-Lookup", Method.NGRAM),
        ("draft_model", Method.DRAFT_MODEL),
        ("draft", Method.DRAFT_MODEL),
        (" mtp ", Method.MTP),
        ("PLD", Method.NGRAM),
        ("token-recycling", Method.RECYCLING),
    ],
)
def test_spellings_of_methods(word: str, method: Method) -> None:
    assert method_of(word) is method


def test_unknown_methods_list_the_known_ones() -> None:
    with pytest.raises(UsageError, match="eagle3"):
        method_of("telepathy")
