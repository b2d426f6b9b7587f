"""Rounds run on real laws, chains against trees: what was counted beside what the closed form says."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.speculation.branching import Siblings, acceptance_by_rank
from infcalc.speculation.linear import SurvivalAcceptance
from infcalc.speculation.rounds import tree_round
from infcalc.speculation.spread import MeasuredTokens, measured_tokens
from infcalc.speculation.synthetic import laws_of_overlap
from infcalc.speculation.tree import TreeShape
from infcalc.speculation.tree_acceptance import tree_acceptance, tree_tokens_per_round

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.random import Generator

    from infcalc.speculation.exact import Laws, Model, Tokens

VOCAB_SIZE = 32
_ROWS = 8192
"""Rounds computed at once: their laws fit into a processor's cache."""


@frozen
class Contender:
    """One way of drafting in a simulation: a chain is a shape with one child per node."""

    name: str
    shape: TreeShape
    siblings: Siblings = Siblings.WITH_REPLACEMENT


@frozen
class Simulated:
    """Rounds of one contender: tokens per round as counted and by the closed form.

    ``acceptance`` is the chance that 1, 2, ... drafts of a round are accepted, by the closed form.
    """

    contender: Contender
    measured: MeasuredTokens
    expected_tokens_per_round: float
    acceptance: SurvivalAcceptance

    @property
    def standard_errors(self) -> float:
        """How many standard errors the count is away from the closed form; 0 where no round differs from it."""
        gap = self.measured.tokens_per_round - self.expected_tokens_per_round
        return gap / self.measured.standard_error_tokens if self.measured.standard_error_tokens else 0.0


@frozen
class LawsByDepth:
    """Laws (V) of target and draft at the first, second, ... position of a round; the last pair holds for the rest."""

    pairs: tuple[tuple[Laws, Laws], ...]

    def target(self, contexts: Tokens) -> Laws:
        """Return the target's laws after contexts of one token and the drafts behind it."""
        return self._laws(contexts, 0)

    def draft(self, contexts: Tokens) -> Laws:
        """Return the draft's laws after contexts of one token and the drafts behind it."""
        return self._laws(contexts, 1)

    def ranks(self, num_children: int, siblings: Siblings) -> tuple[tuple[float, ...], ...]:
        """Return the acceptance by rank of child at each depth."""
        return tuple(acceptance_by_rank(target, draft, num_children, siblings) for target, draft in self.pairs)

    def _laws(self, contexts: Tokens, which: int) -> Laws:
        pair = self.pairs[min(contexts.shape[1], len(self.pairs)) - 1]
        return np.broadcast_to(pair[which], (len(contexts), len(pair[which])))


def laws_by_depth(survival: Sequence[float], generator: Generator, *, vocab_size: int = VOCAB_SIZE) -> LawsByDepth:
    """Return synthetic laws under which a chain survives its first, second, ... draft with these probabilities.

    Raises:
        UsageError: no rate, or one that is above that before it.

    """
    if not survival:
        raise UsageError("no acceptance rate to simulate")
    pairs, before = [], 1.0
    for rate in survival:
        # What is never reached may be accepted as often as one likes.
        conditional = rate / before if before else 0.0
        pairs.append(laws_of_overlap(conditional, vocab_size, generator))
        before = rate
    return LawsByDepth(pairs=tuple(pairs))


def simulated(contender: Contender, laws: LawsByDepth, num_rounds: int, generator: Generator) -> Simulated:
    """Return ``num_rounds`` rounds of a contender on ``laws``, counted and by the closed form.

    Raises:
        UsageError: less than one round.

    """
    ranks = laws.ranks(contender.shape.max_children, contender.siblings)
    return Simulated(
        contender=contender,
        measured=measured_tokens(_counted(contender, laws.target, laws.draft, num_rounds, generator)),
        expected_tokens_per_round=tree_tokens_per_round(contender.shape, ranks),
        acceptance=tree_acceptance(contender.shape, ranks),
    )


def _counted(
    contender: Contender, target: Model, draft: Model, num_rounds: int, generator: Generator
) -> dict[int, int]:
    run = tree_round(target, draft, contender.shape, contender.siblings)
    counts: Counter[int] = Counter()
    for begin in range(0, num_rounds, _ROWS):
        contexts = np.zeros((min(_ROWS, num_rounds - begin), 1), dtype=np.intp)
        counts.update(run(contexts, generator).num_tokens.tolist())
    return dict(counts)
