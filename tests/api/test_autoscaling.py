"""Autoscaling of real deployments: what is read, what is paid, and that nobody is lost."""

from __future__ import annotations

import pytest

from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask
from infcalc.api.scaling_ask import parse_autoscale
from infcalc.api.scaling_nouns import Scaling
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.simulation_nouns import SimulationResult
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import UsageError
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.scaling import Gauge, ScalingRule

SMALL = Ask(models=("llama3-8b",), gpus=("rtx-4090",), num_gpus=1)
DAY = WorkloadAsk(arrivals="diurnal:rate=12,ratio=10,period=2min,peak=30s", num_requests=1200)
RULE = "max=4,queue=2,start=5s,window=5s,every=1s"


def ran(
    rule: str = RULE, load: WorkloadAsk = DAY, terms: Terms | None = None, **asked: object
) -> tuple[SimulationResult, Scaling]:
    ask = SimulationAsk(load=load, scaling=parse_autoscale(rule), **asked)  # type: ignore[arg-type]
    result = simulate(SMALL, ask, terms=terms).result
    assert result.scaling is not None
    return result, result.scaling


@pytest.mark.parametrize("arrivals", ["diurnal:rate=12,ratio=10,period=2min,peak=30s", "ramp:from=1,to=30,over=1min"])
@pytest.mark.parametrize("rule", [RULE, "max=4,kv=0.4,below=0.1,start=5s,window=5s,every=1s"])
def test_replicas_follow_the_load_and_only_those_there_are_paid(arrivals: str, rule: str) -> None:
    result, told = ran(rule, WorkloadAsk(arrivals=arrivals, num_requests=1200))
    assert result.completed + result.rejected == result.requests == 1200
    assert told.num_added > 0
    assert 1 < told.num_serving_mean < told.num_peak <= 4 + told.num_removed
    assert told.gpu_s < told.fixed_peak_gpu_s
    assert told.saved_fraction == pytest.approx(1 - told.gpu_s / told.fixed_peak_gpu_s)
    assert max(one.num_serving for one in told.replicas_over_time) <= 4
    times = [one.time_s for one in told.replicas_over_time]
    assert times == sorted(set(times))
    widths = [moment.end_s - moment.start_s for moment in result.over_time]
    serving = [moment.num_replicas or 0 for moment in result.over_time]
    mean = sum(count * width for count, width in zip(serving, widths, strict=True)) / sum(widths)
    assert mean == pytest.approx(told.num_serving_mean, rel=0.02)
    assert result.kv_usage_fraction is not None
    assert 0 < result.kv_usage_fraction.mean <= result.kv_usage_fraction.max <= 1
    assert all(0 <= moment.kv_usage_fraction <= 1 + 1e-9 for moment in result.over_time)


def test_the_cost_is_that_of_the_paid_hours() -> None:
    result, told = ran(terms=Terms(usd_per_hour=3.6))
    assert told.usd == pytest.approx(told.gpu_s * 1e-3)
    assert told.fixed_peak_usd == pytest.approx(told.fixed_peak_gpu_s * 1e-3)
    assert told.usd is not None
    tokens = result.output_tokens_per_s * result.duration_s
    assert result.usd_per_million_output_tokens == pytest.approx(told.usd / tokens * 1e6, rel=1e-9)


def test_a_rule_that_never_acts_is_a_fixed_number_of_replicas() -> None:
    result, told = ran("min=2,max=2,queue=4")
    fixed = simulate(SMALL, SimulationAsk(load=DAY, num_replicas=2, step_by_step=True)).result
    for name in ("ttft_s", "tpot_s", "itl_s", "e2e_s", "output_tokens_per_s", "preemptions", "steps"):
        assert getattr(result, name) == getattr(fixed, name), name
    assert (told.num_added, told.num_removed, told.num_peak) == (0, 0, 2)
    assert told.saved_fraction == 0
    assert result.slot_utilization_fraction == pytest.approx(fixed.slot_utilization_fraction, rel=0.01)


def test_a_month_costs_what_the_replicas_that_were_there_cost() -> None:
    result, told = ran("min=1,max=3,queue=1,start=5s,window=5s")
    assert told.usd is not None
    assert result.usd_per_month is not None
    assert 1 < told.gpu_s / result.duration_s < 3
    tokens_a_month = result.output_tokens_per_s * 730 * 3600
    assert result.usd_per_million_output_tokens is not None
    assert result.usd_per_month == pytest.approx(tokens_a_month / 1e6 * result.usd_per_million_output_tokens, rel=1e-9)
    fixed = simulate(SMALL, SimulationAsk(load=DAY, num_replicas=3)).result
    assert fixed.usd_per_month is not None
    assert result.usd_per_month == pytest.approx(fixed.usd_per_month * told.gpu_s / result.duration_s / 3, rel=1e-9)
    never, _ = ran("min=3,max=3,queue=1000")
    assert never.usd_per_month == fixed.usd_per_month


def test_policies_stand_side_by_side_with_their_replicas() -> None:
    result, _ = ran(compared=("vllm", "static"))
    assert [run.scaling is not None for run in result.compare] == [True, True]


@pytest.mark.parametrize("word", ["users", "sessions"])
def test_users_who_wait_are_served_too(word: str) -> None:
    load = {
        "users": WorkloadAsk(num_clients=60, num_requests=300, think_s=1.0),
        "sessions": WorkloadAsk(requests_per_s=6, num_requests=300, turns="3"),
    }[word]
    result, _ = ran(load=load)
    assert result.completed == result.requests


def test_a_rule_is_read_with_its_defaults() -> None:
    assert parse_autoscale("min=2, max=8, kv=0.8, below=0.3, start=1min, window=20s, every=10, pause=2min") == (
        ScalingRule(
            num_least=2,
            num_most=8,
            gauge=Gauge.KV,
            above=0.8,
            below=0.3,
            start_ps=60 * PS_PER_S,
            window_ps=20 * PS_PER_S,
            every_ps=10 * PS_PER_S,
            pause_ps=120 * PS_PER_S,
        )
    )
    assert parse_autoscale("max=3,queue=4").start_ps == 60 * PS_PER_S


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("max=4", "either queue or kv"),
        ("max=4,queue=3,kv=0.5", "not both"),
        ("queue=4", "max is missing"),
        ("max=0,queue=4", "max=0"),
        ("min=5,max=4,queue=4", "min=5 is above max=4"),
        ("max=4,queue=0", "above 0"),
        ("max=4,queue=nan", "at most"),
        ("max=4,kv=1.5", "at most 1"),
        ("max=4,queue=2,below=2", "must be under"),
        ("max=4,queue=2,below=-1", "below=-1"),
        ("max=4,queue=2,window=7s", "whole number of looks"),
        ("max=4,queue=2,every=0s", "above 0"),
        ("max=4,queue=2,start=soon", "soon"),
        ("max=4,queue=2,speed=3", "'speed' is no key"),
        ("4", "'4' is no key"),
        ("max=4,max=5,queue=2", "given twice"),
    ],
)
def test_rules_that_are_none_are_refused_with_the_mend(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said) as refused:
        parse_autoscale(text)
    assert refused.value.place == "--autoscale"
    assert "min=1,max=8" in (refused.value.hint or "")
