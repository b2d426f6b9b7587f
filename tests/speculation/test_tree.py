from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.speculation.tree import ROOT, TreeShape, chain, full_tree, tree_of_paths

shapes = st.lists(st.integers(0, 2**20), max_size=25).map(
    lambda picks: TreeShape(parents=tuple(pick % (index + 1) for index, pick in enumerate(picks)))
)


def test_three_levels_of_two_have_14_nodes_and_8_leaves() -> None:
    shape = full_tree(2, 2, 2)
    assert (shape.num_nodes, shape.num_leaves, shape.depth, shape.num_expanded, shape.max_children) == (14, 8, 3, 7, 2)
    assert shape.parents == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6)
    assert shape.path(14) == (2, 6, 14)
    assert shape.ranks == (0, *[0, 1] * 7)


def test_a_chain_is_a_tree_with_one_leaf() -> None:
    shape = chain(4)
    assert (shape.num_nodes, shape.num_leaves, shape.depth, shape.num_expanded) == (4, 1, 4, 4)
    assert shape == full_tree(1, 1, 1, 1) == tree_of_paths([(0,) * length for length in range(1, 5)])
    # The mask of a chain is the causal one.
    assert shape.attention_mask() == tuple(tuple(key <= query for key in range(5)) for query in range(5))


def test_nothing_drafted_is_a_tree_too() -> None:
    shape = chain(0)
    assert (shape.num_nodes, shape.depth, shape.num_leaves, shape.max_children) == (0, 0, 0, 0)
    assert shape.attention_mask() == ((True,),)


@given(shape=shapes)
def test_a_node_sees_itself_and_its_ancestors(shape: TreeShape) -> None:
    mask = shape.attention_mask()
    for node, row in enumerate(mask):
        assert {ROOT, *shape.path(node)} == {seen for seen, visible in enumerate(row) if visible}
        assert sum(row) == shape.depths[node] + 1
    assert sum(len(nodes) for nodes in shape.children) == shape.num_nodes


@given(shape=shapes)
def test_paths_write_a_shape_and_read_it_back(shape: TreeShape) -> None:
    paths = [tuple(shape.ranks[one] for one in shape.path(node)) for node in range(1, shape.num_nodes + 1)]
    again = tree_of_paths(reversed(paths))
    assert sorted(paths) == sorted(
        tuple(again.ranks[one] for one in again.path(node)) for node in range(1, again.num_nodes + 1)
    )


@pytest.mark.parametrize("parents", [(1,), (0, 2), (-1,)])
def test_a_child_before_its_parent_is_refused(parents: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="a parent stands before its children"):
        TreeShape(parents=parents)


@pytest.mark.parametrize("paths", [[(0, 0)], [(1,)], [(0,), (0, 1)], [()]])
def test_paths_with_gaps_are_refused(paths: list[tuple[int, ...]]) -> None:
    with pytest.raises(ValueError, match="needs its parent"):
        tree_of_paths(paths)
