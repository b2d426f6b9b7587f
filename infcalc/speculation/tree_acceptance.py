"""Trees in closed form: tokens per round, operations, break-even, and the best shape for a given acceptance.

What a tree is worth depends on how often the child of each rank is the one that is accepted, given that its parent is
the last node accepted so far: r_1, r_2, ... for the children in the order in which they are tried. They sum to at most
1. A node is then reached with the product of r along its path, and a tree yields 1 + the sum of that over its nodes
(Chen et al., "Sequoia", 2024, section 3.1; Leviathan's formula for a chain). Its sum over the nodes of one depth is the
survival rate of that depth, so that all formulas of :mod:`infcalc.speculation.linear` hold for trees as well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from infcalc.errors import UsageError
from infcalc.speculation.linear import SurvivalAcceptance
from infcalc.speculation.tree import TreeShape, chain

RankAcceptance: TypeAlias = Sequence[Sequence[float]]
"""r_1, r_2, ... of the children of a node, by the depth of that node; the last holds for all deeper ones."""

_SLACK = 1e-9


def independent_tries(alpha: float, num_children: int) -> tuple[float, ...]:
    """Return r_1 ... when each child that is tried is accepted with ``alpha``, given that those before it were not.

    An upper bound of real drafts: what a rejection leaves of the target is less like the draft than before it.

    >>> independent_tries(0.5, 3)
    (0.5, 0.25, 0.125)
    """
    return tuple(alpha * (1 - alpha) ** rank for rank in range(num_children))


def survival_by_depth(shape: TreeShape, ranks: RankAcceptance) -> tuple[float, ...]:
    """Return the chance that at least 1, 2, ... drafts of a tree are accepted.

    Raises:
        UsageError: a node has more children than ``ranks`` knows, or the ranks of one node sum to more than 1.

    >>> from infcalc.speculation.tree import full_tree
    >>> survival_by_depth(full_tree(2, 2), [independent_tries(0.5, 2)])
    (0.75, 0.5625)

    """
    _require(shape, ranks)
    reached = [1.0]
    by_depth: list[list[float]] = [[] for _ in range(shape.depth)]
    for node, parent in enumerate(shape.parents, start=1):
        depth = shape.depths[parent]
        reached.append(reached[parent] * _at(ranks, depth)[shape.ranks[node]])
        by_depth[depth].append(reached[-1])
    return tuple(math.fsum(level) for level in by_depth)


def tree_acceptance(shape: TreeShape, ranks: RankAcceptance) -> SurvivalAcceptance:
    """Return a tree's acceptance by depth, for the formulas and prices of chains; a shape without nodes has none.

    Raises:
        UsageError: as :func:`survival_by_depth`.

    """
    # A sum over many nodes may miss the level before by a rounding error.
    rates: list[float] = []
    for rate in survival_by_depth(shape, ranks):
        rates.append(min(rate, rates[-1] if rates else 1.0))
    return SurvivalAcceptance(rates=tuple(rates))


def tree_tokens_per_round(shape: TreeShape, ranks: RankAcceptance) -> float:
    """Return E, the expected tokens of one round with a tree, the corrected or bonus token included.

    Raises:
        UsageError: as :func:`survival_by_depth`.

    >>> from infcalc.speculation.tree import full_tree
    >>> round(tree_tokens_per_round(full_tree(2, 2, 2), [independent_tries(0.7, 2)]), 3)
    3.492

    """
    return 1 + math.fsum(survival_by_depth(shape, ranks))


def tree_operations_increase(shape: TreeShape, ranks: RankAcceptance, operations_ratio: float) -> float:
    """Return how many times more operations a token costs: (expanded nodes * c_hat + nodes + 1) / E.

    ``operations_ratio`` c_hat is draft over target operations per token. For a chain it is theorem 3.11 of Leviathan
    et al. 2023.

    >>> round(tree_operations_increase(chain(5), [(0.8,)], 0.05), 3)
    1.694
    """
    return (shape.num_expanded * operations_ratio + shape.num_nodes + 1) / tree_tokens_per_round(shape, ranks)


def tree_speedup(shape: TreeShape, ranks: RankAcceptance, cost_ratio: float, fixed_ratio: float = 0) -> float:
    """Return the wall-clock gain over plain decoding: E / (1 + depth * c + f); each level is one draft step.

    Verifying all nodes is taken to cost one target step: true only left of the roofline's knee.

    >>> from infcalc.speculation.tree import full_tree
    >>> round(tree_speedup(full_tree(2, 2, 2), [independent_tries(0.7, 2)], 0.1), 3)
    2.686
    """
    return tree_tokens_per_round(shape, ranks) / (1 + shape.depth * cost_ratio + fixed_ratio)


def tree_breakeven_alpha(shape: TreeShape, cost_ratio: float, fixed_ratio: float = 0) -> float | None:
    """Return the acceptance per try below which a tree loses time, with independent tries; None when even 1 loses.

    >>> round(tree_breakeven_alpha(chain(1), 0.2), 6)
    0.2
    """

    def gains(alpha: float) -> bool:
        return tree_speedup(shape, [independent_tries(alpha, shape.max_children)], cost_ratio, fixed_ratio) >= 1

    if not shape.num_nodes or not gains(1.0):
        return None
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if gains(middle) else (middle, high)
    return high


def best_shape(num_nodes: int, ranks: RankAcceptance, *, max_depth: int) -> TreeShape:
    """Return the tree of at most ``num_nodes`` nodes and ``max_depth`` levels with the most tokens per round.

    Source: Chen et al., "Sequoia: Scalable, Robust, and Hardware-aware Speculative Decoding", 2024, section 3.1: the
    dynamic programme over numbers of nodes, with a limit of depth. ``best[d][m]`` is the most that m nodes below a node
    of depth d can add, ``rest[j][m]`` the same below its children from rank j on.

    Raises:
        UsageError: the ranks of one node sum to more than 1, or a limit is negative.

    >>> best_shape(4, [(0.6, 0.3)], max_depth=3)
    TreeShape(parents=(0, 0, 1, 3))
    >>> best_shape(4, [(0.6, 0.3)], max_depth=2)
    TreeShape(parents=(0, 0, 1, 1))

    """
    if num_nodes < 0 or max_depth < 0:
        raise UsageError(f"a tree of {num_nodes} nodes and {max_depth} levels", hint="both are at least 0")
    _require(chain(0), ranks)
    below = [0.0] + [-math.inf] * num_nodes
    shares: list[list[list[int]]] = []
    for depth in reversed(range(max_depth)):
        below, share = _level(below, _at(ranks, depth))
        shares.append(share)
    shares.reverse()
    most = max(number for number in range(num_nodes + 1) if below[number] > -math.inf)
    parents: list[int] = []
    level = [(0, most)]
    for share in shares:
        following = []
        for node, number in level:
            rank, left = 0, number
            while left:
                taken = share[rank][left]
                parents.append(node)
                following.append((len(parents), taken - 1))
                rank, left = rank + 1, left - taken
        level = following
    return TreeShape(parents=tuple(parents))


def _level(below: list[float], ranks: Sequence[float]) -> tuple[list[float], list[list[int]]]:
    """Return the most that m nodes below one of this depth add, and how many of them the child of each rank takes."""
    size = len(below)
    rest = [0.0] + [-math.inf] * (size - 1)
    shares: list[list[int]] = []
    for chance in reversed(ranks):
        gained, share = [0.0] * size, [0] * size
        for number in range(1, size):
            gained[number], share[number] = max(
                (chance * (1 + below[taken - 1]) + rest[number - taken], taken)
                for taken in range(1, number + 1)
                if below[taken - 1] > -math.inf
            )
        rest = gained
        shares.append(share)
    shares.reverse()
    return rest, shares


def _at(ranks: RankAcceptance, depth: int) -> Sequence[float]:
    return ranks[min(depth, len(ranks) - 1)]


def _require(shape: TreeShape, ranks: RankAcceptance) -> None:
    if not ranks or any(min(row, default=0) < 0 or not math.fsum(row) <= 1 + _SLACK for row in ranks):
        raise UsageError(
            f"acceptance by rank {ranks}", hint="chances that the first, second, ... child is accepted sum to 1 at most"
        )
    for node, nodes in enumerate(shape.children):
        if len(nodes) > len(_at(ranks, shape.depths[node])):
            raise UsageError(f"node {node} has {len(nodes)} children, and acceptance is known by rank for fewer")
