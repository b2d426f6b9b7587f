"""What static and continuous batching share: whole prompts, and room for the longest answer from the start."""

from __future__ import annotations

from infcalc.kvcache.block_pool import blocks_for
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.replica import FastReplica


class ReservingReplica(FastReplica):
    """Nobody grows, so that nobody is ever preempted."""

    __slots__ = ()

    def _admit_waiting(self) -> list[tuple[Flight, int]]:
        """Admit from the head of the queue until one does not fit; return their whole prompts."""
        chunks: list[tuple[Flight, int]] = []
        blocks, waiting = self.blocks, self.waiting
        while waiting and len(self.running) < self._max_num_seqs:
            flight = waiting[0]
            num_hit, num_free_hit = blocks.match(flight, flight.num_tokens, self.num_steps)
            num_blocks = blocks_for(flight.num_tokens + flight.room_tokens - 1, self._block_tokens)
            if num_blocks - num_hit + num_free_hit > blocks.num_free:
                self._blocked = True
                break
            flight.num_held_blocks = num_blocks
            self._admit(flight, num_hit, num_blocks)
            chunks.append((flight, flight.num_tokens - flight.cached_tokens))
        return chunks
