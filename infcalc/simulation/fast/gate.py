"""Who is let in: what a scheduler refuses because it could never run to its end, and how long answers may be."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from infcalc.errors import DoesNotFit
from infcalc.kvcache.block_pool import blocks_for
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence
from infcalc.scheduling.vllm import VllmScheduler

Gate: TypeAlias = Callable[[int, int, int], tuple[int, int] | None]
"""From prompt, answer and allowed tokens: the answer's tokens and the allowed ones; None for who is refused."""


def gate_of(scheduler: Scheduler) -> Gate:
    """Return who is let in, as numbers; :func:`reason_of` has the scheduler itself say why."""
    size, num_blocks = scheduler.kv.block_tokens, scheduler.num_blocks
    if not isinstance(scheduler, VllmScheduler):

        def reserving(prompt: int, answer: int, allowed: int) -> tuple[int, int] | None:
            return (answer, allowed) if blocks_for(prompt + allowed - 1, size) <= num_blocks else None

        return reserving
    limits = scheduler.limits
    most_blocks = num_blocks - int(limits.watermark_fraction * num_blocks)
    length = limits.max_model_len
    whole_tokens = None if limits.chunked_prefill else limits.budget_tokens

    def vllm(prompt: int, answer: int, allowed: int) -> tuple[int, int] | None:
        if length is not None:
            if prompt >= length:
                return None
            allowed = min(allowed, length - prompt)
        longest = prompt + allowed - 1
        if blocks_for(longest, size) > most_blocks or (whole_tokens is not None and longest > whole_tokens):
            return None
        return min(answer, allowed), allowed

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
