"""The planner: the same as trying everything, lawful, and honest about what will not do."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from infcalc import files
from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask, load
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk, goal_of, parse_budget, parse_spare
from infcalc.api.plan_candidates import choice_of, setups
from infcalc.api.plan_demand import DemandKind, demand_of
from infcalc.api.plan_front import REACH, front_of
from infcalc.api.plan_search import Field, Found, found_with, weigh
from infcalc.api.planning import plan
from infcalc.errors import UnknownName, UsageError
from infcalc.planning.nouns import Goal, Miss, Setup

if TYPE_CHECKING:
    from infcalc.api.plan_nouns import PlanResult

MODEL = "llama3.1-8b"
GPUS = ("l4", "l40s", "a100-sxm4-80gb", "h100-sxm5-80gb")
QUICK: dict[str, Any] = {"num_confirmed": 0, "num_workers": 1}
CHAT: dict[str, Any] = {"input_tokens": "lognormal:mean=800,cv=1", "output_tokens": "lognormal:mean=200,cv=1"}
SLO = parse_slo(("ttft-p95=800ms", "tpot-p95=30ms"))
MOST = 24


@cache
def field_of(asked: PlanAsk, model: str = MODEL, pp: int | None = None) -> tuple[Field, tuple[Setup, ...]]:
    ask = Ask(models=(model,), pp=pp)
    catalog = load(ask)
    entry = files.load_model(catalog, model)
    demand, _, _ = demand_of(asked)
    field = Field(
        goal=goal_of(asked),
        demand=demand,
        ask=ask,
        terms=Terms(),
        catalog=catalog,
        model_entry=entry,
        most_gpus=asked.max_gpus,
        most_usd_per_hour=asked.usd_per_hour,
        num_spare=asked.num_spare,
    )
    offered = setups(choice_of(ask, asked, entry.model, catalog), Terms(), priced=True)
    return field, tuple(one for one in offered if isinstance(one, Setup))


def tried(field: Field, offered: tuple[Setup, ...]) -> list[Found]:
    """Every setup with every number of replicas that GPUs and budget allow, one by one."""
    found = []
    for setup in offered:
        rig = field.rig(setup)
        if rig.missing_bytes:
            continue
        for number in range(1, MOST + 1):
            one = found_with(field, rig, number)
            within = field.most_gpus is None or one.num_gpus <= field.most_gpus
            paid = one.usd_per_hour is not None and (
                field.most_usd_per_hour is None or one.usd_per_hour.value <= field.most_usd_per_hour * (1 + 1e-9)
            )
            if within and paid and all(kept.met for kept in one.kept) and rig.with_replicas(number).stable:
                found.append(one)
    return found


LOADS: dict[str, dict[str, Any]] = {
    "users": {"num_users": 60, "think_time_s": 4.0},
    "rate": {"requests_per_s": 9.0},
}
STAGES: dict[str, int | None] = {"users": None, "rate": 1}
"""Of the pipelines in these tests, so that each takes seconds."""


@pytest.mark.parametrize("load_of", LOADS)
@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize("capped", [{}, {"usd_per_hour": 12.0}, {"max_gpus": 14, "num_spare": 1}])
def test_the_search_finds_what_trying_everything_finds(goal: Goal, load_of: str, capped: dict[str, float]) -> None:
    limits: dict[str, Any] = dict(capped)
    if goal in {Goal.THROUGHPUT, Goal.LATENCY} and not limits:
        limits = {"max_gpus": 12}
    asked = PlanAsk(
        goal=goal, slo=SLO, gpus_from=GPUS, headroom_fraction=0.25, **CHAT, **LOADS[load_of], **limits, **QUICK
    )
    field, offered = field_of(asked, pp=STAGES[load_of])
    everything = tried(field, offered)
    best = min((one.order(goal) for one in everything), default=None)
    searched = [found for found in (weigh(field, setup).found for setup in offered) if found is not None]
    assert len(offered) * MOST > 200
    assert everything
    assert best is not None
    assert min(one.order(goal) for one in searched) == pytest.approx(best, rel=1e-9)
    # And each setup by itself.
    for one in searched:
        if one.num_needed <= MOST:
            mine = min(other.order(goal) for other in everything if other.setup == one.setup)
            assert one.order(goal) == pytest.approx(mine, rel=1e-9)
    assert {one.setup for one in everything} <= {one.setup for one in searched}


@pytest.mark.parametrize("load_of", LOADS)
def test_the_front_is_that_of_everything(load_of: str) -> None:
    asked = PlanAsk(slo=SLO, gpus_from=GPUS, **CHAT, **LOADS[load_of], **QUICK)
    field, offered = field_of(asked, pp=STAGES[load_of])
    everything = [one for one in tried(field, offered) if one.usd_per_hour is not None]

    def usd(one: Found) -> float:
        return one.usd_per_hour.value if one.usd_per_hour is not None else 0.0

    least = min(usd(one) for one in everything)
    within = [one for one in everything if usd(one) <= REACH * least]
    unbeaten = {
        (usd(one), one.delay_s)
        for one in within
        if not any(
            usd(other) <= usd(one)
            and other.delay_s <= one.delay_s
            and (usd(other), other.delay_s) != (usd(one), one.delay_s)
            for other in within
        )
    }
    searched = [found for found in (weigh(field, setup).found for setup in offered) if found is not None]
    drawn = {(usd(one), one.delay_s) for one in front_of(field, searched, 1)}
    assert drawn == unbeaten
    assert len(drawn) > 2


def answered(**changes: object) -> PlanResult:
    asked: dict[str, Any] = {
        "num_users": 100,
        "think_time_s": 5.0,
        "slo": SLO,
        "gpus_from": GPUS,
        **CHAT,
        **QUICK,
        **changes,
    }
    return plan(Ask(models=(MODEL,), pp=1), PlanAsk(**asked)).result


def usd_per_hour(result: PlanResult) -> float:
    best = result.plans[0].usd_per_hour
    assert best is not None
    return best.value


def test_cost_never_falls_with_users() -> None:
    costs = [usd_per_hour(answered(num_users=users)) for users in (1, 20, 100, 300, 1000, 3000)]
    assert costs == sorted(costs)
    assert costs[-1] > 2 * costs[0]


def test_a_looser_limit_never_costs_more() -> None:
    costs = [
        usd_per_hour(answered(num_users=600, slo=parse_slo((f"ttft-p95={ttft}ms", f"tpot-p95={tpot}ms"))))
        for ttft, tpot in ((400, 15), (800, 15), (800, 30), (3000, 30), (3000, 100))
    ]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]


def test_a_cheaper_price_never_raises_the_best_cost() -> None:
    def least(usd: float) -> float:
        asked = PlanAsk(num_users=300, slo=SLO, gpus_from=("h100-sxm5-80gb",), **CHAT, **QUICK)
        return usd_per_hour(plan(Ask(models=(MODEL,)), asked, terms=Terms(usd_per_hour=usd)).result)

    costs = [least(usd) for usd in (0.5, 1.0, 3.0)]
    assert costs == sorted(costs)
    assert costs[1] == pytest.approx(2 * costs[0])


def test_more_on_offer_never_costs_more() -> None:
    plain = usd_per_hour(answered(num_users=1000))
    allowed = answered(num_users=1000, allow=("fp8",))
    assert usd_per_hour(allowed) <= plain
    assert {one.weights for one in allowed.plans} > {"bf16"}


def test_nothing_lossy_is_taken_unless_it_is_allowed() -> None:
    result = answered()
    assert {(one.weights, one.kv_dtype) for one in result.plans} == {("bf16", "bf16")}


def test_what_cannot_be_met_is_said_and_exits_with_four() -> None:
    answer = plan(
        Ask(models=(MODEL,)),
        PlanAsk(num_users=10, slo=parse_slo(("tpot=0.1ms",)), gpus_from=GPUS, **CHAT, **QUICK),
    )
    assert answer.exit_code == 4
    assert not answer.result.plans
    assert answer.result.rejected[0].kind is Miss.OBJECTIVE
    assert answer.result.text.startswith("nothing on offer keeps all limits")


def test_the_nearest_change_of_a_missed_limit_makes_it_pass() -> None:
    """The relaxed limit of a rejected setup is one that it keeps."""
    result = answered(slo=parse_slo(("tpot-p95=4ms",)))
    near = next(one for one in result.rejected if one.kind is Miss.OBJECTIVE)
    words = near.nearest_change.removeprefix("--slo ").split(",")
    again = answered(slo=parse_slo(tuple(words)), gpus_from=(near.gpu,))
    assert near.miss_fraction is not None
    assert any((one.gpu, one.tp, one.pp) == (near.gpu, near.tp, near.pp) for one in again.plans)


def test_a_budget_that_is_too_small_names_the_one_that_would_do() -> None:
    result = answered(num_users=1000, usd_per_hour=1.0, gpus_from=("l40s",))
    assert not result.plans
    near = next(one for one in result.rejected if one.kind is Miss.BUDGET)
    enough = parse_budget(near.nearest_change.removeprefix("--budget "))
    again = answered(num_users=1000, usd_per_hour=enough, gpus_from=("l40s",))
    assert again.plans
    assert usd_per_hour(again) <= enough * (1 + 1e-9)


def test_every_setup_is_a_plan_or_rejected_with_a_reason() -> None:
    asked = PlanAsk(num_users=100, slo=SLO, **CHAT, num_shown=1000, **QUICK)
    field, offered = field_of(asked, "llama3-70b")
    result = plan(Ask(models=("llama3-70b",)), asked).result
    assert result.num_setups == len(offered)
    weighed = [one for one in result.rejected if one.kind in {Miss.OBJECTIVE, Miss.LOAD}]
    assert result.num_feasible == len(result.plans)
    assert all(one.reason for one in result.rejected)
    assert all(one.miss_fraction for one in weighed)
    unfit = [setup for setup in offered if weigh(field, setup).found is None]
    assert len(unfit) + len(result.plans) == len(offered)


def test_spare_replicas_are_paid_and_do_not_serve() -> None:
    plain, spare = answered(num_users=2000), answered(num_users=2000, num_spare=1)
    best = spare.plans[0]
    assert best.spare_replicas == 1
    assert best.replicas >= 2
    same = next(one for one in plain.plans if (one.gpu, one.tp, one.pp) == (best.gpu, best.tp, best.pp))
    assert best.replicas == same.replicas + 1
    assert best.ttft_s == same.ttft_s


def test_headroom_is_load_that_the_limits_hold_for() -> None:
    asked = PlanAsk(requests_per_s=10.0, headroom_fraction=0.5, slo=SLO, gpus_from=("l40s",), **CHAT, **QUICK)
    more = replace(asked, requests_per_s=15.0, headroom_fraction=0.0)
    one, other = (plan(Ask(models=(MODEL,)), each).result.plans[0] for each in (asked, more))
    assert one.replicas == other.replicas
    assert one.slo == other.slo
    assert one.requests_per_s.value < other.requests_per_s.value


def test_a_plan_that_is_sure_only_at_the_good_end_says_so() -> None:
    """A limit between the low end and the value of a setup's best."""
    field, offered = field_of(
        PlanAsk(num_users=1, slo=parse_slo(("tpot=1000s",)), gpus_from=("l40s",), **CHAT, **QUICK)
    )
    tpot = field.rig(offered[0]).with_replicas(1).tpot_s
    assert tpot is not None
    between = (tpot.low + tpot.value) / 2
    asked = PlanAsk(num_users=1, slo=parse_slo((f"tpot={between * 1000:.6f}ms",)), gpus_from=("l40s",), **CHAT, **QUICK)
    result = plan(Ask(models=(MODEL,), tp=1, pp=1), asked).result
    assert not result.plans
    assert result.rejected[0].only_optimistic
    assert "optimistic end" in result.rejected[0].reason
    beyond = (tpot.high + tpot.value) / 2
    unsure = plan(
        Ask(models=(MODEL,), tp=1, pp=1), replace(asked, slo=parse_slo((f"tpot={beyond * 1000:.6f}ms",)))
    ).result.plans[0]
    assert 0.5 < unsure.slo_probability_fraction < 0.9
    assert f"with a probability of {unsure.slo_probability_fraction:.0%}" in unsure.certainty


