from __future__ import annotations

import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.sarathi import SarathiScheduler
from infcalc.scheduling.sequence import Sequence
from tests.scheduling.driving import drive, say


def scheduler(num_blocks: int = 100, chunk_tokens: int = 10) -> SarathiScheduler:
    return SarathiScheduler(
        KvCacheManager(num_blocks + 1, 4, prefix_caching=False), max_num_seqs=4, chunk_tokens=chunk_tokens
    )


def prompt(key: int, tokens: int, answer: int) -> Sequence:
    return Sequence(key, [key] * tokens, max_new_tokens=answer)


def test_decodes_then_prompts_under_way_then_new_ones() -> None:
    run = drive(scheduler(), [(0, prompt(0, 4, 6)), (0, prompt(1, 15, 3)), (0, prompt(2, 9, 2))])
    assert [list(shape.items()) for shape in run.shapes] == [
        [(0, 4), (1, 6)],
        [(0, 1), (1, 9)],
        # The answer of the second begins: decodes first, then the third fills the rest.
        [(0, 1), (1, 1), (2, 8)],
        [(0, 1), (1, 1), (2, 1)],
        [(0, 1), (2, 1)],
        [(0, 1)],
    ]


def test_a_prompt_gets_all_its_blocks_at_admission() -> None:
    made = scheduler(8)
    made.add(prompt(0, 26, 2))
    made.add(prompt(1, 6, 2))
    plan = made.plan()
    assert [chunk.num_tokens for chunk in plan.chunks] == [10]
    assert len(plan.chunks[0].block_table) == 7
    made.update(plan, say(plan))
    # One block is left, the second prompt needs two: it waits though the budget has room.
    made.update(plan := made.plan(), say(plan))
    plan = made.plan()
    assert {chunk.sequence_id: chunk.num_tokens for chunk in plan.chunks} == {0: 6}


def test_the_last_running_makes_room_for_a_decode_even_in_the_middle_of_its_prompt() -> None:
    made = scheduler(6)
    run = drive(made, [(0, prompt(0, 4, 9)), (0, prompt(1, 17, 1))])
    # All six blocks are taken at once; the first answer needs one, and the second prompt starts anew.
    assert run.shapes[0] == {0: 4, 1: 6}
    assert run.plans[1].released == (1,)
    assert run.shapes[1] == {0: 1}
    assert made.num_preemptions == 1
    assert sum(shape.get(1, 0) for shape in run.shapes) == 6 + 17


def test_every_decode_must_fit_into_a_step() -> None:
    with pytest.raises(ValueError, match="3 tokens per step cannot serve 4"):
        scheduler(chunk_tokens=3)
