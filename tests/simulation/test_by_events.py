"""Loads that wait for answers and routers that look at loads, in aggregate: what the fleet gives, to the picosecond."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import fields

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.simulation.by_events import Routing, by_events
from infcalc.simulation.fast.columns import load_of
from infcalc.simulation.fast.intervals import TIMES_BITS
from infcalc.simulation.fleet import Fleet
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.gathered import Finished, Gathered, StepMeter, finished_of
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.sending import NOBODY, Sending
from infcalc.simulation.timing import SteadyTimer
from tests.simulation.fast.cases import case_of
from tests.simulation.fast.drafted_cases import drafted_case
from tests.simulation.fast.test_bit_identical import MOST_SEED


def sending_of(chance: random.Random, load: list[Request], pace: int) -> Sending:
    """Return how requests come: at their times, from clients, or after others."""
    times = [one.arrival_ps for one in load]
    pauses = [chance.choice([0, pace, chance.randint(0, 3 * pace)]) for _ in load]
    kind = chance.choice(["open", "clients", "turns", "turns"])
    if kind == "open":
        return Sending(times_ps=times)
    if kind == "clients":
        return Sending(times_ps=times, pauses_ps=pauses, num_clients=chance.choice([1, 2, 3, 8]))
    follows = [chance.choice([NOBODY, chance.randrange(index)]) if index else NOBODY for index in range(len(load))]
    return Sending(times_ps=times, follows=follows, pauses_ps=pauses)


def intervals_of(found: Gathered) -> Counter[int]:
    """Return how often which time lay between two tokens."""
    told: Counter[int] = Counter()
    for first, more, counts in found.interval_runs.reshape(-1, 3).tolist():
        for step in range(counts >> TIMES_BITS):
            told[first + step * more] += counts & ((1 << TIMES_BITS) - 1)
    return told


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, MOST_SEED),
    groups=st.integers(1, 3),
    locked=st.sampled_from([1, 1, 2, 3]),
    kind=st.sampled_from(RouterKind),
    work=st.integers(0, 50),
    drafts=st.booleans(),
)
def test_events_in_aggregate_give_what_a_fleet_gives(
    seed: int, groups: int, locked: int, kind: RouterKind, work: int, drafts: bool
) -> None:
    lanes = groups * locked
    drafted = drafted_case(seed)
    case, law = (drafted, drafted.chance) if drafts else (case_of(seed), None)
    chance = random.Random(seed + 1)  # noqa: S311 - not a secret
    front = FrontEndTimes(request_ps=work, prompt_token_ps=work % 3, latency_ps=chance.choice([0, 7]))
    sending = sending_of(chance, case.load, chance.choice([0, 1, 1000, 10**9]))
    sessions = [chance.randrange(4) for _ in case.load]
    schedulers = [case.make() for _ in range(lanes)]
    meters = [StepMeter(scheduler.num_blocks) for scheduler in schedulers]
    waits: Counter[int] = Counter()
    fleet = Fleet(
        [Replica(one, case.timer, waited=lambda wait: waits.update([wait]), chance=law) for one in schedulers],
        case.load,
        sending,
        router=Router(kind, lanes),
        front_end=front,
        sessions=sessions,
        observe=lambda place, step: meters[place].take(step),
        num_locked=locked,
    )
    fleet.run()
    plain = finished_of(fleet.records)
    found = by_events(
        case.make,
        load_of(case.load),
        case.timer,
        sending,
        num_lanes=lanes,
        num_locked=locked,
        routing=Routing(router=Router(kind, lanes), requests=case.load, sessions=sessions),
        front_end=front,
        chance=law,
    )
    for field in fields(Finished):
        assert getattr(found.finished, field.name).tolist() == getattr(plain, field.name).tolist(), case.what
    assert found.placed.tolist() == fleet.placed
    assert found.sent_ps.tolist() == fleet.sent_ps
    assert found.reasons == {one.index: one.reason for one in fleet.records if one.reason}
    assert found.end_ps == fleet.now_ps
    assert intervals_of(found) == waits
    for meter, scheduler, total in zip(meters, schedulers, found.replicas, strict=True):
        summed = meter.totals(scheduler.num_preemptions)
        assert total.end.held_block_ps == summed.end.held_block_ps
        assert (total.num_steps, total.busy_ps, total.most_held_blocks, total.num_preemptions) == (
            summed.num_steps,
            summed.busy_ps,
            summed.most_held_blocks,
            summed.num_preemptions,
        )


def test_a_run_that_is_broken_off_keeps_what_it_has() -> None:
    case = next(case for case in map(case_of, range(100)) if len(case.load) >= 30 and "vllm" in case.what)
    sending = Sending(times_ps=[0] * len(case.load), num_clients=2)

    def stop(done: int, total: int) -> None:
        assert done <= total
        if done > total // 2:
            raise KeyboardInterrupt

    found = by_events(case.make, load_of(case.load), case.timer, sending, progress=stop)
    whole = by_events(case.make, load_of(case.load), case.timer, sending)
    assert found.partial
    assert not whole.partial
    assert 0 < len(found.finished) < len(whole.finished)
    assert (found.sent_ps < 0).any()
    ends = dict(zip(whole.finished.indices.tolist(), whole.finished.end_ps.tolist(), strict=True))
    assert all(
        ends[index] == end
        for index, end in zip(found.finished.indices.tolist(), found.finished.end_ps.tolist(), strict=True)
    )


def test_several_replicas_take_a_router() -> None:
    case = case_of(0)
    with pytest.raises(ValueError, match="nobody chooses"):
        by_events(case.make, load_of(case.load), SteadyTimer(), Sending(times_ps=[0] * len(case.load)), num_lanes=2)