def test_a_capacity_is_the_most_clients_within_the_limits() -> None:
    asked = PlanAsk(goal="goodput", slo=SLO, gpus_from=GPUS, **CHAT, **QUICK)
    field, offered = field_of(asked)
    assert field.demand.kind is DemandKind.CAPACITY
    for setup in offered[:6]:
        found = weigh(field, setup).found
        if found is None:
            continue
        rig = field.rig(setup)
        met = [clients for clients in range(1, int(found.point.max_batch) + 1) if rig.at(clients).meets]
        assert found.share == met[-1]
        assert met == list(range(1, len(met) + 1))


def test_leaving_out_what_cannot_win_changes_no_plan_and_no_front() -> None:
    asked = PlanAsk(num_users=100, think_time_s=5.0, slo=SLO, allow=("fp8",), **CHAT, **QUICK)
    ask = Ask(models=(MODEL,))
    result = plan(ask, asked).result
    field, offered = field_of(asked)
    assert any(one.kind is Miss.OUTRANKED for one in result.rejected)
    everything = [found for found in (weigh(field, setup).found for setup in offered) if found is not None]
    best = sorted(everything, key=lambda one: one.order(Goal.COST))[: len(result.plans)]
    shown = [(one.gpu, one.tp, one.pp, one.replicas) for one in result.plans]
    assert shown == [(one.setup.gpu, one.setup.ranks.tp, one.setup.ranks.pp, one.num_replicas) for one in best]
    front = front_of(field, everything, 1)
    assert [one.e2e_s for one in result.front] == [one.delay_s for one in front]
    weighed = len(everything) + sum(one.kind in {Miss.OBJECTIVE, Miss.LOAD} for one in result.rejected)
    assert weighed < result.num_setups


