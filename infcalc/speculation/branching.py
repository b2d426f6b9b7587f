"""Several candidates for one position: how siblings are proposed, and which of them is accepted, without bias.

Siblings are tried in order. Each is accepted with min(1, p / q); after a rejection p becomes norm(max(0, p - q)), and
when all are rejected a token is drawn from what is left of p. Sources: Miao et al., "SpecInfer", ASPLOS 2024
(multi-step speculative sampling); Yang et al., "Multi-candidate speculative decoding", 2024, and Chen et al.,
"Sequoia", 2024 (without replacement); Li et al., "EAGLE-2", 2024 (best tokens, tried as certain ones).
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, assert_never

import numpy as np

from infcalc.frozen import frozen
from infcalc.speculation.exact import NO_TOKEN, acceptance, one_hot, overlap, residual, sampled

if TYPE_CHECKING:
    from numpy.random import Generator
    from numpy.typing import NDArray

    from infcalc.speculation.exact import Laws, Tokens
    from infcalc.speculation.tree import TreeShape


class Siblings(StrEnum):
    """How the children of one node are chosen."""

    WITH_REPLACEMENT = "with-replacement"
    """Each is drawn from the draft's law, so that some may be equal (SpecInfer)."""
    WITHOUT_REPLACEMENT = "without-replacement"
    """Each is drawn from what the ones before it leave of the draft's law (multi-candidate, Sequoia)."""
    BEST = "best"
    """The draft's most probable tokens: no chance is involved, so that each is a one-hot law (Medusa, EAGLE-2)."""


def proposed(laws: Laws, num_children: int, siblings: Siblings, generator: Generator) -> Tokens:
    """Return children (n, num_children) for draft laws (n, V); ``NO_TOKEN`` where a law has none left."""
    match siblings:
        case Siblings.WITH_REPLACEMENT:
            wide = np.broadcast_to(laws[:, None], (len(laws), num_children, laws.shape[-1]))
            return sampled(wide, generator)
        case Siblings.WITHOUT_REPLACEMENT:
            found = []
            for _ in range(num_children):
                found.append(sampled(laws, generator))
                laws = _without(laws, found[-1])
            return np.stack(found, axis=1)
        case Siblings.BEST:
            best = np.argsort(-laws, axis=-1, kind="stable")[:, :num_children]
            missing = ((0, 0), (0, num_children - best.shape[1]))
            return np.pad(best, missing, constant_values=NO_TOKEN)
        case _:
            assert_never(siblings)


@frozen
class TreeVerdict:
    """What verification says of n trees: the last accepted node of each (the root: none), and the token after it."""

    last_nodes: NDArray[np.intp]
    next_tokens: Tokens


def verify_tree(
    tokens: Tokens,
    draft_laws: Laws,
    target_laws: Laws,
    generator: Generator,
    *,
    shape: TreeShape,
    siblings: Siblings,
) -> TreeVerdict:
    """Return the accepted path of trees of one ``shape`` with ``tokens`` (n, nodes).

    ``draft_laws`` and ``target_laws`` (n, nodes + 1, V) are those after each node, the root first; the draft's law of a
    node is what its children were proposed from, and not read for ``Siblings.BEST``.
    """
    num_rows, vocab_size = len(tokens), target_laws.shape[-1]
    table = np.zeros((shape.num_nodes + 1, shape.max_children), dtype=np.intp)
    for node, nodes in enumerate(shape.children):
        table[node, : len(nodes)] = nodes
    at = np.zeros(num_rows, dtype=np.intp)
    left = target_laws[:, 0].copy()
    # Rows whose last node is not settled yet.
    open_rows = np.arange(num_rows)
    while len(open_rows):
        drafts = draft_laws[open_rows, at[open_rows]]
        parents = at[open_rows]
        moved = np.zeros(len(open_rows), dtype=bool)
        for rank in range(shape.max_children):
            trying = np.flatnonzero(~moved & (table[parents, rank] > 0))
            if not len(trying):
                break
            rows = open_rows[trying]
            nodes = table[parents[trying], rank]
            candidates = tokens[rows, nodes - 1]
            held = candidates != NO_TOKEN
            trying, rows, nodes, candidates = trying[held], rows[held], nodes[held], candidates[held]
            law = one_hot(candidates, vocab_size) if siblings is Siblings.BEST else drafts[trying]
            one = np.arange(len(rows))
            accepted = generator.random(len(rows)) < acceptance(left[rows, candidates], law[one, candidates])
            lost, won = rows[~accepted], rows[accepted]
            left[lost] = residual(left[lost], law[~accepted])
            if siblings is Siblings.WITHOUT_REPLACEMENT:
                drafts[trying[~accepted]] = _without(law[~accepted], candidates[~accepted])
            at[won] = nodes[accepted]
            left[won] = target_laws[won, nodes[accepted]]
            moved[trying[accepted]] = True
        open_rows = open_rows[moved]
    return TreeVerdict(last_nodes=at, next_tokens=sampled(left, generator))


