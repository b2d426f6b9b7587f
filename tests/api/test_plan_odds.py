"""How sure a plan is: held against published runs, against a slower clock, and against itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from infcalc import files
from infcalc.api.band_table import BANDS
from infcalc.api.bands import band, typical
from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask, load
from infcalc.api.objectives import parse_slo
from infcalc.api.peer_table import PEERS, SHARES
from infcalc.api.plan_ask import PlanAsk, goal_of
from infcalc.api.plan_demand import demand_of
from infcalc.api.plan_odds import far_s, hopeful, judged, safe
from infcalc.api.plan_search import Field
from infcalc.api.planning import plan
from infcalc.api.validating_serving import AT_RATE, validated_serving
from infcalc.planning.nouns import Miss, Setup
from infcalc.planning.odds import Law
from infcalc.spec.parallelism import Parallelism

if TYPE_CHECKING:
    from infcalc.api.plan_rig import Rig
    from infcalc.api.validating_serving import ServingCase
    from infcalc.catalog.lookup import Catalog

RUNS = Path(__file__).resolve().parents[1] / "published" / "serving_measured.yaml"

MODEL = "llama3.1-8b"
CHAT: dict[str, Any] = {"input_tokens": "lognormal:mean=800,cv=1", "output_tokens": "lognormal:mean=200,cv=1"}
SLO = ("ttft-p95=800ms", "tpot-p95=30ms", "e2e-p95=20s")
LOADS: dict[str, dict[str, Any]] = {"rate": {"requests_per_s": 9.0}, "users": {"num_users": 120, "think_time_s": 4.0}}


@cache
def rig_of(load_of: str, gpu: str = "a100-sxm4-80gb", slo: tuple[str, ...] = SLO, model: str = MODEL) -> Rig:
    asked = PlanAsk(slo=parse_slo(slo), gpus_from=(gpu,), **LOADS[load_of], **CHAT)
    ask = Ask(models=(model,))
    catalog = load(ask)
    field = Field(
        goal=goal_of(asked),
        demand=demand_of(asked)[0],
        ask=ask,
        terms=Terms(),
        catalog=catalog,
        model_entry=files.load_model(catalog, model),
        most_gpus=None,
        most_usd_per_hour=None,
        num_spare=0,
    )
    return field.rig(Setup(gpu=gpu, ranks=Parallelism(), engine="vllm"))


# Against published runs


def off(law: Law, ratios: tuple[float, ...]) -> float:
    """Mean distance of a law's shares from the published ones."""
    return sum(abs(law.probability_below(ratio) - share) for ratio, share in zip(ratios, SHARES, strict=True)) / len(
        SHARES
    )


KNOWN = [(table, name) for table, bands in BANDS.items() for name in bands if name in PEERS.get(table, {})]


