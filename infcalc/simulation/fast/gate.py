"""Who is let in: what a scheduler refuses because it could never run to its end, and how long answers may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.errors import DoesNotFit
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence
from infcalc.scheduling.vllm import VllmScheduler

Ints: TypeAlias = NDArray[np.int64]
Flags: TypeAlias = NDArray[np.bool_]
Gate: TypeAlias = Callable[[Ints, Ints, Ints], tuple[Ints, Ints, Flags]]
"""From prompt, answer and allowed tokens: the answer's tokens, the allowed ones, and who is let in."""
_ENDLESS_TOKENS = 2**60


def gate_of(scheduler: Scheduler) -> Gate:
    """Return who is let in, as numbers; :func:`reason_of` has the scheduler itself say why."""
    size, num_blocks, ahead = scheduler.kv.block_tokens, scheduler.num_blocks, scheduler.drafts.num_slots - 1
    if not isinstance(scheduler, VllmScheduler):
        return lambda prompt, answer, allowed: (answer, allowed, -(-(prompt + allowed + ahead) // size) <= num_blocks)
    limits = scheduler.limits
    most_tokens = (num_blocks - int(limits.watermark_fraction * num_blocks)) * size
    most_at_once = _ENDLESS_TOKENS if limits.chunked_prefill else limits.budget_tokens
    length = limits.max_model_len
    longest = _ENDLESS_TOKENS if length is None else length

    def vllm(prompt: Ints, answer: Ints, allowed: Ints) -> tuple[Ints, Ints, Flags]:
        if length is not None:
            allowed = np.minimum(allowed, length - prompt)
        # Where the prompt alone is too long, nothing is allowed.
        fits = (allowed > 0) & (np.minimum(prompt + allowed + ahead, longest) <= most_tokens)
        return np.minimum(answer, allowed), allowed, fits & (prompt + allowed - 1 <= most_at_once)

    return vllm


def reason_of(scheduler: Scheduler, index: int, prompt_tokens: int, allowed_tokens: int) -> str:
    """Return why a request is refused.

    Raises:
        AssertionError: it is not: gate and scheduler disagree.

    """
    try:
        scheduler.add(Sequence(index, [0] * prompt_tokens, max_new_tokens=allowed_tokens))
    except DoesNotFit as refused:
        return refused.message
    raise AssertionError(f"request {index} was refused, and the scheduler takes it")
