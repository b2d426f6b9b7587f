"""What falls back when it is simulated: the least that is confirmed, in few simulations, the cheapest first."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk
from infcalc.api.plan_fallback import judged
from infcalc.api.plan_nouns import Confirmation, Simulated
from infcalc.api.plan_search import Field, Found, weigh
from infcalc.api.planning import plan
from infcalc.planning.nouns import Miss
from tests.api.test_planning import CHAT, SLO, field_of

if TYPE_CHECKING:
    from collections.abc import Callable

USERS: dict[str, Any] = {"num_users": 2000, "slo": SLO, "gpus_from": ("l40s", "h100-sxm5-80gb"), **CHAT}
ASKED = PlanAsk(**USERS, num_confirmed=1, num_workers=1)


def said(found: Found, value_s: float) -> Confirmation:
    """Return what a simulator would say whose one limit is a second."""
    met = value_s <= 1.0
    return Confirmation(
        confirmed=met,
        requests=2000,
        num_warm=100,
        slo=(Simulated(name="ttft-p95", limit_s=1.0, value_s=value_s, met=met),),
        ttft_p95_s=value_s,
        tpot_p95_s=0.01,
        e2e_p95_s=2.0,
        output_tokens_per_s=found.tokens_per_s.value,
        goodput_fraction=1.0,
        preemptions=0,
        scheduled_ahead_s=0.0,
        text="confirmed: simulated ttft-p95" if met else "not confirmed: simulated ttft-p95",
    )


class Simulator:
    """Confirms a setup from so many times the replicas of the closed form on; counts what it is asked."""

    def __init__(self, found: list[Found], times: Callable[[Found], float]) -> None:
        self.least = {one.setup: math.ceil(one.num_needed * times(one)) for one in found}
        self.asked: list[tuple[object, int]] = []

    def __call__(self, field: Field, item: tuple[Found, int]) -> Confirmation:
        one, _ = item
        assert field.demand.num_users == 2000
        self.asked.append((one.setup, one.num_needed))
        return said(one, self.least[one.setup] / one.num_needed)


def plans(asked: PlanAsk = ASKED) -> tuple[Field, list[Found]]:
    field, offered = field_of(asked, pp=1)
    found = [one for one in (weigh(field, setup).found for setup in offered) if one is not None]
    return field, sorted(found, key=lambda one: one.order(field.goal))


@pytest.mark.parametrize("times", [1.0, 1.01, 1.3, 2.0, 5.0])
def test_the_least_number_is_found_in_few_simulations(times: float) -> None:
    field, found = plans()
    one = found[:1]
    simulator = Simulator(one, lambda _: times)
    result = judged(field, one, ASKED, simulator)
    wanted = simulator.least[one[0].setup]
    assert result.chosen[0].num_needed == wanted
    assert result.num_simulated == len(simulator.asked)
    assert len(simulator.asked) <= 2 * math.log2(wanted) + 3
    assert len({number for _, number in simulator.asked}) == len(simulator.asked)
    confirmation = result.confirmations[0]
    assert confirmation is not None
    assert [trial.replicas for trial in confirmation.trials] == [number for _, number in simulator.asked]
    missed = [one.num_replicas for one in result.missed]
    assert all(number is not None and number < wanted for number in missed)
    assert all(one.kind is Miss.SIMULATION and one.suffices for one in result.missed)
    assert all(one.change == f"{wanted} replicas" for one in result.missed)
    if missed:
        assert str(max(number for number in missed if number is not None)) in confirmation.text


@pytest.mark.parametrize("wanted", [1, 3])
def test_the_cheapest_that_are_confirmed_are_found(wanted: int) -> None:
    """Setups that miss by different factors: those with the least cost after all are kept, as trying all would."""
    asked = PlanAsk(**USERS, num_confirmed=wanted, num_workers=1)
    field, found = plans(asked)
    factors = {one.setup: (1.0, 1.4, 1.1, 2.5, 1.2)[place % 5] for place, one in enumerate(found)}
    simulator = Simulator(found, lambda one: factors[one.setup])
    result = judged(field, found, asked, simulator)
    assert not any("not been tried" in note for note in result.notes)
    costs = sorted(
        one.usd_per_hour.value / one.num_replicas * simulator.least[one.setup]
        for one in found
        if one.usd_per_hour is not None
    )
    kept = [
        one.usd_per_hour.value
        for one, told in zip(result.chosen, result.confirmations, strict=True)
        if told is not None and one.usd_per_hour is not None
    ]
    assert len(kept) >= wanted
    assert kept[:wanted] == pytest.approx(costs[:wanted])
    assert len(simulator.asked) <= 8 * wanted


def test_what_no_number_helps_is_given_up_at_once() -> None:
    field, found = plans()

    def lost(field: Field, item: tuple[Found, int]) -> Confirmation:
        del field
        return replace(said(item[0], 2.0), slo=())

    result = judged(field, found[:2], ASKED, lost)
    assert result.num_simulated == 2
    assert not result.chosen
    assert not any(one.change for one in result.missed)


def test_requests_longer_than_the_model_admits_are_said_and_not_held_against_a_plan() -> None:
    """Of an 8,192-token model, at the end of a tail: no hardware serves them, and the plan is confirmed."""
    tail: dict[str, Any] = {"input_tokens": "lognormal:mean=1500,cv=1", "output_tokens": "300"}
    load_of: dict[str, Any] = {
        "requests_per_s": 2.0,
        "slo": parse_slo(("ttft-p95=2s",)),
        "gpus_from": ("h100-sxm5-80gb",),
    }
    answer = plan(Ask(models=("llama3-8b",), pp=1), PlanAsk(**load_of, **tail, num_confirmed=1, num_workers=1))
    said_of = answer.result.plans[0].confirmation
    assert said_of is not None
    assert said_of.confirmed
    assert 0 < said_of.num_refused < 0.01 * (said_of.requests + said_of.num_warm)
    assert any("longer than the model admits" in note for note in answer.assumptions)


def test_where_simulations_run_out_that_is_said() -> None:
    field, found = plans()
    result = judged(field, found, ASKED, Simulator(found, lambda _: 1e6))
    assert result.num_simulated == 8
    assert all(one is None for one in result.confirmations)
    assert any("none of the best plans" in note for note in result.notes)
    assert result.chosen
