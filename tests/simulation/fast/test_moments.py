"""Moments alone say of a run what its records say."""

from __future__ import annotations

import tracemalloc
from dataclasses import fields

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.aggregate import in_aggregate
from infcalc.simulation.fast.columns import Load, load_of
from infcalc.simulation.fast.moments import MomentRecorder
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.run import run_fast
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.gathered import Finished
from infcalc.simulation.request import Request
from tests.simulation.fast.cases import MadeUpTimer, case_of
from tests.simulation.fast.test_bit_identical import MOST_SEED
from tests.simulation.fast.test_recorder import several

SUMMED = {"hit_tokens", "num_preemptions"}


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, MOST_SEED), lanes=st.integers(1, 3), work=st.integers(0, 50))
def test_a_run_leaves_behind_the_same_without_its_requests(seed: int, lanes: int, work: int) -> None:
    case = case_of(seed)
    front = FrontEndTimes(request_ps=work, prompt_token_ps=work % 3, latency_ps=7)
    kept, only = (
        in_aggregate(
            case.make, load_of(case.load), case.timer, num_lanes=lanes, front_end=front, keep_requests=keep_requests
        )
        for keep_requests in (True, False)
    )
    for name in (field.name for field in fields(Finished) if field.name not in SUMMED):
        np.testing.assert_array_equal(getattr(kept.finished, name), getattr(only.finished, name), name)
    assert kept.finished.hit_tokens.sum() == only.finished.hit_tokens.sum()
    assert len(only.finished.num_preemptions) == 0
    assert kept.replicas == only.replicas
    assert list(kept.reasons) == list(only.reasons)
    np.testing.assert_array_equal(kept.interval_runs, only.interval_runs)
    np.testing.assert_array_equal(kept.sent_ps, only.sent_ps)
    assert (kept.end_ps, kept.front_end_busy_fraction) == (only.end_ps, only.front_end_busy_fraction)


def test_samples_of_moments_are_those_of_records() -> None:
    load = load_of(several())
    recorders = Recorder(), MomentRecorder(load)
    for recorder in recorders:
        scheduler = VllmScheduler(KvCacheManager(30, 4), VllmLimits(max_num_seqs=5, budget_tokens=16))
        run_fast(scheduler, load, MadeUpTimer(64), recorder)
    order = np.argsort(recorders[0].columns()["index"])
    kept, only = (recorder.samples() for recorder in recorders)
    for name in ("ttft_ps", "queue_ps", "e2e_ps", "tpot_ps"):
        np.testing.assert_array_equal(getattr(kept, name)[order], getattr(only, name))
    assert recorders[1].num_finished == 5
    assert list(recorders[1].reasons) == [3]


def test_a_run_that_is_broken_off_keeps_what_it_has() -> None:
    load = load_of([Request(arrival_ps=9000 * one, prompt_tokens=5, output_tokens=3 + one % 7) for one in range(40)])

    def scheduler() -> VllmScheduler:
        return VllmScheduler(KvCacheManager(30, 4), VllmLimits(max_num_seqs=5, budget_tokens=16))

    def broken(keep_requests: bool) -> Finished:
        def stop(done: int, total: int) -> None:
            if 2 * done > total:
                raise KeyboardInterrupt

        found = in_aggregate(scheduler, load, MadeUpTimer(64), progress=stop, keep_requests=keep_requests)
        assert found.partial
        return found.finished

    kept, only = broken(keep_requests=True), broken(keep_requests=False)
    assert 0 < len(kept) < len(load)
    for name in ("indices", "scheduled_ps", "end_ps", "output_tokens"):
        np.testing.assert_array_equal(getattr(kept, name), getattr(only, name))


def test_a_run_that_loses_a_moment_is_refused() -> None:
    load = load_of(several())
    recorder = MomentRecorder(load)
    scheduler = VllmScheduler(KvCacheManager(30, 4), VllmLimits(max_num_seqs=5, budget_tokens=16))
    replica = run_fast(scheduler, load, MadeUpTimer(64), recorder)
    recorder._end_ps[0] = 0  # noqa: SLF001 - a fault that never comes
    with pytest.raises(AssertionError, match="no later than end_ps"):
        recorder.close(len(load), replica)


def test_memory_grows_by_less_than_eight_bytes_for_each_recorded_sample() -> None:
    """Four of each request, and each wait for a token after the first."""
    num_answer = 8

    def peak_bytes(count: int, *, keep_requests: bool) -> int:
        places = np.arange(count, dtype=np.int64)
        load = Load(arrival_ps=9000 * places, prompt_tokens=places % 7 + 1, output_tokens=places * 0 + num_answer)
        scheduler = VllmScheduler(KvCacheManager(30, 4), VllmLimits(max_num_seqs=5, budget_tokens=16))
        tracemalloc.start()
        try:
            run_fast(scheduler, load, MadeUpTimer(64), Recorder() if keep_requests else MomentRecorder(load))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = 9_000, 20_000  # more than are made ready at once
    grown = {
        kept: (peak_bytes(many, keep_requests=kept) - peak_bytes(few, keep_requests=kept)) / (many - few)
        for kept in (True, False)
    }
    assert grown[False] < 8 * (4 + num_answer - 1) < grown[True]
