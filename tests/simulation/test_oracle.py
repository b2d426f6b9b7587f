"""The plain simulation: laws under every policy, the order of events at one moment, and what is written down."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.surface import KvManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill, unit_step
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.records import Outcome, StepRecord
from infcalc.simulation.request import Request, Span
from tests.scheduling.policies import LONGEST_ANSWER, LONGEST_PROMPT, Policy, every_manager, every_policy


def by_tokens(shape: BatchShape) -> int:
    """Return a time that every part of the shape changes."""
    area = sum(prefill.new_tokens * (prefill.cached_tokens + 1) for prefill in shape.prefills)
    return 1000 + 7 * shape.num_decodes + shape.decode_context_tokens + 3 * area


@st.composite
def requests(draw: st.DrawFn) -> list[Request]:
    """Draw requests with shared beginnings, some that no cache of the test holds, some that end before they must."""
    made = []
    for _ in range(draw(st.integers(1, 10))):
        prompt = draw(st.integers(1, LONGEST_PROMPT))
        answer = draw(st.sampled_from([*range(1, LONGEST_ANSWER + 1), 400]))
        shared = draw(st.integers(0, prompt))
        made.append(
            Request(
                arrival_ps=draw(st.integers(0, 20_000)),
                prompt_tokens=prompt,
                output_tokens=answer,
                max_output_tokens=max(answer, draw(st.integers(1, LONGEST_ANSWER))),
                spans=(Span(text=draw(st.integers(0, 2)), num_tokens=shared),) if shared else (),
                answer=draw(st.sampled_from([None, 0, 1])),
            )
        )
    return made


@every_policy
@every_manager
@settings(max_examples=15, deadline=None)
@given(num_blocks=st.integers(11, 24), load=requests())
def test_the_laws_hold_and_the_same_run_gives_the_same_records(
    policy: Policy, manager: Callable[[int], KvManager], num_blocks: int, load: list[Request]
) -> None:
    steps: list[StepRecord] = []
    records = run_step_by_step(policy.make(manager(num_blocks)), load, by_tokens, observe=steps.append)
    assert records == run_step_by_step(policy.make(manager(num_blocks)), load, by_tokens)
    for request, record in zip(load, records, strict=True):
        served = record.outcome is Outcome.FINISHED
        assert served is (request.output_tokens <= LONGEST_ANSWER)
        assert record.output_tokens == (request.output_tokens if served else 0)
        assert served or "cache has" in record.reason
    # Steps follow one another, and every token was computed in one of them.
    assert all(one.start_ps + one.duration_ps <= other.start_ps for one, other in pairwise(steps))
    assert sum(step.shape.num_decodes + step.shape.prefill_tokens for step in steps) == sum(
        record.computed_tokens for record in records
    )
    assert all(step.duration_ps == by_tokens(step.shape) for step in steps if step.shape.num_sequences)
    ends = {step.start_ps + step.duration_ps for step in steps}
    assert {record.end_ps for record in records if record.outcome is Outcome.FINISHED} <= ends


def vllm(*, seats: int = 4, budget: int = 100, blocks: int = 100) -> VllmScheduler:
    return VllmScheduler(KvCacheManager(blocks, 16), VllmLimits(max_num_seqs=seats, budget_tokens=budget))


def test_the_moments_of_one_request() -> None:
    (record,) = run_step_by_step(
        vllm(), [Request(arrival_ps=5 * PS_PER_S, prompt_tokens=150, output_tokens=3)], unit_step
    )
    # 100 + 50 tokens of the prompt, then two more answer tokens.
    assert [record.scheduled_ps, record.first_token_ps, record.last_token_ps, record.end_ps] == [
        moment * PS_PER_S for moment in (5, 7, 9, 9)
    ]
    assert record.computed_tokens == 152


def test_a_prompt_of_one_token_is_a_prompt_and_the_last_token_of_one_is_a_decode() -> None:
    load = [Request(arrival_ps=0, prompt_tokens=count, output_tokens=1) for count in (1, 101)]
    steps: list[StepRecord] = []
    run_step_by_step(vllm(), load, unit_step, observe=steps.append)
    assert [(step.shape.num_decodes, [prefill.new_tokens for prefill in step.shape.prefills]) for step in steps] == [
        (0, [1, 99]),
        (0, [2]),
    ]
    steps.clear()
    one_less = [load[0], Request(arrival_ps=0, prompt_tokens=100, output_tokens=1)]
    run_step_by_step(vllm(), one_less, unit_step, observe=steps.append)
    assert (steps[1].shape.num_decodes, steps[1].shape.decode_context_tokens) == (1, 99)


def test_who_arrives_as_a_step_ends_is_in_the_next() -> None:
    load = [
        Request(arrival_ps=0, prompt_tokens=10, output_tokens=2),
        Request(arrival_ps=PS_PER_S, prompt_tokens=20, output_tokens=1),
    ]
    steps: list[StepRecord] = []
    run_step_by_step(vllm(), load, unit_step, observe=steps.append)
    assert [step.shape for step in steps] == [
        BatchShape(num_decodes=0, decode_context_tokens=0, prefills=(Prefill(new_tokens=10, cached_tokens=0),)),
        BatchShape(num_decodes=1, decode_context_tokens=10, prefills=(Prefill(new_tokens=20, cached_tokens=0),)),
    ]


def test_a_place_given_back_as_a_step_ends_is_taken_in_the_next() -> None:
    load = [Request(arrival_ps=0, prompt_tokens=10, output_tokens=1)] * 3
    records = run_step_by_step(vllm(seats=1), load, unit_step)
    assert [record.scheduled_ps for record in records] == [0, PS_PER_S, 2 * PS_PER_S]


def test_unsorted_arrivals_are_served_by_time_and_recorded_in_their_order() -> None:
    load = [Request(arrival_ps=moment, prompt_tokens=10, output_tokens=1) for moment in (9, 0, 9)]
    records = run_step_by_step(vllm(seats=1), load, lambda _: 10)
    assert [record.scheduled_ps for record in records] == [10, 0, 20]


def test_under_static_batching_an_answer_is_returned_with_its_batch() -> None:
    load = [Request(arrival_ps=0, prompt_tokens=4, output_tokens=count) for count in (1, 3)]
    steps: list[StepRecord] = []
    short, long = run_step_by_step(
        StaticScheduler(KvCacheManager(9, 4), max_num_seqs=2), load, unit_step, observe=steps.append
    )
    assert (short.last_token_ps, short.end_ps) == (PS_PER_S, 3 * PS_PER_S)
    assert (long.last_token_ps, long.end_ps) == (3 * PS_PER_S, 3 * PS_PER_S)
    assert [step.num_live for step in steps] == [2, 1, 1]


def test_a_shared_beginning_is_found_and_a_chat_finds_its_own_answer() -> None:
    first = Request(arrival_ps=0, prompt_tokens=40, output_tokens=9, spans=(Span(text=1, num_tokens=32),), answer=5)
    turns = (Span(text=1, num_tokens=32), Span(text=2, num_tokens=8), Span(text=5, num_tokens=9))
    second = Request(arrival_ps=PS_PER_S, prompt_tokens=60, output_tokens=2, spans=turns)
    whole = Request(arrival_ps=0, prompt_tokens=40, output_tokens=9, spans=turns[:2], answer=5)
    other = [*run_step_by_step(vllm(), [first, second], lambda _: 1)]
    # The 8 tokens after the shared beginning are the first request's own: only two blocks agree.
    assert [record.hit_tokens for record in other] == [0, 32]
    # Where they are the same text, three blocks of 16 do: 48 of the 49 tokens in the cache or on their way to it.
    assert [record.hit_tokens for record in run_step_by_step(vllm(), [whole, second], lambda _: 1)] == [0, 48]


def test_what_never_fits_is_rejected_and_the_others_are_served() -> None:
    load = [
        Request(arrival_ps=0, prompt_tokens=2000, output_tokens=1),
        Request(arrival_ps=0, prompt_tokens=10, output_tokens=1),
    ]
    rejected, served = run_step_by_step(vllm(), load, unit_step)
    assert rejected.outcome is Outcome.REJECTED
    assert "the cache has 99" in rejected.reason
    assert served.outcome is Outcome.FINISHED


def test_a_scheduler_that_caps_answers_ends_them_there() -> None:
    limits = VllmLimits(max_num_seqs=2, budget_tokens=100, max_model_len=30)
    load = [Request(arrival_ps=0, prompt_tokens=20, output_tokens=50)]
    (record,) = run_step_by_step(VllmScheduler(KvCacheManager(20, 16), limits), load, unit_step)
    assert (record.outcome, record.output_tokens) == (Outcome.FINISHED, 10)


@pytest.mark.parametrize(("answer", "error"), [(0.5, TypeError), (-1, ValueError)])
def test_a_timer_that_answers_no_picoseconds_is_refused(answer: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="the timer says"):
        run_step_by_step(
            ContinuousScheduler(KvCacheManager(9, 16), max_num_seqs=1),
            [Request(arrival_ps=0, prompt_tokens=1, output_tokens=1)],
            lambda _: answer,  # type: ignore[arg-type,return-value]
        )


def test_a_run_of_nothing_has_no_records() -> None:
    assert run_step_by_step(vllm(), [], unit_step) == ()
