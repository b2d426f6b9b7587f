"""The same requests under each policy: what must come out, and that its step times are those of ``estimate``."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from infcalc.api import Ask, Offer, estimate
from infcalc.api.batching_policies import BatchingResult, batching
from infcalc.api.batching_requests import BatchingAsk, check_work, drawn_for
from infcalc.api.batching_runs import PolicyResult, percentile
from infcalc.api.costing import Terms
from infcalc.api.deployment import load, resolve
from infcalc.api.replicas import Policy, policies_of, step_timer
from infcalc.api.speed import machine_of, site_of
from infcalc.errors import UsageError
from infcalc.report.views.batching import view
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill

SEEDS = (0, 1, 2, 3, 4)


def by_policy(result: BatchingResult) -> dict[str, PolicyResult]:
    return {str(one.policy): one for one in result.policies}


# What must come out


@pytest.mark.parametrize("seed", SEEDS)
def test_with_pareto_answers_only_static_leaves_slots_idle_while_requests_wait(seed: int) -> None:
    result = batching(wanted=BatchingAsk(seed=seed)).result
    assert (result.num_requests, result.num_slots) == (50, 8)
    for one in result.policies:
        assert one.slot_utilization_fraction is not None
        if one.policy is Policy.STATIC:
            assert one.slot_utilization_fraction < 0.5
        else:
            assert one.slot_utilization_fraction > 0.95
        # The end, when nobody waits any more, is the same for all: the longest answer alone.
        assert one.slot_utilization_overall_fraction < max(0.95, one.slot_utilization_fraction)


@pytest.mark.parametrize("seed", SEEDS)
def test_with_answers_of_many_lengths_continuous_gives_two_to_five_times_the_tokens(seed: int) -> None:
    """Stated setting: 200 requests on 16 slots, prompts of 256, Pareto answers, the reference deployment."""
    asked = BatchingAsk(num_requests=200, num_slots=16, seed=seed, policies=("static", "continuous"))
    static, continuous = batching(wanted=asked).result.policies
    assert static.throughput_factor == 1
    assert continuous.throughput_factor is not None
    assert 2 <= continuous.throughput_factor <= 5
    assert static.latency_mean_s is not None
    assert continuous.latency_mean_s is not None
    assert continuous.latency_mean_s < static.latency_mean_s / 2


def test_with_equal_answers_static_and_continuous_tie() -> None:
    asked = BatchingAsk(num_requests=48, output_tokens=100, policies=("static", "continuous"))
    static, continuous = batching(wanted=asked).result.policies
    assert static == PolicyResult(
        **{name: getattr(continuous, name) for name in PolicyResult.__dataclass_fields__ if name != "policy"},
        policy=Policy.STATIC,
    )
    assert static.slot_utilization_overall_fraction == 1


def test_where_time_counts_steps_every_policy_takes_the_same_for_equal_requests() -> None:
    result = batching(wanted=BatchingAsk(num_requests=48, output_tokens=100, unit_steps=True)).result
    for one in result.policies:
        assert (one.num_steps, one.makespan_s, one.throughput_tokens_per_s) == (600, 600.0, 8.0)
        assert one.usd_per_million_output_tokens is None


def test_the_curve_holds_every_step() -> None:
    for one in batching(wanted=BatchingAsk(requests_per_s=1.0, num_requests=30)).result.policies:
        assert sum(stretch.num_steps for stretch in one.curve) == one.num_steps
        used = sum(stretch.num_steps * stretch.used_fraction for stretch in one.curve)
        assert used / one.num_steps == pytest.approx(one.slot_utilization_overall_fraction)
        waited = [stretch for stretch in one.curve if stretch.waits]
        if one.slot_utilization_fraction is None:
            assert not waited
        else:
            used = sum(stretch.num_steps * stretch.used_fraction for stretch in waited)
            steps = sum(stretch.num_steps for stretch in waited)
            assert used / steps == pytest.approx(one.slot_utilization_fraction)
        ends = [0.0, *(stretch.end_s for stretch in one.curve)]
        assert all(end <= stretch.start_s < stretch.end_s for end, stretch in zip(ends, one.curve, strict=False))
        assert ends[-1] == pytest.approx(one.makespan_s)


def test_latency_counts_from_the_arrival_of_each_request() -> None:
    # One request every 100 seconds on average: nobody waits, and each takes what a lone one does.
    lone, spread = (
        batching(
            wanted=BatchingAsk(num_requests=number, output_tokens=20, requests_per_s=0.01, policies=("vllm",), seed=1)
        ).result.policies[0]
        for number in (1, 5)
    )
    assert spread.makespan_s > 100
    assert spread.latency_mean_s == pytest.approx(lone.latency_mean_s)
    assert spread.ttft_mean_s == pytest.approx(lone.ttft_mean_s)


def test_the_winner_is_named_and_the_money_follows_the_tokens() -> None:
    answer = batching(wanted=BatchingAsk(policies=("static", "vllm")), terms=Terms(usd_per_hour=2.0))
    static, vllm = answer.result.policies
    assert answer.result.fastest is Policy.VLLM
    for one in (static, vllm):
        usd = 2.0 * 4 / 3600 / one.throughput_tokens_per_s * 1e6
        assert one.usd_per_million_output_tokens == pytest.approx(usd)
    half = batching(wanted=BatchingAsk(policies=("vllm",)), terms=Terms(usd_per_hour=2.0, utilization_fraction=0.5))
    assert half.result.policies[0].usd_per_million_output_tokens == pytest.approx(
        2 * (vllm.usd_per_million_output_tokens or 0)
    )


def test_bands_hold_the_figures_and_agree_with_runs_at_their_pace() -> None:
    at_once = batching(wanted=BatchingAsk(policies=("sglang",), num_requests=20)).result.policies[0]
    later = batching(wanted=BatchingAsk(policies=("sglang",), num_requests=20, requests_per_s=1.5)).result.policies[0]
    for one in (at_once, later):
        for key in ("latency_mean_s", "latency_p50_s", "latency_p99_s", "throughput_tokens_per_s"):
            low, value, high = (getattr(one, f"{key}{end}") for end in ("_low", "", "_high"))
            assert low < value < high
    # At a rate that is kept up with, twice as slow is not half the throughput.
    assert later.throughput_tokens_per_s_low is not None
    assert at_once.throughput_tokens_per_s_low is not None
    assert (
        later.throughput_tokens_per_s_low / later.throughput_tokens_per_s
        > at_once.throughput_tokens_per_s_low / at_once.throughput_tokens_per_s
    )


def test_the_same_seed_draws_the_same_and_lengths_do_not_depend_on_the_rate() -> None:
    one = batching(wanted=BatchingAsk(seed=7, policies=("vllm",)))
    assert one == batching(wanted=BatchingAsk(seed=7, policies=("vllm",)))
    other = batching(wanted=BatchingAsk(seed=8, policies=("vllm",))).result
    rated = batching(wanted=BatchingAsk(seed=7, policies=("vllm",), requests_per_s=3)).result
    assert one.result.answer_tokens == rated.answer_tokens != other.answer_tokens


# Step times


DEPLOYMENTS = (
    Ask(),
    Ask(models=("llama3-8b",), gpus=("a100-80gb",), num_gpus=1),
    Ask(models=("deepseek-v3",), gpus=("h200",), num_gpus=8),
    Ask(models=("mixtral-8x7b",), gpus=("h100",), num_gpus=2),
    Ask(models=("gemma3-27b",), gpus=("h100",), num_gpus=2, enforce_eager=True),
    Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=4, pp=2, cpu_offload_bytes=2**30),
)


@pytest.mark.parametrize("ask", DEPLOYMENTS, ids=lambda ask: f"{ask.models[0] if ask.models else 'reference'}")
def test_steps_take_within_a_hundredth_of_what_the_clock_of_estimate_says(ask: Ask) -> None:
    catalog = load(ask)
    (deployment,) = resolve(ask, catalog)
    machine = machine_of(site_of(ask, deployment, catalog))
    clock, timer = machine.clock.full(), step_timer(machine)
    chance = random.Random(5)  # noqa: S311 - no secret
    for _ in range(150):
        decodes, context = round(2 ** chance.uniform(0, 8)), round(2 ** chance.uniform(4, 14))
        number = chance.choice([0, 1, 1, 3])
        new, cached = round(2 ** chance.uniform(0, 11)), chance.choice([0, 0, round(2 ** chance.uniform(4, 13))])
        shape = BatchShape(
            num_decodes=decodes,
            decode_context_tokens=decodes * context,
            prefills=(Prefill(new_tokens=new, cached_tokens=cached),) * number,
        )
        wanted = clock.step_s(
            num_decodes=decodes,
            context_tokens=context,
            num_prefills=number,
            new_tokens=new if number else 0,
            cached_tokens=cached if number else 0,
        )
        assert timer(shape) / PS_PER_S == pytest.approx(wanted + machine.offload_s, rel=1e-2)


@pytest.mark.parametrize("answer_tokens", [2, 200])
def test_one_batch_takes_what_estimate_says_of_it(answer_tokens: int) -> None:
    asked = BatchingAsk(num_requests=8, output_tokens=answer_tokens, policies=("static", "vllm"))
    batch = estimate(offer=Offer(batch=8, input_tokens=256, output_tokens=answer_tokens)).result
    assert batch.output_tokens_per_s is not None
    assert batch.ttft_s is not None
    for one in batching(wanted=asked).result.policies:
        assert one.throughput_tokens_per_s == pytest.approx(batch.output_tokens_per_s.value, rel=1e-3)
        assert one.ttft_mean_s == pytest.approx(batch.ttft_s.value, rel=1e-3)


# What cannot be


def test_what_the_cache_cannot_hold_is_rejected_and_counted() -> None:
    ask = Ask(models=("llama3-8b",), gpus=("rtx-4090",), num_gpus=1, max_model_len=8192, memory_fraction=0.75)
    answer = batching(ask, BatchingAsk(num_requests=12, input_tokens="uniform:min=100,max=8000", output_tokens=20))
    result = answer.result
    assert result.cache_tokens < 8000
    rejected = {one.num_rejected for one in result.policies}
    assert rejected == {next(iter(rejected))}
    assert 0 < next(iter(rejected)) < 12
    assert any("rejected" in text and "static" in text for text in answer.warnings)
    assert answer.exit_code == 0


def test_a_model_that_does_not_fit_is_an_answer() -> None:
    answer = batching(Ask(gpus=("rtx-4090",), num_gpus=1))
    assert answer.exit_code == 3
    assert not answer.result.fits
    assert answer.result.missing_bytes > 0
    assert answer.result.policies == ()


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        (BatchingAsk(num_requests=0), "--requests"),
        (BatchingAsk(num_slots=0), "--slots"),
        (BatchingAsk(num_slots=3000), "--slots"),
        (BatchingAsk(requests_per_s=0), "--rate"),
        (BatchingAsk(requests_per_s=float("nan")), "--rate"),
        (BatchingAsk(policies=("fifo",)), "--policy"),
        (BatchingAsk(input_tokens="zipf"), "--input-tokens"),
        (BatchingAsk(input_tokens=9000), "--input-tokens"),
        (BatchingAsk(output_tokens="0"), "--output-tokens"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(wanted: BatchingAsk, place: str) -> None:
    with pytest.raises(UsageError) as refused:
        batching(wanted=wanted)
    assert refused.value.place == place
    assert refused.value.hint


def test_requests_beyond_what_the_model_takes_end_there_with_a_warning() -> None:
    answer = batching(wanted=BatchingAsk(num_requests=10, input_tokens=8170, policies=("vllm",)))
    assert any("8,192 tokens" in text for text in answer.warnings)
    assert answer.result.longest_answer_tokens == 22


def test_slots_follow_max_num_seqs_where_that_alone_is_given() -> None:
    only = Ask(max_num_seqs=3)
    assert batching(only, BatchingAsk(num_requests=4, policies=("vllm",))).result.num_slots == 3
    assert batching(only, BatchingAsk(num_requests=4, num_slots=2, policies=("vllm",))).result.num_slots == 2


def test_policies_have_the_names_people_know() -> None:
    assert policies_of(["Orca", "trtllm", "continuous"]) == (Policy.CONTINUOUS, Policy.TENSORRT_LLM)
    assert policies_of([]) == tuple(Policy)
    assert all(policy.meaning for policy in Policy)


def test_percentiles_lie_on_the_line_between_two_samples() -> None:
    assert percentile([1.0, 2.0, 3.0, 5.0], 0.5) == 2.5
    assert percentile([4.0], 0.99) == 4.0
    assert percentile([], 0.5) is None


# What is bounded


@pytest.mark.parametrize(
    "wanted",
    [
        BatchingAsk(output_tokens=100_000_000),
        BatchingAsk(num_requests=200, output_tokens=1000),
        BatchingAsk(num_requests=3000, num_slots=256),
        BatchingAsk(num_requests=5000, input_tokens=7000, output_tokens=1, policies=("vllm",)),
        BatchingAsk(num_requests=600, num_slots=256, requests_per_s=5.0),
    ],
)
def test_too_much_work_is_refused_before_it_begins_and_the_mend_is_just_what_can_be_done(wanted: BatchingAsk) -> None:
    with pytest.raises(UsageError, match="too long") as refused:
        batching(wanted=wanted)
    assert refused.value.place == "--requests"
    (deployment,) = resolve(Ask(), load(Ask()))
    num_runs = len(policies_of(wanted.policies)) * (3 if wanted.requests_per_s else 1)
    most = int((refused.value.hint or "").split()[1].rstrip(","))
    check_work(drawn_for(Ask(), deployment, replace(wanted, num_requests=most)), num_runs)
    with pytest.raises(UsageError):
        check_work(drawn_for(Ask(), deployment, replace(wanted, num_requests=most + 1)), num_runs)


def test_one_request_too_long_is_told_to_be_shorter() -> None:
    asked = Ask(models=("llama3.1-8b",), gpus=("h100",), num_gpus=1, max_model_len=131_072)
    with pytest.raises(UsageError, match="too long") as refused:
        batching(asked, BatchingAsk(num_requests=1, output_tokens=120_000))
    assert refused.value.place == "--output-tokens"
    assert "--requests" not in (refused.value.hint or "")


@pytest.mark.parametrize("rate", [None, 2.0])
def test_the_turns_that_are_told_are_those_that_were_foreseen(rate: float | None) -> None:
    told: list[tuple[int, int]] = []
    wanted = BatchingAsk(num_requests=12, policies=("static", "vllm"), requests_per_s=rate)
    with_word = batching(wanted=wanted, progress=lambda done, total: told.append((done, total)))
    assert with_word.result == batching(wanted=wanted).result
    assert told == sorted(told)
    (total,) = {total for _, total in told}
    # The work that was counted up front is the work that was done: the last step ends it, and no step before.
    assert [done for done, _ in told].index(total) == len(told) - 1


@pytest.mark.parametrize("rate", [1e9, 1e-9])
def test_a_rate_out_of_range_is_told_with_its_range(rate: float) -> None:
    with pytest.raises(UsageError) as refused:
        batching(wanted=BatchingAsk(requests_per_s=rate))
    assert (refused.value.hint or "").startswith("from 0.000001 to 1,000,000;")


def test_the_headline_says_where_it_is_of_one_lane() -> None:
    wanted = BatchingAsk(num_requests=10, policies=("vllm",))
    (one,) = view(batching(wanted=wanted)).findings
    (lane,) = view(batching(Ask(num_gpus=8, tp=4, dp=2), wanted)).findings
    assert lane.startswith("one of the 2 lanes of llama3-70b on 8 x ")
    assert "lane" not in one
