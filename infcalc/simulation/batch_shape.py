"""What a step's time depends on: how many tokens of how many sequences it computes, and what lies before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from infcalc.frozen import frozen
from infcalc.scheduling.step_plan import StepPlan


@frozen
class Prefill:
    """A chunk of one prompt: ``new_tokens`` computed after ``cached_tokens`` that the cache holds."""

    new_tokens: int
    cached_tokens: int


@frozen
class BatchShape:
    """The counts of one :class:`~infcalc.scheduling.step_plan.StepPlan`.

    ``decode_context_tokens`` is the sum over the ``num_decodes`` sequences of what the cache holds of each before the
    step. ``prefills`` are in the order of the plan. Where there is drafting, each decode is a round, and whoever times
    it knows of how many drafts: one that is cut short counts like any other.
    """

    num_decodes: int
    decode_context_tokens: int
    prefills: tuple[Prefill, ...] = ()

    @property
    def num_sequences(self) -> int:
        """Sequences that compute anything."""
        return self.num_decodes + len(self.prefills)

    @property
    def prefill_tokens(self) -> int:
        """Prompt tokens computed."""
        return sum(prefill.new_tokens for prefill in self.prefills)


Timer: TypeAlias = Callable[[BatchShape], int]
"""Returns the picoseconds of a step, a whole number of 0 or more."""

PS_PER_S = 10**12


def shape_of(plan: StepPlan) -> BatchShape:
    """Return the shape of a plan.

    A single token with others before it is a decode, whether it was produced or ends a prompt: kernels treat both
    alike. Source: vLLM ``v1/attention/backends/utils.py``, ``split_decodes_and_prefills`` (query length 1).
    """
    num_decodes = decode_context_tokens = 0
    prefills: list[Prefill] = []
    for chunk in plan.chunks:
        if chunk.num_draft_tokens or (chunk.num_tokens == 1 and chunk.cached_tokens):
            num_decodes += 1
            decode_context_tokens += chunk.cached_tokens
        else:
            prefills.append(Prefill(new_tokens=chunk.num_tokens, cached_tokens=chunk.cached_tokens))
    return BatchShape(num_decodes=num_decodes, decode_context_tokens=decode_context_tokens, prefills=tuple(prefills))


def unit_step(shape: BatchShape) -> int:
    """Return one second for every step: time then counts steps.

    >>> unit_step(BatchShape(num_decodes=8, decode_context_tokens=4096)) // PS_PER_S
    1
    """
    del shape
    return PS_PER_S
