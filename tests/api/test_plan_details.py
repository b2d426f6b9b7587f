"""A plan in full: its energy, what its simulation confirms, and the draft on the way from a naive deployment."""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.deployment import Ask, load
from infcalc.api.drafting import DraftAsk, speculate
from infcalc.api.objectives import parse_slo
from infcalc.api.offer import Offer
from infcalc.api.plan_ask import PlanAsk
from infcalc.api.plan_nouns import (
    Alternative,
    Confirmation,
    FrontPoint,
    Plan,
    PlanResult,
    Rejected,
    RejectedGroup,
    Simulated,
    StoryStep,
)
from infcalc.api.plan_rig import Kept
from infcalc.api.planning import plan
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.speed import estimate
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.planning.power import DECODE, IDLE, PREFILL

MODEL = "llama3.1-8b"
ALIKE: dict[str, Any] = {"input_tokens": "1000", "output_tokens": "300"}
QUICK: dict[str, Any] = {"num_confirmed": 0, "num_workers": 1}


def test_energy_is_the_power_of_all_boards_over_the_tokens_of_all_replicas() -> None:
    asked = PlanAsk(requests_per_s=12.0, gpus_from=("l40s",), slo=parse_slo(("tpot=50ms",)), **ALIKE, **QUICK)
    tdp = load(Ask()).gpu("l40s").gpu.tdp_watt
    assert tdp is not None
    plain, spare = (
        plan(Ask(models=(MODEL,), tp=1, pp=1), replace(asked, num_spare=number)).result.plans[0] for number in (0, 2)
    )
    for one in (plain, spare):
        energy = one.kwh_per_million_output_tokens
        assert energy is not None
        watt = energy.value * 3.6 * one.output_tokens_per_s.value
        idle = IDLE.value * tdp * one.spare_replicas
        busy = (watt - idle) / (tdp * (one.replicas - one.spare_replicas))
        assert DECODE.value < busy < PREFILL.value
        assert energy.low < energy.value < energy.high
    assert spare.replicas == plain.replicas + 2


def test_energy_of_a_plan_is_that_of_the_estimate_of_its_replica() -> None:
    asked = PlanAsk(requests_per_s=2.0, gpus_from=("h100-sxm5-80gb",), **ALIKE, **QUICK)
    ask = Ask(models=(MODEL,), gpus=("h100-sxm5-80gb",), tp=1, pp=1)
    mine = plan(ask, asked).result.plans[0].kwh_per_million_output_tokens
    other = estimate(ask, Offer(requests_per_s=2.0, **ALIKE)).result.kwh_per_million_output_tokens
    assert mine is not None
    assert other is not None
    assert mine.value == pytest.approx(other.value)


def test_simulation_and_closed_form_differ_by_the_step_that_is_scheduled_ahead() -> None:
    """One replica, so that requests come to it at random; with the step both agree within a twentieth."""
    ask = Ask(models=(MODEL,), gpus=("l40s",), tp=1)
    load_of = {"requests_per_s": 10 / 3, **ALIKE}
    closed = estimate(ask, Offer(**load_of)).result
    steps = simulate(
        ask,
        SimulationAsk(load=WorkloadAsk(arrivals=f"poisson:rate={10 / 3}", num_requests=2000, **ALIKE)),
    ).result
    assert closed.ttft_s is not None
    assert steps.ttft_s is not None
    assert steps.tpot_s is not None
    ahead_s = steps.tpot_s.mean
    assert steps.ttft_s.mean < 0.85 * closed.ttft_s.value
    assert steps.ttft_s.mean + ahead_s == pytest.approx(closed.ttft_s.value, rel=0.05)


