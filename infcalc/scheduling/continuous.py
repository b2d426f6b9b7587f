"""Continuous batching as Orca introduced it: the batch is formed anew in every step.

Source: Yu et al., "Orca: A Distributed Serving System for Transformer-Based Generative Models", OSDI 2022, algorithm 1;
sarathi-serve ``orca_scheduler.py``.
"""

from __future__ import annotations

from infcalc.scheduling.scheduler import Scheduler


class ContinuousScheduler(Scheduler):
    """First come, first served; a whole prompt at once, in one batch with the decodes of the others.

    Admission reserves the longest length of a sequence, so that nobody is ever preempted; the first that does not fit
    holds back all behind it.
    """

    def _decide(self) -> None:
        for sequence in self.running:
            share = 1 + len(sequence.draft_tokens)
            self._grow(sequence, share)
            self._take(sequence, share)
        while self.waiting and len(self.running) < self.max_num_seqs:
            sequence = self.waiting[0]
            hit = self._hit(sequence)
            rest = sequence.num_tokens - hit.num_tokens
            room = sequence.max_new_tokens - 1 + self.drafts.num_slots
            if not self._admit(sequence, rest, hit=hit, num_lookahead_tokens=room):
                break
            self._take(sequence, rest)
