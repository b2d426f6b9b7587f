"""Loads that wait for answers and routers that look at loads, in aggregate: what the fleet gives, to the picosecond."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import BatchShape
from infcalc.simulation.by_events import Routing, by_events
from infcalc.simulation.chance import AcceptanceChance
from infcalc.simulation.fast.columns import load_of
from infcalc.simulation.fast.intervals import TIMES_BITS
from infcalc.simulation.fleet import Fleet
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.gathered import Finished, Gathered, StepMeter, finished_of
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.sending import NOBODY, Sending
from infcalc.simulation.timing import AffineTimer, Line, SteadyTimer, StepTimer
from tests.simulation.fast.cases import Case, MadeUpTimer, case_of
from tests.simulation.fast.drafted_cases import drafted_case
from tests.simulation.fast.test_bit_identical import MOST_SEED
from tests.simulation.test_timing import engine


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


class CoarseTimer:
    """Steps of one to three picoseconds: replicas that began apart often end at once."""

    def __call__(self, shape: BatchShape) -> int:
        return 1 + shape.num_decodes % 3 if shape.num_decodes else 2

    def line(self, num_decodes: int, total_tokens: int) -> Line:
        del total_tokens
        return Line(first_tokens=0, last_tokens=2**40, base_ps=1 + num_decodes % 3, ps_per_token=0)

    def chunks_ps(self, num_decodes: int, chunks: Sequence[tuple[int, int]]) -> int:
        del chunks
        return 0 if num_decodes else 2


@dataclass(frozen=True)
class Fleets:
    """Replicas, those in groups of ``num_locked`` in step, behind a router."""

    num_lanes: int
    num_locked: int
    kind: RouterKind
    sessions: list[int]
    front: FrontEndTimes


def same_as_a_fleet(case: Case, sending: Sending, fleets: Fleets, law: AcceptanceChance | None) -> Gathered:
    """Hold a run in aggregate against every step of a fleet."""
    lanes = fleets.num_lanes
    schedulers = [case.make() for _ in range(lanes)]
    meters = [StepMeter(scheduler.num_blocks) for scheduler in schedulers]
    waits: Counter[int] = Counter()
    fleet = Fleet(
        [Replica(one, case.timer, waited=lambda wait: waits.update([wait]), chance=law) for one in schedulers],
        case.load,
        sending,
        router=Router(fleets.kind, lanes),
        front_end=fleets.front,
        sessions=fleets.sessions,
        observe=lambda place, step: meters[place].take(step),
        num_locked=fleets.num_locked,
    )
    fleet.run()
    plain = finished_of(fleet.records)
    found = by_events(
        case.make,
        load_of(case.load),
        case.timer,
        sending,
        num_lanes=lanes,
        num_locked=fleets.num_locked,
        routing=Routing(router=Router(fleets.kind, lanes), requests=case.load, sessions=fleets.sessions),
        front_end=fleets.front,
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
    return found


@settings(max_examples=400, deadline=None)
@given(
    seed=st.integers(0, MOST_SEED),
    groups=st.integers(1, 3),
    locked=st.sampled_from([1, 1, 2, 3]),
    kind=st.sampled_from(RouterKind),
    work=st.integers(0, 50),
    drafts=st.booleans(),
    coarse=st.booleans(),
)
def test_events_in_aggregate_give_what_a_fleet_gives(
    *, seed: int, groups: int, locked: int, kind: RouterKind, work: int, drafts: bool, coarse: bool
) -> None:
    lanes = groups * locked
    drafted = drafted_case(seed)
    case, law = (drafted, drafted.chance) if drafts else (case_of(seed), None)
    if coarse:
        case = replace(case, timer=CoarseTimer())
    chance = random.Random(seed + 1)  # noqa: S311 - not a secret
    front = FrontEndTimes(request_ps=work, prompt_token_ps=work % 3, latency_ps=chance.choice([0, 7]))
    sending = sending_of(chance, case.load, chance.choice([0, 1, 1000, 10**9]))
    sessions = [chance.randrange(4) for _ in case.load]
    same_as_a_fleet(case, sending, Fleets(lanes, locked, kind, sessions, front), law)


@settings(max_examples=60, deadline=None)
@given(
    lanes=st.lists(
        st.lists(st.tuples(st.integers(1, 400), st.integers(2, 400)), min_size=1, max_size=5), min_size=2, max_size=4
    ),
    timer=st.sampled_from([MadeUpTimer(64), MadeUpTimer(10**9), StepTimer(engine)]),
    blocks=st.sampled_from([60, 150, 10_000]),
)
def test_long_runs_of_lanes_that_step_together(
    lanes: list[list[tuple[int, int]]], timer: AffineTimer, blocks: int
) -> None:
    """Few long prompts beside many short ones: which lane takes longest changes where nobody comes or goes."""
    most = max(len(lane) for lane in lanes)
    # In turn, as the router sends them; who is there to fill a lane asks for one token.
    rows = [(lane[turn] if turn < len(lane) else (1, 1)) for turn in range(most) for lane in lanes]
    load = [Request(arrival_ps=0, prompt_tokens=prompt, output_tokens=answer) for prompt, answer in rows]
    limits = VllmLimits(max_num_seqs=8, budget_tokens=2048, max_model_len=None)
    case = Case("long runs", lambda: VllmScheduler(KvCacheManager(blocks + 1, 16), limits), load, timer)
    fleets = Fleets(len(lanes), len(lanes), RouterKind.ROUND_ROBIN, list(range(len(load))), FrontEndTimes())
    same_as_a_fleet(case, Sending(times_ps=[0] * len(load)), fleets, None)


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3), st.integers(1, 6)), min_size=12, max_size=30),
    groups=st.integers(2, 3),
    locked=st.integers(1, 2),
    kind=st.sampled_from([RouterKind.ROUND_ROBIN, RouterKind.LEAST_LOADED]),
)
def test_of_answers_that_end_at_once_that_of_the_step_that_began_first_is_heard_first(
    rows: list[tuple[int, int, int]], groups: int, locked: int, kind: RouterKind
) -> None:
    """Turns without a pause: who is heard first sends first, and the router deals in turn."""
    users = 5
    load = [Request(arrival_ps=at, prompt_tokens=prompt, output_tokens=answer) for at, prompt, answer in rows]
    follows = [index - users if index >= users else NOBODY for index in range(len(load))]
    limits = VllmLimits(max_num_seqs=8, budget_tokens=64, max_model_len=None)
    case = Case("at once", lambda: VllmScheduler(KvCacheManager(101, 4), limits), load, CoarseTimer())
    sending = Sending(times_ps=[one.arrival_ps for one in load], follows=follows, pauses_ps=[0] * len(load))
    fleets = Fleets(groups * locked, locked, kind, list(range(len(load))), FrontEndTimes())
    same_as_a_fleet(case, sending, fleets, None)


def test_the_longest_of_lanes_is_another_in_the_middle_of_a_run() -> None:
    """By hand: 500 cached tokens and one more a step, or 4 times 30 and four more: 1,507 + k against 1,148 + 4 k."""
    load = [Request(arrival_ps=0, prompt_tokens=prompt, output_tokens=300) for prompt in (499, 29, 1, 29, 1, 29, 1, 29)]
    load = [replace(one, output_tokens=1) if one.prompt_tokens == 1 else one for one in load]
    limits = VllmLimits(max_num_seqs=8, budget_tokens=2048, max_model_len=None)
    case = Case("by hand", lambda: VllmScheduler(KvCacheManager(10_001, 16), limits), load, MadeUpTimer(10**9))
    fleets = Fleets(2, 2, RouterKind.ROUND_ROBIN, list(range(len(load))), FrontEndTimes())
    found = same_as_a_fleet(case, Sending(times_ps=[0] * len(load)), fleets, None)
    both = [(first, more, counts >> TIMES_BITS) for first, more, counts in found.interval_runs.reshape(-1, 3).tolist()]
    assert {more for _, more, steps in both if steps > 50} == {1, 4}


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


def test_groups_that_step_together_are_whole() -> None:
    case = case_of(0)
    routing = Routing(router=Router(RouterKind.ROUND_ROBIN, 3), requests=case.load)
    sending = Sending(times_ps=[0] * len(case.load))
    with pytest.raises(ValueError, match="3 replicas in groups of 2"):
        by_events(case.make, load_of(case.load), SteadyTimer(), sending, num_lanes=3, num_locked=2, routing=routing)
