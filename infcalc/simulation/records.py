"""What is written down of a run: one record per request, and one per step for whoever asks."""

from __future__ import annotations

from enum import StrEnum

from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import BatchShape


class Outcome(StrEnum):
    """How a request ended."""

    FINISHED = "finished"
    REJECTED = "rejected"
    """Refused when it came: it could never run to its end with this cache or these limits."""
    ABORTED = "aborted"
    """Given up by the engine after it had started."""


@frozen
class RequestRecord:
    """One request from its arrival to its end; times are None for what did not happen.

    ``scheduled_ps``: its first step began. ``first_token_ps``, ``last_token_ps``: the steps that produced them ended.
    ``end_ps``: its place and its blocks were given back; under static batching that is when its batch ends, and only
    then is its answer returned. ``hit_tokens`` were found in the prefix cache at its first admission;
    ``computed_tokens`` went through the model, those of a preemption again, and stayed: rejected drafts are not among
    them. ``reason``: why it was rejected.
    """

    index: int
    """Its place among the requests of the run."""
    outcome: Outcome
    arrival_ps: int
    end_ps: int
    prompt_tokens: int
    output_tokens: int = 0
    """Tokens that it got."""
    scheduled_ps: int | None = None
    first_token_ps: int | None = None
    last_token_ps: int | None = None
    num_preemptions: int = 0
    hit_tokens: int = 0
    computed_tokens: int = 0
    reason: str = ""


@frozen
class StepRecord:
    """One step. The counts are those while it runs: after its plan was made, before its tokens are there."""

    start_ps: int
    duration_ps: int
    shape: BatchShape
    num_live: int
    """Places held by requests that have not got their whole answer; all but static batching free the others at once."""
    num_waiting: int
    num_held_blocks: int
    """Blocks of the cache that running sequences hold."""
