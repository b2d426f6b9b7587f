"""Chains against trees at one acceptance: run on synthetic laws, set beside the closed form, and priced on the clock.

The chain's survival by position fixes how well the draft's laws agree with the target's; trees are then built from the
same laws. Nothing but the shape differs: a level of a tree costs one draft step as a token of a chain does, and all
nodes are verified in one step of the target.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from infcalc.frozen import frozen
from infcalc.spec.explain import Explanation
from infcalc.speculation.branching import Siblings
from infcalc.speculation.linear import survival_rates
from infcalc.speculation.priced import speedup_at
from infcalc.speculation.simulated import Contender, laws_by_depth, simulated
from infcalc.speculation.spread import tokens_per_round_variance
from infcalc.speculation.tree import chain, full_tree
from infcalc.speculation.tree_acceptance import best_shape, tree_acceptance

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.speculation.linear import SurvivalAcceptance
    from infcalc.speculation.priced import Drafting, StepTimer
    from infcalc.speculation.simulated import LawsByDepth, Simulated
    from infcalc.speculation.tree import TreeShape

BINARY = full_tree(2, 2, 2)
"""The static tree of the contest: 3 levels of 2 children, 14 nodes."""
_BEST_CHILDREN = 3
_BEST_DEPTH = BINARY.num_nodes


@frozen
class PricedAt:
    """Tokens per second over those without drafting, at one batch."""

    batch: int
    speedup: float


@frozen
class ContestRow:
    """One shape: tokens per round as counted, with their 95 % interval, and by the closed form.

    ``siblings`` says how children are chosen: they may repeat, or are distinct (None: a chain). ``standard_errors`` is
    how far the count is off the closed form. ``prices`` rest on the closed form.
    """

    name: str
    siblings: Siblings | None
    num_draft_tokens: int
    """Levels of drafts: steps of the draft in a round."""
    verified_tokens: int
    num_rounds: int
    tokens_per_round: float
    tokens_per_round_low: float
    tokens_per_round_high: float
    expected_tokens_per_round: float
    deviation_tokens: float
    """Standard deviation of the tokens of one round, by the closed form."""
    standard_errors: float
    prices: tuple[PricedAt, ...]

    @property
    def accepted_per_round_tokens(self) -> float:
        """Accepted drafts of a round: its tokens without the corrected or bonus one."""
        return self.tokens_per_round - 1


def contest(
    drafting: Drafting,
    target: StepTimer,
    *,
    num_draft_tokens: int,
    num_rounds: int,
    batches: Sequence[int],
    seed: int,
) -> tuple[ContestRow, ...]:
    """Return the chain of ``drafting`` with ``num_draft_tokens``, and trees and chains of other shapes beside it.

    Raises:
        UsageError: less than one round.

    """
    generator = np.random.default_rng(seed)
    laws = laws_by_depth(survival_rates(drafting.acceptance, BINARY.num_nodes), generator)
    lengths = sorted({num_draft_tokens, BINARY.depth, BINARY.num_nodes})
    tree = f"tree {BINARY.depth} x {BINARY.max_children}"
    contenders = (
        *(Contender(name=f"chain of {length}", shape=chain(length)) for length in lengths),
        Contender(name=f"{tree}, repeats", shape=BINARY, siblings=Siblings.WITH_REPLACEMENT),
        Contender(name=f"{tree}, distinct", shape=BINARY, siblings=Siblings.WITHOUT_REPLACEMENT),
        _best(drafting, target, laws, min(batches)),
    )
    return tuple(_row(simulated(one, laws, num_rounds, generator), drafting, target, batches) for one in contenders)


def explain_contest(row: ContestRow) -> Explanation:
    """Return how the expected tokens of a row came about."""
    spread = (
        f"counted {row.tokens_per_round:.4f} over {row.num_rounds} rounds, {row.standard_errors:+.1f} standard errors"
    )
    return Explanation(
        quantity=f"expected_tokens_per_round ({row.name})",
        formula="E = 1 + sum over nodes of the chance that all on their path are accepted",
        substituted=f"{row.expected_tokens_per_round:.4f} ({spread}; one round {row.deviation_tokens:.3f})",
        source="Chen et al., Sequoia, 2024, section 3.1",
    )


def priced_shape(drafting: Drafting, shape: TreeShape, acceptance: SurvivalAcceptance) -> Drafting:
    """Return ``drafting`` with another shape, ``acceptance`` being that by depth of the shape."""
    return replace(
        drafting,
        acceptance=acceptance,
        low=acceptance,
        high=acceptance,
        num_draft_tokens=(shape.depth,),
        tree_tokens=None if shape.max_children == 1 else shape.num_nodes,
    )


def _best(drafting: Drafting, target: StepTimer, laws: LawsByDepth, batch: int) -> Contender:
    """Return the tree of as many nodes as the static one that is the fastest at ``batch``.

    Source: Chen et al., "Sequoia", 2024 (hardware-aware tree optimizer): of the best shapes of each depth the fastest.
    """
    siblings = Siblings.WITHOUT_REPLACEMENT
    ranks = laws.ranks(_BEST_CHILDREN, siblings)
    shapes = [best_shape(BINARY.num_nodes, ranks, max_depth=depth) for depth in range(1, _BEST_DEPTH + 1)]

    def gain(shape: TreeShape) -> float:
        return speedup_at(priced_shape(drafting, shape, tree_acceptance(shape, ranks)), target, batch, shape.depth)

    return Contender(name=f"best of {BINARY.num_nodes}, distinct", shape=max(shapes, key=gain), siblings=siblings)


def _row(found: Simulated, drafting: Drafting, target: StepTimer, batches: Sequence[int]) -> ContestRow:
    shape, measured = found.contender.shape, found.measured
    priced = priced_shape(drafting, shape, found.acceptance)
    return ContestRow(
        name=found.contender.name,
        siblings=None if shape.max_children == 1 else found.contender.siblings,
        num_draft_tokens=shape.depth,
        verified_tokens=priced.verified_tokens(shape.depth),
        num_rounds=measured.num_rounds,
        tokens_per_round=measured.tokens_per_round,
        tokens_per_round_low=measured.tokens_per_round_low,
        tokens_per_round_high=measured.tokens_per_round_high,
        expected_tokens_per_round=found.expected_tokens_per_round,
        deviation_tokens=tokens_per_round_variance(found.acceptance, shape.depth) ** 0.5,
        standard_errors=found.standard_errors,
        prices=tuple(
            PricedAt(batch=batch, speedup=speedup_at(priced, target, batch, shape.depth)) for batch in batches
        ),
    )
