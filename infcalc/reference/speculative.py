"""Speculative decoding of one sequence with two transformers, or one and a lookup, over the blocks of KV managers."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Protocol

import numpy as np

from infcalc.frozen import frozen
from infcalc.reference.branches import END, Branches
from infcalc.speculation.branching import Siblings, verify_tree
from infcalc.speculation.dynamic_tree import grown
from infcalc.speculation.exact import tempered
from infcalc.speculation.rounds import drafted
from infcalc.speculation.tree import TreeShape, chain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator

    from infcalc.speculation.dynamic_tree import DynamicTree
    from infcalc.speculation.exact import Laws, Tokens
    from infcalc.speculation.ngram import Drafter


@frozen
class Proposal:
    """What is to be verified: a tree with its ``tokens`` (nodes), and the ``laws`` (nodes + 1, V) it was drawn from."""

    shape: TreeShape
    tokens: Tokens
    laws: Laws
    siblings: Siblings


class Proposer(Protocol):
    """Whoever drafts. Known tokens never change; a proposal is always followed by what was accepted of it."""

    def propose(self, known: Sequence[int], generator: Generator) -> Proposal:
        """Return drafts behind the ``known`` tokens."""

    def settle(self, accepted: Sequence[int]) -> None:
        """Learn which of the drafts were accepted, and give up the others."""


class DraftLaws:
    """A draft transformer as a model that is asked along a growing tree: each node goes through it once."""

    def __init__(self, branches: Branches, temperature_fraction: float) -> None:
        self._branches = branches
        self._temperature = temperature_fraction
        self._start = 0
        self._laws: dict[tuple[int, ...], Laws] = {}
        self._slots: dict[tuple[int, ...], int] = {}

    def catch_up(self, known: Sequence[int]) -> None:
        """Compute and commit the known tokens that the draft has not seen."""
        scores = self._branches.feed(known[self._branches.num_committed_tokens :])
        self._start = len(known)
        self._slots = {(): END}
        self._laws = {(): tempered(scores, self._temperature)}

    def __call__(self, contexts: Tokens) -> Laws:
        """Return the laws after contexts (n, tokens): the known tokens with one path each behind them."""
        paths = [tuple(row) for row in contexts[:, self._start :].tolist()]
        new = [path for path in dict.fromkeys(paths) if path not in self._laws]
        if new:
            first = len(self._slots) - 1
            scores = self._branches.grow([path[-1] for path in new], [self._slots[path[:-1]] for path in new])
            for slot, (path, row) in enumerate(zip(new, scores, strict=True), start=first):
                self._slots[path], self._laws[path] = slot, tempered(row, self._temperature)
        return np.stack([self._laws[path] for path in paths])

    def settle(self, accepted: Sequence[int]) -> None:
        """Commit what was computed of the accepted path; its last token may not have been."""
        prefixes = (tuple(accepted[: depth + 1]) for depth in range(len(accepted)))
        self._branches.keep([self._slots[path] for path in prefixes if path in self._slots])


class StaticProposer:
    """Drafts trees of one shape, a chain among them."""

    def __init__(
        self, branches: Branches, shape: TreeShape, siblings: Siblings, *, temperature_fraction: float = 1.0
    ) -> None:
        self._laws = DraftLaws(branches, temperature_fraction)
        self._shape = shape
        self._siblings = siblings

    def propose(self, known: Sequence[int], generator: Generator) -> Proposal:
        """Return a tree of the shape behind the ``known`` tokens."""
        self._laws.catch_up(known)
        tokens, laws = drafted(np.array([known]), self._laws, self._shape, self._siblings, generator)
        return Proposal(shape=self._shape, tokens=tokens[0], laws=laws[0], siblings=self._siblings)

    def settle(self, accepted: Sequence[int]) -> None:
        """Keep the accepted drafts and give up the others."""
        self._laws.settle(accepted)


class DynamicProposer:
    """Drafts the trees of EAGLE-2."""

    def __init__(self, branches: Branches, tree: DynamicTree, *, temperature_fraction: float = 1.0) -> None:
        self._laws = DraftLaws(branches, temperature_fraction)
        self._tree = tree

    def propose(self, known: Sequence[int], generator: Generator) -> Proposal:
        """Return the tree that the draft grows behind the ``known`` tokens; chance has no part in it."""
        del generator
        self._laws.catch_up(known)
        tree = grown(np.array(known), self._laws, self._tree)
        return _certain(tree.shape, tree.tokens)

    def settle(self, accepted: Sequence[int]) -> None:
        """Keep the accepted drafts and give up the others."""
        self._laws.settle(accepted)


class LookupProposer:
    """Drafts what a fresh lookup of n-grams proposes; no model is asked."""

    def __init__(self, drafter: Drafter, num_draft_tokens: int) -> None:
        self._drafter = drafter
        self._num_draft_tokens = num_draft_tokens
        self._num_seen = 0

    def propose(self, known: Sequence[int], generator: Generator) -> Proposal:
        """Return the chain that followed the last tokens before."""
        del generator
        self._drafter.extend(known[self._num_seen :])
        self._num_seen = len(known)
        tokens = self._drafter.propose(self._num_draft_tokens)
        return _certain(chain(len(tokens)), np.array(tokens, dtype=np.intp))

    def settle(self, accepted: Sequence[int]) -> None:
        """Do nothing: the next call brings all known tokens."""


@frozen
class Generated:
    """Tokens that were generated, and how many rounds yielded 1, 2, ... of them (the last may have been cut)."""

    tokens: tuple[int, ...]
    rounds: dict[int, int]


def generated(
    target: Branches,
    proposer: Proposer,
    prompt: Sequence[int],
    num_tokens: int,
    generator: Generator,
    *,
    temperature_fraction: float = 1.0,
) -> Generated:
    """Return ``num_tokens`` tokens behind ``prompt`` (two tokens or more), with the law of ``target`` at a temperature.

    One step of the target verifies each proposal: the last known token and all drafts. ``target`` has begun.

    Raises:
        CacheOverflow: the blocks do not suffice.

    """
    known = list(prompt)
    if target.num_committed_tokens < len(known) - 1:
        target.feed(known[target.num_committed_tokens : -1])
    rounds: Counter[int] = Counter()
    while len(known) < len(prompt) + num_tokens:
        proposal = proposer.propose(known, generator)
        shape = proposal.shape
        scores = target.grow([known[-1], *np.maximum(proposal.tokens, 0).tolist()], [END, *shape.parents])
        verdict = verify_tree(
            proposal.tokens[None],
            proposal.laws[None] if proposal.laws.size else np.zeros((1, *scores.shape)),
            tempered(scores, temperature_fraction)[None],
            generator,
            shape=shape,
            siblings=proposal.siblings,
        )
        path = shape.path(int(verdict.last_nodes[0]))
        accepted = [int(proposal.tokens[node - 1]) for node in path]
        # The root is the first draft of the target's step, so that nodes and drafts have the same numbers.
        target.keep([0, *path])
        proposer.settle(accepted)
        known += [*accepted, int(verdict.next_tokens[0])]
        rounds[len(path) + 1] += 1
    return Generated(tokens=tuple(known[len(prompt) :][:num_tokens]), rounds=dict(rounds))


def _certain(shape: TreeShape, tokens: Tokens) -> Proposal:
    return Proposal(shape=shape, tokens=tokens, laws=np.empty((0, 0)), siblings=Siblings.BEST)
