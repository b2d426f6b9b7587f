"""What a plan is chosen from, and why what was asked for is none of it."""

from __future__ import annotations

from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.plan_ask import PlanAsk, check_plan
from infcalc.api.planning import plan
from infcalc.errors import UsageError
from infcalc.planning.nouns import Miss


@pytest.mark.parametrize(
    ("ranks", "reason"),
    [
        ({"tp": 3}, "8 KV heads"),
        ({"tp": 16}, "one machine or NVLink domain, of l40s 8"),
        ({"num_gpus": 3}, "--gpus 3: no split that is looked at has that"),
        ({"pp": 3}, "--pp 3: no split that is looked at has that"),
    ],
)
def test_a_split_that_cannot_be_is_named_with_the_reason(ranks: dict[str, Any], reason: str) -> None:
    asked = PlanAsk(num_users=10, gpus_from=("l40s",), num_confirmed=0, num_workers=1)
    answer = plan(Ask(models=("llama3.1-8b",), **ranks), asked)
    assert answer.exit_code == 4
    assert [one.kind for one in answer.result.rejected] == [Miss.DIVISION]
    assert reason in answer.result.rejected[0].reason
    assert reason in answer.result.text
    assert answer.result.rejected[0].nearest_change.startswith("leave --")


def test_thinking_users_and_a_rate_exclude_each_other_in_the_words_of_the_command() -> None:
    with pytest.raises(UsageError) as caught:
        check_plan(PlanAsk(requests_per_s=3.0, think_time_s=5.0))
    assert caught.value.place == "--think-time"
    assert "--rate" in caught.value.message


def test_what_has_no_price_is_said_so_and_not_that_it_would_not_serve() -> None:
    asked = PlanAsk(requests_per_s=1.0, gpus_from=("h20-96gb",), num_confirmed=0, num_workers=1)
    answer = plan(Ask(models=("llama3.1-8b",)), asked)
    assert answer.exit_code == 4
    assert answer.result.text.startswith(
        "nothing on offer can be compared: no price of h20-96gb is known (mend: --price"
    )


def test_one_gpu_is_one_and_an_assumed_cap_is_not_given() -> None:
    asked = PlanAsk(requests_per_s=0.1, gpus_from=("l40s",), usd_per_hour=0.5, num_confirmed=0, num_workers=1)
    result = plan(Ask(models=("llama3.1-8b",), tp=1, pp=1), asked).result
    assert result.rejected[0].reason.startswith("1 GPU for ")
    assert "keeps all limits" in result.rejected[0].reason
    endless = PlanAsk(goal="latency", requests_per_s=1.0, gpus_from=("l40s",), num_confirmed=0, num_workers=1)
    answer = plan(Ask(models=("llama3.1-8b",), tp=1, pp=1), endless)
    assert next(one for one in answer.inputs if one.name == "max_gpus").origin == "assumed"
