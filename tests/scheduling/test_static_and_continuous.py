"""Static against continuous batching: who is in each step."""

from __future__ import annotations

import numpy as np
import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence
from infcalc.scheduling.static import StaticScheduler
from tests.scheduling.driving import Run, drive


def sequences(answers: list[int], prompt: int = 3) -> list[tuple[int, Sequence]]:
    return [(0, Sequence(key, [key] * prompt, max_new_tokens=answer)) for key, answer in enumerate(answers)]


def manager(num_blocks: int = 1000) -> KvCacheManager:
    return KvCacheManager(num_blocks, 4, prefix_caching=False)


def test_a_static_batch_runs_until_its_longest_answer_ends() -> None:
    run = drive(StaticScheduler(manager(), max_num_seqs=2), sequences([2, 4, 1]))
    assert run.shapes == [{0: 3, 1: 3}, {0: 1, 1: 1}, {1: 1}, {1: 1}, {2: 3}]
    assert [one.sequence_id for one in run.ended] == [0, 1, 2]


def test_nobody_leaves_a_static_batch_before_its_end() -> None:
    scheduler = StaticScheduler(manager(), max_num_seqs=2)
    for _, sequence in sequences([1, 3]):
        scheduler.add(sequence)
    free = scheduler.kv.num_free_blocks
    ended = []
    while scheduler.has_work:
        plan = scheduler.plan()
        assert scheduler.kv.num_free_blocks == free - 1 - 2
        ended.append(scheduler.update(plan, {chunk.sequence_id: 1 for chunk in plan.chunks}))
    assert [len(step) for step in ended] == [0, 0, 2]


def test_orca_fills_a_seat_as_soon_as_it_is_free() -> None:
    run = drive(ContinuousScheduler(manager(), max_num_seqs=2), sequences([2, 4, 1]))
    assert run.shapes == [{0: 3, 1: 3}, {0: 1, 1: 1}, {1: 1, 2: 3}, {1: 1}]
    assert [one.sequence_id for one in run.ended] == [0, 2, 1]


@pytest.mark.parametrize("policy", [StaticScheduler, ContinuousScheduler])
def test_the_longest_length_is_reserved_and_the_head_of_the_queue_holds_back_the_rest(
    policy: type[StaticScheduler | ContinuousScheduler],
) -> None:
    # Nine blocks of 4: the first takes 4 (3 + 13 - 1 tokens), the second needs 6, the third would need one.
    scheduler = policy(manager(10), max_num_seqs=3)
    for _, sequence in sequences([13, 20, 1]):
        scheduler.add(sequence)
    assert [chunk.sequence_id for chunk in scheduler.plan().chunks] == [0]
    assert scheduler.kv.num_free_blocks == 9 - 4


def steps_and_utilization(scheduler: Scheduler, answers: list[int], seats: int) -> tuple[int, float]:
    run: Run = drive(scheduler, sequences(answers))
    waiting, filled = len(answers), []
    for shape in run.shapes:
        waiting -= sum(num == 3 for num in shape.values())
        if waiting:
            filled.append(len(shape) / seats)
    return len(run.shapes), float(np.mean(filled))


@pytest.mark.parametrize("seed", range(5))
def test_pareto_answers_keep_continuous_batching_above_80_percent(seed: int) -> None:
    answers = np.minimum(np.random.default_rng(seed).pareto(1.2, 50) * 8 + 1, 200).astype(int).tolist()
    continuous = steps_and_utilization(ContinuousScheduler(manager(), max_num_seqs=8), answers, 8)
    static = steps_and_utilization(StaticScheduler(manager(), max_num_seqs=8), answers, 8)
    assert continuous[1] > 0.8 > static[1]
    assert static[0] > 1.3 * continuous[0]


def test_equal_lengths_tie() -> None:
    answers = [9] * 48
    continuous = steps_and_utilization(ContinuousScheduler(manager(), max_num_seqs=8), answers, 8)
    assert steps_and_utilization(StaticScheduler(manager(), max_num_seqs=8), answers, 8) == continuous
