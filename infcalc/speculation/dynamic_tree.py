"""The dynamic draft tree of EAGLE-2: its shape follows the draft's own confidence in each context.

The value of a node is the product of the draft's probabilities along its path, which stands for the chance that it is
accepted. Source: Li et al., "EAGLE-2: Faster Inference of Language Models with Dynamic Draft Trees", 2024, section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.frozen import frozen
from infcalc.speculation.tree import ROOT, TreeShape

if TYPE_CHECKING:
    from infcalc.speculation.exact import Model, Tokens


@frozen
class DynamicTree:
    """How a tree grows: ``max_depth`` levels, the ``num_expanded`` best nodes of a level expanded, ``num_nodes`` kept.

    Each expanded node gets its ``num_expanded`` most probable tokens. SGLang calls them num_steps, eagle_topk and
    num_draft_tokens (which counts the root too).
    """

    num_expanded: int
    max_depth: int
    num_nodes: int

    def __post_init__(self) -> None:
        """Refuse a tree of nothing."""
        if min(self.num_expanded, self.max_depth, self.num_nodes) < 1:
            raise ValueError(
                f"a tree of {self.num_nodes} nodes, {self.max_depth} levels and {self.num_expanded} per level"
            )


EAGLE2 = DynamicTree(num_expanded=10, max_depth=6, num_nodes=60)
"""Settings of the paper for targets of 7B and 8B [R]."""


@frozen
class DraftedTree:
    """A tree with its tokens, and the value of each drafted node."""

    shape: TreeShape
    tokens: Tokens
    values: tuple[float, ...]


def grown(context: Tokens, draft: Model, settings: DynamicTree) -> DraftedTree:
    """Return the tree that ``draft`` grows after ``context`` (tokens).

    Expansion: at each level only the best nodes by value are expanded. Rerank: of all nodes, those of the largest
    values are kept, the shallower of equals; a value never rises along a path, so that a kept node's parent is kept.
    """
    parents: list[int] = []
    tokens: list[int] = []
    values: list[float] = []
    level = [(ROOT, 1.0, context)]
    for _ in range(settings.max_depth):
        laws = draft(np.stack([path for _, _, path in level]))
        following = []
        for (node, value, path), law in zip(level, laws, strict=True):
            for token in np.argsort(-law, kind="stable")[: settings.num_expanded]:
                parents.append(node)
                tokens.append(int(token))
                values.append(value * float(law[token]))
                following.append((len(parents), values[-1], np.append(path, token)))
        level = sorted(following, key=lambda one: -one[1])[: settings.num_expanded]
    best = sorted(range(len(values)), key=lambda index: -values[index])[: settings.num_nodes]
    kept = sorted(best)
    numbers = {ROOT: ROOT} | {index + 1: number for number, index in enumerate(kept, start=1)}
    return DraftedTree(
        shape=TreeShape(parents=tuple(numbers[parents[index]] for index in kept)),
        tokens=np.array([tokens[index] for index in kept], dtype=np.intp),
        values=tuple(values[index] for index in kept),
    )
