"""What a confirmation simulates: a server that is full, and one that stands for many."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from infcalc import files
from infcalc.api import plan_confirming
from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask, load
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk, goal_of
from infcalc.api.plan_confirming import REQUESTS, confirm, trace_of
from infcalc.api.plan_demand import demand_of
from infcalc.api.plan_search import Field, found_with
from infcalc.planning.nouns import Setup
from infcalc.spec.parallelism import Parallelism

MODEL = "llama3.1-8b"
LONG: dict[str, Any] = {"input_tokens": "200", "output_tokens": "1000"}
SLO = parse_slo(("ttft-p95=3s", "tpot-p95=100ms"))


def field_of(model: str = MODEL, **load_of: Any) -> Field:  # noqa: ANN401 - what is asked of a plan
    asked = PlanAsk(slo=SLO, **load_of)
    ask = Ask(models=(model,))
    catalog = load(ask)
    return Field(
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


def test_a_server_at_a_rate_is_full_before_requests_are_counted_and_after() -> None:
    """Answers that last: more are under way than a tenth of those that are counted."""
    field = field_of(requests_per_s=60.0, **LONG)
    rig = field.rig(Setup(gpu="h100-sxm5-80gb", ranks=Parallelism(), engine="vllm"))
    found = found_with(field, rig, 4)
    under_way = 60.0 * found.delay_s
    assert under_way > 0.2 * REQUESTS
    trace, num_warm, num_counted = trace_of(field.demand, found, rig, np.random.default_rng(0), REQUESTS)
    assert num_counted == REQUESTS
    assert num_warm >= 2 * under_way
    assert len(trace) == num_warm + num_counted + int(under_way)
    # The first that is counted comes when the first that came are long through.
    assert trace.arrivals_s[num_warm] > 1.5 * found.delay_s


def test_a_short_answer_needs_no_more_than_a_tenth_to_fill_a_server() -> None:
    field = field_of(requests_per_s=4.0, input_tokens="200", output_tokens="50")
    rig = field.rig(Setup(gpu="h100-sxm5-80gb", ranks=Parallelism(), engine="vllm"))
    _, num_warm, _ = trace_of(field.demand, found_with(field, rig, 1), rig, np.random.default_rng(0), REQUESTS)
    assert num_warm == REQUESTS // 10


@pytest.mark.parametrize("load_of", [{"num_users": 4000}, {"requests_per_s": 400.0}])
def test_the_fullest_replica_stands_for_a_fleet_that_would_take_long(
    load_of: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    field = field_of(**load_of, **LONG)
    rig = field.rig(Setup(gpu="h100-sxm5-80gb", ranks=Parallelism(), engine="vllm"))
    found = found_with(field, rig, 40)
    asked = []
    made = trace_of

    def seen(demand: Any, *rest: Any) -> Any:  # noqa: ANN401 - as the function behind it
        asked.append(demand)
        return made(demand, *rest)

    monkeypatch.setattr(plan_confirming, "trace_of", seen)
    said = confirm(field, (found, 0))
    (demand,) = asked
    assert (demand.num_users, demand.requests_per_s) == (
        100 if "num_users" in load_of else 0,
        load_of.get("requests_per_s", 0.0) / 40,
    )
    # Tokens are those of the whole fleet all the same.
    assert said.output_tokens_per_s == pytest.approx(found.tokens_per_s.value, rel=0.15)
    assert said.requests == REQUESTS


@pytest.mark.parametrize("number", [1, 2])
def test_experts_under_attention_dp_are_simulated_as_others_are(number: int) -> None:
    """Their ranks step together; that does not make a confirmation long, nor its requests fewer."""
    field = field_of("mixtral-8x7b", requests_per_s=4.0, input_tokens="200", output_tokens="20")
    rig = field.rig(Setup(gpu="h100-sxm5-80gb", ranks=Parallelism(tp=2, dp=2), engine="vllm"))
    found = found_with(field, rig, number)
    said = confirm(field, (found, 0))
    assert said.confirmed
    assert not said.every_step
    assert said.requests == REQUESTS
    assert said.output_tokens_per_s == pytest.approx(4.0 * 20, rel=0.1)


def test_schedulers_not_known_in_aggregate_are_simulated_with_fewer_requests() -> None:
    field = field_of(requests_per_s=4.0, input_tokens="200", output_tokens="20")
    rig = field.rig(Setup(gpu="h100-sxm5-80gb", ranks=Parallelism(), engine="sglang"))
    said = confirm(field, (found_with(field, rig, 1), 0))
    assert said.every_step
    assert said.requests == 200
