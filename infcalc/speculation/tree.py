"""Trees of draft tokens: their shape, in numbers of nodes, and which node sees which when all are verified at once.

Node 0 is the root, the last token that is known; the drafted nodes are 1 to m, each after its parent. Siblings are
tried in the order of their numbers. A chain is a tree with one child per node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = 0
"""The node of the last known token."""


@frozen
class TreeShape:
    """The drafted nodes of a round: ``parents[i]`` is the parent of node ``i + 1``.

    Raises:
        ValueError: a node stands before its parent.

    """

    parents: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse a node that stands before its parent."""
        for node, parent in enumerate(self.parents, start=1):
            if not ROOT <= parent < node:
                raise ValueError(f"node {node} hangs on {parent}: a parent stands before its children")

    @property
    def num_nodes(self) -> int:
        """Drafted nodes: what is verified in a round beside the root."""
        return len(self.parents)

    @property
    def children(self) -> tuple[tuple[int, ...], ...]:
        """Children of each node, the root included, in the order in which they are tried."""
        return _children(self.parents)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node: 0 for the root."""
        return _depths(self.parents)

    @property
    def ranks(self) -> tuple[int, ...]:
        """Place of each drafted node among its siblings, 0 for the first that is tried; that of the root is 0."""
        return _ranks(self.parents)

    @property
    def depth(self) -> int:
        """Levels of drafted nodes: the most tokens that a round can accept."""
        return max(self.depths)

    @property
    def num_leaves(self) -> int:
        """Drafted nodes without children."""
        return sum(not nodes for nodes in self.children[1:])

    @property
    def num_expanded(self) -> int:
        """Nodes with children, the root among them: the tokens that the draft computes in a round."""
        return sum(bool(nodes) for nodes in self.children)

    @property
    def max_children(self) -> int:
        """Most children of one node."""
        return max(len(nodes) for nodes in self.children)

    def path(self, node: int) -> tuple[int, ...]:
        """Return the drafted nodes from below the root to ``node``; none for the root.

        >>> full_tree(2, 2).path(6)
        (2, 6)
        """
        found = []
        while node != ROOT:
            found.append(node)
            node = self.parents[node - 1]
        return tuple(reversed(found))

    def attention_mask(self) -> tuple[tuple[bool, ...], ...]:
        """Return who sees whom in the verifying step, root first: a node sees itself and its ancestors.

        Every node sees all tokens before the root. A node's position is that of the root plus its depth. Source: Miao
        et al., "SpecInfer", ASPLOS 2024 (topology-aware causal mask); Cai et al., "Medusa", 2024 (tree attention).

        >>> for row in full_tree(2, 1).attention_mask():
        ...     print("".join("x" if seen else "." for seen in row))
        x....
        xx...
        x.x..
        xx.x.
        x.x.x
        """
        seen = [{ROOT}]
        for node, parent in enumerate(self.parents, start=1):
            seen.append(seen[parent] | {node})
        return tuple(tuple(node in row for node in range(self.num_nodes + 1)) for row in seen)


def chain(num_draft_tokens: int) -> TreeShape:
    """Return the tree of linear drafting.

    >>> chain(3)
    TreeShape(parents=(0, 1, 2))
    """
    return TreeShape(parents=tuple(range(num_draft_tokens)))


def full_tree(*num_children: int) -> TreeShape:
    """Return the static tree whose nodes at depth d have ``num_children[d]`` children each, level by level.

    >>> tree = full_tree(2, 2, 2)
    >>> tree.num_nodes, tree.num_leaves, tree.depth
    (14, 8, 3)
    """
    parents: list[int] = []
    level = [ROOT]
    for number in num_children:
        first = len(parents) + 1
        parents += [node for node in level for _ in range(number)]
        level = list(range(first, len(parents) + 1))
    return TreeShape(parents=tuple(parents))


def tree_of_paths(paths: Iterable[Sequence[int]]) -> TreeShape:
    """Return the static tree that holds the nodes at ``paths``: ranks of children from the root down, as Medusa writes.

    Source: Cai et al., "Medusa", 2024, ``medusa_choices``: ``(0, 1)`` is the second best token below the best one.

    Raises:
        ValueError: a path without the path to its parent, or without the sibling before it.

    >>> tree_of_paths([(0,), (1,), (0, 0)])
    TreeShape(parents=(0, 0, 1))

    """
    ordered = sorted({tuple(path) for path in paths}, key=lambda path: (len(path), path))
    numbers: dict[tuple[int, ...], int] = {(): ROOT}
    for path in ordered:
        elder = (*path[:-1], path[-1] - 1) if path and path[-1] else path[:-1]
        if not path or elder not in numbers or path[:-1] not in numbers:
            raise ValueError(f"path {path}: each node needs its parent and the siblings before it")
        numbers[path] = len(numbers)
    return TreeShape(parents=tuple(numbers[path[:-1]] for path in ordered))


@lru_cache(maxsize=256)
def _children(parents: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    found: list[list[int]] = [[] for _ in range(len(parents) + 1)]
    for node, parent in enumerate(parents, start=1):
        found[parent].append(node)
    return tuple(tuple(nodes) for nodes in found)


@lru_cache(maxsize=256)
def _depths(parents: tuple[int, ...]) -> tuple[int, ...]:
    found = [0]
    for parent in parents:
        found.append(found[parent] + 1)
    return tuple(found)


@lru_cache(maxsize=256)
def _ranks(parents: tuple[int, ...]) -> tuple[int, ...]:
    found = [0] * (len(parents) + 1)
    for nodes in _children(parents):
        for rank, node in enumerate(nodes):
            found[node] = rank
    return tuple(found)
