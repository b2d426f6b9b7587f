"""The scheduler of vLLM V1: one token budget for all, running sequences first, prompts in chunks, the last preempted.

Source: vLLM 0.33 ``v1/core/sched/scheduler.py``.
"""

from __future__ import annotations

from enum import StrEnum

from infcalc.errors import DoesNotFit
from infcalc.frozen import frozen
from infcalc.kvcache.surface import KvManager
from infcalc.scheduling.drafts import NO_DRAFTS, Drafts
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence


class Order(StrEnum):
    """Who is admitted first and preempted last."""

    FCFS = "fcfs"
    PRIORITY = "priority"
    """The lowest ``priority`` first, then the earliest arrival."""


@frozen
class VllmLimits:
    """Settings of a server. The defaults are vLLM's, but for the two that depend on the GPU and the model."""

    max_num_seqs: int
    budget_tokens: int
    """``max_num_batched_tokens``: tokens of one step."""
    max_model_len: int | None = None
    chunked_prefill: bool = True
    long_prefill_tokens: int = 0
    """``long_prefill_token_threshold``: no chunk is longer, unless the sequence is alone; 0 means no such limit."""
    reserve_full_sequence: bool = True
    """``scheduler_reserve_full_isl``: admit only what has room for all its present tokens, not for a chunk."""
    watermark_fraction: float = 0.0
    """Share of the blocks that an admission must leave free."""
    order: Order = Order.FCFS


class VllmScheduler(Scheduler):
    """Steps as vLLM plans them. There are no phases: a sequence computes what it lacks, as far as the budget goes.

    Drafts count against the budget, and are cut where it ends or the longest sequence does. Whoever runs keeps slots
    for those of the next round as well; at its admission a sequence gets none.
    """

    def __init__(self, kv: KvManager, limits: VllmLimits, *, drafts: Drafts = NO_DRAFTS) -> None:
        super().__init__(kv, max_num_seqs=limits.max_num_seqs, drafts=drafts)
        self.limits = limits
        self._num_spare_blocks = int(limits.watermark_fraction * self.num_blocks)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait, behind all others or where its priority puts it."""
        super().add(sequence)
        self._sort()

    def _check(self, sequence: Sequence) -> None:
        length = self.limits.max_model_len
        if length is not None:
            if sequence.prompt_tokens >= length:
                raise DoesNotFit(
                    f"sequence {sequence.sequence_id} has a prompt of {sequence.prompt_tokens} tokens, the model takes "
                    f"{length} with the answer",
                    hint="shorten the prompt, or raise max_model_len",
                )
            sequence.max_new_tokens = min(sequence.max_new_tokens, length - sequence.prompt_tokens)
        most = sequence.longest_tokens - 1 + self.drafts.num_slots
        self._check_blocks(sequence, most if length is None else min(most, length), self._num_spare_blocks)
        if not self.limits.chunked_prefill:
            self._check_whole(sequence, self.limits.budget_tokens)

    def _decide(self) -> None:
        num_before = self.num_preemptions
        budget = self._run(self.limits.budget_tokens)
        if self.num_preemptions == num_before:
            self._admit_waiting(budget)

    def _run(self, budget: int) -> int:
        """Serve running sequences in the order of their admission; return the budget that is left."""
        index = 0
        while index < len(self.running) and budget:
            sequence = self.running[index]
            share = min(self._wanted(sequence.uncached_tokens + len(sequence.draft_tokens)), budget)
            share, num_ahead = self._within(sequence, share)
            while not self._grow(sequence, share, num_ahead):
                victim = self._victim()
                if self.running.index(victim) < index:
                    index -= 1
                # A victim that was served in this step already gives its tokens back.
                budget += self._shares.get(victim.sequence_id, 0)
                self._preempt(victim)
                self._sort()
                if victim is sequence:
                    return budget
            self._take(sequence, share)
            budget -= share
            index += 1
        return budget

    def _admit_waiting(self, budget: int) -> None:
        """Admit from the head of the queue until one does not fit: it holds back all behind it."""
        limits = self.limits
        while self.waiting and budget and len(self.running) < limits.max_num_seqs:
            sequence = self.waiting[0]
            hit = self._hit(sequence)
            share = self._wanted(sequence.num_tokens - hit.num_tokens)
            if share > budget and not limits.chunked_prefill:
                break
            share = min(share, budget)
            num_held = sequence.num_tokens if limits.reserve_full_sequence else hit.num_tokens + share
            if not self.kv.can_allocate(num_held, hit=hit, num_spare_blocks=self._num_spare_blocks):
                break
            self._admit(sequence, share, hit=hit)
            self._take(sequence, share)
            budget -= share

    def _within(self, sequence: Sequence, share: int) -> tuple[int, int]:
        """Return what a share computes, and the slots behind it, where the longest sequence ends both."""
        ahead, length = self.drafts.num_lookahead_tokens, self.limits.max_model_len
        if length is None:
            return share, ahead
        room = length - sequence.cached_tokens
        share = min(share, room - 1)
        return share, min(ahead, room - share)

    def _wanted(self, num_tokens: int) -> int:
        threshold = self.limits.long_prefill_tokens
        alone = len(self.running) + len(self.waiting) == 1
        return min(num_tokens, threshold) if threshold and not alone else num_tokens

    def _victim(self) -> Sequence:
        if self.limits.order is Order.FCFS:
            return self.running[-1]
        return max(self.running, key=self._rank)

    def _rank(self, sequence: Sequence) -> tuple[int, int]:
        return sequence.priority, sequence.arrival

    def _sort(self) -> None:
        if self.limits.order is Order.PRIORITY:
            ordered = sorted(self.waiting, key=self._rank)
            self.waiting.clear()
            self.waiting.extend(ordered)
