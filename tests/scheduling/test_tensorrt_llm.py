from __future__ import annotations

import pytest

from infcalc.errors import DoesNotFit
from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.tensorrt_llm import Capacity, Chunking, TensorRtLimits, TensorRtScheduler
from tests.scheduling.driving import drive, say

BLOCK = 4


def scheduler(num_blocks: int = 100, *, prefix_caching: bool = False, **limits: object) -> TensorRtScheduler:
    given = {"max_batch_size": 4, "budget_tokens": 12, **limits}
    kv = KvCacheManager(num_blocks + 1, BLOCK, prefix_caching=prefix_caching)
    return TensorRtScheduler(kv, TensorRtLimits(**given))  # type: ignore[arg-type]


def prompt(key: int, tokens: int, answer: int) -> Sequence:
    return Sequence(key, [key] * tokens, max_new_tokens=answer)


def planned(made: TensorRtScheduler) -> dict[int, int]:
    plan = made.plan()
    made.update(plan, say(plan))
    return {chunk.sequence_id: chunk.num_tokens for chunk in plan.chunks}


def test_no_evict_admits_what_has_room_to_its_end_and_nothing_behind_who_has_not() -> None:
    # To its end a sequence takes its prompt and its longest answer: (4 + 12) / 4 = 4 blocks.
    made = scheduler(11)
    for sequence in (prompt(0, 4, 12), prompt(1, 4, 12), prompt(2, 4, 12), prompt(3, 1, 1)):
        made.add(sequence)
    assert planned(made) == {0: 4, 1: 4}
    # Two blocks of eleven are in use: the rest is spoken for, and the queue waits.
    assert made.kv.num_free_blocks == 9
    run = [planned(made) for _ in range(12)]
    assert run[:11] == [{0: 1, 1: 1}] * 11
    assert run[11] == {2: 4, 3: 1}
    assert made.num_preemptions == 0


def test_cached_blocks_that_somebody_holds_need_not_be_had_twice() -> None:
    made = scheduler(11, prefix_caching=True, budget_tokens=40)
    first, second = (Sequence(key, [7] * 24 + [key] * 4, max_new_tokens=8) for key in range(2))
    made.add(first)
    planned(made)
    # Nine blocks each, but six are shared: 9 + 3 = 12 are one too many, 11 would do for an answer of 4.
    made.add(second)
    assert planned(made) == {0: 1}
    made.abort(1)
    made.add(Sequence(2, [7] * 24 + [2] * 4, max_new_tokens=4))
    assert planned(made) == {0: 1, 2: 4}


def test_max_utilization_pauses_the_last_to_start_and_admits_nobody_in_that_step() -> None:
    made = scheduler(5, capacity=Capacity.MAX_UTILIZATION)
    for sequence in (prompt(0, 4, 9), prompt(1, 4, 9)):
        made.add(sequence)
    assert planned(made) == {0: 4, 1: 4}
    assert [planned(made) for _ in range(4)] == [{0: 1, 1: 1}] * 4
    made.add(prompt(2, 1, 1))
    # Each needs a third block, one is left.
    plan = made.plan()
    assert [chunk.sequence_id for chunk in plan.chunks] == [0]
    assert plan.released == (1,)
    assert [one.sequence_id for one in made.waiting] == [1, 2]
    assert made.waiting[0].status is Status.PREEMPTED
    made.update(plan, say(plan))


def test_a_paused_sequence_computes_prompt_and_answer_again() -> None:
    made = scheduler(5, capacity=Capacity.MAX_UTILIZATION)
    run = drive(made, [(0, prompt(0, 4, 9)), (0, prompt(1, 4, 9))])
    assert made.num_preemptions == 1
    assert run.admitted == [0, 1, 1]
    again = [shape[1] for shape in run.shapes if shape.get(1, 0) > 1]
    assert again == [4, 9]


def test_answers_come_before_prompts_and_a_chunk_is_a_multiple_of_the_unit_unless_it_is_the_last() -> None:
    made = scheduler()
    run = drive(made, [(0, prompt(0, 3, 5)), (1, prompt(1, 23, 2))])
    assert run.shapes == [{0: 3}, {0: 1, 1: 8}, {0: 1, 1: 8}, {0: 1, 1: 7}, {0: 1, 1: 1}]
    larger = scheduler(chunk_unit_tokens=5)
    run = drive(larger, [(0, prompt(0, 3, 5)), (1, prompt(1, 23, 2))])
    assert [shape.get(1) for shape in run.shapes] == [None, 10, 10, 3, 1]


def test_equal_progress_gives_each_prompt_a_unit_in_turn() -> None:
    made = scheduler(budget_tokens=16, chunking=Chunking.EQUAL_PROGRESS)
    run = drive(made, [(0, prompt(0, 30, 2)), (0, prompt(1, 6, 1)), (0, prompt(2, 9, 1)), (0, prompt(3, 9, 1))])
    assert run.shapes == [{0: 4, 1: 4, 2: 4, 3: 4}, {0: 4, 1: 2, 2: 5, 3: 5}, {0: 16}, {0: 6}, {0: 1}]
    # A fourth unit would have exceeded the step, so the last prompt waits.
    tight = scheduler(budget_tokens=15, chunking=Chunking.EQUAL_PROGRESS)
    run = drive(tight, [(0, prompt(key, 9, 1)) for key in range(4)])
    assert run.shapes[0] == {0: 4, 1: 4, 2: 4}
    with pytest.raises(ValueError, match="in chunks"):
        scheduler(chunked_context=False, chunking=Chunking.EQUAL_PROGRESS)


def test_a_prompt_that_gets_no_chunk_holds_back_those_behind_it() -> None:
    made = scheduler(budget_tokens=12)
    run = drive(made, [(0, prompt(0, 9, 1)), (0, prompt(1, 9, 1)), (0, prompt(2, 1, 1))])
    assert run.shapes == [{0: 9}, {1: 9, 2: 1}]


def test_without_chunks_a_prompt_that_exceeds_the_rest_stops_the_loop() -> None:
    made = scheduler(chunked_context=False)
    run = drive(made, [(0, prompt(0, 6, 2)), (0, prompt(1, 8, 1)), (0, prompt(2, 1, 1))])
    assert run.shapes == [{0: 6}, {0: 1, 1: 8, 2: 1}]
    with pytest.raises(DoesNotFit, match="chunked prefill"):
        made.add(prompt(3, 13, 1))


def test_no_more_run_than_the_batch_holds() -> None:
    made = scheduler(max_batch_size=2)
    run = drive(made, [(0, prompt(key, 2, 2)) for key in range(3)])
    assert run.shapes == [{0: 2, 1: 2}, {0: 1, 1: 1}, {2: 2}, {2: 1}]


@pytest.mark.parametrize(
    ("budget_tokens", "match"),
    [(3, "cannot serve 4 answers"), (6, "no room for a chunk of 4")],
)
def test_a_budget_that_starves_prompts_or_answers_is_refused(budget_tokens: int, match: str) -> None:
    with pytest.raises(ValueError, match=match):
        scheduler(budget_tokens=budget_tokens)
