from __future__ import annotations

import pytest

from infcalc.errors import DoesNotFit
from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.step_plan import StepPlan
from infcalc.scheduling.vllm import Order, VllmLimits, VllmScheduler
from tests.scheduling.driving import drive, say

BLOCK = 4


def scheduler(num_blocks: int = 100, *, prefix_caching: bool = False, **limits: object) -> VllmScheduler:
    given = {"max_num_seqs": 4, "budget_tokens": 10, **limits}
    return VllmScheduler(KvCacheManager(num_blocks + 1, BLOCK, prefix_caching=prefix_caching), VllmLimits(**given))  # type: ignore[arg-type]


def prompt(key: int, tokens: int, answer: int, priority: int = 0) -> Sequence:
    return Sequence(key, [key] * tokens, max_new_tokens=answer, priority=priority)


def test_running_sequences_come_first_and_prompts_fill_the_budget_in_chunks() -> None:
    made = scheduler()
    run = drive(made, [(0, prompt(0, 7, 4)), (0, prompt(1, 15, 2)), (0, prompt(2, 2, 2))])
    assert run.shapes == [{0: 7, 1: 3}, {0: 1, 1: 9}, {0: 1, 1: 3, 2: 2}, {0: 1, 1: 1, 2: 1}]


def test_with_d_decodes_prompts_get_no_more_than_the_rest_of_the_budget() -> None:
    made = scheduler()
    run = drive(made, [(0, prompt(key, 3, 9)) for key in range(3)] + [(1, prompt(3, 30, 1))])
    assert [shape.get(3, 0) for shape in run.shapes[:6]] == [0, 7, 7, 7, 7, 2]


def test_the_last_is_preempted_put_to_the_front_and_nobody_joins_in_that_step() -> None:
    # Six blocks: three prompts of a block each, and each answer takes a second block with its first token.
    made = scheduler(6, budget_tokens=20)
    run = drive(made, [(0, prompt(0, 4, 9)), (0, prompt(1, 4, 9)), (0, prompt(2, 4, 9)), (3, prompt(3, 4, 2))])
    # After four tokens more the first two need a third block each: the third sequence, the last, makes room.
    assert run.shapes[:5] == [{0: 4, 1: 4, 2: 4}] + [{0: 1, 1: 1, 2: 1}] * 4
    assert run.shapes[5] == {0: 1, 1: 1}
    preempted = run.plans[5].released
    assert preempted == (2,)
    # It computes prompt and answer again before the later arrival starts.
    assert run.admitted == [0, 1, 2, 2, 3]
    again = next(shape for shape in run.shapes[6:] if 2 in shape)
    assert again[2] == 4 + 5
    assert made.num_preemptions == 1


def test_nobody_joins_in_a_step_that_preempted_though_a_chunk_would_fit() -> None:
    made = scheduler(5, budget_tokens=20, long_prefill_tokens=4, reserve_full_sequence=False)
    run = drive(made, [(0, prompt(0, 4, 9)), (0, prompt(1, 4, 9))])
    first = next(index for index, plan in enumerate(run.plans) if plan.released == (1,))
    assert run.shapes[first : first + 2] == [{0: 1}, {0: 1, 1: 4}]


def test_a_victim_before_the_one_it_makes_room_for_gives_back_its_tokens_and_nobody_is_skipped() -> None:
    made = scheduler(4, budget_tokens=5, order=Order.PRIORITY, reserve_full_sequence=False)
    steps = []
    for key, (tokens, priority) in enumerate([(3, 5), (3, 1), (9, 1)]):
        made.add(prompt(key, tokens, 6, priority))
        plan = made.plan()
        made.update(plan, say(plan))
        steps.append({chunk.sequence_id: chunk.num_tokens for chunk in plan.chunks})
    assert steps == [{0: 3}, {0: 1, 1: 3}, {0: 1, 1: 1, 2: 3}]
    # The second needs a block: the first, served already, goes; the third gets what the budget then has.
    plan = made.plan()
    assert plan.released == (0,)
    assert {chunk.sequence_id: chunk.num_tokens for chunk in plan.chunks} == {1: 1, 2: 4}


def test_a_sequence_that_preempts_itself_ends_the_round() -> None:
    made = scheduler(4, budget_tokens=20)
    drive(made, [(0, prompt(0, 4, 9)), (0, prompt(1, 4, 9))])
    assert made.num_preemptions > 0


def test_under_priority_the_least_urgent_is_preempted_and_the_most_urgent_admitted_first() -> None:
    made = scheduler(4, budget_tokens=20, order=Order.PRIORITY)
    for sequence in (prompt(0, 4, 9, priority=5), prompt(1, 4, 9, priority=1), prompt(2, 3, 2, priority=9)):
        made.add(sequence)
    first = made.plan()
    assert [chunk.sequence_id for chunk in first.chunks] == [1, 0, 2]
    made.update(first, say(first))
    # Each of the two needs a second block, one is left: the least urgent goes.
    second = made.plan()
    assert second.released == (2,)
    assert [chunk.sequence_id for chunk in second.chunks] == [1, 0]
    made.update(second, say(second))
    assert [one.sequence_id for one in made.waiting] == [2]


