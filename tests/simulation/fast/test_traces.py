"""Traces as columns and as requests are the same load."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.run import run_fast
from infcalc.simulation.fast.traces import load_of_trace, requests_of_trace
from infcalc.simulation.oracle import run_step_by_step
from infcalc.workload.trace import NONE, PrefixTree, Sharing, Trace, Turns
from tests.simulation.fast.cases import MadeUpTimer


def chats() -> Trace:
    """Return a system prompt, turns on it whose answers come again, and prompts of their own."""
    tree = PrefixTree(parent_ids=np.array([NONE, 0, 1, 2, 0, 4]), node_tokens=np.array([40, 13, 9, 20, 7, 30]))
    return Trace(
        arrivals_s=np.array([0.0, 1e-9, 2e-8, 6e-8, 7e-8, 9e-8]),
        input_tokens=np.array([53, 47, 60, 85, 55, 80]),
        output_tokens=np.array([9, 30, 5, 11, 3, 8]),
        sharing=Sharing(
            tree=tree, prompt_ids=np.array([1, 4, NONE, 3, 0, 5]), kept_ids=np.array([2, 5, NONE, 3, 0, 5])
        ),
    )


def scheduler() -> VllmScheduler:
    return VllmScheduler(KvCacheManager(60, 4), VllmLimits(max_num_seqs=3, budget_tokens=32))


@pytest.mark.parametrize("shares", [True, False])
def test_a_trace_gives_the_same_records_either_way(shares: bool) -> None:
    trace = chats() if shares else replace(chats(), sharing=None)
    timer, recorder = MadeUpTimer(64), Recorder()
    run_fast(scheduler(), load_of_trace(trace), timer, recorder)
    assert recorder.records() == run_step_by_step(scheduler(), requests_of_trace(trace), timer)
    assert bool(recorder.columns()["hit_tokens"].sum()) is shares


def test_requests_that_wait_for_others_are_refused() -> None:
    turns = Turns(follows=np.array([NONE, 0, NONE, NONE, NONE, NONE]), pauses_s=np.zeros(6))
    with pytest.raises(ValueError, match="wait for others"):
        load_of_trace(replace(chats(), turns=turns))
