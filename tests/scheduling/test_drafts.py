"""Drafts in plans: counted against the budget, with slots ahead, and taken back where they are rejected."""

from __future__ import annotations

import pytest

from infcalc.errors import DoesNotFit
from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.drafts import Drafts
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.step_plan import StepPlan
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from tests.scheduling.driving import Shadow

EAGLE = Drafts(num_tokens=3, num_lookahead_tokens=3)
LOOKUP = Drafts(num_tokens=3)


def vllm(
    drafts: Drafts = EAGLE,
    *,
    blocks: int = 40,
    block: int = 4,
    seats: int = 4,
    budget: int = 64,
    length: int | None = None,
) -> VllmScheduler:
    limits = VllmLimits(max_num_seqs=seats, budget_tokens=budget, max_model_len=length)
    return VllmScheduler(KvCacheManager(blocks + 1, block), limits, drafts=drafts)


def sequence(key: int, prompt: int, answer: int) -> Sequence:
    return Sequence(key, [100 * key + place for place in range(prompt)], max_new_tokens=answer)


def right(key: int, position: int) -> int:
    """Return the token that belongs at a position of a sequence."""
    return 1000 * (key + 1) + position


def step(scheduler: Scheduler, accepted: dict[int, int], shadow: Shadow | None = None) -> tuple[StepPlan, list[int]]:
    """Carry out a step; drafts are right up to what is accepted, and nonsense behind. Return who ended."""
    for one in scheduler.running:
        if one.is_decoding and not one.is_complete:
            good, end = accepted.get(one.sequence_id, 0), one.num_tokens
            drafts = [right(one.sequence_id, end + place) if place < good else -7 for place in range(3)]
            scheduler.propose(one.sequence_id, drafts)
    plan = scheduler.plan()
    if shadow is not None:
        shadow.carry_out(plan)
    produced, kept = {}, {}
    for chunk in plan.chunks:
        if chunk.produces:
            kept[chunk.sequence_id] = min(accepted.get(chunk.sequence_id, 0), chunk.num_draft_tokens)
            end = chunk.cached_tokens + chunk.num_tokens - chunk.num_draft_tokens + kept[chunk.sequence_id]
            produced[chunk.sequence_id] = right(chunk.sequence_id, end)
    ended = scheduler.update(plan, produced, kept)
    scheduler.check_invariants()
    return plan, [one.sequence_id for one in ended]


def test_a_round_computes_the_last_token_and_its_drafts_and_keeps_what_is_accepted() -> None:
    scheduler = vllm()
    one = sequence(0, 6, 9)
    scheduler.add(one)
    plan, _ = step(scheduler, {0: 2})
    assert [(chunk.num_tokens, chunk.num_draft_tokens) for chunk in plan.chunks] == [(6, 0)]
    plan, _ = step(scheduler, {0: 2})
    (chunk,) = plan.chunks
    assert (chunk.cached_tokens, chunk.num_tokens, chunk.num_draft_tokens) == (6, 4, 3)
    assert chunk.tokens == (right(0, 6), right(0, 7), right(0, 8), -7)
    # Two drafts and the token behind them are there, the third is gone.
    assert one.tokens[6:] == [right(0, place) for place in range(6, 10)]
    assert one.cached_tokens == 9
    plan, _ = step(scheduler, {0: 0})
    assert plan.chunks[0].tokens[0] == right(0, 9)
    assert one.tokens[6:] == [right(0, place) for place in range(6, 11)]


@pytest.mark.parametrize(("drafts", "ahead"), [(EAGLE, 3), (LOOKUP, 0)])
def test_who_runs_holds_slots_for_drafts_and_for_the_next_ones(drafts: Drafts, ahead: int) -> None:
    scheduler = vllm(drafts, block=1)
    scheduler.add(sequence(0, 6, 9))
    plan, _ = step(scheduler, {})
    # None at admission (vLLM: effective_lookahead_tokens).
    assert len(plan.chunks[0].block_table) == 6
    for cached in (6, 7, 8):
        plan, _ = step(scheduler, {})
        assert len(plan.chunks[0].block_table) == cached + 1 + 3 + ahead


def test_a_prompt_that_is_continued_holds_slots_too() -> None:
    scheduler = vllm(block=1, budget=4)
    scheduler.add(sequence(0, 6, 9))
    plan, _ = step(scheduler, {})
    assert len(plan.chunks[0].block_table) == 4
    plan, _ = step(scheduler, {})
    assert len(plan.chunks[0].block_table) == 6 + 3


