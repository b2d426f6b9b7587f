from __future__ import annotations

import heapq
from itertools import combinations_with_replacement

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.speculation.linear import (
    UniformAcceptance,
    breakeven_alpha,
    operations_increase,
    speedup,
    survival_rates,
    tokens_per_round,
)
from infcalc.speculation.tree import TreeShape, chain, full_tree
from infcalc.speculation.tree_acceptance import (
    best_shape,
    independent_tries,
    survival_by_depth,
    tree_acceptance,
    tree_breakeven_alpha,
    tree_operations_increase,
    tree_speedup,
    tree_tokens_per_round,
)
from tests.speculation.test_tree import shapes

BINARY = full_tree(2, 2, 2)


@given(alpha=st.floats(0, 1), length=st.integers(1, 20), cost=st.floats(0, 2))
def test_a_tree_of_one_child_per_node_has_the_formulas_of_chains(alpha: float, length: int, cost: float) -> None:
    uniform, shape, ranks = UniformAcceptance(alpha=alpha), chain(length), [(alpha,)]
    assert survival_by_depth(shape, ranks) == pytest.approx(survival_rates(uniform, length))
    assert tree_tokens_per_round(shape, ranks) == pytest.approx(tokens_per_round(uniform, length))
    assert tree_speedup(shape, ranks, cost, 0.1) == pytest.approx(speedup(uniform, length, cost, 0.1))
    assert tree_operations_increase(shape, ranks, cost) == pytest.approx(operations_increase(uniform, length, cost))
    even, of_chain = tree_breakeven_alpha(shape, cost), breakeven_alpha(length, cost)
    assert (even is None) == (of_chain is None)
    assert even is None or even == pytest.approx(of_chain, abs=1e-9)


@given(shape=shapes, alpha=st.floats(0, 1))
def test_tokens_per_round_sum_the_paths_of_all_nodes(shape: TreeShape, alpha: float) -> None:
    ranks = independent_tries(alpha, max(1, shape.max_children))
    total = 1.0
    for node in range(1, shape.num_nodes + 1):
        reached = 1.0
        for step in shape.path(node):
            reached *= ranks[shape.ranks[step]]
        total += reached
    assert tree_tokens_per_round(shape, [ranks]) == pytest.approx(total)
    assert 1 <= total <= shape.depth + 1 + 1e-9
    if shape.num_nodes:
        assert tokens_per_round(tree_acceptance(shape, [ranks]), shape.depth) == pytest.approx(total)


def test_ranks_by_depth_hold_for_all_deeper_nodes_too() -> None:
    assert survival_by_depth(chain(4), [(0.9,), (0.5,)]) == pytest.approx((0.9, 0.45, 0.225, 0.1125))


@pytest.mark.parametrize(
    ("alpha", "short", "tree", "long"),
    [(0.5, 1.875, 2.734375, 1.99994), (0.7, 2.533, 3.491671, 3.317525), (0.8, 2.952, 3.766336, 4.824078)],
)
def test_tree_against_chains_at_equal_acceptance(alpha: float, short: float, tree: float, long: float) -> None:
    """3 levels of 2 against the chain as deep, and against the chain that verifies as many tokens."""
    uniform = UniformAcceptance(alpha=alpha)
    assert tokens_per_round(uniform, 3) == pytest.approx(short, rel=1e-5)
    assert tree_tokens_per_round(BINARY, [independent_tries(alpha, 2)]) == pytest.approx(tree, rel=1e-5)
    assert tokens_per_round(uniform, 14) == pytest.approx(long, rel=1e-5)
    # The long chain drafts 14 steps one after another, the tree 3.
    assert tree_speedup(BINARY, [independent_tries(alpha, 2)], 0.1) > speedup(uniform, 14, 0.1)


