"""Sequences whose prompts are computed elsewhere, and blocks that outlive their sequence."""

from __future__ import annotations

import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler


def scheduler(*, blocks: int = 9, seats: int = 2) -> VllmScheduler:
    kv = KvCacheManager(blocks, 4, prefix_caching=False)
    return VllmScheduler(kv, VllmLimits(max_num_seqs=seats, budget_tokens=8))


def sequence(key: int, prompt: int = 8, answer: int = 3) -> Sequence:
    return Sequence(key, [key] * prompt, max_new_tokens=answer)


def test_an_expected_sequence_holds_blocks_and_a_place_and_runs_when_it_joins() -> None:
    one = scheduler()
    assert one.expect(sequence(1), 8)
    assert not one.has_work
    assert one.kv.num_free_blocks == 6
    one.join(1, 8, first=7)
    one.check_invariants()
    assert one.running[0].status is Status.RUNNING
    plan = one.plan()
    (chunk,) = plan.chunks
    assert (chunk.cached_tokens, chunk.tokens, chunk.produces) == (8, (7,), True)
    assert [ended.sequence_id for ended in one.update(plan, {1: 5})] == []
    plan = one.plan()
    (ended,) = one.update(plan, {1: 5})
    assert ended.tokens == [1] * 8 + [7, 5, 5]
    assert one.kv.num_free_blocks == one.num_blocks


def test_the_last_token_of_a_prompt_may_be_computed_where_it_joins() -> None:
    one = scheduler()
    assert one.expect(sequence(1), 7, num_lookahead_tokens=1)
    one.join(1, 7)
    (chunk,) = one.plan().chunks
    assert (chunk.cached_tokens, chunk.tokens, chunk.produces) == (7, (1,), True)
    assert one.kv.num_free_blocks == 6
    short = scheduler()
    assert short.expect(sequence(2, prompt=1), 0, num_lookahead_tokens=1)
    short.join(2, 0)
    (chunk,) = short.plan().chunks
    assert (chunk.cached_tokens, chunk.num_tokens) == (0, 1)


def test_nobody_is_expected_without_a_place_or_room_or_before_who_waits() -> None:
    one = scheduler()
    assert not one.expect(sequence(1), 8, num_spare_tokens=25)
    assert one.expect(sequence(1), 8, num_spare_tokens=24)
    assert not one.expect(sequence(2, prompt=28), 28)
    assert one.expect(sequence(2), 8)
    assert not one.expect(sequence(3), 8)
    with pytest.raises(ValueError, match="cannot be added"):
        one.add(sequence(1))
    busy = scheduler()
    busy.add(sequence(1))
    assert not busy.expect(sequence(2), 8)
    with pytest.raises(KeyError):
        busy.join(2, 8)


def test_a_kept_sequence_leaves_its_blocks_until_they_were_read() -> None:
    one = scheduler()
    one.kept.add(1)
    one.add(sequence(1, answer=1))
    plan = one.plan()
    (ended,) = one.update(plan, {1: 5})
    assert ended.status is Status.FINISHED
    assert (one.num_lingering, one.kv.num_free_blocks) == (1, 6)
    assert not one.has_work
    one.release(1)
    assert (one.num_lingering, one.kv.num_free_blocks) == (0, one.num_blocks)
    with pytest.raises(KeyError):
        one.release(1)
