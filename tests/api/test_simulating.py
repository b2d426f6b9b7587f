"""Simulations of deployments: the same figures from every step and in aggregate, and laws of their figures."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask
from infcalc.api.objectives import parse_slo
from infcalc.api.replicas import Policy
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk, check_simulation
from infcalc.api.simulation_nouns import RunResult, SimulationResult
from infcalc.api.sweeping import parse_sweep
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import FileProblem, InfcalcError, UsageError

SMALL = Ask(models=("llama3-8b",), gpus=("rtx-4090",), num_gpus=1)
RANKS = Ask(models=("mixtral-8x7b",), gpus=("h100-sxm5-80gb",), num_gpus=4, dp=4, ep=4, weights="fp8")
BUSY = WorkloadAsk(requests_per_s=12.0, num_requests=250)
SHARED = replace(BUSY, shared_prefix="num=3,tokens=300,share=0.7")


def ran(load: WorkloadAsk = BUSY, ask: Ask = SMALL, **asked: object) -> SimulationResult:
    return simulate(ask, SimulationAsk(load=load, **asked)).result  # type: ignore[arg-type]


def figures(run: RunResult) -> RunResult:
    """Return a run without what is read at other moments, and its one mean of floats."""
    assert run.itl_s is not None
    return replace(run, over_time=(), itl_s=replace(run.itl_s, mean=round(run.itl_s.mean, 12)))


@pytest.mark.parametrize("load", [BUSY, SHARED, replace(BUSY, arrivals="once", requests_per_s=None)], ids=str)
@pytest.mark.parametrize("policy", ["static", "continuous", "vllm"])
@pytest.mark.parametrize("number", [1, 3])
def test_step_by_step_gives_the_same_figures(load: WorkloadAsk, policy: str, number: int) -> None:
    fast = ran(load, policy=policy, num_replicas=number)
    slow = ran(load, policy=policy, num_replicas=number, step_by_step=True)
    assert figures(fast) == figures(slow)
    assert fast.completed == 250
    pairs = list(zip(fast.over_time, slow.over_time, strict=True))
    # The cache is read at other moments in between.
    assert sum(abs(one.kv_usage_fraction - other.kv_usage_fraction) for one, other in pairs) / len(pairs) < 0.005
    for one, other in pairs:
        assert one.output_tokens_per_s == other.output_tokens_per_s
        assert one.num_waiting == other.num_waiting


@pytest.mark.parametrize(
    ("load", "number"),
    [
        (replace(SHARED, num_requests=100), 2),
        (replace(BUSY, requests_per_s=None, num_clients=24, num_requests=100), 1),
        (replace(BUSY, requests_per_s=None, num_clients=24, num_requests=100), 2),
    ],
    ids=["open, two replicas", "clients", "clients, two replicas"],
)
@pytest.mark.parametrize("policy", ["static", "vllm"])
def test_ranks_that_share_experts_give_the_same_figures_step_by_step(
    load: WorkloadAsk, number: int, policy: str
) -> None:
    asked: dict[str, Any] = {"policy": policy, "num_replicas": number}
    fast, slow = (ran(load, RANKS, **asked, step_by_step=one) for one in (False, True))
    assert figures(fast) == figures(slow)
    assert (fast.num_lanes, fast.completed) == (4 * number, 100)


def test_without_anything_it_is_a_stated_load_on_the_reference_deployment() -> None:
    answer = simulate()
    result = answer.result
    assert (result.model, result.num_gpus, result.policy) == ("llama3-70b", 4, Policy.VLLM)
    assert result.requests == result.completed == 1000
    given = {item.name: (item.value, item.origin) for item in answer.inputs}
    assert given["num_requests"] == (1000, "default")
    assert given["arrivals"] == ("poisson:rate=3", "default")
    assert answer.exit_code == 0


def test_figures_agree_with_one_another() -> None:
    result = ran(SHARED)
    assert result.ttft_s is not None
    assert result.tpot_s is not None
    assert result.e2e_s is not None
    assert result.queue_s is not None
    assert result.kv_usage_fraction is not None
    assert result.output_tokens_per_s_per_user == pytest.approx(1 / result.tpot_s.mean)
    assert result.requests_per_s == pytest.approx(250 / result.duration_s)
    assert result.queue_s.mean < result.ttft_s.mean < result.e2e_s.mean
    for summary in (result.ttft_s, result.tpot_s, result.itl_s, result.e2e_s):
        assert summary is not None
        assert summary.p50 <= summary.p90 <= summary.p95 <= summary.p99 <= summary.max
    assert 0 < result.kv_usage_fraction.mean < result.kv_usage_fraction.max <= 1
    # 70 % of the prompts begin with 300 tokens of some 800.
    assert 0.2 < result.prefix_hit_rate_fraction < 0.7 * 300 / 700
    assert ran(SHARED, prefix_caching=False).prefix_hit_rate_fraction == 0
    widths = [moment.end_s - moment.start_s for moment in result.over_time]
    held = sum(one.kv_usage_fraction * width for one, width in zip(result.over_time, widths, strict=True))
    assert held / result.duration_s == pytest.approx(result.kv_usage_fraction.mean, rel=1e-6)
    tokens = sum(one.output_tokens_per_s * width for one, width in zip(result.over_time, widths, strict=True))
    assert tokens == pytest.approx(result.output_tokens_per_s * result.duration_s, rel=1e-3)


def test_the_front_end_is_in_the_first_token() -> None:
    alone = WorkloadAsk(num_clients=1, num_requests=1, input_tokens="1000", output_tokens="2")
    answer = simulate(SMALL, SimulationAsk(load=alone), explain=True)
    result = answer.result
    assert result.ttft_s is not None
    assert result.itl_s is not None
    (told,) = [one for one in answer.explanations if one.quantity == "ttft_s"]
    assert {item.name for item in told.inputs} == {"request_s", "prompt_token_s", "latency_s"}
    twice = ran(replace(alone, input_tokens="2000"))
    assert twice.ttft_s is not None
    assert twice.ttft_s.mean > result.ttft_s.mean


def test_goodput_counts_requests_within_every_limit_and_percentiles_are_those_of_the_requests() -> None:
    limits = parse_slo(("ttft-p95=10ms", "tpot=1h"))
    answer = simulate(SMALL, SimulationAsk(load=BUSY, slo=limits))
    assert answer.exit_code == 4
    assert answer.result.goodput_fraction == 0
    kept = simulate(SMALL, SimulationAsk(load=BUSY, slo=parse_slo(("ttft-p95=1h", "tpot=1h"))))
    assert (kept.exit_code, kept.result.goodput_fraction) == (0, 1)
    ttft = answer.result.ttft_s
    assert ttft is not None
    assert answer.result.slo[0].value == pytest.approx(ttft.p95)
    half = ran(slo=parse_slo((f"ttft={ttft.p50 * 1000}ms",)))
    assert half.goodput_fraction == pytest.approx(0.5, abs=0.01)
    assert half.goodput_requests_per_s == pytest.approx(half.goodput_fraction * 250 / half.duration_s)
    with pytest.raises(UsageError, match="no time of a request"):
        ran(slo=parse_slo(("output-tokens-per-s=100",)))


def test_an_overloaded_cache_preempts_and_static_batching_never() -> None:
    crowd = WorkloadAsk(arrivals="once", num_requests=120, input_tokens="400", output_tokens="800")
    result = ran(crowd)
    assert result.kv_usage_fraction is not None
    assert result.preemptions > 0
    assert result.kv_usage_fraction.max > 0.99
    assert result.completed == 120
    static = ran(crowd, policy="static")
    assert static.preemptions == 0
    assert static.output_tokens_per_s < result.output_tokens_per_s


def test_room_for_the_longest_sequence_serves_fewer() -> None:
    load = replace(BUSY, arrivals="once", requests_per_s=None)
    paged, contiguous = (ran(load, policy="continuous", contiguous=one) for one in (False, True))
    assert contiguous.slot_utilization_fraction < paged.slot_utilization_fraction
    assert contiguous.output_tokens_per_s < paged.output_tokens_per_s
    assert contiguous.prefix_hit_rate_fraction == 0


def test_what_the_engine_rejects_is_counted_and_said(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival_s,input_tokens,output_tokens\n0,9000,5\n0,50,5\n1,8100,500\n", encoding="utf-8")
    answer = simulate(SMALL, SimulationAsk(load=WorkloadAsk(file=str(trace))))
    assert (answer.result.requests, answer.result.completed, answer.result.rejected) == (3, 2, 1)
    said = " ".join(answer.warnings)
    assert "1 of 3 requests were rejected: 1 prompts reach the 8,192 tokens" in said
    assert "1 answers end" in said
    # Longer than the cache: as the engine says it.
    tight = replace(SMALL, memory_fraction=0.74)
    found = simulate(tight, SimulationAsk(load=WorkloadAsk(file=str(trace))))
    if found.result.fits:
        assert found.result.completed + found.result.rejected == 3


@pytest.mark.parametrize("way", [{"num_clients": 2}, {"requests_per_s": 1.0}, {"arrivals": "once"}])
def test_a_load_of_which_nothing_is_admitted_ends(way: dict[str, Any]) -> None:
    found = ran(WorkloadAsk(num_requests=5, input_tokens="9000", output_tokens="10", **way))
    assert (found.completed, found.rejected, found.output_tokens_per_s) == (0, 5, 0)
    assert found.loaded_output_tokens_per_s in {None, 0}


def test_sessions_find_what_was_said_before_and_wait_for_it() -> None:
    load = WorkloadAsk(requests_per_s=1.0, num_requests=60, turns="3", think_s=2.0)
    together = ran(load, num_replicas=2, router="session")
    apart = ran(load, num_replicas=2)
    assert together.completed == apart.completed == 60
    assert together.prefix_hit_rate_fraction > 1.2 * apart.prefix_hit_rate_fraction


def test_the_same_seed_gives_the_same_and_another_does_not() -> None:
    assert ran(replace(BUSY, seed=3)) == ran(replace(BUSY, seed=3)) != ran(replace(BUSY, seed=4))


def test_a_sweep_finds_the_knee_and_how_far_the_limits_are_kept() -> None:
    load = WorkloadAsk(num_requests=150)
    result = ran(load, sweep=parse_sweep("rate=2,8,32,128"), slo=parse_slo(("ttft=300ms",)))
    curve = result.sweep
    assert curve is not None
    assert [point.value for point in curve.points] == [2, 8, 32, 128]
    waits = [point.ttft_s.mean for point in curve.points if point.ttft_s is not None]
    assert waits == sorted(waits)
    assert curve.knee in {2, 8, 32, 128}
    within = [value for value, wait in zip((2, 8, 32, 128), waits, strict=True) if wait <= 0.3]
    assert curve.highest_within_slo == within[-1]
    at_knee = next(point for point in curve.points if point.value == curve.knee)
    assert at_knee.output_tokens_per_s == result.output_tokens_per_s


def test_cost_follows_price_replicas_and_throughput() -> None:
    terms = Terms(usd_per_hour=3.6, utilization_fraction=0.5)
    result = simulate(SMALL, SimulationAsk(load=BUSY, num_replicas=2), terms=terms).result
    assert result.usd_per_million_output_tokens == pytest.approx(
        3.6 * 2 / 3600 / 0.5 / result.output_tokens_per_s * 1e6
    )


def test_policies_side_by_side_get_the_same_requests() -> None:
    result = ran(compared=("static", "vllm", "sglang", "sarathi", "tensorrt-llm"))
    assert [run.policy for run in result.compare] == ["static", "vllm", "sglang", "sarathi", "tensorrt-llm"]
    assert {run.completed for run in result.compare} == {250}
    tokens = [run.output_tokens_per_s * run.duration_s for run in result.compare]
    assert tokens == pytest.approx([tokens[0]] * 5)


def test_a_run_that_is_broken_off_is_marked_and_says_how_far_it_came() -> None:
    for step_by_step in (False, True):
        calls = 0

        def stop(done: int, total: int) -> None:
            nonlocal calls
            assert total == 1000
            calls += 1
            if done:
                raise KeyboardInterrupt

        answer = simulate(
            SMALL,
            SimulationAsk(load=replace(BUSY, num_requests=1000), step_by_step=step_by_step),
            progress=stop,
        )
        assert answer.exit_code == 130
        result = answer.result
        assert result.partial
        assert 0 < result.completed < 1000
        assert result.completed + result.unfinished == 1000
        assert "broken off" in " ".join(answer.warnings)


def test_what_contradicts_itself_is_refused() -> None:
    for asked, text in (
        ({"policy": "fifo"}, "not a scheduling policy"),
        ({"policy": "vllm", "compared": ("static",)}, "beside several"),
        ({"num_replicas": 0}, "out of range"),
        ({"num_slots": 0}, "out of range"),
        ({"router": "random", "num_replicas": 2}, "no router"),
        ({"sweep": parse_sweep("batch=1..8")}, "no load of a simulation"),
        ({"sweep": parse_sweep("rate=1..8"), "compared": ("static", "vllm")}, "beside several"),
        ({"sweep": parse_sweep("rate=1..8"), "save_requests": "x.csv"}, "several runs"),
    ):
        with pytest.raises(UsageError, match=text):
            simulate(SMALL, SimulationAsk(**asked))
    with pytest.raises(UsageError, match="swept"):
        ran(BUSY, sweep=parse_sweep("rate=1..8"))
    with pytest.raises(InfcalcError, match="above 0"):
        ran(replace(BUSY, requests_per_s=0.0))


def test_ranks_of_experts_step_together() -> None:
    ask = Ask(models=("qwen3-30b-a3b",), gpus=("h100",), num_gpus=2, dp=2, ep=2)
    result = ran(WorkloadAsk(requests_per_s=20.0, num_requests=120), ask)
    assert result.num_lanes == 2
    assert result.completed == 120


@pytest.mark.parametrize(
    "load", [BUSY, SHARED, WorkloadAsk(num_clients=4, num_requests=60)], ids=["own", "shared", "closed"]
)
@pytest.mark.parametrize("number", [1, 3])
def test_without_requests_the_answer_is_the_same(load: WorkloadAsk, number: int) -> None:
    limits = parse_slo(("ttft=300ms", "tpot-p95=40ms"))
    kept, only = (
        simulate(SMALL, SimulationAsk(load=load, num_replicas=number, slo=limits, keep_requests=one), explain=True)
        for one in (True, False)
    )
    assert kept.result == only.result
    assert 0 < kept.result.goodput_fraction <= 1
    assert kept.explanations == only.explanations
    said = [note for note in only.assumptions if note not in kept.assumptions]
    # Clients wait for their answers: every step is computed.
    assert [note[:13] for note in said] == (["--no-requests"] if load.num_clients else [])


def test_requests_that_are_not_kept_are_not_saved() -> None:
    with pytest.raises(UsageError, match="not kept") as told:
        simulate(SMALL, SimulationAsk(save_requests="x.csv", keep_requests=False))
    assert "--no-requests" in str(told.value)


def _answers(folder: Path, *lengths: int) -> WorkloadAsk:
    path = folder / "trace.csv"
    lines = [f"{place / 5},300,{length}" for place, length in enumerate(lengths)]
    path.write_text("\n".join(["time,input,output", *lines, ""]))
    return WorkloadAsk(file=str(path))


@pytest.mark.parametrize(("limit", "kept"), [("tpot=1us", False), ("tpot-p50=1us", False), ("tpot=10s", True)])
def test_answers_of_one_token_have_no_time_per_token_in_a_limit_either(tmp_path: Path, limit: str, kept: bool) -> None:
    result = ran(_answers(tmp_path, *[1, 1, 1, 80] * 10), slo=parse_slo((limit,)))
    (outcome,) = result.slo
    assert result.tpot_s is not None
    assert outcome.value == (result.tpot_s.p50 if "p50" in limit else result.tpot_s.mean)
    assert outcome.met is kept
    assert result.goodput_fraction == (1.0 if kept else 0.75)


def test_a_limit_of_tokens_that_nobody_has_is_kept(tmp_path: Path) -> None:
    result = ran(_answers(tmp_path, 1, 1, 1), slo=parse_slo(("tpot=1us",)))
    assert (result.tpot_s, result.goodput_fraction) == (None, 1.0)
    assert [(one.met, one.value) for one in result.slo] == [(True, None)]


LONG = {
    "arrivals": WorkloadAsk(requests_per_s=1e-6, num_requests=20),
    "rare": WorkloadAsk(arrivals="poisson:rate=1e-300", num_requests=20),
    "think time": WorkloadAsk(num_clients=3, think_s=1e12, num_requests=20),
    "think times in a row": WorkloadAsk(num_clients=3, think_s=2e6, num_requests=20),
    "turns in a row": WorkloadAsk(requests_per_s=1.0, num_requests=20, turns="3", think_s=8e6),
}


@pytest.mark.parametrize("word", LONG)
@pytest.mark.parametrize(
    "way", [{}, {"step_by_step": True}, {"num_replicas": 2}, {"compared": ("static", "vllm")}], ids=str
)
def test_a_load_that_outlasts_the_clock_is_refused_with_the_mend(word: str, way: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="more than the 104 days") as refused:
        ran(LONG[word], **way)  # type: ignore[arg-type]
    assert "--speedup" in (refused.value.hint or "")


def test_a_load_of_a_hundred_days_is_served() -> None:
    result = ran(WorkloadAsk(arrivals="constant:3e-6", num_requests=20))
    assert result.completed == 20
    assert result.duration_s == pytest.approx(19 / 3e-6, rel=1e-3)


def test_requests_that_could_not_be_saved_are_refused_before_the_run(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="does not exist"):
        check_simulation(SimulationAsk(save_requests=str(tmp_path / "none" / "x.csv")))
    with pytest.raises(FileProblem, match="directory"):
        check_simulation(SimulationAsk(save_requests=str(tmp_path)))
