"""In-flight batching of TensorRT-LLM: first who may hold cache (capacity), then who runs in this step (micro batch).

Source: TensorRT-LLM ``_torch/pyexecutor/scheduler.py``, ``capacityScheduler.cpp``, ``microBatchScheduler.cpp``. Its
third policy, STATIC_BATCH, is :mod:`infcalc.scheduling.static`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from infcalc.frozen import frozen
from infcalc.kvcache.surface import KvManager, PrefixHit
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence


class Capacity(StrEnum):
    """Who may hold cache."""

    GUARANTEED_NO_EVICT = "guaranteed_no_evict"
    """Who has room to its longest end: nobody who started is ever paused. The default."""
    MAX_UTILIZATION = "max_utilization"
    """Who has room for its next step; when a step does not fit, the last to have started is paused."""


class Chunking(StrEnum):
    """How prompts share what a step has left."""

    FIRST_COME_FIRST_SERVED = "first_come_first_served"
    """Each takes as much as it can. The default."""
    EQUAL_PROGRESS = "equal_progress"
    """Each takes one unit more, in turn."""


@frozen
class TensorRtLimits:
    """Settings of an engine."""

    max_batch_size: int
    budget_tokens: int
    """``max_num_tokens``: tokens of one step, of prompts and answers together."""
    capacity: Capacity = Capacity.GUARANTEED_NO_EVICT
    chunked_context: bool = True
    chunking: Chunking = Chunking.FIRST_COME_FIRST_SERVED
    chunk_unit_tokens: int | None = None
    """A chunk that does not end its prompt is a multiple of this; None means the block of the cache."""


class TensorRtScheduler(Scheduler):
    """Steps as TensorRT-LLM plans them: answers first, then prompts in the order of their arrival."""

    def __init__(self, kv: KvManager, limits: TensorRtLimits) -> None:
        super().__init__(kv, max_num_seqs=limits.max_batch_size)
        self.limits = limits
        self.chunk_unit_tokens = limits.chunk_unit_tokens or kv.block_tokens
        self._paused = False
        if limits.chunking is Chunking.EQUAL_PROGRESS and not limits.chunked_context:
            raise ValueError("equal progress is made in chunks: turn chunked_context on")
        if limits.budget_tokens < limits.max_batch_size:
            raise ValueError(f"{limits.budget_tokens} tokens per step cannot serve {limits.max_batch_size} answers")
        if limits.chunked_context and limits.budget_tokens - limits.max_batch_size + 1 < self.chunk_unit_tokens:
            raise ValueError(
                f"beside {limits.max_batch_size - 1} answers a step of {limits.budget_tokens} tokens has no room for a "
                f"chunk of {self.chunk_unit_tokens}"
            )

    def _check(self, sequence: Sequence) -> None:
        self._check_blocks(sequence, self._reserved_tokens(sequence))
        if not self.limits.chunked_context:
            self._check_whole(sequence, self.limits.budget_tokens)

    def _decide(self) -> None:
        self._paused = False
        self._generate()
        contexts = [one for one in self.running if not one.is_decoding]
        match self.limits.chunking:
            case Chunking.FIRST_COME_FIRST_SERVED:
                self._serve_in_order(contexts)
            case Chunking.EQUAL_PROGRESS:
                self._serve_in_turn(contexts)
            case _:
                assert_never(self.limits.chunking)

    def _generate(self) -> None:
        """Give each answer its next token, pausing from the end of the line under MAX_UTILIZATION."""
        for sequence in [one for one in self.running if one.is_decoding]:
            while sequence in self.running and not self._grow(sequence, 1):
                self._preempt(self.running[-1])
                self._paused = True
            if sequence in self.running:
                self._take(sequence, 1)

    def _serve_in_order(self, contexts: list[Sequence]) -> None:
        for sequence in contexts:
            self._take_chunk(sequence, sequence.uncached_tokens)
        while self._may_admit():
            sequence = self.waiting[0]
            hit = self._hit(sequence)
            rest = sequence.num_tokens - hit.num_tokens
            if (
                not self._share(rest)
                or not self._has_capacity(sequence, hit)
                or not self._admit(sequence, rest, hit=hit)
            ):
                break
            self._take_chunk(sequence, rest)

    def _serve_in_turn(self, contexts: list[Sequence]) -> None:
        unit = self.chunk_unit_tokens
        left = self._left()
        while self._may_admit():
            sequence = self.waiting[0]
            hit = self._hit(sequence)
            rest = sequence.num_tokens - hit.num_tokens
            # A prompt that would not get its first unit has nothing to do in this step.
            first_round = sum(min(unit, one.uncached_tokens) for one in contexts) + min(unit, rest)
            if first_round > left or not self._has_capacity(sequence, hit) or not self._admit(sequence, rest, hit=hit):
                break
            contexts.append(sequence)
        shares = dict.fromkeys((one.sequence_id for one in contexts), 0)
        before = -1
        while before != left:
            before = left
            for sequence in contexts:
                more = min(unit, sequence.uncached_tokens - shares[sequence.sequence_id])
                if more <= left:
                    shares[sequence.sequence_id] += more
                    left -= more
        for sequence in contexts:
            if shares[sequence.sequence_id]:
                self._take(sequence, shares[sequence.sequence_id])

    def _may_admit(self) -> bool:
        # Capacity is judged in the order of arrival up to the one that was paused: nobody behind it is admitted.
        return bool(self.waiting) and not self._paused and len(self.running) < self.max_num_seqs

    def _has_capacity(self, sequence: Sequence, hit: PrefixHit) -> bool:
        match self.limits.capacity:
            case Capacity.GUARANTEED_NO_EVICT:
                # Blocks that running sequences have still to get are spoken for.
                spoken_for = sum(self._num_blocks_missing(one, self._reserved_tokens(one)) for one in self.running)
                tokens = self._reserved_tokens(sequence)
                return self.kv.can_allocate(tokens, hit=hit, num_spare_blocks=spoken_for)
            case Capacity.MAX_UTILIZATION:
                return self.kv.can_allocate(sequence.num_tokens, hit=hit)
            case _:
                assert_never(self.limits.capacity)

    @staticmethod
    def _reserved_tokens(sequence: Sequence) -> int:
        return sequence.longest_tokens

    def _take_chunk(self, sequence: Sequence, rest: int) -> None:
        share = self._share(rest)
        if share:
            self._take(sequence, share)

    def _share(self, rest: int) -> int:
        """Return how many of ``rest`` tokens of a prompt the step still takes."""
        left = self._left()
        if rest <= left:
            return rest
        return left // self.chunk_unit_tokens * self.chunk_unit_tokens if self.limits.chunked_context else 0

    def _left(self) -> int:
        return self.limits.budget_tokens - sum(self._shares.values())
