"""Continuous batching in aggregate: the rules of :mod:`infcalc.scheduling.continuous`."""

from __future__ import annotations

from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.reserving import ReservingReplica


class ContinuousReplica(ReservingReplica):
    """Whole prompts beside the decodes of the others, whenever there is a place and room for the longest answer."""

    __slots__ = ()

    def _decide(self) -> list[tuple[Flight, int]]:
        return self._admit_waiting()

    def _is_steady(self) -> bool:
        if not self._num_decodes:
            return False
        if not self.waiting or len(self.running) >= self._max_num_seqs:
            return True
        return self._blocked and not self.blocks.num_open
