"""Sequences from their prompts to their ends: a scheduler plans, an engine computes, until nothing is left to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from infcalc.scheduling.scheduler import Scheduler
    from infcalc.scheduling.sequence import Sequence
    from infcalc.scheduling.step_plan import StepPlan


def generate(
    scheduler: Scheduler, execute: Callable[[StepPlan], Mapping[int, int]], sequences: Iterable[Sequence]
) -> dict[int, tuple[int, ...]]:
    """Serve ``sequences``, all there from the beginning, and return the answer of each, by sequence.

    ``execute`` is that of an engine, or anything that answers a plan with the tokens it produces.

    Raises:
        DoesNotFit: one of them could never run to its end.

    """
    for sequence in sequences:
        scheduler.add(sequence)
    answers = {}
    while scheduler.has_work:
        plan = scheduler.plan()
        for sequence in scheduler.update(plan, execute(plan)):
            answers[sequence.sequence_id] = tuple(sequence.tokens[sequence.prompt_tokens :])
    return answers