def test_a_confirmation_says_what_it_confirms_and_holds_the_step_ahead() -> None:
    asked = PlanAsk(
        requests_per_s=10.0,
        gpus_from=("l40s",),
        slo=parse_slo(("ttft-p95=1s", "tpot-p95=50ms")),
        num_confirmed=1,
        **ALIKE,
    )
    answer = plan(Ask(models=(MODEL,), tp=1, pp=1), asked)
    best = answer.result.plans[0]
    said = best.confirmation
    assert said is not None
    assert best.ttft_s is not None
    assert best.tpot_s is not None
    assert said.scheduled_ahead_s == pytest.approx(best.tpot_s.value, rel=0.1)
    # A percentile far out is no less than the mean.
    assert said.ttft_p95_s >= best.ttft_s.value
    assert "its queues are confirmed by simulation, on the same clock" in answer.result.text
    assert any("says nothing of how fast the GPUs are" in note for note in answer.assumptions)
    old = plan(Ask(models=(MODEL,), tp=1, pp=1, engine_version="0.10"), asked).result.plans[0].confirmation
    assert old is not None
    assert old.scheduled_ahead_s == 0


def test_speculation_on_the_way_from_naive_leaves_less_room() -> None:
    asked = PlanAsk(
        num_users=100, from_naive=True, allow=("fp8",), gpus_from=("a100-sxm4-80gb",), with_pools=False, **QUICK
    )
    steps = {one.step: one for one in plan(Ask(tp=4, pp=1), asked).result.story}
    drafted, before = steps["speculation"], steps["prefix cache"]
    assert "beside its weights and KV" in drafted.note
    room = {
        name: float(one.note.partition("room for ")[2].split()[0].replace(",", ""))
        for name, one in (("speculation", drafted), ("KV in fp8", steps["KV in fp8"]))
    }
    full = speculate(
        Ask(tp=4, kv_dtypes=("fp8",)), DraftAsk(methods=("eagle3",), batch=100), contexts=(4096,)
    ).result.full_load[0]
    assert room["speculation"] == pytest.approx(
        room["KV in fp8"] * full.sequences_with / full.sequences_without, abs=1.5
    )
    assert room["speculation"] < room["KV in fp8"]
    assert drafted.replicas <= before.replicas


@pytest.mark.parametrize(
    "made",
    [PlanResult, Plan, Kept, Confirmation, Simulated, FrontPoint, Alternative, RejectedGroup, Rejected, StoryStep],
)
def test_every_key_of_the_answer_stands_with_the_command(made: type) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "commands.md").read_text(encoding="utf-8")
    section = page.partition("\n## infcalc plan\n")[2].partition("\n## ")[0]
    told = set(re.findall(r"`([a-z_0-9]+)(?:\[\])?`", section))
    assert {field.name for field in fields(made)} - told == set()


def test_pools_say_how_sure_they_are() -> None:
    tight, loose = (
        plan(
            Ask(models=(MODEL,), pp=1),
            PlanAsk(
                requests_per_s=20.0,
                gpus_from=("l40s", "h100-sxm5-80gb"),
                slo=parse_slo((f"ttft-p95={limit}ms", f"tpot-p95={limit // 20}ms")),
                **ALIKE,
                **QUICK,
            ),
        ).result.alternatives
        for limit in (1000, 4000)
    )
    for one, other in zip(tight, loose, strict=True):
        assert one.kind == other.kind
        for each in (one, other):
            assert each.slo_probability_fraction is not None
            assert 0 <= each.slo_probability_fraction <= 1
    assert {one.kind for one in tight} == {"mixed", "disaggregated"}
    assert len({one.slo_probability_fraction for one in (*tight, *loose)}) > 1


def test_pools_pay_for_spare_replicas_of_their_own() -> None:
    """Against a plain plan with its spare: neither side is without."""
    asked = PlanAsk(requests_per_s=20.0, gpus_from=("l40s", "h100-sxm5-80gb"), **ALIKE, **QUICK)
    plain, spare = (plan(Ask(models=(MODEL,), pp=1), replace(asked, num_spare=number)).result for number in (0, 1))
    for one, other in zip(plain.alternatives, spare.alternatives, strict=True):
        assert other.usd_per_hour > one.usd_per_hour
        assert other.total_gpus >= one.total_gpus + 2
        assert other.plain_usd_per_hour > one.plain_usd_per_hour
    assert "without the spare" in spare.plans[0].certainty
    assert "without the spare" not in plain.plans[0].certainty
