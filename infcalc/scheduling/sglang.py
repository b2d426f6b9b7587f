"""The scheduler of SGLang: a batch of prompts whenever one can be built, else a batch of decodes.

Source: SGLang 0.5.23 ``srt/managers/scheduler.py``, ``schedule_policy.py`` (``PrefillAdder``), ``schedule_batch.py``.
"""

from __future__ import annotations

from enum import StrEnum

from infcalc.errors import DoesNotFit
from infcalc.frozen import frozen
from infcalc.kvcache.surface import KvManager
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence
from infcalc.scheduling.sglang_order import by_longest_prefix
from infcalc.scheduling.sglang_prefill import CLIP_NEW_TOKENS, PrefillBudget, PrefillLimits

RETRACT_STEPS = 20
"""Decode steps that the new ratio leaves room for after a retraction (``SGLANG_RETRACT_DECODE_STEPS``)."""
INITIAL_RATIO = 0.7
FLOOR_OF_INITIAL = 0.14
DECAY_STEPS = 600
LPM_MOST_WAITING = 128
"""With more waiting, longest prefix match costs too much and order is that of arrival."""


class Order(StrEnum):
    """Who is considered first."""

    FCFS = "fcfs"
    LONGEST_PREFIX_MATCH = "lpm"


@frozen
class SglangLimits:
    """Settings of a server, by SGLang's defaults where it has fixed ones."""

    max_running_requests: int
    prefill: PrefillLimits = PrefillLimits()
    conservativeness_fraction: float = 1.0
    """``schedule_conservativeness``: what is expected of answers, relative to the default."""
    mixed_chunk: bool = False
    """Decodes ride along with the prompts instead of waiting."""
    order: Order = Order.FCFS


class NewTokenRatio:
    """The share of its longest answer that a running sequence is expected to produce: it decays until a retraction."""

    __slots__ = ("_decay", "_floor", "value")

    def __init__(self, conservativeness_fraction: float) -> None:
        initial = min(1.0, INITIAL_RATIO * conservativeness_fraction)
        self._floor = FLOOR_OF_INITIAL * initial
        self._decay = (initial - self._floor) / DECAY_STEPS
        self.value = initial

    def decay(self) -> None:
        """Count a decode step that fitted."""
        self.value = max(self.value - self._decay, self._floor)

    def learn(self, staying: list[Sequence]) -> None:
        """Take the ratio from what the sequences that stay have produced, plus some steps more."""
        generated = sum(one.generated_tokens for one in staying) + RETRACT_STEPS * len(staying)
        self.value = min(1.0, generated / (sum(one.max_new_tokens for one in staying) + 1))


