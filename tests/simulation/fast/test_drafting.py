"""Rounds of drafting in aggregate give what every step gives, bit for bit; and what rounds must yield."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.drafts import Drafts
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.aggregate import in_aggregate
from infcalc.simulation.batch_shape import unit_step
from infcalc.simulation.chance import AcceptanceChance, summed
from infcalc.simulation.fast.columns import load_of
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.gate import gate_of
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.run import is_fast, replica_of, run_fast
from infcalc.simulation.fleet import Fleet
from infcalc.simulation.gathered import finished_of
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.sending import Sending
from infcalc.simulation.timing import SteadyTimer, StepTimer
from tests.simulation.fast.both import plainly, quickly
from tests.simulation.fast.drafted_cases import drafted_case
from tests.simulation.fast.test_bit_identical import loaded
from tests.simulation.test_timing import engine

MOST_SEED = 2**32


def law(alpha: float, length: int, seed: int = 0) -> AcceptanceChance:
    return AcceptanceChance(seed=seed, rates=tuple(alpha**position for position in range(1, length + 1)))


def check(seed: int) -> None:
    case = drafted_case(seed)
    found = quickly(case.make, case.load, case.timer, case.chance)
    assert found == plainly(case.make, case.load, case.timer, case.chance), case.what


@pytest.mark.parametrize("start", range(0, 300, 50))
def test_seeded_cases(start: int) -> None:
    for seed in range(start, start + 50):
        check(seed)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, MOST_SEED))
def test_any_case(seed: int) -> None:
    check(seed)


def test_the_cases_hold_what_is_rare() -> None:
    cases = [drafted_case(seed) for seed in range(120)]
    seen = [(case, plainly(case.make, case.load, case.timer, case.chance)) for case in cases]
    assert all(is_fast(case.make()) for case in cases)
    assert sum(written.num_preemptions > 0 for _, written in seen) >= 8
    dropping = [one for one in seen if one[0].make().kv.drop_last_hit]  # type: ignore[attr-defined]
    assert sum(written.num_preemptions > 0 for _, written in dropping) >= 3
    assert sum(any(record.hit_tokens for record in written.records) for _, written in dropping) >= 5
    assert sum(written.num_evictions > 0 for _, written in seen) >= 15
    assert {case.what.split()[1] for case in cases} == {"static", "continuous", "vllm"}


@pytest.mark.parametrize("rate", [0.3, 3.0, 30.0], ids=["idle", "busy", "overload"])
@pytest.mark.parametrize("shared", [0, 130])
@pytest.mark.parametrize("num_blocks", [90, 2000], ids=["starved", "roomy"])
@pytest.mark.parametrize("policy", ["static", "continuous", "vllm"])
def test_a_server_under_load(policy: str, num_blocks: int, shared: int, rate: float) -> None:
    drafts = Drafts(num_tokens=4, num_lookahead_tokens=4)

    def make() -> Scheduler:
        kv = KvCacheManager(num_blocks, 16, drop_last_hit=True)
        match policy:
            case "static":
                return StaticScheduler(kv, max_num_seqs=16, drafts=drafts)
            case "continuous":
                return ContinuousScheduler(kv, max_num_seqs=16, drafts=drafts)
            case _:
                return VllmScheduler(kv, VllmLimits(max_num_seqs=16, budget_tokens=256), drafts=drafts)

    load, timer = loaded(seed=num_blocks + shared, rate_per_s=rate, shared=shared), StepTimer(engine)
    wanted = plainly(make, load, timer, law(0.7, 4))
    assert quickly(make, load, timer, law(0.7, 4)) == wanted
    if (policy, num_blocks, rate) == ("vllm", 90, 30.0):
        assert wanted.num_preemptions > 5


def test_where_one_stops_changes_nothing() -> None:
    for seed in range(40):
        case = drafted_case(seed)
        load = load_of(case.load)
        whole, driven = Recorder(), Recorder()
        run_fast(case.make(), load, case.timer, whole, chance=case.chance)
        scheduler = case.make()
        replica = replica_of(scheduler, load, case.timer, driven, chance=case.chance)
        for index, arrival, prompt, answer, allowed, content, enters in load.rows(gate_of(scheduler)):
            while replica.has_work and replica.now_ps < arrival:
                replica.advance(min(arrival, replica.now_ps + 777))
            if enters:
                replica.receive(Flight(index, arrival, prompt, answer, allowed, content), arrival)
        while replica.has_work:
            replica.advance(10**18, to_an_end=True)
        assert list(driven.records()) == [record for record in whole.records() if not record.reason], case.what


@pytest.mark.parametrize("num_lanes", [1, 3])
def test_lanes_draw_the_same_rounds_as_a_fleet(num_lanes: int) -> None:
    """A request has the same luck wherever it is served; rounds and accepted drafts are counted alike."""
    for seed in range(30):
        case = drafted_case(seed)
        fast = in_aggregate(case.make, load_of(case.load), case.timer, num_lanes=num_lanes, chance=case.chance)
        replicas = [Replica(case.make(), case.timer, chance=case.chance) for _ in range(num_lanes)]
        fleet = Fleet(
            replicas,
            case.load,
            Sending(times_ps=[one.arrival_ps for one in case.load]),
            router=Router(RouterKind.ROUND_ROBIN, num_lanes),
        )
        slow = finished_of(fleet.run())
        assert fast.rounds == summed([replica.rounds for replica in replicas])
        for column in ("indices", "first_token_ps", "last_token_ps", "end_ps", "num_preemptions"):
            np.testing.assert_array_equal(getattr(fast.finished, column), getattr(slow, column))


@pytest.mark.parametrize(("alpha", "each"), [(0.0, 1), (1.0, 6)])
def test_none_accepted_is_a_token_a_round_and_all_accepted_are_all_and_one(alpha: float, each: int) -> None:
    def make() -> Scheduler:
        drafts = Drafts(num_tokens=5, num_lookahead_tokens=5)
        return VllmScheduler(KvCacheManager(200, 4), VllmLimits(max_num_seqs=4, budget_tokens=64), drafts=drafts)

    load = [Request(arrival_ps=0, prompt_tokens=7, output_tokens=1 + 6 * number) for number in (1, 2, 5)]
    recorder = Recorder()
    replica = run_fast(make(), load_of(load), SteadyTimer(), recorder, chance=law(alpha, 5))
    assert recorder.records() == run_step_by_step(make(), load, unit_step, chance=law(alpha, 5))
    # The first step computes the prompts; then each takes its rounds.
    steps = [record.last_token_ps // 10**12 - 1 for record in recorder.records() if record.last_token_ps]
    assert steps == [6 * number // each for number in (1, 2, 5)]
    assert replica.rounds.tokens_per_round == each


def test_drafting_of_nothing_accepted_serves_as_no_drafting_does() -> None:
    load = loaded(seed=3, rate_per_s=3.0)

    def make(drafts: Drafts) -> Scheduler:
        return VllmScheduler(KvCacheManager(2000, 16), VllmLimits(max_num_seqs=16, budget_tokens=4096), drafts=drafts)

    drafted = run_step_by_step(make(Drafts(num_tokens=3)), load, unit_step, chance=law(0.0, 3))
    plain = run_step_by_step(make(Drafts()), load, unit_step)
    assert [record.last_token_ps for record in drafted] == [record.last_token_ps for record in plain]


def test_what_a_step_has_no_tokens_for_is_not_known_in_aggregate_and_runs_step_by_step() -> None:
    def make(budget: int) -> Scheduler:
        limits = VllmLimits(max_num_seqs=4, budget_tokens=budget)
        return VllmScheduler(KvCacheManager(400, 4), limits, drafts=Drafts(num_tokens=3))

    assert is_fast(make(16))
    assert not is_fast(make(15))
    load = [Request(arrival_ps=0, prompt_tokens=3, output_tokens=40) for _ in range(4)]
    ends = [
        max(one.end_ps for one in run_step_by_step(make(budget), load, unit_step, chance=law(1.0, 3)))
        for budget in (16, 10, 4)
    ]
    # Drafts that were cut off cannot be accepted.
    assert ends == sorted(set(ends))


def test_a_chance_of_other_drafts_is_refused() -> None:
    scheduler = VllmScheduler(KvCacheManager(40, 4), VllmLimits(max_num_seqs=4, budget_tokens=64))
    with pytest.raises(ValueError, match="0 drafts"):
        run_fast(scheduler, load_of([]), SteadyTimer(), Recorder(), chance=law(0.5, 2))
    with pytest.raises(ValueError, match="0 drafts"):
        Replica(scheduler, unit_step, chance=law(0.5, 2))
