"""A replica that is driven by hand: from end to end, or from moment to moment, gives the same."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from infcalc.simulation.fast.columns import load_of
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.gate import gate_of
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.replica import FastReplica
from infcalc.simulation.fast.run import replica_of, run_fast
from tests.simulation.fast.cases import case_of

FOREVER_PS = 10**18


def by_ends(replica: FastReplica, limit_ps: int) -> None:
    while replica.has_work and replica.now_ps < limit_ps:
        before = replica.num_ended
        replica.advance(limit_ps, to_an_end=True)
        assert replica.num_ended > before or replica.now_ps >= limit_ps


def by_moments(replica: FastReplica, limit_ps: int) -> None:
    while replica.has_work and replica.now_ps < limit_ps:
        replica.advance(min(limit_ps, replica.now_ps + 777))


@pytest.mark.parametrize("drive", [by_ends, by_moments])
def test_where_one_stops_changes_nothing(drive: Callable[[FastReplica, int], None]) -> None:
    for seed in range(60):
        case = case_of(seed)
        load = load_of(case.load)
        whole, driven = Recorder(), Recorder()
        run_fast(case.make(), load, case.timer, whole)
        scheduler = case.make()
        replica = replica_of(scheduler, load, case.timer, driven)
        for index, arrival, prompt, answer, allowed, content, enters in load.rows(gate_of(scheduler)):
            drive(replica, arrival)
            if enters:
                replica.receive(Flight(index, arrival, prompt, answer, allowed, content), arrival)
        drive(replica, FOREVER_PS)
        finished = [record for record in whole.records() if not record.reason]
        assert list(driven.records()) == finished, case.what
