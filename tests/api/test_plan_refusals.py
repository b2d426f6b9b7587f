"""Every nearest change that is said to be enough, applied: the plan that it names then stands."""

from __future__ import annotations

import shlex
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk, parse_budget
from infcalc.api.planning import plan
from infcalc.planning.nouns import Miss
from tests.api.test_planning import CHAT
from tests.journeys.command import infcalc

if TYPE_CHECKING:
    from infcalc.api.plan_nouns import Rejected

MODEL = "llama3.1-8b"
QUICK: dict[str, Any] = {"num_confirmed": 0, "num_workers": 1, "with_pools": False}
FEW = ("l4", "l40s", "a100-sxm4-80gb")
A_KIND = 6
"""Refusals of a kind that are tried in each question: those nearest, and those furthest."""
QUESTIONS: dict[str, tuple[PlanAsk, set[Miss]]] = {
    "a budget too small for a rate and a spare replica": (
        PlanAsk(requests_per_s=20.0, usd_per_hour=2.74, num_spare=1, gpus_from=FEW, **QUICK),
        {Miss.BUDGET},
    ),
    "a budget too small for users": (
        PlanAsk(num_users=900, usd_per_hour=1.0, num_spare=2, gpus_from=FEW, **CHAT, **QUICK),
        {Miss.BUDGET},
    ),
    "too few GPUs with headroom": (
        PlanAsk(requests_per_s=30.0, max_gpus=2, headroom_fraction=0.3, gpus_from=FEW, **CHAT, **QUICK),
        {Miss.GPUS},
    ),
    "both, and a limit that is missed besides": (
        PlanAsk(
            requests_per_s=40.0,
            max_gpus=3,
            usd_per_hour=2.0,
            num_spare=1,
            slo=parse_slo(("ttft-p95=60ms", "tpot-p95=12ms")),
            gpus_from=FEW,
            **CHAT,
            **QUICK,
        ),
        {Miss.GPUS, Miss.LOAD},
    ),
    "limits that none keeps": (
        PlanAsk(num_users=60, slo=parse_slo(("ttft-p95=20ms", "tpot-p95=2ms")), gpus_from=FEW, **CHAT, **QUICK),
        {Miss.OBJECTIVE},
    ),
    "more than any number of replicas answers": (
        PlanAsk(requests_per_s=4e5, gpus_from=("l4",), **CHAT, **QUICK),
        {Miss.LOAD},
    ),
    "what is filled to its limits, for too little money": (
        PlanAsk(goal="throughput", usd_per_hour=0.3, slo=parse_slo(("tpot=15ms",)), gpus_from=FEW, **CHAT, **QUICK),
        {Miss.BUDGET},
    ),
    "quickest, for too little money": (
        PlanAsk(goal="latency", num_users=40, usd_per_hour=0.5, gpus_from=FEW, **CHAT, **QUICK),
        {Miss.BUDGET},
    ),
}


def applied(asked: PlanAsk, ask: Ask, change: str) -> tuple[PlanAsk, Ask]:
    """Return the question with a change, read as the command line reads it."""
    words = shlex.split(change)
    assert len(words) % 2 == 0
    for option, value in zip(words[::2], words[1::2], strict=True):
        match option:
            case "--slo":
                asked = replace(asked, slo=parse_slo(tuple(value.split(","))))
            case "--budget":
                asked = replace(asked, usd_per_hour=parse_budget(value))
            case "--max-gpus":
                asked = replace(asked, max_gpus=int(value))
            case "--rate":
                asked = replace(asked, requests_per_s=float(value))
            case "--gpus":
                ask = replace(ask, num_gpus=int(value))
            case _:
                pytest.fail(f"{change!r} is nothing to write")
    return asked, ask


def passes(asked: PlanAsk, one: Rejected, model: str) -> bool:
    """Tell whether the change alone lets that setup pass; of too little memory, its like on more GPUs."""
    ask = Ask(models=(model,), engine=one.engine)
    if "--gpus" not in one.nearest_change.split():
        ask = replace(ask, tp=one.tp, pp=one.pp, dp=one.dp, ep=one.ep)
    asked, ask = applied(replace(asked, gpus_from=(one.gpu,)), ask, one.nearest_change)
    result = plan(ask, asked).result
    wanted = (one.gpu, one.weights, one.kv_dtype)
    return any((found.gpu, found.weights, found.kv_dtype) == wanted for found in result.plans)


def some(rejected: tuple[Rejected, ...]) -> list[Rejected]:
    kinds: dict[Miss, list[Rejected]] = {}
    for one in rejected:
        kinds.setdefault(one.kind, []).append(one)
    return [one for mine in kinds.values() for one in dict.fromkeys((*mine[: A_KIND // 2], *mine[-A_KIND // 2 :]))]


@pytest.mark.parametrize("name", QUESTIONS)
def test_each_nearest_change_that_is_enough_lets_its_setup_pass(name: str) -> None:
    asked, kinds = QUESTIONS[name]
    result = plan(Ask(models=(MODEL,), pp=1), asked).result
    assert not result.plans
    assert kinds <= {one.kind for one in result.rejected}
    weighed = [one for one in result.rejected if one.kind in kinds]
    assert all(one.change_suffices for one in weighed)
    failed = [one for one in some(result.rejected) if one.change_suffices and not passes(asked, one, MODEL)]
    assert not failed, [(one.gpu, one.tp, one.kind, one.nearest_change) for one in failed]


def test_what_memory_is_too_small_for_names_the_gpus_with_which_its_like_passes() -> None:
    """Whether or not a budget is missed with them as well."""
    for budget in (None, 2.0):
        asked = PlanAsk(
            num_users=20, gpus_from=("a100-sxm4-40gb", "l40s", "h100"), usd_per_hour=budget, **CHAT, **QUICK
        )
        result = plan(Ask(models=("llama3-70b",), pp=1), asked).result
        small = [one for one in result.rejected if one.kind is Miss.MEMORY]
        assert len({one.gpu for one in small}) == 3
        assert Counter(one.change_suffices for one in small)[True] >= 3
        assert all("--budget" in one.nearest_change for one in small if one.change_suffices) == (budget is not None)
        failed = [one for one in small if one.change_suffices and not passes(asked, one, "llama3-70b")]
        assert not failed, [(one.gpu, one.tp, one.nearest_change) for one in failed]


def test_the_nearest_change_counts_spare_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    """The budget that the answer names is one with which the same command has a plan."""
    words = ["plan", "-m", "llama3-8b", "--rate", "20", "--spare", "N+1", "--gpus-from", "l4,l40s", "--confirm", "0"]
    refused = infcalc(capsys, *words, "--budget", "2000/month")
    assert refused.code == 4
    mend = refused.out.splitlines()[0].partition("(mend, in closed form: ")[2].removesuffix(")")
    assert mend.startswith("--budget ")
    assert infcalc(capsys, *words, *mend.split()).code == 0


def test_a_load_just_below_all_that_is_answered_has_no_safe_number_and_says_so() -> None:
    """Slower servers would not answer it, however many there are: their first token comes without end."""
    asked, _ = QUESTIONS["more than any number of replicas answers"]
    near = plan(Ask(models=(MODEL,), pp=1, tp=1), asked).result.rejected[0]
    asked, ask = applied(asked, Ask(models=(MODEL,), pp=1, tp=1), near.nearest_change)
    (best,) = plan(ask, asked).result.plans
    assert best.safe_replicas is None
    assert "without end even with 4096" in best.certainty
