"""Open loads on several replicas, in aggregate: what the fleet gives, column by column."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.simulation.aggregate import in_aggregate, reached
from infcalc.simulation.fast.columns import load_of
from infcalc.simulation.fleet import Fleet
from infcalc.simulation.front_end import FrontEnd, FrontEndTimes
from infcalc.simulation.gathered import Finished, Meter, StepMeter, Totals, finished_of, summed_until
from infcalc.simulation.replica import Replica
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.sending import Sending
from tests.simulation.fast.cases import case_of
from tests.simulation.fast.test_bit_identical import MOST_SEED


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, MOST_SEED), lanes=st.integers(1, 3), work=st.integers(0, 50))
def test_several_replicas_give_what_a_fleet_gives(seed: int, lanes: int, work: int) -> None:
    case = case_of(seed)
    front = FrontEndTimes(request_ps=work, prompt_token_ps=work % 3, latency_ps=7)
    schedulers = [case.make() for _ in range(lanes)]
    replicas = [Replica(scheduler, case.timer) for scheduler in schedulers]
    meters = [StepMeter(scheduler.num_blocks) for scheduler in schedulers]
    fleet = Fleet(
        replicas,
        case.load,
        Sending(times_ps=[one.arrival_ps for one in case.load]),
        router=Router(RouterKind.ROUND_ROBIN, lanes),
        front_end=front,
        observe=lambda place, step: meters[place].take(step),
    )
    fleet.run()
    plain = finished_of(fleet.records)
    found = in_aggregate(case.make, load_of(case.load), case.timer, num_lanes=lanes, front_end=front)
    for field in fields(Finished):
        assert getattr(found.finished, field.name).tolist() == getattr(plain, field.name).tolist(), case.what
    assert found.placed.tolist() == fleet.placed
    assert sorted(found.reasons) == sorted(one.index for one in fleet.records if one.reason)
    for meter, scheduler, total in zip(meters, schedulers, found.replicas, strict=True):
        summed = meter.totals(scheduler.num_preemptions)
        assert total.end.held_block_ps == summed.end.held_block_ps
        assert (total.num_steps, total.busy_ps, total.most_held_blocks, total.num_preemptions) == (
            summed.num_steps,
            summed.busy_ps,
            summed.most_held_blocks,
            summed.num_preemptions,
        )


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 100), st.integers(1, 20)), min_size=1, max_size=20),
    request=st.integers(0, 9),
    token=st.integers(0, 3),
)
def test_a_front_end_at_once_is_one_request_after_another(
    rows: list[tuple[int, int]], request: int, token: int
) -> None:
    times = FrontEndTimes(request_ps=request, prompt_token_ps=token)
    door = FrontEnd(times)
    order = sorted(range(len(rows)), key=lambda place: rows[place][0])
    one_by_one = {place: door.passed_ps(*rows[place]) for place in order}
    sent, prompts = (np.array(column, dtype=np.int64) for column in zip(*rows, strict=True))
    found, busy = reached(sent, prompts, times)
    assert found.tolist() == [one_by_one[place] for place in range(len(rows))]
    assert busy == door.busy_ps


def test_a_run_that_is_broken_off_keeps_what_it_has() -> None:
    cases = (case for case in map(case_of, range(100)) if len(case.load) >= 30 and "vllm" in case.what)
    case = next(case for case in cases if case.load[-1].arrival_ps > case.load[20].arrival_ps > 0)
    calls = 0

    def stop(done: int, total: int) -> None:
        nonlocal calls
        assert done <= total
        calls += 1
        if calls > 20:
            raise KeyboardInterrupt

    found = in_aggregate(case.make, load_of(case.load), case.timer, progress=stop)
    whole = in_aggregate(case.make, load_of(case.load), case.timer)
    assert found.partial
    assert not whole.partial
    number = len(found.finished)
    assert number < len(whole.finished)
    assert (found.sent_ps < 0).any()
    # Whoever ended before has the same times.
    ends = dict(zip(whole.finished.indices.tolist(), whole.finished.end_ps.tolist(), strict=True))
    assert all(
        ends[index] == end
        for index, end in zip(found.finished.indices.tolist(), found.finished.end_ps.tolist(), strict=True)
    )


def test_sums_between_two_meters_lie_on_the_line() -> None:
    curve = (Meter(now_ps=0), Meter(now_ps=10, held_block_ps=40, live_ps=20), Meter(now_ps=20, held_block_ps=40))
    one = Totals(num_blocks=8, most_held_blocks=4, num_steps=1, busy_ps=10, num_preemptions=0, curve=curve)
    held, live = summed_until([one, one], np.array([0.0, 5.0, 15.0]))
    assert held.tolist() == [0.0, 40.0, 80.0]
    assert live.tolist() == [0.0, 20.0, 20.0]
