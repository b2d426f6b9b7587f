"""Drafting as a choice of a plan: the search stays exact, the closed form is the simulator's, launch can write it."""

from __future__ import annotations

import shlex
from functools import cache
from typing import TYPE_CHECKING, Any

import pytest

from infcalc import files
from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask, load
from infcalc.api.drafting import DraftAsk
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk, goal_of
from infcalc.api.plan_candidates import choice_of, setups
from infcalc.api.plan_confirming import confirm
from infcalc.api.plan_demand import demand_of
from infcalc.api.plan_search import Field, Found, found_with, weigh
from infcalc.api.planning import plan
from infcalc.engines.flags.table import has_flag
from infcalc.errors import UnknownName, UsageError
from infcalc.planning.nouns import Goal, Miss, Setup
from infcalc.spec.parallelism import Parallelism
from tests.api.test_planning import CHAT, QUICK, tried
from tests.journeys.command import answer

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.plan_nouns import Plan, PlanResult

MODEL = "llama3.1-8b"
HEAD = "llama3-8b-eagle3"
BOTH = DraftAsk(methods=("eagle3", "ngram"))
LOOSE = parse_slo(("ttft=1000s", "tpot=1000s"))


@cache
def field_of(asked: PlanAsk, model: str = MODEL) -> tuple[Field, tuple[Setup, ...]]:
    ask = Ask(models=(model,), pp=1)
    catalog = load(ask)
    entry = files.load_model(catalog, model)
    field = Field(
        goal=goal_of(asked),
        demand=demand_of(asked)[0],
        ask=ask,
        terms=Terms(),
        catalog=catalog,
        model_entry=entry,
        most_gpus=asked.max_gpus,
        most_usd_per_hour=asked.usd_per_hour,
        num_spare=asked.num_spare,
        draft=asked.draft,
    )
    offered = setups(choice_of(ask, asked, entry.model, catalog), Terms(), priced=True)
    return field, tuple(one for one in offered if isinstance(one, Setup))


@pytest.mark.parametrize("goal", list(Goal))
@pytest.mark.parametrize("load_of", [{"num_users": 60, "think_time_s": 4.0}, {"requests_per_s": 6.0}])
def test_with_drafting_the_search_finds_what_trying_everything_finds(goal: Goal, load_of: dict[str, Any]) -> None:
    limits: dict[str, Any] = {"max_gpus": 8} if goal in {Goal.THROUGHPUT, Goal.LATENCY} else {}
    asked = PlanAsk(
        goal=goal,
        slo=parse_slo(("ttft-p95=800ms", "tpot-p95=14ms")),
        gpus_from=("l40s", "h100-sxm5-80gb"),
        draft=BOTH,
        **CHAT,
        **load_of,
        **limits,
        **QUICK,
    )
    field, offered = field_of(asked)
    everything = tried(field, offered)
    searched = [found for found in (weigh(field, setup).found for setup in offered) if found is not None]
    assert {one.setup.method for one in everything} == {None, "eagle3", "ngram"}
    best = min(one.order(goal) for one in everything)
    assert min(one.order(goal) for one in searched) == pytest.approx(best, rel=1e-9)
    for one in searched:
        mine = min(other.order(goal) for other in everything if other.setup == one.setup)
        assert one.order(goal) == pytest.approx(mine, rel=1e-9)
    assert {one.setup for one in everything} <= {one.setup for one in searched}


def replica(
    method: str | None, *, gpu: str = "h100-sxm5-80gb", acceptance: float | None = None, **load_of: object
) -> tuple[Field, Found]:
    draft = DraftAsk(methods=("eagle3",), acceptance=() if acceptance is None else (acceptance,))
    asked: dict[str, Any] = {**CHAT, **load_of, **QUICK}
    field, _ = field_of(PlanAsk(slo=LOOSE, draft=draft, **asked))
    setup = Setup(
        gpu=gpu,
        ranks=Parallelism(),
        engine="vllm",
        method=method,
        draft_model=HEAD if method == "eagle3" else None,
        num_draft_tokens=3 if method else 0,
    )
    return field, found_with(field, field.rig(setup), 1)


