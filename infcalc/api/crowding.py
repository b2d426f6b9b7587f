"""What drafting costs in memory, and whether it pays once memory is full: both at equal GPUs.

What a drafter loads leaves the KV pool smaller, and each sequence takes its cache and look-ahead slots besides its own:
fewer sequences run. Drafting pays on a full server only where its rounds make up for them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.beside import loaded
from infcalc.api.sizing import deployment_budgets, fitting_room
from infcalc.frozen import frozen
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.speculation.linear import tokens_per_round
from infcalc.speculation.priced import round_time

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.api.rounds import Passes, Rig
    from infcalc.speculation.priced import Drafting, StepTimer


@frozen
class FullLoad:
    """A server whose memory is full, with and without one way of drafting."""

    method: str
    weights_bytes: int
    """What the drafter loads, over all GPUs."""
    kv_bytes_per_sequence: float
    """What it caches of one sequence: its own keys and values, and the look-ahead slots of both caches."""
    sequences_without: int
    sequences_with: int
    sequences_forgone: int
    """Sequences that its memory would have served."""
    num_draft_tokens: int
    """The best length there."""
    speedup: float
    """Tokens per second of the full server with drafting, over those without; 0 where nothing fits any more."""
    pays: bool


def full_load(
    rig: Rig, drafting: Drafting, passes: Passes, target: StepTimer, *, sequences_without: int, num_copies: int
) -> FullLoad | None:
    """Return what a full server gains or loses, None where the memory of the drafter is not known or nothing fits.

    The engine's own cap on running sequences holds for both.
    """
    if passes.weights_bytes is None or sequences_without < 1:
        return None
    deployment, context = rig.deployment, int(rig.context_tokens)
    most = deployment.max_num_seqs * deployment.parallelism.dp
    before = min(sequences_without, most)
    slot = float(slope_bytes_per_token(kv_components(deployment.model, rig.form))) + passes.kv_bytes_per_token
    found: list[tuple[float, int, int]] = []
    for length in drafting.num_draft_tokens:
        held = with_drafter(deployment, passes, length)
        room = fitting_room(held, rig.form, deployment_budgets(held), context).sequences
        after = min(room, most)
        gain = _gain(drafting, target, length, before=before, after=after) if after else 0.0
        found.append((gain, length, room))
    gain, length, room = max(found, key=lambda one: (one[0], -one[1]))
    return FullLoad(
        method=drafting.method,
        weights_bytes=passes.weights_bytes * num_copies,
        kv_bytes_per_sequence=context * passes.kv_bytes_per_token + length * slot,
        sequences_without=sequences_without,
        sequences_with=room,
        sequences_forgone=sequences_without - room,
        num_draft_tokens=length,
        speedup=gain,
        pays=gain > 1,
    )


def with_drafter(deployment: Deployment, passes: Passes, num_draft_tokens: int) -> Deployment:
    """Return the deployment with what the drafter loads and caches, as the ledger of ``memory`` has it."""
    if passes.own_layers:
        additions = replace(deployment.additions, with_mtp=True)
        return replace(deployment, additions=additions, num_draft_tokens=num_draft_tokens)
    held = loaded(deployment, passes.loads, num_draft_tokens)
    if passes.loads is None and passes.weights_bytes:
        per_rank = math.ceil(passes.weights_bytes / deployment.parallelism.tp)
        return replace(held, additions=replace(held.additions, draft_bytes=per_rank))
    return held


def _gain(drafting: Drafting, target: StepTimer, length: int, *, before: int, after: int) -> float:
    drafted = after * tokens_per_round(drafting.acceptance, length) / round_time(drafting, target, after, length)
    return drafted / (before / target(before, 1))
