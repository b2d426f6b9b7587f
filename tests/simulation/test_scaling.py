"""Replicas that come and go: a case one works out by hand, and nobody is lost whatever the rule."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.batch_shape import PS_PER_S, unit_step
from infcalc.simulation.laws import check_laws
from infcalc.simulation.records import Outcome
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.scaling import Gauge, ScaledFleet, ScalingRule
from infcalc.simulation.sending import Sending
from tests.simulation.test_disaggregated import _at


def rule_of(**changes: object) -> ScalingRule:
    given_rule: dict[str, object] = {
        "num_least": 1,
        "num_most": 3,
        "gauge": Gauge.QUEUE,
        "above": 1,
        "below": 0.5,
        "start_ps": 3 * PS_PER_S,
        "window_ps": 4 * PS_PER_S,
        "every_ps": 2 * PS_PER_S,
        "pause_ps": 0,
    }
    return ScalingRule(**(given_rule | changes))  # type: ignore[arg-type]


def engines(number: int = 1, *, seats: int = 1) -> Callable[[], list[Replica]]:
    def make() -> list[Replica]:
        limits = VllmLimits(max_num_seqs=seats, budget_tokens=8)
        return [
            Replica(VllmScheduler(KvCacheManager(17, 4, prefix_caching=False), limits), unit_step)
            for _ in range(number)
        ]

    return make


def fleet_of(
    load: Sequence[Request],
    rule: ScalingRule,
    *,
    router: RouterKind = RouterKind.LEAST_LOADED,
    make: Callable[[], list[Replica]] | None = None,
    num_clients: int | None = None,
    num_locked: int = 1,
) -> ScaledFleet:
    sending = Sending(times_ps=[one.arrival_ps for one in load], num_clients=num_clients)
    return ScaledFleet(make or engines(), rule, load, sending, router=Router(router, 0), num_locked=num_locked)


def at(*moments_s: int, prompt: int = 4, answer: int = 4) -> list[Request]:
    return [Request(arrival_ps=one * PS_PER_S, prompt_tokens=prompt, output_tokens=answer) for one in moments_s]


def counted(fleet: ScaledFleet) -> list[tuple[int, int, int, int]]:
    return [(one.time_ps // PS_PER_S, one.num_serving, one.num_starting, one.num_draining) for one in fleet.counts]


def test_replicas_come_and_go_as_one_works_it_out_by_hand() -> None:
    # One request a second until 11, four seconds each on one place: one comes late, so that time passes.
    fleet = fleet_of(at(*range(12), 60), rule_of())
    records = fleet.run()
    assert counted(fleet) == [
        (0, 1, 0, 0),
        (4, 1, 1, 0),  # waiting from 1 to 4: 0, 1, 2, 3; 1.5 in the mean of four seconds, above 1
        (7, 2, 0, 0),  # serves three seconds later; the request of 7 goes there
        (8, 2, 1, 0),  # waiting 3, 4, 5, 5 from 4 to 8, over two that are there or start: above 1
        (11, 3, 0, 0),
        (24, 2, 0, 0),  # at 24 the mean since 20 is below 0.5 and the third has nothing to do: it ends at once
        (28, 1, 0, 0),
    ]
    assert [fleet.placed[one] for one in range(13)] == [0] * 7 + [1] * 4 + [2, 0]
    assert [record.end_ps // PS_PER_S for record in records] == [4, 8, 12, 16, 20, 24, 28, 11, 15, 19, 23, 15, 64]
    # From the call to the end: 64, 4 to 28 and 8 to 24.
    assert fleet.paid_ps(0, fleet.now_ps) == (64 + 24 + 16) * PS_PER_S
    fleet.check_laws()


def test_who_is_drained_serves_whom_it_has_and_takes_nobody() -> None:
    # Ten short ones call for a second replica at 4; of two long ones that come then each gets one, and nobody waits.
    load = [*at(*[0] * 10, answer=4), *at(5, 6, answer=60), *at(50, answer=4)]
    rule = rule_of(num_most=2, start_ps=0, above=0.25, below=0.2)
    fleet = fleet_of(load, rule, make=engines(seats=2), router=RouterKind.ROUND_ROBIN)
    fleet.run()
    fleet.check_laws()
    drained = [unit for unit in fleet.units if unit.drained_ps is not None]
    assert drained
    waited = []
    for unit in drained:
        assert unit.ended_ps is not None
        assert unit.drained_ps is not None
        mine = [record for record in fleet.records if fleet.placed[record.index] in unit.places]
        assert all(record.arrival_ps <= unit.drained_ps for record in mine)
        assert unit.ended_ps == max([unit.drained_ps, *(record.end_ps for record in mine)])
        waited.append(unit.ended_ps > unit.drained_ps)
    assert any(waited)


def test_a_cache_that_fills_calls_for_more() -> None:
    # 16 blocks of 4 tokens; each holds 8 + 40 tokens in the end: 12 blocks.
    load = at(0, 1, 2, 3, 4, 5, prompt=8, answer=40)
    fleet = fleet_of(load, rule_of(gauge=Gauge.KV, above=0.5, below=0.1), make=engines(seats=4))
    fleet.run()
    fleet.check_laws()
    assert max(one.num_serving for one in fleet.counts) > 1
    calm = fleet_of(load, rule_of(gauge=Gauge.KV, above=1.0, below=0.1), make=engines(seats=4))
    calm.run()
    assert [one.num_paid for one in calm.counts] == [1]


def test_nothing_changes_within_the_pause() -> None:
    fleet = fleet_of(at(*range(12), 60), rule_of(pause_ps=10 * PS_PER_S))
    fleet.run()
    changes = [unit.called_ps for unit in fleet.units[1:]] + [
        unit.drained_ps for unit in fleet.units if unit.drained_ps is not None
    ]
    moments = sorted(changes)
    assert len(moments) > 2
    assert all(later - earlier >= 10 * PS_PER_S for earlier, later in pairwise(moments))


def test_a_replica_that_never_serves_is_paid_until_the_end() -> None:
    fleet = fleet_of(at(*range(8)), rule_of(start_ps=1000 * PS_PER_S))
    records = fleet.run()
    assert counted(fleet)[-1][1:] == (1, 2, 0)
    end_ps = max(record.end_ps for record in records)
    assert fleet.now_ps == end_ps
    assert fleet.paid_ps(0, fleet.now_ps) == sum(end_ps - unit.called_ps for unit in fleet.units)


@settings(max_examples=60, deadline=None)
@given(
    moments=st.lists(st.integers(0, 90), min_size=1, max_size=40),
    lengths=st.data(),
    least=st.integers(1, 2),
    more=st.integers(0, 3),
    gauge=st.sampled_from(list(Gauge)),
    above=st.sampled_from([0.3, 0.8, 2.0]),
    start=st.integers(0, 9),
    pause=st.integers(0, 9),
    router=st.sampled_from(list(RouterKind)),
    clients=st.sampled_from([None, 5]),
    lanes=st.sampled_from([1, 2]),
)
def test_nobody_is_lost_whatever_the_rule(
    *,
    moments: list[int],
    lengths: st.DataObject,
    least: int,
    more: int,
    gauge: Gauge,
    above: float,
    start: int,
    pause: int,
    router: RouterKind,
    clients: int | None,
    lanes: int,
) -> None:
    load = [
        Request(
            arrival_ps=moment * PS_PER_S,
            prompt_tokens=lengths.draw(st.integers(1, 20)),
            output_tokens=lengths.draw(st.integers(1, 60)),
        )
        for moment in moments
    ]
    rule = rule_of(
        num_least=least,
        num_most=least + more,
        gauge=gauge,
        above=above,
        below=above / 2,
        start_ps=start * PS_PER_S,
        pause_ps=pause * PS_PER_S,
    )

    def ran() -> ScaledFleet:
        fleet = fleet_of(load, rule, router=router, make=engines(lanes, seats=3), num_clients=clients, num_locked=lanes)
        fleet.run()
        return fleet

    fleet = ran()
    fleet.check_laws()
    records = sorted(fleet.records, key=lambda one: one.index)
    check_laws([_at(request, record) for request, record in zip(load, records, strict=True)], records)
    assert (ran().records, ran().counts) == (fleet.records, fleet.counts)
    # Paid is at least what the fewest cost, at most what the most and those that drain do.
    assert fleet.paid_ps(0, fleet.now_ps) >= least * fleet.now_ps
    widths = [later.time_ps - one.time_ps for one, later in pairwise(fleet.counts)]
    widths.append(fleet.now_ps - fleet.counts[-1].time_ps)
    assert fleet.paid_ps(0, fleet.now_ps) == sum(
        one.num_paid * width for one, width in zip(fleet.counts, widths, strict=True)
    )


def test_everybody_may_be_refused() -> None:
    fleet = fleet_of(at(0, 1, prompt=400), rule_of())
    assert [record.outcome for record in fleet.run()] == [Outcome.REJECTED] * 2
    assert not fleet_of([], rule_of()).run()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"num_least": 4}, "4 to 3"),
        ({"below": 1}, "less"),
        ({"every_ps": 3 * PS_PER_S}, "whole number of looks"),
        ({"window_ps": PS_PER_S}, "spans a look"),
        ({"start_ps": -1}, "below 0"),
    ],
)
def test_rules_that_cannot_be_are_refused(changes: dict[str, object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        rule_of(**changes)