def test_two_processes_answer_as_one() -> None:
    asked = PlanAsk(num_users=100, slo=SLO, allow=("fp8",), **CHAT, num_confirmed=0)
    one, two = (plan(Ask(models=(MODEL,), pp=1), replace(asked, num_workers=number)).result for number in (1, 2))
    assert one == two


def test_the_best_are_confirmed_by_the_simulator_and_the_others_are_not() -> None:
    result = answered(num_confirmed=2, num_workers=2, gpus_from=("l40s", "h100-sxm5-80gb"))
    said = [one.confirmation for one in result.plans]
    assert [one is not None for one in said[:3]] == [True, True, False]
    for one in said[:2]:
        assert one is not None
        assert one.confirmed
        assert one.requests >= 2000
        assert all(each.value_s is not None and each.value_s <= each.limit_s for each in one.slo)


def test_a_plan_that_fails_when_simulated_falls_back_with_the_reason() -> None:
    """Prompts far from alike: their 99th percentile is beyond what the closed form says of it."""
    asked = PlanAsk(
        requests_per_s=4.0,
        input_tokens="pareto:min=64,max=32k,alpha=0.9",
        output_tokens="200",
        slo=parse_slo(("ttft-p99=1500ms",)),
        gpus_from=("l40s", "a100-sxm4-80gb"),
        num_confirmed=2,
        num_workers=2,
    )
    result = plan(Ask(models=(MODEL,)), asked).result
    missed = [one for one in result.rejected if one.kind is Miss.SIMULATION]
    assert missed
    assert all(one.value is not None and one.limit is not None and one.value > one.limit for one in missed)
    assert all("simulated ttft-p99" in one.reason for one in missed)
    assert result.num_simulated > len([one for one in result.plans if one.confirmation is not None])


