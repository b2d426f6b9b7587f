from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.speculation.dynamic_tree import EAGLE2, DynamicTree, grown
from infcalc.speculation.exact import Laws, Model, Tokens
from infcalc.speculation.tree import chain, full_tree
from tests.speculation.laws import PROMPT, pair


def constant(*chances: float) -> Model:
    def model(contexts: Tokens) -> Laws:
        return np.broadcast_to(np.array(chances), (len(contexts), len(chances)))

    return model


def test_a_confident_draft_grows_a_chain_and_a_doubtful_one_a_bush() -> None:
    settings_of = DynamicTree(num_expanded=2, max_depth=3, num_nodes=3)
    assert grown(PROMPT, constant(0.9, 0.06, 0.04), settings_of).shape == chain(3)
    bush = grown(PROMPT, constant(0.51, 0.49), settings_of)
    assert bush.shape.parents == (0, 0, 1)
    assert bush.values == pytest.approx((0.51, 0.49, 0.51 * 0.51))
    assert bush.tokens.tolist() == [0, 1, 0]


@settings(max_examples=40, deadline=None)
@given(expanded=st.integers(1, 4), depth=st.integers(1, 4), nodes=st.integers(1, 25), seed=st.integers(0, 50))
def test_the_most_probable_of_what_was_expanded_is_kept(expanded: int, depth: int, nodes: int, seed: int) -> None:
    _, draft = pair(4, 1.0, seed=seed)
    tree = grown(PROMPT, draft, DynamicTree(num_expanded=expanded, max_depth=depth, num_nodes=nodes))

    def value(path: tuple[int, ...]) -> float:
        context = [*PROMPT.tolist(), *path]
        return math.prod(
            float(draft(np.array([context[: len(PROMPT) + step]]))[0, token]) for step, token in enumerate(path)
        )

    # The same by its definition: whole levels of paths, cut to the best.
    level: list[tuple[int, ...]] = [()]
    candidates: list[tuple[int, ...]] = []
    for _ in range(depth):
        following = []
        for path in level:
            children = sorted(((*path, token) for token in range(4)), key=lambda one: -value(one))
            following += children[:expanded]
        candidates += following
        level = sorted(following, key=lambda one: -value(one))[:expanded]
    best = sorted(candidates, key=lambda one: -value(one))[:nodes]
    paths = [
        tuple(int(tree.tokens[node - 1]) for node in tree.shape.path(end)) for end in range(1, tree.shape.num_nodes + 1)
    ]
    assert set(paths) == set(best)
    assert tree.values == pytest.approx([value(path) for path in paths])
    # Siblings are tried by confidence.
    for siblings in tree.shape.children:
        values = [tree.values[node - 1] for node in siblings]
        assert values == sorted(values, reverse=True)


def test_settings_of_the_paper_keep_60_nodes_in_6_levels() -> None:
    calls: list[int] = []

    def draft(contexts: Tokens) -> Laws:
        calls.append(len(contexts))
        return np.broadcast_to(np.full(20, 0.05), (len(contexts), 20))

    tree = grown(PROMPT, draft, EAGLE2)
    assert (tree.shape.num_nodes, calls) == (60, [1, 10, 10, 10, 10, 10])
    # Nothing is surer than anything else of its level: shallow nodes first.
    assert tree.shape.depths.count(1) == 10


def test_all_of_a_small_tree_is_kept() -> None:
    tree = grown(PROMPT, constant(0.6, 0.4), DynamicTree(num_expanded=4, max_depth=3, num_nodes=99))
    assert (tree.shape, tree.shape.num_leaves) == (full_tree(2, 2, 2), 8)


@pytest.mark.parametrize("wrong", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_a_tree_of_nothing_is_refused(wrong: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="a tree of"):
        DynamicTree(num_expanded=wrong[0], max_depth=wrong[1], num_nodes=wrong[2])
