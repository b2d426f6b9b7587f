"""Five requests on two slots, step by step, as one works it out by hand."""

from __future__ import annotations

import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.static import StaticScheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill, unit_step
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.records import StepRecord
from infcalc.simulation.request import Request

FIVE = [
    Request(arrival_ps=arrival * PS_PER_S, prompt_tokens=prompt, output_tokens=answer)
    for arrival, prompt, answer in ((0, 4, 3), (0, 6, 1), (0, 5, 2), (0, 3, 4), (3, 8, 2))
]
"""Named A to E below. Every step takes a second."""

Step = tuple[int, int, tuple[tuple[int, int], ...], int, int]
"""Decodes, their context in all, (new, cached) of each prompt, requests without their whole answer, and waiting."""


def kv() -> KvCacheManager:
    return KvCacheManager(100, 4)


STATIC: list[Step] = [
    (0, 0, ((4, 0), (6, 0)), 2, 2),  # A and B; B has its one token
    (1, 4, (), 1, 2),  # A, with B's place kept
    (1, 5, (), 1, 2),  # A ends, and the batch with it; E arrives
    (0, 0, ((5, 0), (3, 0)), 2, 1),  # C and D
    (2, 5 + 3, (), 2, 1),  # C ends
    (1, 4, (), 1, 1),
    (1, 5, (), 1, 1),  # D ends, and the batch
    (0, 0, ((8, 0),), 1, 0),  # E
    (1, 8, (), 1, 0),
]
CONTINUOUS: list[Step] = [
    (0, 0, ((4, 0), (6, 0)), 2, 2),  # A and B; B leaves
    (1, 4, ((5, 0),), 2, 1),  # A, and C comes
    (2, 5 + 5, (), 2, 1),  # both end; E arrives
    (0, 0, ((3, 0), (8, 0)), 2, 0),  # D and E
    (2, 3 + 8, (), 2, 0),  # E ends
    (1, 4, (), 1, 0),
    (1, 5, (), 1, 0),  # D ends
]
VLLM: list[Step] = [
    (0, 0, ((4, 0), (4, 0)), 2, 2),  # eight tokens: A whole, four of B
    (1, 4, ((2, 4),), 2, 2),  # A, and the rest of B, which ends
    (1, 5, ((5, 0),), 2, 1),  # A ends; C comes; E arrives
    (1, 5, ((3, 0),), 2, 1),  # C ends; D comes
    (1, 3, ((7, 0),), 2, 0),  # D; seven tokens of E are left room for
    (2, 4 + 7, (), 2, 0),  # D, and the last token of E's prompt
    (2, 5 + 8, (), 2, 0),  # both end
]


@pytest.mark.parametrize(
    ("scheduler", "wanted", "ends_s", "firsts_s"),
    [
        (StaticScheduler(kv(), max_num_seqs=2), STATIC, [3, 3, 7, 7, 9], [1, 1, 4, 4, 8]),
        (ContinuousScheduler(kv(), max_num_seqs=2), CONTINUOUS, [3, 1, 3, 7, 5], [1, 1, 2, 4, 4]),
        (
            VllmScheduler(kv(), VllmLimits(max_num_seqs=2, budget_tokens=8)),
            VLLM,
            [3, 2, 4, 7, 7],
            [1, 2, 3, 4, 6],
        ),
    ],
    ids=["static", "continuous", "vllm"],
)
def test_five_requests_by_hand(
    scheduler: Scheduler, wanted: list[Step], ends_s: list[int], firsts_s: list[int]
) -> None:
    steps: list[StepRecord] = []
    records = run_step_by_step(scheduler, FIVE, unit_step, observe=steps.append)
    assert [step.start_ps for step in steps] == [second * PS_PER_S for second in range(len(wanted))]
    assert [(step.shape, step.num_live, step.num_waiting) for step in steps] == [
        (
            BatchShape(
                num_decodes=decodes,
                decode_context_tokens=context,
                prefills=tuple(Prefill(new_tokens=new, cached_tokens=cached) for new, cached in prompts),
            ),
            live,
            waiting,
        )
        for decodes, context, prompts, live, waiting in wanted
    ]
    assert [record.end_ps for record in records] == [second * PS_PER_S for second in ends_s]
    assert [record.first_token_ps for record in records] == [second * PS_PER_S for second in firsts_s]