class SglangScheduler(Scheduler):
    """Steps as SGLang plans them. Its blocks are pages, one token each by default."""

    def __init__(self, kv: KvManager, limits: SglangLimits) -> None:
        super().__init__(kv, max_num_seqs=limits.max_running_requests)
        self.limits = limits
        self.ratio = NewTokenRatio(limits.conservativeness_fraction)
        self._full = False
        chunk, page = limits.prefill.chunked_prefill_tokens, kv.block_tokens
        least = page + (limits.max_running_requests if limits.mixed_chunk else 0)
        if min(limits.prefill.max_prefill_tokens, least if chunk is None else chunk) < least:
            raise ValueError(
                f"chunks of {chunk} tokens, batches of {limits.prefill.max_prefill_tokens}: at least {least} needed"
            )

    def _check(self, sequence: Sequence) -> None:
        # A longer answer than is expected of anyone is not refused: it is aborted when it does not fit alone.
        tokens = sequence.prompt_tokens + _clipped(sequence.max_new_tokens) + self.kv.block_tokens
        if tokens >= self.num_blocks * self.kv.block_tokens:
            raise DoesNotFit(
                f"sequence {sequence.sequence_id} is admitted only where more than {tokens} tokens are free, the cache "
                f"has {self.num_blocks * self.kv.block_tokens}",
                hint="shorten the prompt or the answer, or give the cache more room",
            )

    def _leave(self, sequence: Sequence) -> None:
        super()._leave(sequence)
        self._full = False

    def _decide(self) -> None:
        if self._prefill():
            return
        if self.running:
            fitting = self._fits(self.running)
            self._step(self.running)
            if fitting:
                self.ratio.decay()
        elif self.waiting:
            # Retracted before, and by now too long to be admitted even into an empty cache.
            self._drop(self._queue()[0])

    # Prefill

    def _prefill(self) -> bool:
        """Build a batch of prompts; False when there is none to build."""
        unfinished = next((one for one in self.running if not one.is_decoding), None)
        if unfinished is None and (self._full or not self.waiting):
            return False
        decoding = [one for one in self.running if one is not unfinished]
        adder = PrefillBudget(
            self.kv,
            self.limits.prefill,
            expected_tokens=sum(_clipped(one.remaining_tokens) for one in decoding) * self.ratio.value,
            num_mixed=len(decoding) if self.limits.mixed_chunk else 0,
        )
        if unfinished is not None:
            self._resume(unfinished, decoding, adder)
        self._admit_waiting(adder)
        if not self._shares:
            return False
        if self.limits.mixed_chunk:
            self._step([one for one in decoding if one in self.running])
        return True

    def _resume(self, unfinished: Sequence, decoding: list[Sequence], adder: PrefillBudget) -> None:
        """Compute the next chunk of the one prompt that is under way: it goes before all others."""
        share = adder.next_chunk(unfinished.uncached_tokens)
        while not self._grow(unfinished, share):
            # Only decodes that rode along with earlier chunks can have taken its room.
            victim = min((one for one in decoding if one in self.running), key=_retraction, default=unfinished)
            self._preempt(victim, to_front=False)
            if victim is unfinished:
                return
        self._take(unfinished, share)
        adder.charge(unfinished, share, ends=share == unfinished.uncached_tokens)

    def _admit_waiting(self, adder: PrefillBudget) -> None:
        for sequence in self._queue():
            if len(self.running) >= self.max_num_seqs:
                self._full = True
                return
            hit = self._hit(sequence)
            share = adder.share(sequence, hit)
            if share:
                ends = share == sequence.num_tokens - hit.num_tokens
                self._admit(sequence, share, hit=hit)
                self._take(sequence, share)
                adder.charge(sequence, share, ends=ends)
            if adder.is_out_of_cache and self.running:
                self._full = True
            if not share or adder.is_spent:
                return

    def _queue(self) -> list[Sequence]:
        """Return the waiting sequences in the order in which they are considered."""
        if self.limits.order is Order.FCFS or len(self.waiting) > LPM_MOST_WAITING:
            return list(self.waiting)
        return by_longest_prefix([(one, self._hit(one).num_tokens) for one in self.waiting])

    # Decode

    def _step(self, decoding: list[Sequence]) -> None:
        """Give each of ``decoding`` its next token, after retracting those that there is no room for."""
        for sequence in self._staying(decoding):
            self._grow(sequence, 1)
            self._take(sequence, 1)

    def _staying(self, decoding: list[Sequence]) -> list[Sequence]:
        """Return who stays: the fewest generated tokens go first, then the longest prompts, until the others fit."""
        if self._fits(decoding):
            return list(decoding)
        staying = sorted(decoding, key=_retraction, reverse=True)
        while len(staying) > 1 and not self._fits(staying):
            self._preempt(staying.pop(), to_front=False)
        if not self._fits(staying):
            self._drop(staying.pop())
        self.ratio.learn(staying)
        return [one for one in self.running if one in staying]

    def _fits(self, decoding: list[Sequence]) -> bool:
        """Return whether everyone can get the room of one more token; what the tree can evict counts as free."""
        missing = sum(self._num_blocks_missing(one, one.num_tokens) for one in decoding)
        return missing <= self.kv.num_free_blocks


def _clipped(num_tokens: int) -> int:
    return min(num_tokens, CLIP_NEW_TOKENS)


def _retraction(sequence: Sequence) -> tuple[int, int]:
    return sequence.generated_tokens, -sequence.prompt_tokens