def test_odds_are_nearer_to_published_shares_than_a_band_read_by_its_ends_alone() -> None:
    better, apart = 0, []
    for table, name in KNOWN:
        low, high = BANDS[table][name]
        ratios = PEERS[table][name][2]
        mine = off(Law(low_factor=low, middle_factor=typical(name, table), high_factor=high), ratios)
        centred = off(Law(low_factor=low, middle_factor=(low * high) ** 0.5, high_factor=high), ratios)
        better += mine <= centred
        apart.append(mine)
    assert better >= 0.8 * len(KNOWN)
    assert sorted(apart)[len(apart) // 2] < 0.05


@cache
def first_tokens_at_a_rate() -> tuple[tuple[str, float, float, float], ...]:
    """Return of published runs at a rate: which, the measured first token, and the ends of the band that plans have."""
    catalog, found = files.load_catalog(), []
    entries = files.read_yaml(str(RUNS))
    assert isinstance(entries, list)
    for entry in entries:
        if not isinstance(entry["workload"].get("request_rate"), int | float) or "ttft_ms" not in entry["measured"]:
            continue
        case = case_of(entry, 1.0, catalog)
        if case is None or case.load != AT_RATE or case.measured is None:
            continue
        slow, fast = (1 / end for end in band(case.band_class, "output_tokens_per_s", 1.0))
        low, high = band(case.band_class, "ttft_s", 1.0)
        ends = [(case_of(entry, factor, catalog), ratio) for factor, ratio in ((fast, low), (slow, high))]
        low_s, high_s = (one.predicted * ratio for one, ratio in ends if one is not None and one.predicted is not None)
        found.append((f"{case.gpu} x {case.tp}", case.measured, low_s, high_s))
    return tuple(found)


def case_of(entry: dict[str, Any], factor: float, catalog: Catalog) -> ServingCase | None:
    """Return the first token of a run that is asked for ``factor`` times as much."""
    load = entry["workload"]
    one = entry | {"workload": load | {"request_rate": load["request_rate"] * factor}}
    cases = validated_serving([one], catalog).cases
    return next((case for case in cases if case.quantity == "ttft_s" and case.predicted), None)


def test_the_band_of_first_tokens_at_a_rate_holds_published_runs_but_for_those_of_one_part() -> None:
    """What docs/planning.md says of it."""
    runs = first_tokens_at_a_rate()
    held = [low_s <= measured <= high_s for _, measured, low_s, high_s in runs]
    late = [name for name, measured, _, high_s in runs if measured > high_s]
    several = [name for name in late if name.startswith("NVIDIA RTX 4090 x ") and not name.endswith(" 1")]
    assert (len(runs), sum(held), len(late), len(several)) == (99, 75, 17, 16)


# Against the mechanism


@pytest.mark.parametrize("load_of", LOADS)
def test_a_plan_is_safe_where_nine_in_ten_keep_all_limits(load_of: str) -> None:
    rig = rig_of(load_of)
    seen = set()
    for number in range(1, 9):
        share = rig.share(number)
        odds = judged(rig, share).probability_fraction
        assert safe(rig, share) == (odds >= 0.9 - 1e-3), number
        seen.add(safe(rig, share))
    assert seen == {True, False}


@pytest.mark.parametrize("load_of", LOADS)
def test_more_replicas_are_never_less_sure(load_of: str) -> None:
    rig = rig_of(load_of)
    odds = [judged(rig, rig.share(number)).probability_fraction for number in range(1, 12)]
    assert all(before <= after + 1e-3 for before, after in pairwise(odds))
    assert odds[-1] > odds[0]


def test_at_a_rate_the_far_end_is_a_slower_server_behind_a_longer_queue() -> None:
    rig = rig_of("rate")
    share = rig.share(2)
    kind = rig.run_at(share).bands.kind
    slowest = 1 / band(kind, "output_tokens_per_s", 1.0)[0]
    there, here = rig.at(share * slowest), rig.at(share)
    ttft = next(value for one, value in far_s(rig, share) if one.quantity == "ttft_s")
    worst = next(one.value_s for one in there.kept if one.quantity == "ttft_s")
    assert worst is not None
    assert ttft == pytest.approx(worst * band(kind, "ttft_s", 1.0)[1])
    assert there.ttft_s is not None
    assert here.ttft_s is not None
    assert there.ttft_s.value > here.ttft_s.value


def test_a_load_that_a_slower_server_could_not_answer_is_not_safe_whatever_the_limits() -> None:
    rig = rig_of("rate", slo=("tpot=1000s",))
    most = rig.run_at(1.0).most_per_s
    assert most is not None
    low, high = band(rig.run_at(1.0).bands.kind, "output_tokens_per_s", 1.0)
    for part, sure in ((0.5 * low, 1.0), (0.5 * (low + 1), None), (1.0 - 1e-6, None)):
        point = judged(rig, part * most)
        if sure is None:
            assert point.probability_fraction < 0.9
            assert not safe(rig, part * most)
        else:
            assert point.probability_fraction > 0.99
            assert safe(rig, part * most)
    assert high > 1


def test_figures_of_a_plan_hold_the_bands_that_its_odds_rest_on() -> None:
    rig = rig_of("rate")
    point = judged(rig, rig.share(3))
    assert point.ttft_s is not None
    ttft = next(one for one in point.kept if one.quantity == "ttft_s")
    assert ttft.value_s is not None
    assert ttft.low_s is not None
    assert ttft.high_s is not None
    assert ttft.low_s <= ttft.value_s <= ttft.high_s
    assert point.ttft_s.low <= point.ttft_s.value <= point.ttft_s.high < 10 * point.ttft_s.value


def test_no_first_token_comes_before_its_floor() -> None:
    """First tokens of mixtures of experts were measured so far below predictions that a band alone would."""
    rig = rig_of("rate", "h100-sxm5-80gb", model="qwen3-30b-a3b")
    share = rig.share(2)
    point, floor_s = judged(rig, share), rig.run_at(share).floors.ttft_s
    assert point.ttft_s is not None
    assert point.ttft_s.value * rig.run_at(share).bands.factors("ttft_s")[0] < floor_s
    assert point.ttft_s.low >= floor_s
    low_s = next(one.low_s for one in point.kept if one.quantity == "ttft_s")
    assert low_s is not None
    assert low_s >= floor_s


# In words


def limit_between(load_of: str, low: float, high: float) -> tuple[str, ...]:
    """Return a limit on the mean time per token between two multiples of the value."""
    value = rig_of(load_of).at(rig_of(load_of).share(2)).tpot_s
    assert value is not None
    return (f"tpot={value.value * (low + high) / 2 * 1000:.6f}ms",)


def test_a_plan_that_keeps_its_limits_only_at_the_good_end_says_so() -> None:
    """Published tokens at a rate are slower than predicted in more than half of the runs."""
    rig = rig_of("rate")
    middle = typical(rig.run_at(rig.share(2)).bands.kind, "tpot_s", at_rate=True)
    assert middle > 1.05
    slo = parse_slo(limit_between("rate", 1.0, middle))
    asked = PlanAsk(
        slo=slo, gpus_from=("a100-sxm4-80gb",), num_confirmed=0, num_workers=1, max_gpus=2, **LOADS["rate"], **CHAT
    )
    best = plan(Ask(models=(MODEL,), tp=1, pp=1), asked).result.plans[0]
    assert best.replicas == 2
    assert best.slo_probability_fraction < 0.5
    assert best.only_optimistic
    assert "only at the good end of the band" in best.certainty
    kept = replace(asked, slo=parse_slo(limit_between("rate", 3.0, 3.0)))
    sure = plan(Ask(models=(MODEL,), tp=1, pp=1), kept).result.plans[0]
    assert not sure.only_optimistic
    assert "safe" in sure.certainty


def test_what_misses_a_limit_by_its_value_and_keeps_it_at_the_good_end_is_rejected_and_says_so() -> None:
    rig = rig_of("users")
    low, _ = band(rig.run_at(1).bands.kind, "tpot_s", 1.0)
    slo = limit_between("users", low, 1.0)
    judge = rig_of("users", slo=slo)
    share = judge.share(2)
    assert not judge.at(share).meets
    assert hopeful(judge, share)
    asked = PlanAsk(
        slo=parse_slo(slo),
        gpus_from=("a100-sxm4-80gb",),
        num_confirmed=0,
        num_workers=1,
        max_gpus=2,
        **LOADS["users"],
        **CHAT,
    )
    result = plan(Ask(models=(MODEL,), tp=1, pp=1), asked).result
    assert not result.plans
    assert result.rejected[0].kind in {Miss.OBJECTIVE, Miss.GPUS}


def test_the_cheapest_safe_plan_is_named_where_the_best_is_not_safe() -> None:
    asked = PlanAsk(
        slo=parse_slo(("ttft-p95=400ms", "tpot-p95=25ms")),
        gpus_from=("a100-sxm4-80gb", "h100-sxm5-80gb"),
        requests_per_s=6.0,
        num_confirmed=0,
        num_workers=1,
        **CHAT,
    )
    result = plan(Ask(models=(MODEL,), pp=1), asked).result
    best = result.plans[0]
    assert best.safe_gpus is None or best.safe_gpus > best.total_gpus
    costs = [
        one.usd_per_month.value / one.total_gpus * one.safe_gpus
        for one in result.plans
        if one.usd_per_month is not None and one.safe_gpus is not None
    ]
    assert f"for {min(costs):,.0f} USD a month" in result.text.partition("safe at least cost")[2]
