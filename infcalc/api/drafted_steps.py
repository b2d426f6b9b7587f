"""The time of a round for any batch and context, by the parts that ``speculate`` prices."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.rounds import by_batch, target_timer
from infcalc.simulation.timing import StepTimer
from infcalc.speculation.priced import fixed_s

if TYPE_CHECKING:
    from infcalc.api.rounds import Passes, Rig
    from infcalc.api.speed import Machine
    from infcalc.serving.rounds import RoundSeconds
    from infcalc.simulation.prices import Floats
    from infcalc.speculation.priced import Drafting


def at_context(drafting: Drafting, passes: Passes, rig: Rig, context_tokens: float) -> tuple[Rig, Drafting]:
    """Return rig and drafting at another context."""
    there = replace(rig, context_tokens=context_tokens)
    one = passes.one_pass
    return there, replace(drafting, draft_timer=None if one is None else by_batch(there, one))


def round_timer(machine: Machine, rig: Rig, drafting: Drafting, passes: Passes, num_draft_tokens: int) -> StepTimer:
    """Return the timer of one lane whose sequences draft ``num_draft_tokens`` in each step."""
    return StepTimer(round_seconds(machine, rig, drafting, passes, num_draft_tokens))


def round_seconds(
    machine: Machine,
    rig: Rig,
    drafting: Drafting,
    passes: Passes,
    num_draft_tokens: int,
    *,
    full: bool = True,
) -> RoundSeconds:
    """Return what prices a step of one lane: T(b, gamma) of :mod:`infcalc.speculation.priced`, with prompts beside.

    Who computes a prompt in the step drafts in it as well. Engines that verify by batch expansion compute each drafted
    position as a sequence of its own. ``full``: at the pace of a full pipeline.
    """
    clock, offload_s, one_pass = machine.clock, machine.offload_s, passes.one_pass
    if full:
        clock = clock.full()
    verified, num_passes = drafting.verified_tokens(num_draft_tokens), drafting.num_passes(num_draft_tokens)
    expands = rig.added.expands
    more_s = offload_s + fixed_s(drafting, target_timer(rig))

    def seconds(
        *,
        num_decodes: float | Floats,
        context_tokens: float | Floats,
        num_prefills: float,
        new_tokens: float | Floats,
        cached_tokens: float,
        busy_dp_ranks: float | None = None,
    ) -> float:
        # One step at a time: heads are not priced by the array.
        num_decodes, context_tokens, new_tokens = float(num_decodes), float(context_tokens), float(new_tokens)
        step_s = clock.step_s(
            num_decodes=num_decodes * verified if expands else num_decodes,
            context_tokens=context_tokens,
            num_prefills=num_prefills,
            new_tokens=new_tokens,
            cached_tokens=cached_tokens,
            decode_new_tokens=1 if expands else verified,
            busy_dp_ranks=busy_dp_ranks,
        )
        sequences = num_decodes + num_prefills
        tokens = num_decodes * context_tokens + num_prefills * (cached_tokens + new_tokens)
        context = tokens / sequences if sequences else 0.0
        if one_pass is None:
            pass_s = drafting.cost.cost_ratio * clock.step_s(
                num_decodes=sequences, context_tokens=context, busy_dp_ranks=busy_dp_ranks
            )
        else:
            pass_s = one_pass(sequences, context, busy_dp_ranks)
        return float(step_s + num_passes * pass_s) + more_s

    return seconds
