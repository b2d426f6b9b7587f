"""Static batching: a batch is formed, runs until its longest answer ends, and nobody joins or leaves meanwhile."""

from __future__ import annotations

from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence


class StaticScheduler(Scheduler):
    """Up to ``max_num_seqs`` waiting sequences start together once nothing runs, each with its longest length reserved.

    The first step computes all prompts. A sequence whose answer is complete computes no more, but keeps its place and
    its blocks, and is returned with the batch. TensorRT-LLM calls it STATIC_BATCH.
    """

    def _decide(self) -> None:
        if not self.running:
            self._form()
        for sequence in self.running:
            if not sequence.is_complete:
                share = sequence.uncached_tokens
                if sequence.is_decoding:
                    share += len(sequence.draft_tokens)
                    self._grow(sequence, share)
                self._take(sequence, share)

    def _form(self) -> None:
        while self.waiting and len(self.running) < self.max_num_seqs:
            sequence = self.waiting[0]
            hit = self._hit(sequence)
            rest = sequence.num_tokens - hit.num_tokens
            room = sequence.max_new_tokens - 1 + self.drafts.num_slots
            if not self._admit(sequence, rest, hit=hit, num_lookahead_tokens=room):
                break

    def _ended(self) -> tuple[Sequence, ...]:
        done = all(sequence.is_complete for sequence in self.running)
        return tuple(self.running) if done else ()