def best_sum(num_nodes: int, ranks: list[tuple[float, ...]], max_depth: int) -> float:
    """Tokens of the best tree by taking the most probable node again and again: right where ranks fall."""
    total, taken = 1.0, 0
    heap = [(-ranks[0][0], 1, 0, 1.0)] if max_depth else []
    while heap and taken < num_nodes:
        negative, depth, rank, parent = heapq.heappop(heap)
        total -= negative
        taken += 1
        here = ranks[min(depth - 1, len(ranks) - 1)]
        if rank + 1 < len(here):
            heapq.heappush(heap, (-parent * here[rank + 1], depth, rank + 1, parent))
        if depth < max_depth:
            heapq.heappush(heap, (negative * ranks[min(depth, len(ranks) - 1)][0], depth + 1, 0, -negative))
    return total


falling = st.lists(st.floats(0.01, 0.33), min_size=1, max_size=3).map(lambda rates: tuple(sorted(rates, reverse=True)))


@settings(max_examples=60, deadline=None)
@given(num_nodes=st.integers(0, 18), ranks=st.lists(falling, min_size=1, max_size=3), max_depth=st.integers(0, 6))
def test_the_best_shape_is_that_of_the_most_probable_nodes(
    num_nodes: int, ranks: list[tuple[float, ...]], max_depth: int
) -> None:
    shape = best_shape(num_nodes, ranks, max_depth=max_depth)
    assert shape.num_nodes <= num_nodes
    assert shape.depth <= max_depth
    assert tree_tokens_per_round(shape, ranks) == pytest.approx(best_sum(num_nodes, ranks, max_depth))


def every_shape(num_nodes: int) -> set[TreeShape]:
    return {
        TreeShape(parents=parents)
        for parents in combinations_with_replacement(range(num_nodes), num_nodes)
        if all(parent <= index for index, parent in enumerate(parents))
    }


def test_no_other_shape_is_better_even_where_a_later_child_is_accepted_more_often() -> None:
    # Level order writes every tree with parents that never fall.
    ranks = [(0.2, 0.5, 0.1), (0.1, 0.6)]
    for num_nodes in range(7):
        fitting = [
            shape
            for shape in every_shape(num_nodes)
            if len(shape.children[0]) <= 3 and all(len(nodes) <= 2 for nodes in shape.children[1:])
        ]
        best = max(tree_tokens_per_round(shape, ranks) for shape in fitting)
        found = best_shape(num_nodes, ranks, max_depth=num_nodes)
        assert tree_tokens_per_round(found, ranks) == pytest.approx(best)


def test_extremes_of_the_best_shape() -> None:
    assert best_shape(5, [(0.9, 0.0)], max_depth=9).depth == 5
    assert best_shape(5, [(0.2,) * 5], max_depth=9) == full_tree(5)
    assert best_shape(100, [(0.5, 0.3)], max_depth=2) == full_tree(2, 2)
    assert best_shape(3, [(0.5,)], max_depth=0) == chain(0)


def test_operations_of_a_tree_count_what_is_expanded_and_what_is_verified() -> None:
    # Certain acceptance: 4 tokens for 7 expanded nodes of the draft and 15 of the target.
    assert tree_operations_increase(BINARY, [(1.0, 0.0)], 0.1) == pytest.approx((7 * 0.1 + 15) / 4)


def test_breakeven_of_a_tree() -> None:
    even = tree_breakeven_alpha(BINARY, 0.1, 0.05)
    assert even is not None
    assert tree_speedup(BINARY, [independent_tries(even, 2)], 0.1, 0.05) == pytest.approx(1)
    # Two tries need less of each.
    assert even < (breakeven_alpha(3, 0.1, 0.05) or 0)
    assert tree_breakeven_alpha(BINARY, 1.5) is None
    assert tree_breakeven_alpha(chain(0), 0.1) is None


@pytest.mark.parametrize("ranks", [[], [(0.6, 0.5)], [(-0.1,)], [(0.5,)], [(0.5, 0.2), (0.5,)]])
def test_ranks_that_cannot_be_are_refused(ranks: list[tuple[float, ...]]) -> None:
    with pytest.raises(UsageError, match="acceptance"):
        survival_by_depth(BINARY, ranks)


def test_a_shape_of_less_than_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="-1 nodes"):
        best_shape(-1, [(0.5,)], max_depth=2)
