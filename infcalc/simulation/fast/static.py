"""Static batching in aggregate: the rules of :mod:`infcalc.scheduling.static`."""

from __future__ import annotations

from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.reserving import ReservingReplica


class StaticReplica(ReservingReplica):
    """A batch starts once nothing runs; whoever has its answer keeps place and blocks until the last one has."""

    __slots__ = ()

    def _decide(self) -> list[tuple[Flight, int]]:
        return self._admit_waiting()

    def _is_steady(self) -> bool:
        return bool(self.running)

    def _complete(self, flight: Flight) -> None:
        del flight
        if not self._num_decodes:
            for one in tuple(self.running.values()):
                super()._complete(one)
