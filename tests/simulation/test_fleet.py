"""Several replicas, closed loops and sessions, step by step: one replica is the oracle, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import PS_PER_S, unit_step
from infcalc.simulation.fleet import Fleet
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.records import Outcome, RequestRecord, StepRecord
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request, Span
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.sending import NOBODY, Sending
from tests.simulation.fast.cases import case_of
from tests.simulation.fast.test_bit_identical import MOST_SEED


def fleet_of(
    requests: Sequence[Request],
    sending: Sending | None = None,
    *,
    number: int = 1,
    router: RouterKind = RouterKind.ROUND_ROBIN,
    seats: int = 4,
    front_end: FrontEndTimes | None = None,
    num_locked: int = 1,
    steps: list[tuple[int, StepRecord]] | None = None,
) -> Fleet:
    limits = VllmLimits(max_num_seqs=seats, budget_tokens=64, max_model_len=None)
    replicas = [Replica(VllmScheduler(KvCacheManager(65, 4), limits), unit_step) for _ in range(number)]
    return Fleet(
        replicas,
        requests,
        sending or Sending(times_ps=[one.arrival_ps for one in requests]),
        router=Router(router, number),
        front_end=front_end,
        num_locked=num_locked,
        observe=None if steps is None else lambda place, step: steps.append((place, step)),
    )


def alike(count: int, *, every_s: float = 0.0, prompt: int = 8, answer: int = 4) -> list[Request]:
    return [
        Request(arrival_ps=round(number * every_s * PS_PER_S), prompt_tokens=prompt, output_tokens=answer)
        for number in range(count)
    ]


def ended(records: Sequence[RequestRecord]) -> list[int]:
    assert all(record.outcome is Outcome.FINISHED for record in records)
    return [record.end_ps // PS_PER_S for record in records]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, MOST_SEED))
def test_one_replica_with_an_open_load_is_the_oracle(seed: int) -> None:
    case = case_of(seed)
    times = [one.arrival_ps for one in case.load]
    fleet = Fleet(
        [Replica(case.make(), case.timer)],
        case.load,
        Sending(times_ps=times),
        router=Router(RouterKind.ROUND_ROBIN, 1),
    )
    records = fleet.run()
    oracle = run_step_by_step(case.make(), case.load, case.timer)
    # Whoever is rejected hears of it when it comes; the oracle looks up when a step has ended.
    assert records == tuple(replace(one, end_ps=one.arrival_ps) if one.reason else one for one in oracle), case.what
    assert fleet.sent_ps == times


def test_clients_send_the_next_when_they_have_the_answer_and_have_thought() -> None:
    # Two clients, four steps an answer, two seconds of thought: 0..4, 6..10, 12..16.
    fleet = fleet_of(alike(5), Sending(times_ps=[0] * 5, pauses_ps=[2 * PS_PER_S] * 5, num_clients=2))
    records = fleet.run()
    assert [None if moment is None else moment // PS_PER_S for moment in fleet.sent_ps] == [0, 0, 6, 6, 12]
    assert ended(records) == [4, 4, 10, 10, 16]


def test_a_turn_is_sent_after_the_answer_before_as_its_sender_sees_it() -> None:
    sending = Sending(times_ps=[0, 0, 7 * PS_PER_S], follows=[NOBODY, 0, NOBODY], pauses_ps=[0, 3 * PS_PER_S, 0])
    front = FrontEndTimes(latency_ps=PS_PER_S)
    fleet = fleet_of(alike(3), sending, front_end=front)
    records = fleet.run()
    # Ended at 4, seen at 5, thought until 8.
    assert [None if moment is None else moment // PS_PER_S for moment in fleet.sent_ps] == [0, 8, 7]
    assert ended(records) == [4, 12, 11]


def test_a_front_end_takes_in_one_after_the_other() -> None:
    front = FrontEndTimes(request_ps=2 * PS_PER_S)
    fleet = fleet_of(alike(3), front_end=front)
    records = fleet.run()
    assert [record.arrival_ps // PS_PER_S for record in records] == [2, 4, 6]
    assert ended(records) == [6, 8, 10]


def test_locked_replicas_step_together_as_late_as_the_longest() -> None:
    steps: list[tuple[int, StepRecord]] = []
    fleet = fleet_of([*alike(1, answer=2), *alike(1, answer=6)], number=2, num_locked=2, steps=steps)
    records = fleet.run()
    assert fleet.placed == [0, 1]
    assert ended(records) == [2, 6]
    both = [step.start_ps for place, step in steps if place == 0]
    assert both == [step.start_ps for place, step in steps if place == 1][: len(both)]
    with pytest.raises(ValueError, match="groups"):
        fleet_of(alike(1), number=3, num_locked=2)


@settings(max_examples=25, deadline=None)
@given(
    number=st.integers(1, 4),
    router=st.sampled_from(list(RouterKind)),
    clients=st.integers(1, 9),
    count=st.integers(1, 30),
    locked=st.booleans(),
)
def test_nothing_is_lost_and_no_more_are_under_way_than_clients(
    number: int, router: RouterKind, clients: int, count: int, *, locked: bool
) -> None:
    requests = alike(count, prompt=9, answer=3)
    sending = Sending(times_ps=[0] * count, pauses_ps=[0] * count, num_clients=clients)
    fleet = fleet_of(requests, sending, number=number, router=router, num_locked=number if locked else 1)
    records = fleet.run()
    assert [record.index for record in records] == list(range(count))
    moments = sorted({moment for moment in fleet.sent_ps if moment is not None})
    for moment in moments:
        under_way = sum(
            sent is not None and sent <= moment < record.end_ps
            for sent, record in zip(fleet.sent_ps, records, strict=True)
        )
        assert under_way <= clients


def test_a_run_that_is_broken_off_keeps_what_it_has() -> None:
    fleet = fleet_of(alike(6, every_s=10))
    calls = 0

    def stop(place: int, step: StepRecord) -> None:
        nonlocal calls
        del place, step
        calls += 1
        if calls > 10:
            raise KeyboardInterrupt

    fleet._observe = stop  # noqa: SLF001 - as an observer that the user stops
    with pytest.raises(KeyboardInterrupt):
        fleet.run()
    assert [record.index for record in fleet.records] == [0, 1]
    assert fleet.sent_ps[3:] == [None, None, None]
    assert fleet.now_ps == 22 * PS_PER_S


def test_columns_that_no_load_can_have_are_refused() -> None:
    with pytest.raises(ValueError, match="earlier"):
        Sending(times_ps=[0, 0], follows=[1, NOBODY], pauses_ps=[0, 0])
    with pytest.raises(ValueError, match="columns"):
        Sending(times_ps=[0, 0], pauses_ps=[0])
    with pytest.raises(ValueError, match="single"):
        Sending(times_ps=[0, 0], follows=[NOBODY, 0], pauses_ps=[0, 0], num_clients=1)
    with pytest.raises(ValueError, match="times for"):
        fleet_of(alike(2), Sending(times_ps=[0]))


def test_shared_beginnings_are_found_where_they_were_sent() -> None:
    # Two groups of prompts: by prefix each replica holds one, in turn both hold both.
    def prompts() -> list[Request]:
        return [
            Request(
                arrival_ps=number * 10 * PS_PER_S,
                prompt_tokens=40,
                output_tokens=1,
                spans=(Span(text=number % 4 // 2, num_tokens=32),),
            )
            for number in range(8)
        ]

    aware = fleet_of(prompts(), number=2, router=RouterKind.PREFIX_AWARE).run()
    turns = fleet_of(prompts(), number=2).run()
    assert sum(record.hit_tokens > 0 for record in aware) == 6
    assert sum(record.hit_tokens > 0 for record in turns) == 4
