"""Chains against trees, run round by round at the acceptance of a way of drafting: ``speculate --simulate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input
from infcalc.speculation.published import Method

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.spec.explain import Explanation
    from infcalc.speculation.contest import ContestRow
    from infcalc.speculation.priced import Drafting, SpeculationRow, StepTimer

BATCHES = (1, 64)
"""Batches at which shapes are priced, beside the one that was asked for."""
_MAX_ROUNDS = 200_000


@frozen
class SimulationAsk:
    """Rounds of each shape, and the seed of the synthetic laws and of all draws."""

    num_rounds: int
    seed: int = 0

    def check(self) -> None:
        """Refuse what cannot be run.

        Raises:
            UsageError: less than one round, more than a million, or a seed below 0.

        """
        if not 1 <= self.num_rounds <= _MAX_ROUNDS:
            raise UsageError(
                f"{self.num_rounds} rounds", place="--simulate", hint=f"a whole number from 1 to {_MAX_ROUNDS:,}"
            )
        if self.seed < 0:
            raise UsageError(f"seed {self.seed}", place="--seed", hint="a whole number of at least 0")

    def inputs(self) -> tuple[Input, ...]:
        """Return what the simulation rests on, beside the deployment."""
        return (
            Input(name="simulate", value=self.num_rounds, origin="given (--simulate)"),
            Input(name="seed", value=self.seed, origin="given (--seed)" if self.seed else "default"),
        )


def is_chain(drafting: Drafting) -> bool:
    """Return whether the acceptance of ``drafting`` is that of a chain: not that of a tree, nor of a lookup."""
    return drafting.tree_tokens is None and drafting.method != Method.NGRAM


def contested(
    chains: Sequence[tuple[Drafting, SpeculationRow]], target: StepTimer, ask: SimulationAsk, *, max_batch: int
) -> tuple[str, tuple[ContestRow, ...]]:
    """Return the fastest of ``chains`` and its contest with trees, priced at the batches that fit.

    Raises:
        UsageError: there is no chain: the acceptance of a tree says nothing of one.

    """
    from infcalc.speculation.contest import contest  # noqa: PLC0415 - numpy

    if not chains:
        raise UsageError(
            "only lookups and trees with published acceptance are asked for",
            place="--simulate",
            hint="a simulation starts from the acceptance of a chain: add --method eagle3, or give --acceptance",
        )
    drafting, row = max(chains, key=lambda pair: pair[1].speedup)
    return row.method, contest(
        drafting,
        target,
        num_draft_tokens=row.num_draft_tokens,
        num_rounds=ask.num_rounds,
        batches=sorted(batch for batch in {*BATCHES, row.batch} if batch <= max_batch),
        seed=ask.seed,
    )


def explained(simulation: Sequence[ContestRow]) -> list[Explanation]:
    """Return how the expected tokens of each shape came about."""
    if not simulation:
        return []
    from infcalc.speculation.contest import explain_contest  # noqa: PLC0415 - numpy

    return [explain_contest(row) for row in simulation]