def test_drafts_count_against_the_budget_and_are_cut_where_it_ends() -> None:
    scheduler = vllm(seats=3, budget=10)
    for key in range(2):
        scheduler.add(sequence(key, 3, 9))
    step(scheduler, {})
    scheduler.add(sequence(2, 9, 9))
    plan, _ = step(scheduler, {})
    assert [chunk.num_tokens for chunk in plan.chunks] == [4, 4, 2]
    narrow = vllm(seats=3, budget=6)
    for key in range(2):
        narrow.add(sequence(key, 3, 9))
    step(narrow, {})
    plan, _ = step(narrow, {0: 3, 1: 3})
    assert [(chunk.num_tokens, chunk.num_draft_tokens) for chunk in plan.chunks] == [(4, 3), (2, 1)]


def test_drafts_end_where_the_longest_sequence_does() -> None:
    scheduler = vllm(block=1, length=12)
    scheduler.add(sequence(0, 6, 99))
    step(scheduler, {})
    seen = []
    while scheduler.has_work:
        plan, _ = step(scheduler, {})
        chunk = plan.chunks[0]
        seen.append((chunk.cached_tokens, chunk.num_tokens, len(chunk.block_table)))
    # cached + computed stay below the length, cached + computed + slots at most there.
    assert seen == [(6, 4, 12), (7, 4, 12), (8, 3, 12), (9, 2, 12), (10, 1, 12)]


def test_an_answer_ends_inside_a_round() -> None:
    scheduler = vllm()
    one = sequence(0, 6, 3)
    scheduler.add(one)
    step(scheduler, {0: 1})
    _, ended = step(scheduler, {0: 1})
    assert ended == [0]
    assert one.generated_tokens == 3
    assert scheduler.kv.num_free_blocks == scheduler.num_blocks


def test_more_than_the_answer_has_room_for_is_a_defect_of_the_caller() -> None:
    scheduler = vllm()
    scheduler.add(sequence(0, 6, 3))
    step(scheduler, {})
    scheduler.propose(0, [1, 2, 3, 4])
    plan = scheduler.plan()
    assert plan.chunks[0].num_draft_tokens == 3
    with pytest.raises(ValueError, match="3 drafts accepted of 3, 2 tokens are left"):
        scheduler.update(plan, {0: 1}, {0: 3})


def test_who_is_preempted_loses_its_drafts() -> None:
    scheduler = vllm(blocks=9, block=2, seats=2)
    first, last = sequence(0, 6, 3), sequence(1, 5, 3)
    scheduler.add(first)
    scheduler.add(last)
    step(scheduler, {})
    plan, _ = step(scheduler, {})
    assert [chunk.sequence_id for chunk in plan.chunks] == [0]
    assert last.status is Status.PREEMPTED
    assert last.draft_tokens == ()
    while scheduler.has_work:
        step(scheduler, {})
    assert last.generated_tokens == 3


@pytest.mark.parametrize("kind", ["static", "continuous", "vllm"])
def test_every_slot_holds_what_belongs_there(kind: str) -> None:
    """Rejected drafts are overwritten before anybody reads them: the shadow engine looks at each token of each plan."""
    kv = KvCacheManager(60, 4)
    scheduler: Scheduler
    match kind:
        case "static":
            scheduler = StaticScheduler(kv, max_num_seqs=3, drafts=EAGLE)
        case "continuous":
            scheduler = ContinuousScheduler(kv, max_num_seqs=3, drafts=EAGLE)
        case _:
            scheduler = VllmScheduler(kv, VllmLimits(max_num_seqs=3, budget_tokens=20), drafts=EAGLE)
    shadow = Shadow(4)
    sequences = [sequence(key, 5 + key, 14) for key in range(5)]
    for one in sequences:
        scheduler.add(one)
    number = 0
    while scheduler.has_work:
        left = {one.sequence_id: one.remaining_tokens - 1 for one in sequences}
        step(scheduler, {key: min((number + key) % 4, left[key]) for key in left}, shadow)
        number += 1
    for one in sequences:
        assert one.tokens[one.prompt_tokens :] == [
            right(one.sequence_id, one.prompt_tokens + place) for place in range(14)
        ]
    assert kv.num_free_blocks == scheduler.num_blocks
    assert number < 5 * 14


def test_a_sequence_whose_drafts_never_fit_is_refused() -> None:
    with pytest.raises(DoesNotFit, match="needs 5 blocks"):
        vllm(blocks=4, block=4).add(sequence(0, 8, 4))
    vllm(blocks=4, block=4, length=16).add(sequence(0, 8, 4))
    with pytest.raises(DoesNotFit, match="needs 5 blocks"):
        StaticScheduler(KvCacheManager(5, 4), max_num_seqs=1, drafts=EAGLE).add(sequence(0, 8, 4))


def test_drafts_come_between_steps_and_behind_a_last_token() -> None:
    scheduler = vllm()
    scheduler.add(sequence(0, 6, 3))
    with pytest.raises(ValueError, match="takes no drafts"):
        scheduler.propose(0, [1])
    scheduler.plan()
    with pytest.raises(RuntimeError, match="under way"):
        scheduler.propose(0, [1])
    with pytest.raises(ValueError, match="-1 drafts"):
        Drafts(num_tokens=-1)
