"""What drafting costs in memory, and whether it pays once memory is full: both at equal GPUs.

What a drafter loads leaves the KV pool smaller, and each sequence takes its cache and look-ahead slots besides its own:
fewer sequences run. Drafting pays on a full server only where its rounds make up for them.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.sizing import deployment_budgets, fitting_room
from infcalc.frozen import frozen
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.speculation.linear import tokens_per_round
from infcalc.speculation.priced import round_time

if TYPE_CHECKING:
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
    deployment, context = rig.deployment, rig.context_tokens
    ranks, most = deployment.parallelism, deployment.max_num_seqs * deployment.parallelism.dp
    additions = replace(
        deployment.additions, draft_bytes=deployment.additions.draft_bytes + math.ceil(passes.weights_bytes / ranks.tp)
    )
    stages = deployment_budgets(replace(deployment, additions=additions))
    room = fitting_room(deployment, rig.form, stages, int(context)).sequences
    own = float(slope_bytes_per_token(kv_components(deployment.model, rig.form)))
    before = min(sequences_without, most)
    found: list[tuple[float, int, int, float]] = []
    for length in drafting.num_draft_tokens:
        extra = context * passes.kv_bytes_per_token + length * (own + passes.kv_bytes_per_token)
        with_drafts = math.floor(room * context * own / (context * own + extra)) if own else room
        running = min(with_drafts, most)
        gain = _gain(drafting, target, length, before=before, after=running) if running else 0.0
        found.append((gain, length, with_drafts, extra))
    gain, length, with_drafts, extra = max(found, key=lambda one: (one[0], -one[1]))
    return FullLoad(
        method=drafting.method,
        weights_bytes=passes.weights_bytes * num_copies,
        kv_bytes_per_sequence=extra,
        sequences_without=sequences_without,
        sequences_with=with_drafts,
        sequences_forgone=sequences_without - with_drafts,
        num_draft_tokens=length,
        speedup=gain,
        pays=gain > 1,
    )


def _gain(drafting: Drafting, target: StepTimer, length: int, *, before: int, after: int) -> float:
    drafted = after * tokens_per_round(drafting.acceptance, length) / round_time(drafting, target, after, length)
    return drafted / (before / target(before, 1))
