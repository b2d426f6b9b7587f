"""What every policy owes, whatever its rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.errors import DoesNotFit
from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.surface import KvManager
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.step_plan import StepPlan
from tests.scheduling.driving import STOP, Run, drive, token_of
from tests.scheduling.policies import BLOCK, LONGEST_ANSWER, LONGEST_PROMPT, Policy, every_manager, every_policy


@st.composite
def loads(draw: st.DrawFn) -> tuple[int, list[tuple[int, Sequence]], dict[int, int]]:
    """Blocks, arrivals and early stops. Prompts share prefixes; the cache holds the longest alone, and little more."""
    num_blocks = draw(st.integers(11, 24))
    arrivals, stops = [], {}
    for sequence_id in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, LONGEST_PROMPT))
        answer = draw(st.integers(1, LONGEST_ANSWER))
        family = draw(st.integers(0, 2))
        shared = draw(st.integers(0, prompt))
        tokens = [token_of(100 + family, at) if at < shared else token_of(sequence_id, at) for at in range(prompt)]
        if draw(st.booleans()):
            stops[sequence_id] = prompt + draw(st.integers(0, answer - 1))
        sequence = Sequence(
            sequence_id, tokens, max_new_tokens=answer, stop_tokens=[STOP], priority=draw(st.integers(0, 2))
        )
        arrivals.append((draw(st.integers(0, 20)), sequence))
    return num_blocks, arrivals, stops


def checked_drive(
    policy: Policy, scheduler: Scheduler, arrivals: list[tuple[int, Sequence]], stops: dict[int, int]
) -> Run:
    def check(scheduler: Scheduler, plan: StepPlan) -> None:
        ids = [chunk.sequence_id for chunk in plan.chunks]
        assert len(ids) == len(set(ids)) <= scheduler.max_num_seqs
        if policy.budget_tokens is not None:
            assert plan.num_tokens <= policy.budget_tokens

    return drive(scheduler, arrivals, stops=stops, check=check)


@every_policy
@every_manager
@settings(max_examples=25, deadline=None)
@given(load=loads())
def test_every_sequence_is_served_once_and_everything_is_given_back(
    policy: Policy, manager: Callable[[int], KvManager], load: tuple[int, list[tuple[int, Sequence]], dict[int, int]]
) -> None:
    num_blocks, arrivals, stops = load
    kv = manager(num_blocks)
    free = kv.num_free_blocks
    scheduler = policy.make(kv)
    run = checked_drive(policy, scheduler, arrivals, stops)
    # No starvation: all are served, each to its own end.
    assert sorted(one.sequence_id for one in run.ended) == sorted(one.sequence_id for _, one in arrivals)
    for sequence in run.ended:
        assert sequence.status is Status.FINISHED
        stop = stops.get(sequence.sequence_id)
        assert sequence.num_tokens == (sequence.longest_tokens if stop is None else stop + 1)
        expected = [token_of(sequence.sequence_id, at) for at in range(sequence.prompt_tokens, sequence.num_tokens)]
        assert sequence.tokens[sequence.prompt_tokens :] == expected[: None if stop is None else -1] + [STOP] * (
            stop is not None
        )
    # Every token but the last is computed once per life, unless the prefix cache had it.
    if not scheduler.num_preemptions:
        for sequence in run.ended:
            computed = sum(shape.get(sequence.sequence_id, 0) for shape in run.shapes)
            assert computed == sequence.num_tokens - 1 - sequence.hit_tokens
    assert kv.num_free_blocks == free
    assert not policy.preempts or scheduler.num_preemptions == sum(one.num_preemptions for one in run.ended)
    assert policy.preempts or not scheduler.num_preemptions
    if policy.in_order:
        order = {one.sequence_id: one.arrival for _, one in arrivals}
        # Who was retracted may come back behind later arrivals; who was not starts in the order of arrival.
        steady = {one.sequence_id for one in run.ended if not one.num_preemptions}
        starts = [order[key] for key in run.admitted if key in steady]
        assert starts == sorted(starts)


@every_policy
def test_a_prompt_is_cut_only_where_the_policy_cuts(policy: Policy) -> None:
    scheduler = policy.make(KvCacheManager(40, BLOCK))
    arrivals = [(0, Sequence(key, [key] * LONGEST_PROMPT, max_new_tokens=3)) for key in range(3)]
    run = checked_drive(policy, scheduler, arrivals, {})
    pieces = Counter(chunk.sequence_id for plan in run.plans for chunk in plan.chunks if not chunk.produces)
    assert bool(pieces) is not policy.whole


@every_policy
def test_what_could_never_run_is_refused_with_the_sizes(policy: Policy) -> None:
    scheduler = policy.make(KvCacheManager(5, BLOCK))
    with pytest.raises(DoesNotFit, match="cache has"):
        scheduler.add(Sequence(0, [1] * 10, max_new_tokens=8))
    assert not scheduler.has_work


@every_policy
def test_a_withdrawn_sequence_gives_everything_back(policy: Policy) -> None:
    kv = KvCacheManager(40, BLOCK)
    free = kv.num_free_blocks
    scheduler = policy.make(kv)
    for key in range(6):
        scheduler.add(Sequence(key, [key] * 5, max_new_tokens=9))
    plan = scheduler.plan()
    with pytest.raises(RuntimeError, match="under way"):
        scheduler.abort(0)
    with pytest.raises(RuntimeError, match="under way"):
        scheduler.plan()
    scheduler.update(plan, {chunk.sequence_id: 1 for chunk in plan.chunks if chunk.produces})
    assert [scheduler.abort(key).status for key in range(6)] == [Status.ABORTED] * 6
    assert not scheduler.has_work
    assert kv.num_free_blocks == free
    scheduler.check_invariants()


@every_policy
def test_tokens_that_the_plan_does_not_produce_are_refused(policy: Policy) -> None:
    scheduler = policy.make(KvCacheManager(40, BLOCK))
    sequence = Sequence(0, [1, 2, 3], max_new_tokens=2)
    scheduler.add(sequence)
    with pytest.raises(ValueError, match="has been before"):
        scheduler.add(sequence)
    plan = scheduler.plan()
    with pytest.raises(ValueError, match="not what the plan produces"):
        scheduler.update(plan, {})
    with pytest.raises(ValueError, match="not the plan under way"):
        scheduler.update(StepPlan(chunks=()), {})


def test_a_scheduler_without_seats_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        StaticScheduler(KvCacheManager(8, BLOCK), max_num_seqs=0)