def test_a_victim_that_was_served_in_this_step_gives_its_tokens_back() -> None:
    # The urgent one stands behind in the running list: it was admitted later.
    made = scheduler(4, order=Order.PRIORITY)
    made.add(prompt(0, 7, 9, priority=5))
    for _ in range(2):
        plan = made.plan()
        made.update(plan, say(plan))
    made.add(prompt(1, 7, 9, priority=1))
    plans: list[StepPlan] = []
    while not plans or not plans[-1].released:
        plans.append(made.plan())
        made.update(plans[-1], say(plans[-1]))
    assert plans[-1].released == (0,)
    assert [chunk.sequence_id for chunk in plans[-1].chunks] == [1]


def test_the_head_of_the_queue_holds_back_what_would_fit() -> None:
    made = scheduler(6, budget_tokens=40)
    made.add(prompt(0, 15, 2))
    made.add(prompt(1, 12, 2))
    made.add(prompt(2, 1, 2))
    assert [chunk.sequence_id for chunk in made.plan().chunks] == [0]


def test_admission_looks_at_the_whole_sequence_unless_told_not_to() -> None:
    for whole, expected in ((True, {0: 4}), (False, {0: 4, 1: 6})):
        made = scheduler(5, reserve_full_sequence=whole)
        made.add(prompt(0, 4, 2))
        made.add(prompt(1, 17, 2))
        assert {chunk.sequence_id: chunk.num_tokens for chunk in made.plan().chunks} == expected


def test_the_watermark_stays_free_at_admission() -> None:
    made = scheduler(10, watermark_fraction=0.2, budget_tokens=40)
    for key in range(3):
        made.add(prompt(key, 16, 2))
    assert [chunk.sequence_id for chunk in made.plan().chunks] == [0, 1]
    tight = scheduler(10, watermark_fraction=0.3, budget_tokens=40)
    for key in range(3):
        tight.add(prompt(key, 16, 2))
    assert [chunk.sequence_id for chunk in tight.plan().chunks] == [0]
    with pytest.raises(DoesNotFit, match="with 3 to spare"):
        tight.add(prompt(9, 29, 2))


def test_without_chunks_a_prompt_that_exceeds_what_is_left_waits() -> None:
    made = scheduler(chunked_prefill=False)
    run = drive(made, [(0, prompt(0, 6, 2)), (0, prompt(1, 6, 2)), (0, prompt(2, 2, 1))])
    assert run.shapes == [{0: 6}, {0: 1, 1: 6, 2: 2}, {1: 1}]
    with pytest.raises(DoesNotFit, match="chunked prefill"):
        made.add(prompt(3, 10, 2))


def test_a_long_prompt_is_limited_unless_it_is_alone() -> None:
    made = scheduler(long_prefill_tokens=3)
    run = drive(made, [(0, prompt(0, 20, 1)), (1, prompt(1, 4, 2))])
    assert run.shapes == [{0: 10}, {0: 3, 1: 3}, {0: 3, 1: 1}, {0: 3, 1: 1}, {0: 1}]


def test_the_answer_ends_with_the_context_of_the_model() -> None:
    made = scheduler(max_model_len=8)
    run = drive(made, [(0, prompt(0, 5, 50))])
    assert run.ended[0].num_tokens == 8
    with pytest.raises(DoesNotFit, match="the model takes 8"):
        made.add(prompt(1, 8, 1))


def test_hits_cost_no_budget_and_one_step_does_not_share_with_itself() -> None:
    made = scheduler(prefix_caching=True, budget_tokens=40)
    same = [7] * 10
    run = drive(
        made,
        [
            (0, Sequence(0, same, max_new_tokens=3)),
            (0, Sequence(1, same, max_new_tokens=3)),
            (1, Sequence(2, same, max_new_tokens=3)),
        ],
    )
    assert run.shapes[0] == {0: 10, 1: 10}
    # Two full blocks of four are found; at least one token is computed.
    assert run.shapes[1] == {0: 1, 1: 1, 2: 2}


def test_a_fully_cached_prompt_of_whole_blocks_computes_its_last_block_again() -> None:
    made = scheduler(prefix_caching=True)
    run = drive(made, [(0, Sequence(0, [7] * 8, max_new_tokens=1)), (1, Sequence(1, [7] * 8, max_new_tokens=1))])
    assert run.shapes == [{0: 8}, {1: 4}]


def test_a_preempted_sequence_finds_its_own_blocks_again() -> None:
    made = scheduler(8, prefix_caching=True, budget_tokens=40)
    drive(made, [(0, prompt(key, 7, 9)) for key in range(3)])
    assert made.num_preemptions > 0
    assert made.kv.readmission_hits.num_requests == made.num_preemptions


def test_a_token_comes_only_when_all_before_it_are_computed() -> None:
    made = scheduler()
    made.add(prompt(0, 25, 2))
    produced = []
    for _ in range(3):
        plan = made.plan()
        produced.append([chunk.produces for chunk in plan.chunks])
        made.update(plan, say(plan))
    assert produced == [[False], [False], [True]]
    assert made.running[0].status is Status.RUNNING