def test_the_launch_command_names_every_choice() -> None:
    result = answered(allow=("fp8",), num_users=500)
    one = next(each for each in result.plans if each.weights == "fp8")
    words = one.launch_command.split()
    assert words[:2] == ["infcalc", "launch"]
    assert words[words.index("--gpu") + 1] == one.gpu
    assert words[words.index("--tp") + 1] == str(one.tp)
    assert words[words.index("--weights") + 1] == "fp8"
    assert words[words.index("--replicas") + 1] == str(one.replicas)


@pytest.mark.parametrize(
    ("asked", "place"),
    [
        ({"num_users": 0}, "--users"),
        ({"num_users": 1, "requests_per_s": 1.0}, "--rate"),
        ({"goal": "speed"}, "--objective"),
        ({"allow": ("nonsense",)}, "--allow"),
        ({"allow": ("both=fp8",)}, "--allow"),
        ({"headroom_fraction": -0.1}, "--headroom"),
        ({"usd_per_hour": 0.0}, "--budget"),
        ({"slo": parse_slo(("output-tokens-per-s=5",))}, "--slo"),
        ({"input_tokens": "many"}, "--input-tokens"),
    ],
)
def test_what_no_plan_can_have_is_refused(asked: dict[str, object], place: str) -> None:
    with pytest.raises(UsageError) as told:
        plan(Ask(models=(MODEL,)), PlanAsk(**{**QUICK, **asked}))
    assert told.value.place == place
    assert told.value.hint


def test_unknown_gpus_and_engines_are_named() -> None:
    for asked in (PlanAsk(gpus_from=("h1000",)), PlanAsk(engines_from=("vlm",))):
        with pytest.raises(UnknownName):
            plan(Ask(models=(MODEL,)), asked)


def test_words_of_options() -> None:
    assert parse_budget("7300") == parse_budget("$10/h") == parse_budget("10 USD/hour") == 10.0
    assert parse_spare("n+2") == 2
    for wrong in ("lots", "5/week", "-3"):
        with pytest.raises(UsageError):
            parse_budget(wrong)
