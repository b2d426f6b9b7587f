"""A trace as columns and as requests is the same load; what an engine does not admit is cut or refused."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import pytest

from infcalc.api.replicas import Policy, Seating
from infcalc.api.simulation_load import load_of, requests_of
from infcalc.api.simulation_runs import Setting, run_of
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.gathered import Finished
from infcalc.simulation.timing import StepTimer
from infcalc.workload.trace import NONE, PrefixTree, Sharing, Trace, Turns
from tests.simulation.test_timing import engine


def chats() -> Trace:
    """Return a system prompt, turns on it whose answers come again, and prompts of their own."""
    tree = PrefixTree(parent_ids=np.array([NONE, 0, 1, 2, 0, 4]), node_tokens=np.array([40, 13, 9, 20, 7, 30]))
    return Trace(
        arrivals_s=np.array([0.0, 0.01, 0.2, 0.6, 0.7, 0.9]),
        input_tokens=np.array([53, 47, 60, 85, 55, 80]),
        output_tokens=np.array([9, 30, 5, 11, 3, 8]),
        sharing=Sharing(
            tree=tree, prompt_ids=np.array([1, 4, NONE, 3, 0, 5]), kept_ids=np.array([2, 5, NONE, 3, 0, 5])
        ),
    )


def setting(*, step_by_step: bool) -> Setting:
    seating = Seating(cache_tokens=236, block_tokens=4, max_num_seqs=3, budget_tokens=32, max_model_len=128)
    return Setting(
        policy=Policy.VLLM,
        seating=seating,
        timer=StepTimer(engine),
        front_end=FrontEndTimes(),
        step_by_step=step_by_step,
    )


@pytest.mark.parametrize("shares", [True, False])
def test_a_trace_gives_the_same_run_in_columns_and_one_by_one(shares: bool) -> None:
    load = load_of(chats() if shares else replace(chats(), sharing=None), 128)
    quick, plain = (run_of(setting(step_by_step=one), load).finished for one in (False, True))
    for field in fields(Finished):
        np.testing.assert_array_equal(getattr(quick, field.name), getattr(plain, field.name), field.name)
    assert len(quick) == 6
    assert bool(quick.hit_tokens.sum()) is shares


def test_nothing_is_copied_of_a_trace_that_is_served_whole() -> None:
    trace = chats()
    whole, cut, few = (load_of(trace, limit) for limit in (128, 90, 70))
    assert whole.prompt_tokens is trace.input_tokens
    assert whole.output_tokens is trace.output_tokens
    assert (whole.num_cut, cut.num_cut, few.num_cut) == (0, 1, 1)
    assert cut.output_tokens.tolist() == [9, 30, 5, 5, 3, 8]
    assert few.refused_tokens == {3: 85, 5: 80}
    assert [one.prompt_tokens for one in requests_of(few)] == [53, 47, 60, 55]


def test_requests_that_wait_for_others_say_so() -> None:
    turns = Turns(follows=np.array([NONE, 0, NONE, NONE, NONE, NONE]), pauses_s=np.zeros(6))
    sending = load_of(replace(chats(), turns=turns), 128).sending
    assert not sending.is_open
    assert list(sending.follows) == [-1, 0, -1, -1, -1, -1]
    assert load_of(chats(), 128).sending.is_open
    assert all(type(moment) is int for moment in sending.times_ps)
