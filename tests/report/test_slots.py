"""Slots over time, drawn with characters."""

from __future__ import annotations

from infcalc.api.batching_policies import BatchingResult
from infcalc.api.batching_runs import PolicyResult, Stretch
from infcalc.api.replicas import Policy
from infcalc.report.slots import slots_chart


def stretch(start_s: float, end_s: float, share: float) -> Stretch:
    return Stretch(start_s=start_s, end_s=end_s, num_steps=1, used_fraction=share, waits=False)


def run(policy: Policy, *curve: Stretch) -> PolicyResult:
    return PolicyResult(
        policy=policy,
        latency_mean_s=1.0,
        latency_p50_s=1.0,
        latency_p99_s=1.0,
        ttft_mean_s=1.0,
        makespan_s=curve[-1].end_s if curve else 0.0,
        throughput_tokens_per_s=1.0,
        requests_per_s=1.0,
        slot_utilization_fraction=None,
        slot_utilization_overall_fraction=1.0,
        num_steps=len(curve),
        num_preemptions=0,
        num_rejected=0,
        usd_per_million_output_tokens=None,
        curve=curve,
    )


def result(num_slots: int, *policies: PolicyResult) -> BatchingResult:
    return BatchingResult(
        model="m",
        gpu="g",
        num_gpus=1,
        num_lanes=1,
        engine="vllm",
        fits=True,
        missing_bytes=0,
        num_requests=1,
        num_slots=num_slots,
        prompt_tokens=1,
        answer_tokens=1,
        longest_answer_tokens=1,
        cache_tokens=1,
        unit_steps=False,
        policies=policies,
    )


def lines(chart: str) -> dict[str, str]:
    return {line.split("|")[0].strip(): line.split("|")[1] for line in chart.splitlines() if "|" in line}


def test_a_column_shows_the_slots_in_use_on_average_over_its_time() -> None:
    static = run(Policy.STATIC, stretch(0, 10, 1.0), stretch(10, 15, 0.5), stretch(15, 20, 0.25))
    drawn = lines(slots_chart(result(8, static), width=29))
    # 20 columns of one second.
    assert drawn == {"static": "8" * 10 + "4" * 5 + "2" * 5}


def test_columns_across_a_change_are_weighted_by_time_and_idle_time_is_blank() -> None:
    short = run(Policy.VLLM, stretch(0, 2.5, 1.0), stretch(2.5, 4, 0.5), stretch(8, 10, 1.0))
    longest = run(Policy.STATIC, stretch(0, 20, 0.5))
    drawn = lines(slots_chart(result(8, longest, short), width=29))
    assert drawn["vllm"] == "8864" + " " * 4 + "88"
    assert drawn["static"] == "4" * 20


def test_many_slots_are_shown_in_tenths() -> None:
    one = run(Policy.STATIC, stretch(0, 10, 1.0), stretch(10, 20, 0.31))
    chart = slots_chart(result(64, one), width=29)
    assert lines(chart)["static"] == "#" * 10 + "3" * 10
    assert "tenths" in chart


def test_all_lines_keep_within_the_width_and_nothing_is_drawn_of_nothing() -> None:
    one = run(Policy.TENSORRT_LLM, stretch(0, 7, 1.0))
    for width in (40, 80, 200):
        assert max(map(len, slots_chart(result(8, one), width=width).splitlines()[1:])) <= min(width, 96)
    assert slots_chart(result(8)) == ""
    assert slots_chart(result(8, run(Policy.STATIC))) == ""
