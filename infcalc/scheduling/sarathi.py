"""Chunked prefill as Sarathi-Serve introduced it: decodes never stall, prompts fill what the step has left.

Source: Agrawal et al., "Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024,
algorithm 3; sarathi-serve ``sarathi_scheduler.py``.
"""

from __future__ import annotations

from infcalc.kvcache.surface import KvManager
from infcalc.scheduling.scheduler import Scheduler


class SarathiScheduler(Scheduler):
    """All decodes, then prompts under way, then new ones, within ``chunk_tokens`` per step.

    A new sequence gets the blocks of its whole prompt at admission. Each running sequence must be able to decode in
    every step, hence ``chunk_tokens`` is at least ``max_num_seqs``.

    Raises:
        ValueError: it is less.

    """

    def __init__(self, kv: KvManager, *, max_num_seqs: int, chunk_tokens: int) -> None:
        super().__init__(kv, max_num_seqs=max_num_seqs)
        if chunk_tokens < max_num_seqs:
            raise ValueError(f"{chunk_tokens} tokens per step cannot serve {max_num_seqs} decodes")
        self.chunk_tokens = chunk_tokens

    def _decide(self) -> None:
        self._decode()
        self._resume()
        self._admit_waiting()

    def _decode(self) -> None:
        for sequence in [one for one in self.running if one.is_decoding]:
            while sequence in self.running and not self._grow(sequence, 1):
                self._preempt(self.running[-1])
            if sequence in self.running:
                self._take(sequence, 1)

    def _resume(self) -> None:
        for sequence in self.running:
            share = min(sequence.uncached_tokens, self._left())
            if share and sequence.sequence_id not in self._shares:
                self._take(sequence, share)

    def _admit_waiting(self) -> None:
        while self.waiting and self._left() and len(self.running) < self.max_num_seqs:
            sequence = self.waiting[0]
            hit = self._hit(sequence)
            rest = sequence.num_tokens - hit.num_tokens
            if not self._admit(sequence, rest, hit=hit):
                break
            self._take(sequence, min(rest, self._left()))

    def _left(self) -> int:
        return self.chunk_tokens - sum(self._shares.values())
