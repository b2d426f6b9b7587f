from __future__ import annotations

import pytest

from infcalc.errors import UsageError
from infcalc.speculation.linear import (
    UniformAcceptance,
    best_num_draft_tokens,
    speedup,
    tokens_per_round,
)
from infcalc.speculation.published import (
    EAGLE3_CHAIN,
    EAGLE_CHAIN,
    MTP_DEEPSEEK,
    PROFILES,
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
    assert profile.cost_source
    assert (profile.tree_tokens is None) == (not profile.tree_source)


@pytest.mark.parametrize(
    "entry", [entry for profile in ALL for entry in (profile.low, profile.typical, profile.high) if entry.measured]
)
def test_acceptance_reproduces_what_was_measured(entry: Publication) -> None:
    for one in entry.measured:
        assert tokens_per_round(entry.acceptance(), one.num_draft_tokens) == pytest.approx(one.tokens_per_round)


@pytest.mark.parametrize(
    ("entry", "method", "best"),
    [(EAGLE_CHAIN, Method.EAGLE, 3), (EAGLE3_CHAIN, Method.EAGLE3, 4), (MTP_DEEPSEEK, Method.MTP, 3)],
)
def test_measured_speedups_and_their_best_length_come_out(entry: Publication, method: Method, best: int) -> None:
    cost = PROFILES[method].draft_cost
    for one in entry.measured:
        modelled = speedup(entry.acceptance(), one.num_draft_tokens, cost.cost_ratio, cost.fixed_ratio)
        assert modelled == pytest.approx(one.speedup, rel=0.03)
    assert best_num_draft_tokens(entry.acceptance(), cost.cost_ratio, cost.fixed_ratio, max_draft_tokens=7) == best


def test_costs_are_those_derived_by_the_publication() -> None:
    # vllm-project/vllm issue 20780: c about 0.10 and 0.14 per draft step, 0.7 to 1.1 ms of 7.07 ms fixed.
    eagle, eagle3 = PROFILES[Method.EAGLE].draft_cost, PROFILES[Method.EAGLE3].draft_cost
    assert eagle.cost_ratio == pytest.approx(0.10, abs=0.005)
    assert eagle3.cost_ratio == pytest.approx(0.14, abs=0.005)
    assert 0.6e-3 < eagle.fixed_ratio * 7.07e-3 < 1.3e-3
    assert 0.6e-3 < eagle3.fixed_ratio * 7.07e-3 < 1.3e-3
    assert PROFILES[Method.NGRAM].draft_cost.cost_ratio == 0


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
    ],
)
def test_spellings_of_methods(word: str, method: Method) -> None:
    assert method_of(word) is method


def test_unknown_methods_list_the_known_ones() -> None:
    with pytest.raises(UsageError, match="eagle3"):
        method_of("lookahead")