def outcomes(target: Laws, draft: Laws, num_children: int, siblings: Siblings) -> NDArray[np.float64]:
    """Return the chance that the child of each rank is accepted and holds each token: (num_children, V).

    ``target`` and ``draft`` (V) are the laws of one node. What the children miss of 1 is the chance that all are
    rejected. Without replacement all orders of rejected tokens are gone through: V ** (num_children - 1) laws.
    """
    match siblings:
        case Siblings.WITH_REPLACEMENT:
            found, reached, left = [], 1.0, target
            for _ in range(num_children):
                found.append(reached * np.minimum(left, draft))
                reached *= max(0.0, 1 - float(overlap(left, draft)))
                left = residual(left, draft)
            return np.stack(found)
        case Siblings.WITHOUT_REPLACEMENT:
            return _without_replacement(target[None], draft[None], np.ones(1), num_children)
        case Siblings.BEST:
            best = np.argsort(-draft, kind="stable")[:num_children]
            chances = np.zeros((num_children, len(target)))
            chances[np.arange(len(best)), best] = target[best]
            return chances
        case _:
            assert_never(siblings)


def acceptance_by_rank(target: Laws, draft: Laws, num_children: int, siblings: Siblings) -> tuple[float, ...]:
    """Return the chance that the child of each rank is the one that is accepted, for laws (V) of one node.

    >>> laws = np.array([0.5, 0.5]), np.array([0.9, 0.1])
    >>> [round(rate, 2) for rate in acceptance_by_rank(*laws, 2, Siblings.WITH_REPLACEMENT)]
    [0.6, 0.04]
    >>> [round(rate, 2) for rate in acceptance_by_rank(*laws, 2, Siblings.WITHOUT_REPLACEMENT)]
    [0.6, 0.4]
    >>> acceptance_by_rank(*laws, 2, Siblings.BEST)
    (0.5, 0.5)
    """
    return tuple(float(rate) for rate in outcomes(target, draft, num_children, siblings).sum(axis=-1))


def _without_replacement(
    target: Laws, draft: Laws, weights: NDArray[np.float64], num_children: int
) -> NDArray[np.float64]:
    """Return outcomes over histories of rejections: laws (h, V) of target and draft, and their chances (h)."""
    found = []
    vocab_size = target.shape[-1]
    for rank in range(num_children):
        shared = np.minimum(target, draft)
        found.append(weights @ shared)
        if rank + 1 == num_children:
            break
        # Token x is drawn with q(x) and rejected with 1 - min(1, p / q): q - min(p, q) in all.
        rejected = weights[:, None] * (draft - shared)
        histories, tokens = np.nonzero(rejected > 0)
        weights = rejected[histories, tokens]
        left = residual(target, draft)
        target, draft = left[histories], _without(draft[histories], tokens)
        if not len(weights):
            found += [np.zeros(vocab_size)] * (num_children - rank - 1)
            break
    return np.stack(found)


def _without(laws: Laws, tokens: Tokens) -> Laws:
    """Return laws (n, V) without one token each (n), scaled to 1; without mass where nothing is left."""
    left = np.where(np.arange(laws.shape[-1]) == tokens[:, None], 0.0, laws)
    total = left.sum(axis=-1, keepdims=True)
    law: Laws = np.divide(left, total, out=np.zeros_like(left), where=total > 0)
    return law
