"""Traces as columns: what they refuse, what prompts share, sessions, and that writing and reading change nothing."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.workload.arrivals import parse_arrivals
from infcalc.workload.description import interval_s, length_summary, over_time, rates, shares
from infcalc.workload.drawing import drawn_tokens
from infcalc.workload.generation import Recipe, faster, first_requests, generated, with_arrivals
from infcalc.workload.lengths import mean_tokens, moment, parse_lengths, quantile_tokens
from infcalc.workload.likeness import options_like
from infcalc.workload.reading import read_trace
from infcalc.workload.sessions import Sessions, SharedPrefixes, described_prefixes, parse_shared_prefixes, woven
from infcalc.workload.sharing import found_in_endless_cache, shared_chains
from infcalc.workload.trace import NONE, PrefixTree, Trace, Turns
from infcalc.workload.writing import as_csv, as_json_lines, fits_csv
from tests.workload.traces import found_token_by_token, same, traces


def ints(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.array(values, dtype=np.int64)


# What no trace can be


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"arrivals_s": np.array([1.0, 0.5])}, "sorted"),
        ({"arrivals_s": np.array([-1.0, 0.5])}, "sorted"),
        ({"arrivals_s": np.array([np.nan, 0.5])}, "sorted"),
        ({"input_tokens": ints(1, 0)}, "at least one token"),
        ({"output_tokens": ints(0, 1)}, "at least one token"),
        ({"output_tokens": ints(1)}, "columns of"),
        ({"turns": Turns(follows=ints(NONE, 1), pauses_s=np.zeros(2))}, "an earlier one"),
        ({"turns": Turns(follows=ints(NONE), pauses_s=np.zeros(1))}, "columns of"),
    ],
)
def test_columns_that_no_trace_has_are_refused(columns: dict[str, Any], says: str) -> None:
    good: dict[str, Any] = {"arrivals_s": np.array([0.0, 0.5]), "input_tokens": ints(1, 1), "output_tokens": ints(1, 1)}
    Trace(**good)
    with pytest.raises(ValueError, match=says):
        Trace(**(good | columns))


def test_a_tree_has_parents_before_children_and_no_empty_node() -> None:
    with pytest.raises(ValueError, match="before its children"):
        PrefixTree(parent_ids=ints(1, NONE), node_tokens=ints(1, 1))
    with pytest.raises(ValueError, match="without tokens"):
        PrefixTree(parent_ids=ints(NONE), node_tokens=ints(0))
    with pytest.raises(ValueError, match="2 parents for 1"):
        PrefixTree(parent_ids=ints(NONE, 0), node_tokens=ints(1))


@given(st.lists(st.integers(0, 10**6), max_size=40), st.data())
def test_depth_level_and_root_are_those_of_the_chain(draws: list[int], data: st.DataObject) -> None:
    parents = [draw % (place + 1) - 1 for place, draw in enumerate(draws)]
    sizes = [data.draw(st.integers(1, 9)) for _ in parents]
    tree = PrefixTree(parent_ids=ints(*parents), node_tokens=ints(*sizes))
    for node in range(len(parents)):
        chain = tree.chain(node)
        assert chain[-1] == node
        assert all(parents[below] == above for above, below in pairwise(chain))
        assert tree.depth_tokens[node] == sum(sizes[one] for one in chain)
        assert (tree.levels[node], tree.root_ids[node]) == (len(chain) - 1, chain[0])


# What prompts share


@settings(max_examples=60)
@given(traces())
def test_an_endless_cache_finds_what_a_search_token_by_token_does(trace: Trace) -> None:
    each = found_token_by_token(trace)
    share = shares(trace)
    assert share.tokens_fraction * trace.input_tokens.sum() == pytest.approx(sum(each))
    assert share.requests_fraction * len(trace) == pytest.approx(sum(tokens > 0 for tokens in each))
    assert all(tokens <= given for tokens, given in zip(each, trace.input_tokens.tolist(), strict=True))


@given(st.lists(st.lists(st.integers(0, 3), max_size=5), min_size=1, max_size=12))
def test_chains_of_ids_become_a_tree_of_what_two_of_them_share(chains: list[list[int]]) -> None:
    flat = ints(*(one for chain in chains for one in chain))
    lengths = ints(*map(len, chains))
    sharing = shared_chains(flat, np.full(len(flat), 16), lengths, np.zeros_like(lengths))
    found = found_in_endless_cache(sharing)
    hits = []
    for place, chain in enumerate(chains):
        before = [[a == b for a, b in zip(chain, other, strict=False)] for other in chains[:place]]
        hits.append(max((([*same_at, False]).index(False) for same_at in before), default=0))
    assert found.num_nodes == sum(hits)
    assert found.num_tokens == 16 * sum(hits)
    assert found.num_requests == sum(hit > 0 for hit in hits)
    # A node that one chain alone passes says nothing.
    passed = [sharing.tree.chain(int(node)) for node in sharing.prompt_ids if node != NONE]
    for node in range(len(sharing.tree.parent_ids)):
        assert sum(node in chain for chain in passed) > 1


def test_a_block_is_another_after_another_beginning_or_with_another_size() -> None:
    alike = shared_chains(ints(1, 9, 2, 9), ints(4, 4, 4, 4), ints(2, 2), ints(0, 0))
    assert found_in_endless_cache(alike).num_nodes == 0
    shorter = shared_chains(ints(1, 9, 1, 9), ints(4, 4, 4, 3), ints(2, 2), ints(0, 0))
    assert found_in_endless_cache(shorter).num_tokens == 4


# Sessions and shared prefixes


def test_a_session_of_three_turns_written_out() -> None:
    trace = woven(
        ints(3), ints(10, 20, 30), ints(1, 2, 3), np.array([0, 5.0, 7]), prefix_of=ints(0), prefix_tokens=ints(100)
    )
    # 100 + 10; then 110 + 1 + 20; then 131 + 2 + 30.
    assert trace.input_tokens.tolist() == [110, 131, 163]
    assert trace.turns is not None
    assert trace.turns.follows.tolist() == [NONE, 0, 1]
    assert trace.turns.pauses_s.tolist() == [0, 5, 7]
    # The second turn finds the first prompt and answer, the third all of the second.
    assert found_token_by_token(trace) == [0, 111, 133]
    timed = with_arrivals(trace, parse_arrivals("constant:0.5"), np.random.default_rng(1))
    assert timed.arrivals_s.tolist() == [2, 7, 14]


def test_sessions_overlap_in_time_and_keep_who_follows_whom() -> None:
    recipe = Recipe(
        num_requests=200,
        arrivals=parse_arrivals("poisson:1"),
        own_tokens=parse_lengths("10"),
        output_tokens=parse_lengths("5"),
        sessions=Sessions(turns=parse_lengths("4"), think_s=30, think_cv=1),
    )
    trace = generated(recipe, np.random.default_rng(1))
    assert trace.turns is not None
    follows, pauses = trace.turns.follows, trace.turns.pauses_s
    later = np.flatnonzero(follows != NONE)
    assert len(later) == 150
    assert (np.diff(follows[later]) < 0).any()
    assert trace.arrivals_s[later] == pytest.approx(trace.arrivals_s[follows[later]] + pauses[later])
    assert (trace.input_tokens[later] == trace.input_tokens[follows[later]] + 5 + 10).all()


def test_prefixes_are_used_by_their_share_and_popularity() -> None:
    recipe = Recipe(
        num_requests=20_000,
        arrivals=parse_arrivals("once"),
        own_tokens=parse_lengths("10"),
        output_tokens=parse_lengths("5"),
        prefixes=parse_shared_prefixes("num=4,tokens=100,share=0.75,skew=1"),
    )
    trace = generated(recipe, np.random.default_rng(1))
    assert trace.sharing is not None
    used = np.bincount(trace.sharing.prompt_ids[trace.sharing.prompt_ids != NONE], minlength=4)
    assert used.sum() / 20_000 == pytest.approx(0.75, abs=0.02)
    expected = np.array([1, 1 / 2, 1 / 3, 1 / 4]) / (25 / 12)
    assert used / used.sum() == pytest.approx(expected, abs=0.02)
    assert set(trace.input_tokens.tolist()) == {10, 110}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("num=3", "take num, tokens"),
        ("tokens=10,size=3", "take num, tokens"),
        ("num=0,tokens=10", "between 1"),
        ("num=1.5,tokens=10", "whole number"),
        ("num=1,tokens=10,share=2", "between 0 and 1"),
        ("num=1,tokens=few", "not a number of tokens"),
        ("num=x,tokens=10", "not a number"),
        ("num=1,num=2,tokens=10", "twice"),
    ],
)
def test_what_is_no_shared_prefix_says_why(text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_shared_prefixes(text)


@pytest.mark.parametrize("text", ["num=3,tokens=100", "tokens=1k,share=0.5,skew=2", "num=2,tokens=uniform:min=3;max=9"])
def test_shared_prefixes_are_written_as_they_are_read(text: str) -> None:
    found = parse_shared_prefixes(text)
    assert isinstance(found, SharedPrefixes)
    assert parse_shared_prefixes(described_prefixes(found)) == found


def test_a_closed_loop_takes_no_sessions() -> None:
    recipe = Recipe(
        num_requests=4,
        arrivals=parse_arrivals("closed:2"),
        own_tokens=parse_lengths("10"),
        output_tokens=parse_lengths("5"),
        sessions=Sessions(turns=parse_lengths("2")),
    )
    with pytest.raises(ValueError, match="closed loop"):
        generated(recipe, np.random.default_rng(1))


# Lengths


@pytest.mark.parametrize(
    "text",
    [
        "512",
        "uniform:min=100,max=900",
        "exponential:mean=300",
        "lognormal:mean=500,cv=0.8",
        "pareto:min=100,max=8k,alpha=1.5",
        "empirical:10,200*3,4000",
    ],
)
def test_drawn_lengths_have_the_mean_spread_and_median_of_their_law(text: str) -> None:
    law, count = parse_lengths(text), 200_000
    drawn = drawn_tokens(law, count, np.random.default_rng(7))
    deviation = (moment(law, 2) - mean_tokens(law) ** 2) ** 0.5
    # Four standard errors, and half a token for rounding.
    assert drawn.mean() == pytest.approx(mean_tokens(law), abs=4 * deviation / count**0.5 + 0.5)
    assert drawn.std() == pytest.approx(deviation, rel=0.03, abs=1e-9)
    assert np.median(drawn) == pytest.approx(quantile_tokens(law, 0.5), rel=0.02)


def test_no_drawn_length_is_below_one_token() -> None:
    assert drawn_tokens(parse_lengths("exponential:mean=1"), 1000, np.random.default_rng(7)).min() == 1


# Writing and reading


@settings(max_examples=80)
@given(traces())
def test_what_is_written_is_read_again(trace: Trace) -> None:
    text = as_json_lines(trace)
    read = read_trace(text, "x").trace
    assert same(read, trace)
    assert shares(read) == shares(trace)
    assert rates(read) == rates(trace)
    again = as_json_lines(read)
    assert as_json_lines(read_trace(again, "x").trace) == again
    if fits_csv(trace):
        assert same(read_trace(as_csv(trace), "x").trace, trace)


def test_the_same_seed_gives_the_same_bytes() -> None:
    recipe = Recipe(
        num_requests=300,
        arrivals=parse_arrivals("weibull:rate=3,cv=2"),
        own_tokens=parse_lengths("pareto:min=10,max=500,alpha=1"),
        output_tokens=parse_lengths("exponential:mean=30"),
        prefixes=parse_shared_prefixes("num=5,tokens=50,share=0.5"),
        sessions=Sessions(turns=parse_lengths("uniform:min=1,max=4"), think_s=9, think_cv=1),
    )
    one, again, other = (as_json_lines(generated(recipe, np.random.default_rng(seed))) for seed in (1, 1, 2))
    assert one == again
    assert one != other


def test_times_come_closer_and_the_first_requests_are_kept() -> None:
    trace = read_trace("0,10,1\n2,20,2\n6,30,3\n", "x").trace
    assert faster(trace, 2).arrivals_s.tolist() == [0, 1, 3]
    first = first_requests(trace, 2)
    assert (len(first), first.input_tokens.tolist()) == (2, [10, 20])
    assert first_requests(trace, 9) is trace


@given(traces(), st.sampled_from([0.5, 2.0, 1000.0]))
def test_sessions_come_faster_and_their_pauses_stay(trace: Trace, factor: float) -> None:
    fast = faster(trace, factor)
    begins = np.full(len(trace), True) if trace.turns is None else trace.turns.follows == NONE
    expected = sorted((trace.arrivals_s[begins] / factor).tolist())
    assert fast.arrivals_s[begins if fast.turns is None else fast.turns.follows == NONE].tolist() == expected
    if fast.turns is not None:
        later = np.flatnonzero(fast.turns.follows != NONE)
        gaps = fast.arrivals_s[later] - fast.arrivals_s[fast.turns.follows[later]]
        assert gaps == pytest.approx(fast.turns.pauses_s[later])


@given(traces(), st.integers(1, 30))
def test_the_first_requests_of_any_trace_are_one(trace: Trace, count: int) -> None:
    first = first_requests(trace, count)
    assert len(first) == min(count, len(trace))
    assert found_token_by_token(first) == found_token_by_token(trace)[:count]


# Descriptions


def test_rates_of_times_written_out() -> None:
    trace = Trace(arrivals_s=np.array([0, 1, 1, 4.0]), input_tokens=ints(1, 2, 3, 4), output_tokens=ints(1, 1, 1, 1))
    found = rates(trace)
    # Gaps 1, 0, 3: mean 4/3, variance 14/9. Counts of the seconds 0 to 3: 1, 2, 0, 0.
    assert (found.duration_s, found.rate_per_s) == (4, 0.75)
    assert found.cv == pytest.approx((14 / 9) ** 0.5 / (4 / 3))
    assert found.dispersion == pytest.approx((11 / 16) / 0.75)


def test_poisson_arrivals_have_variation_and_dispersion_one() -> None:
    recipe = Recipe(
        num_requests=100_000,
        arrivals=parse_arrivals("poisson:3"),
        own_tokens=parse_lengths("1"),
        output_tokens=parse_lengths("1"),
    )
    found = rates(generated(recipe, np.random.default_rng(1)))
    assert (found.rate_per_s, found.cv, found.dispersion) == pytest.approx((3, 1, 1), rel=0.02)


@given(traces())
def test_stretches_of_time_hold_every_request_once(trace: Trace) -> None:
    found = over_time(trace)
    if found:
        step_s = interval_s(float(trace.arrivals_s[-1] - trace.arrivals_s[0]))
        assert sum(interval.requests for interval in found) == len(trace)
        assert sum(interval.input_tokens_per_s for interval in found) * step_s == pytest.approx(
            trace.input_tokens.sum()
        )
    else:
        assert rates(trace).rate_per_s is None


@given(st.floats(1e-3, 1e8))
def test_stretches_are_few_and_round(duration_s: float) -> None:
    step_s = interval_s(duration_s)
    assert duration_s / step_s < 60
    assert duration_s / step_s > 20


@pytest.mark.parametrize("text", ["gamma:rate=5.5,cv=3", "poisson:3", "constant:2"])
def test_options_like_a_trace_make_one_like_it(text: str) -> None:
    recipe = Recipe(
        num_requests=50_000,
        arrivals=parse_arrivals(text),
        own_tokens=parse_lengths("lognormal:mean=1200,cv=1.1"),
        output_tokens=parse_lengths("77"),
    )
    trace = generated(recipe, np.random.default_rng(1))
    words = options_like(rates(trace), length_summary(trace.input_tokens), length_summary(trace.output_tokens)).split()
    said = dict(zip(words[::2], words[1::2], strict=True))
    assert set(said) == {"--arrivals", "--input-tokens", "--output-tokens"}
    again = generated(
        Recipe(
            num_requests=50_000,
            arrivals=parse_arrivals(said["--arrivals"]),
            own_tokens=parse_lengths(said["--input-tokens"]),
            output_tokens=parse_lengths(said["--output-tokens"]),
        ),
        np.random.default_rng(2),
    )
    assert rates(again).rate_per_s == pytest.approx(rates(trace).rate_per_s, rel=0.05)
    assert rates(again).cv == pytest.approx(rates(trace).cv, rel=0.05)
    assert length_summary(again.input_tokens).mean == pytest.approx(length_summary(trace.input_tokens).mean, rel=0.05)
