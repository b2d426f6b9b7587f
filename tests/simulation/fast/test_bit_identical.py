"""The aggregate simulation gives what the plain one gives: every record, interval and sum, bit for bit."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.sarathi import SarathiScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.vllm import Order, VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import PS_PER_S, unit_step
from infcalc.simulation.fast.columns import load_of
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.run import is_fast, run_fast
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.request import Request, Span
from infcalc.simulation.timing import SteadyTimer, StepTimer
from tests.simulation.fast.both import plainly, quickly
from tests.simulation.fast.cases import case_of
from tests.simulation.test_timing import engine

MOST_SEED = 2**32


@pytest.mark.parametrize("start", range(0, 400, 50))
def test_seeded_cases(start: int) -> None:
    for seed in range(start, start + 50):
        case = case_of(seed)
        assert quickly(case.make, case.load, case.timer) == plainly(case.make, case.load, case.timer), case.what


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, MOST_SEED))
def test_any_case(seed: int) -> None:
    case = case_of(seed)
    assert quickly(case.make, case.load, case.timer) == plainly(case.make, case.load, case.timer), case.what


def test_the_cases_hold_what_is_rare() -> None:
    seen = [(case, plainly(case.make, case.load, case.timer)) for case in map(case_of, range(100))]
    assert sum(written.num_preemptions > 0 for _, written in seen) >= 5
    assert sum(written.num_evictions > 0 for _, written in seen) >= 15
    assert sum(any(record.hit_tokens for record in written.records) for _, written in seen) >= 10
    assert sum(any(record.reason for record in written.records) for _, written in seen) >= 10
    assert {case.what.split()[1] for case, _ in seen} == {"static", "continuous", "vllm"}
    assert max(written.num_steps for _, written in seen) > 200


def loaded(*, seed: int, rate_per_s: float, count: int = 60, shared: int = 0) -> list[Request]:
    import random  # noqa: PLC0415 - only here

    chance = random.Random(seed)  # noqa: S311 - no secret
    now, made = 0.0, []
    for _ in range(count):
        now += chance.expovariate(rate_per_s)
        own = 1 + round(chance.lognormvariate(4.5, 0.8))
        spans = (Span(text=chance.randrange(3), num_tokens=shared),) if shared else ()
        made.append(
            Request(
                arrival_ps=round(now * PS_PER_S),
                prompt_tokens=own + shared,
                output_tokens=1 + round(chance.lognormvariate(4, 0.9)),
                spans=spans,
            )
        )
    return made


@pytest.mark.parametrize("rate", [0.3, 3.0, 30.0], ids=["idle", "busy", "overload"])
@pytest.mark.parametrize("shared", [0, 130])
@pytest.mark.parametrize("num_blocks", [150, 2000], ids=["starved", "roomy"])
@pytest.mark.parametrize("policy", ["static", "continuous", "vllm"])
def test_a_server_under_load(policy: str, num_blocks: int, shared: int, rate: float) -> None:
    def make() -> Scheduler:
        kv = KvCacheManager(num_blocks, 16)
        match policy:
            case "static":
                return StaticScheduler(kv, max_num_seqs=16)
            case "continuous":
                return ContinuousScheduler(kv, max_num_seqs=16)
            case _:
                return VllmScheduler(kv, VllmLimits(max_num_seqs=16, budget_tokens=256))

    load = loaded(seed=num_blocks + shared, rate_per_s=rate, shared=shared)
    timer = StepTimer(engine, in_blocks=True)
    wanted = plainly(make, load, timer)
    assert quickly(make, load, timer) == wanted
    if shared and num_blocks == 2000:
        assert sum(record.hit_tokens for record in wanted.records) > 40 * 128
    if (policy, num_blocks, rate) == ("vllm", 150, 30.0):
        assert wanted.num_preemptions > 5


def test_a_steady_timer_is_the_unit_step() -> None:
    load = loaded(seed=1, rate_per_s=0.1, count=8)
    schedulers = [ContinuousScheduler(KvCacheManager(500, 16), max_num_seqs=3) for _ in range(2)]
    recorder = Recorder()
    run_fast(schedulers[0], load_of(load), SteadyTimer(), recorder)
    assert recorder.records() == run_step_by_step(schedulers[1], load, unit_step)


@pytest.mark.parametrize(
    "scheduler",
    [
        SarathiScheduler(KvCacheManager(10, 4), max_num_seqs=2, chunk_tokens=8),
        VllmScheduler(KvCacheManager(10, 4), VllmLimits(max_num_seqs=2, budget_tokens=8, order=Order.PRIORITY)),
        StaticScheduler(KvCacheManager(10, 4, window_tokens=8), max_num_seqs=2),
        StaticScheduler(KvCacheManager(10, 4, drop_last_hit=True), max_num_seqs=2),
    ],
    ids=["sarathi", "priority", "window", "draft-head"],
)
def test_rules_that_are_not_known_in_aggregate_are_refused(scheduler: Scheduler) -> None:
    assert not is_fast(scheduler)
    with pytest.raises(ValueError, match="known in aggregate"):
        run_fast(scheduler, load_of([]), SteadyTimer(), Recorder())


def test_a_scheduler_with_work_is_refused() -> None:
    from infcalc.scheduling.sequence import Sequence  # noqa: PLC0415 - only here

    scheduler = StaticScheduler(KvCacheManager(10, 4), max_num_seqs=2)
    scheduler.add(Sequence(0, [1], max_new_tokens=1))
    with pytest.raises(ValueError, match="not a fresh one"):
        run_fast(scheduler, load_of([]), SteadyTimer(), Recorder())
