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


def gate_of(scheduler: Scheduler) -> Gate:
    """Return who is let in, as numbers; :func:`reason_of` has the scheduler itself say why."""
    size, num_blocks = scheduler.kv.block_tokens, scheduler.num_blocks
    if not isinstance(scheduler, VllmScheduler):
        return lambda prompt, answer, allowed: (answer, allowed, -(-(prompt + allowed - 1) // size) <= num_blocks)
    limits = scheduler.limits
    most_tokens = (num_blocks - int(limits.watermark_fraction * num_blocks)) * size
    if not limits.chunked_prefill:
        most_tokens = min(most_tokens, limits.budget_tokens)
    length = limits.max_model_len

    def vllm(prompt: Ints, answer: Ints, allowed: Ints) -> tuple[Ints, Ints, Flags]:
        if length is not None:
            allowed = np.minimum(allowed, length - prompt)
        # Where the prompt alone is too long, nothing is allowed.
        return np.minimum(answer, allowed), allowed, (allowed > 0) & (prompt + allowed - 1 <= most_tokens)

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