@pytest.mark.parametrize("load_of", [{"num_users": 8}, {"num_users": 64}, {"requests_per_s": 8.0}])
@pytest.mark.parametrize("method", ["eagle3", "ngram"])
def test_the_closed_form_with_drafting_is_as_near_the_simulator_as_without(
    load_of: dict[str, Any], method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infcalc.api.plan_confirming.REQUESTS", 600)
    ratios = []
    for way in (None, method):
        field, found = replica(way, **load_of)
        simulated = {one.name: one.value_s for one in confirm(field, (found, 0)).slo}
        assert found.point.tpot_s is not None
        assert simulated["tpot"] is not None
        ratios.append(found.point.tpot_s.value / simulated["tpot"])
    assert ratios[1] == pytest.approx(ratios[0], abs=0.04)
    assert ratios[1] == pytest.approx(1.0, abs=0.12)


def test_without_any_acceptance_drafting_only_costs() -> None:
    _, plain = replica(None, num_users=16)
    _, drafted = replica("eagle3", acceptance=0.0, num_users=16)
    assert plain.point.tpot_s is not None
    assert drafted.point.tpot_s is not None
    assert drafted.point.tpot_s.value > plain.point.tpot_s.value


def test_its_gain_falls_with_the_batch_and_turns_into_a_loss() -> None:
    gains = []
    for users in (1, 16, 64, 256):
        times = [replica(way, num_users=users, acceptance=0.5)[1].point.tpot_s for way in (None, "eagle3")]
        assert times[0] is not None
        assert times[1] is not None
        gains.append(times[0].value / times[1].value)
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1 > gains[-1]


def test_the_drafter_takes_room() -> None:
    field, drafted = replica("eagle3", gpu="l40s", num_users=16)
    plain = field.rig(Setup(gpu="l40s", ranks=Parallelism(), engine="vllm"))
    with_head, with_words = (field.rig(drafted.setup), replica("ngram", gpu="l40s", num_users=16)[1].setup)
    assert with_head.room < plain.room
    assert field.rig(with_words).room == pytest.approx(plain.room, rel=1e-3)
    assert with_head.deployment.additions.draft_bytes > 0


def test_bands_carry_the_range_of_published_acceptance() -> None:
    _, published = replica("eagle3", num_users=4)
    _, given = replica("eagle3", num_users=4, acceptance=0.7)
    _, plain = replica(None, num_users=4)
    spreads = []
    for one in (plain, given, published):
        figure = one.point.tpot_s
        assert figure is not None
        assert figure.low < figure.value < figure.high
        spreads.append(figure.high / figure.low)
    assert spreads == sorted(spreads)
    assert spreads[2] > 1.2 * spreads[0]


def answered(**changes: Any) -> Answer[PlanResult]:  # noqa: ANN401 - any option of a plan
    asked: dict[str, Any] = {
        "num_users": 4,
        "slo": parse_slo(("tpot-p95=18ms",)),
        "gpus_from": ("l40s", "h100-sxm5-80gb"),
        "draft": BOTH,
        **CHAT,
        **QUICK,
        **changes,
    }
    return plan(
        Ask(models=(changes.pop("model", MODEL),), pp=1), PlanAsk(**{k: v for k, v in asked.items() if k != "model"})
    )


def usd_per_month(plan_: Plan) -> float:
    assert plan_.usd_per_month is not None
    return plan_.usd_per_month.value


def test_it_is_said_what_drafting_is_worth() -> None:
    result = answered().result
    (worth,) = result.options
    assert worth.option == "speculation"
    best = result.plans[0]
    assert best.method == "eagle3"
    assert worth.pays
    assert worth.on_usd_per_month == usd_per_month(best)
    plain = answered(draft=None).result.plans[0]
    assert worth.off_usd_per_month == usd_per_month(plain)
    assert worth.saved_fraction == pytest.approx(1 - usd_per_month(best) / usd_per_month(plain))
    assert worth.num_requests_paying is not None
    assert worth.num_requests_paying > 4
    # Only the best length of each way is listed.
    listed = [(one.gpu, one.tp, one.replicas, one.method) for one in result.plans]
    assert len(listed) == len(set(listed))


def test_where_guesses_are_wrong_it_is_said_not_to_pay() -> None:
    result = answered(draft=DraftAsk(methods=("eagle3",), acceptance=(0.0,))).result
    assert result.plans[0].method is None
    assert not result.options[0].pays
    assert result.options[0].num_requests_paying == 0
    assert "does not pay" in result.options[0].text


def test_the_prefix_cache_is_said_to_be_worth_what_it_saves() -> None:
    asked = {"num_users": 600, "input_tokens": "3000", "output_tokens": "100", "draft": None}
    with_hits, without = (answered(prefix_hit_fraction=hit, **asked).result for hit in (0.8, 0.0))
    assert without.options == ()
    (worth,) = with_hits.options
    assert worth.option == "prefix-cache"
    assert worth.pays
    assert worth.num_on_replicas is not None
    assert worth.num_off_replicas is not None
    assert worth.num_on_replicas < worth.num_off_replicas
    same = next(one for one in without.plans if (one.gpu, one.tp) == (with_hits.plans[0].gpu, with_hits.plans[0].tp))
    assert worth.num_off_replicas == same.replicas
    assert "--prefix-caching" in with_hits.plans[0].launch_command
    assert "--prefix-caching" not in without.plans[0].launch_command


@pytest.mark.parametrize(
    ("draft", "model", "reason"),
    [
        (DraftAsk(methods=("mtp",)), MODEL, "has no MTP layers"),
        (DraftAsk(methods=("draft-model",)), MODEL, "which model drafts"),
        (DraftAsk(methods=("eagle",)), MODEL, "no eagle head"),
    ],
)
def test_ways_that_a_model_does_not_have_are_rejected_once(draft: DraftAsk, model: str, reason: str) -> None:
    result = answered(draft=draft, model=model).result
    (one,) = [each for each in result.rejected if each.kind is Miss.DRAFTING]
    assert reason in one.reason
    assert {each.method for each in result.plans} == {None}


def test_an_engine_without_the_way_is_rejected() -> None:
    result = answered(engines_from=("vllm", "llama.cpp"), draft=DraftAsk(methods=("eagle3",))).result
    assert any("llama.cpp does not draft by eagle3" in one.reason for one in result.rejected)
    assert {one.engine for one in result.plans if one.method} == {"vllm"}


@pytest.mark.parametrize(
    ("draft", "place", "error"),
    [
        (DraftAsk(methods=("medusa",)), "--method", UsageError),
        (DraftAsk(methods=("magic",)), "--method", UsageError),
        (DraftAsk(num_draft_tokens=3), "--num-draft-tokens", UsageError),
        (DraftAsk(methods=("ngram",), draft_model=HEAD), "--draft-model", UsageError),
        (DraftAsk(draft_model="qwen3-0.6b"), "--draft-model", UsageError),
        (DraftAsk(methods=("eagle3",), num_draft_tokens=0), "--num-draft-tokens", UsageError),
        (DraftAsk(draft_model="no-such-draft"), None, UnknownName),
    ],
)
def test_what_no_plan_can_draft_by_is_refused(draft: DraftAsk, place: str | None, error: type[Exception]) -> None:
    with pytest.raises(error) as told:
        answered(draft=draft)
    if place is not None:
        assert getattr(told.value, "place", None) == place
        assert getattr(told.value, "hint", None)


FLAGS = {
    "vllm": ("--speculative-config",),
    "sglang": ("--speculative-algorithm", "--speculative-num-draft-tokens"),
    "tensorrt-llm": ("speculative_config.decoding_type",),
}
WAYS = (
    (MODEL, DraftAsk(methods=("eagle3",))),
    (MODEL, DraftAsk(methods=("ngram",))),
    (MODEL, DraftAsk(draft_model="llama3.2-1b", num_draft_tokens=2)),
    ("deepseek-v3", DraftAsk(methods=("mtp",), num_draft_tokens=1)),
)


@pytest.mark.parametrize("engine", FLAGS)
@pytest.mark.parametrize(("model", "draft"), WAYS, ids=["eagle3", "ngram", "draft-model", "mtp"])
def test_launch_writes_the_drafting_of_a_plan(
    engine: str, model: str, draft: DraftAsk, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every way on every engine: the plan's own command is run, and each flag is one that the version has."""
    result = answered(
        model=model, draft=draft, engines_from=(engine,), gpus_from=("h200-sxm-141gb",), slo=LOOSE, num_shown=1000
    ).result
    one = next(each for each in result.plans if each.method is not None)
    words = shlex.split(one.launch_command)
    ran = answer(capsys, *words[1:]).result
    written = {flag["flag"]: flag["value"] for flag in ran["flags"]}
    for flag in FLAGS[engine]:
        assert flag in written, (flag, sorted(written))
    version = tuple(int(part) for part in one.engine_version.split(".")[:3])
    assert all(has_flag(engine, flag, version) for flag in written)
    told = str(written)
    if one.draft_model is not None:
        assert str(one.num_draft_tokens) in told
    assert not [text for text in ran["warnings"] if "left out" in text]


def test_drafting_that_no_scheduler_simulates_is_closed_form_alone() -> None:
    answer_ = answered(engines_from=("sglang",), num_confirmed=1, draft=DraftAsk(methods=("eagle3",)))
    best = answer_.result.plans
    drafted = next(one for one in best if one.method is not None)
    assert drafted.confirmation is None
    assert any("is not simulated" in note for note in answer_.assumptions)


def test_a_drafted_plan_is_confirmed_with_its_drafts() -> None:
    result = answered(num_confirmed=1).result
    best = result.plans[0]
    assert best.method == "eagle3"
    assert best.confirmation is not None
    assert best.confirmation.confirmed
    # The same plan without drafts is dearer: it is not that anything would be confirmed.
    plain = next(one for one in answered(draft=None).result.plans)
    assert usd_per_month(best) < usd_per_month(plain)
