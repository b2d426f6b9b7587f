"""Numbers that users asked about in public on fleets and on prefill apart from decode, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infcalc import files
from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.floors import FloorClock
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk, goal_of
from infcalc.api.plan_demand import demand_of
from infcalc.api.plan_pools import capacity_of, pair_parts
from infcalc.api.plan_search import Field, weigh
from infcalc.api.planning import plan
from infcalc.api.sizing import kv
from infcalc.planning.nouns import Setup
from infcalc.planning.pools import Pool, fewest_alike, first_token_s
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.parallelism import Parallelism
from tests.journeys.published import assert_holds, assert_unchanged, cases_of, checks_of

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases_plan.yaml"

Figures = dict[str, float | bool]
ANSWERS: dict[str, Callable[[], Figures]] = {}


def answers(case: str) -> Callable[[Callable[[], Figures]], Callable[[], Figures]]:
    def remember(function: Callable[[], Figures]) -> Callable[[], Figures]:
        ANSWERS[case] = function
        return function

    return remember


@answers("UC-142")
def _replicas_by_concurrency_alone() -> Figures:
    replicas = fewest_alike(Pool(usd_per_hour=0.0, capacity=13.0), 32.0)
    return {"replicas_by_concurrency": replicas, "gpus_by_concurrency": replicas * Parallelism(tp=8).num_gpus}


@answers("UC-143")
def _prefill_needs_gpus_too() -> Figures:
    (deployment,) = resolve(Ask(models=("qwen3-32b",), gpus=("h200",), tp=1), load(Ask()))
    ideal_s = FloorClock(deployment, KV_FORMATS["bf16"]).prefill_s(4000.0)
    return {"prefill_gpus_at_50pct_bf16": 10 * ideal_s / 0.5}


@answers("UC-144")
def _when_a_pair_of_pools_pays() -> Figures:
    asked = PlanAsk(
        requests_per_s=100.0,
        input_tokens="3000",
        output_tokens="150",
        slo=parse_slo(("ttft=2s", f"tpot={1000 / 38:.4f}ms")),
        gpus_from=("h100",),
        num_confirmed=0,
        num_workers=1,
    )
    ask = Ask(models=("llama3-70b",), weights="fp8", kv_dtypes=("fp8",), pp=1)
    pair = next(one for one in plan(ask, asked).result.alternatives if one.kind == "disaggregated")
    moved = kv(Ask(models=("llama3-70b",), kv_dtypes=("fp8",))).result.kv_bytes_per_token * 3000
    return {"gain": pair.gain_factor, "kv_transfer_mb": moved / 1e6}


@answers("UC-145")
def _a_pair_of_one_to_one_against_the_best_plain_layout() -> Figures:
    """Compare requests per second of eight GPUs, at the load and the limits that are assumed where none are given."""
    model = "gpt-oss-120b"
    asked = PlanAsk(requests_per_s=1.0, gpus_from=("h200",))
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
    found = {
        tp: weigh(field, Setup(gpu="h200-sxm-141gb", ranks=Parallelism(tp=tp), engine="vllm")).found
        for tp in (1, 2, 4, 8)
    }
    plain = max(capacity_of(field, one) * 8 / tp for tp, one in found.items() if one is not None)
    four = found[4]
    assert four is not None
    pair = pair_parts(field, four)
    assert pair is not None
    return {"disagg_1x4_1x4_beats_agg_best": min(pair[0][0], pair[1][1]) > plain}


@answers("UC-147")
def _the_first_token_is_the_decode_workers() -> Figures:
    return {"ttft_ms": first_token_s(0.420, 0.012, 0.0, 0.018) * 1e3}


@pytest.mark.parametrize(("case", "check"), checks_of(PUBLISHED))
def test_a_published_number_comes_out(case: str, check: dict[str, Any]) -> None:
    assert_holds(check, ANSWERS[case]()[check["key"]])


def test_every_case_is_answered() -> None:
    assert {case["id"] for case in cases_of(PUBLISHED)} == set(ANSWERS)


def test_no_number_or_tolerance_was_changed() -> None:
    assert_unchanged(PUBLISHED)
