from __future__ import annotations

import math
from typing import Any

import pytest

from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask
from infcalc.api.judging import Verdict, parse_measured
from infcalc.api.objectives import parse_slo
from infcalc.api.offer import Figure, LoadKind, Offer
from infcalc.api.speed import SpeedResult, estimate
from infcalc.api.sweeping import parse_sweep
from infcalc.errors import UsageError

SMALL = Ask(models=("llama3.1-8b",), gpus=("h100",), num_gpus=1)


def fast(ask: Ask = SMALL, **load: Any) -> SpeedResult:  # noqa: ANN401 - the fields of an offer
    return estimate(ask, Offer(**load)).result


def value(figure: Figure | None) -> float:
    assert figure is not None
    return figure.value


# The reference scenario


def test_without_options_it_is_the_reference_scenario_at_its_maximum() -> None:
    answer = estimate()
    result = answer.result
    assert (result.model, result.gpu, result.num_gpus, result.engine) == ("llama3-70b", "a100-sxm4-80gb", 4, "vllm")
    assert result.input_tokens + result.output_tokens == 4096
    assert result.load is LoadKind.MAXIMUM
    assert result.bound_by == "KV room"
    assert result.batch == pytest.approx(result.max_batch, rel=0.01)
    assert answer.exit_code == 0
    assert answer.warnings == ()


def test_one_user_and_a_hundred_of_the_reference_scenario() -> None:
    # 58.7 and 29.9 tokens/s are the ceilings, 38 to 50 and 15 to 25 what is published.
    one, hundred = (fast(Ask(), concurrency=clients) for clients in (1, 100))
    assert 33 < value(one.output_tokens_per_s_per_user) < 58.7
    assert 12 < value(hundred.output_tokens_per_s_per_user) < 29.9
    assert hundred.step is not None
    assert 15 < 1 / hundred.step.time_s.value < 29.9


# Figures agree with one another


@pytest.mark.parametrize(
    "load",
    [
        {"batch": 16},
        {"concurrency": 1},
        {"concurrency": 64},
        {"concurrency": 200, "think_time_s": 20.0},
        {"concurrency": 32, "num_requests": 200},
        {"requests_per_s": 4.0},
        {},
    ],
    ids=str,
)
def test_figures_lie_in_their_bands_and_agree(load: dict[str, Any]) -> None:
    result = fast(input_tokens=1000, output_tokens=200, **load)
    for figure in (result.ttft_s, result.tpot_s, result.e2e_s, result.output_tokens_per_s, result.requests_per_s):
        assert figure is not None
        assert figure.low <= figure.value <= figure.high
        # As many are answered as come, where all can be.
        assert figure.low < figure.high or load.get("requests_per_s")
        assert figure.basis == "calibrated"
    assert value(result.output_tokens_per_s) == pytest.approx(200 * value(result.requests_per_s))
    assert value(result.total_tokens_per_s) == pytest.approx(1200 * value(result.requests_per_s))
    assert value(result.output_tokens_per_s_per_user) == pytest.approx(1 / value(result.tpot_s))
    assert value(result.tpot_inclusive_s) == pytest.approx(value(result.e2e_s) / 200)
    if "num_requests" not in load:
        assert value(result.e2e_s) == pytest.approx(value(result.ttft_s) + 199 * value(result.tpot_s), rel=1e-3)


def test_littles_law_holds_for_clients_who_think() -> None:
    result = fast(input_tokens=500, output_tokens=100, concurrency=200, think_time_s=20.0)
    assert value(result.requests_per_s) * (value(result.e2e_s) + 20) == pytest.approx(200, rel=0.01)


def test_a_step_is_the_sum_of_its_parts() -> None:
    result = fast(concurrency=16)
    for step in (result.step, result.prefill_step):
        assert step is not None
        assert sum(part.time_s.value for part in step.parts) == pytest.approx(step.time_s.value)
        assert sum(part.share_fraction for part in step.parts) == pytest.approx(1)
        assert {part.bound_by for part in step.parts} <= {"compute", "memory", "link", "latency"}
        assert step.floor_s < step.time_s.value
    assert result.prefill_step is not None
    widest = max(result.prefill_step.parts, key=lambda part: part.share_fraction)
    assert widest.bound_by == "compute"


def test_more_of_a_load_is_slower_for_each_and_more_for_all() -> None:
    few, many = (fast(concurrency=clients, input_tokens=500, output_tokens=200) for clients in (4, 64))
    assert value(few.tpot_s) < value(many.tpot_s)
    assert value(few.output_tokens_per_s) < value(many.output_tokens_per_s)


def test_a_prefix_hit_shortens_the_first_token_and_prefill() -> None:
    cold, warm = (fast(concurrency=8, input_tokens=6000, prefix_hit_fraction=hit) for hit in (0.0, 0.9))
    assert value(warm.ttft_s) < 0.4 * value(cold.ttft_s)
    assert warm.prefill_time_fraction < cold.prefill_time_fraction
    assert warm.cached_tokens == pytest.approx(5400)


def test_distributions_are_taken_as_lengths() -> None:
    result = fast(concurrency=32, input_tokens="lognormal:mean=500,cv=1.2", output_tokens="exponential:mean=200")
    assert result.input_tokens == pytest.approx(500)
    assert result.output_tokens == pytest.approx(200)


def test_an_answer_of_one_token_has_no_time_per_token() -> None:
    result = fast(batch=4, input_tokens=512, output_tokens=1)
    assert result.tpot_s is None
    assert result.output_tokens_per_s_per_user is None
    assert value(result.e2e_s) == pytest.approx(value(result.ttft_s))


def test_a_context_is_prompt_and_answer_together() -> None:
    result = estimate(SMALL, Offer(concurrency=1, output_tokens=100), contexts=(8192,)).result
    assert (result.input_tokens, result.output_tokens) == (8092, 100)


# Saturation and room


def test_beyond_saturation_times_are_absent_and_it_says_unstable() -> None:
    answer = estimate(SMALL, Offer(requests_per_s=1000, input_tokens=1000, output_tokens=200))
    result = answer.result
    assert not result.stable
    assert result.ttft_s is result.e2e_s is result.queue_s is None
    assert any(text.startswith("unstable") for text in answer.warnings)
    most = value(result.highest_stable_requests_per_s)
    assert value(fast(input_tokens=1000, output_tokens=200).requests_per_s) == pytest.approx(most)
    assert fast(requests_per_s=0.9 * most, input_tokens=1000, output_tokens=200).stable
    assert not fast(requests_per_s=1.1 * most, input_tokens=1000, output_tokens=200).stable


def test_a_finite_burst_has_times_though_it_is_unstable() -> None:
    result = fast(requests_per_s=1000, num_requests=500, input_tokens=1000, output_tokens=200)
    assert not result.stable
    assert math.isfinite(value(result.ttft_s))


def test_a_batch_beyond_the_room_waits_and_says_so() -> None:
    answer = estimate(Ask(), Offer(batch=500))
    assert any("run at once" in text for text in answer.warnings)
    assert answer.result.batch <= answer.result.max_batch < 500


def test_what_does_not_fit_is_a_result_with_what_is_missing() -> None:
    answer = estimate(Ask(gpus=("rtx-4090",), num_gpus=1), Offer(concurrency=1))
    result = answer.result
    assert answer.exit_code == 3
    assert not result.fits
    assert result.missing_bytes > 100 * 2**30
    assert result.output_tokens_per_s is result.ttft_s is None
    assert any("does not fit" in text for text in answer.warnings)
    near = estimate(
        Ask(models=("qwen3-32b",), gpus=("h100",), num_gpus=1, max_model_len=40_960), Offer(batch=1), contexts=(40_000,)
    )
    assert near.exit_code == 3
    assert near.result.changes


def test_side_by_side_one_result_each() -> None:
    answer = estimate(Ask(models=("llama3-8b",), gpus=("h100", "a100"), num_gpus=1), Offer(batch=8))
    assert [result.gpu for result in answer.results] == ["h100-sxm5-80gb", "a100-sxm4-80gb"]
    h100, a100 = answer.results
    assert value(h100.tpot_s) < value(a100.tpot_s)


# Cost


def test_cost_follows_price_throughput_and_utilisation() -> None:
    def at(price: float | None = None, share: float = 1.0) -> SpeedResult:
        terms = Terms(usd_per_hour=price, utilization_fraction=share)
        return estimate(SMALL, Offer(concurrency=32), terms=terms).result

    full, half = at(2.0), at(2.0, 0.5)
    rate = value(full.output_tokens_per_s)
    assert value(full.usd_per_million_output_tokens) == pytest.approx(2.0 / 3600 / rate * 1e6)
    assert value(half.usd_per_million_output_tokens) == pytest.approx(2 * value(full.usd_per_million_output_tokens))
    assert value(full.usd_per_million_input_tokens) < value(full.usd_per_million_output_tokens)
    # What prefill and decode cost apart is what all costs together.
    share, tokens = full.prefill_time_fraction, value(full.output_tokens_per_s)
    prompts = tokens * full.input_tokens / full.output_tokens
    spent = prompts * value(full.usd_per_million_input_tokens) / 1e6 * 3600
    assert spent == pytest.approx(2.0 * share)
    blended = 0.75 * value(full.usd_per_million_input_tokens) + 0.25 * (1 - share) * value(
        full.usd_per_million_output_tokens
    )
    assert value(full.usd_per_million_blended_tokens) == pytest.approx(blended)
    catalog = at()
    assert catalog.usd_per_million_output_tokens is not None
    assert full.usd_per_million_output_tokens is not None
    assert full.usd_per_million_output_tokens.low < full.usd_per_million_output_tokens.value


def test_the_price_names_its_source_and_date() -> None:
    answer = estimate()
    price = next(item for item in answer.inputs if item.name == "usd_per_gpu_hour")
    assert "2026" in price.origin
    assert any("USD/h" in note and "2026" in note for note in answer.assumptions)
    nameless = estimate(
        Ask(models=("llama3-8b",), gpus=("rtx-7900-xtx".removeprefix("rtx-").join(("rx-", "")),), num_gpus=1)
    )
    assert nameless.result.usd_per_million_output_tokens is None


# Sweeps


def test_a_sweep_has_a_point_per_value_and_its_figures_are_those_of_the_knee() -> None:
    answer = estimate(SMALL, Offer(input_tokens=500, output_tokens=200), sweep=parse_sweep("batch=1..256"))
    curve = answer.result.sweep
    assert curve is not None
    assert [point.value for point in curve.points] == [2**n for n in range(9)]
    assert curve.knee is not None
    at = next(point for point in curve.points if point.value == curve.knee)
    assert at.ttft_s == answer.result.ttft_s
    powers = [value(point.output_tokens_per_s) / value(point.e2e_s) for point in curve.points]
    assert max(powers) == powers[curve.points.index(at)]
    alone = fast(batch=int(curve.knee), input_tokens=500, output_tokens=200)
    assert alone.tpot_s == at.tpot_s


def test_a_rate_beyond_saturation_is_marked_and_is_no_knee() -> None:
    curve = estimate(SMALL, Offer(input_tokens=1000, output_tokens=200), sweep=parse_sweep("rate=1..512")).result.sweep
    assert curve is not None
    assert not curve.points[-1].stable
    assert curve.points[-1].e2e_s is None
    assert curve.knee is not None
    assert next(point for point in curve.points if point.value == curve.knee).stable


def test_tp_may_be_swept_and_what_does_not_fit_is_left_out() -> None:
    answer = estimate(Ask(), Offer(concurrency=8), sweep=parse_sweep("tp=1,2,3,4,8"))
    curve = answer.result.sweep
    assert curve is not None
    assert [point.value for point in curve.points] == [2, 4, 8]
    assert len(curve.skipped) == 2
    assert any("tp 1" in text and "missing" in text for text in answer.warnings)
    assert answer.exit_code == 0


def test_lengths_may_be_swept_and_have_no_knee() -> None:
    answer = estimate(
        Ask(models=("llama3-8b",), num_gpus=1), Offer(concurrency=4), sweep=parse_sweep("input-tokens=1k..16k")
    )
    curve = answer.result.sweep
    assert curve is not None
    assert [point.value for point in curve.points] == [1024, 2048, 4096]
    assert any("8,192" in text for text in curve.skipped)
    assert curve.knee is None
    assert "no knee" in curve.knee_text


def test_a_sweep_that_fits_nowhere_ends_with_3() -> None:
    answer = estimate(Ask(gpus=("rtx-4090",)), Offer(concurrency=1), sweep=parse_sweep("tp=1,2"))
    assert answer.exit_code == 3
    assert answer.result.sweep is not None
    assert answer.result.sweep.points == ()


# Measurements


def judged(text: str, ask: Ask | None = None, **load: Any) -> Any:  # noqa: ANN401 - the fields of an offer
    return estimate(ask or Ask(), Offer(**load), measured=parse_measured([text])).result.measured[0]


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("tpot=12ms", Verdict.IMPOSSIBLE),
        ("tpot=28ms", Verdict.AS_ESTIMATED),
        ("tpot=18ms", Verdict.FASTER),
        ("tpot=90ms", Verdict.SLOWER),
        ("output-tokens-per-s=70", Verdict.IMPOSSIBLE),
        ("ttft=1ms", Verdict.IMPOSSIBLE),
        ("e2e=1s", Verdict.IMPOSSIBLE),
    ],
)
def test_a_measurement_is_held_against_physics_and_estimate(text: str, verdict: Verdict) -> None:
    found = judged(text, batch=1)
    assert found.verdict == verdict
    assert found.possible is (verdict is not Verdict.IMPOSSIBLE)
    assert ("impossible" in found.text) is (verdict is Verdict.IMPOSSIBLE)
    assert (found.roofline_fraction > 1) is (verdict is Verdict.IMPOSSIBLE)


def test_fractions_of_roofline_and_estimate() -> None:
    found = judged("tpot=40ms", batch=1)
    assert found.roofline_fraction == pytest.approx(found.limit / 0.040)
    assert found.estimate_fraction == pytest.approx(found.estimated.value / 0.040)
    assert 0.4 < found.roofline_fraction < 0.45


def test_losses_are_ranked_and_add_up_to_the_gap() -> None:
    found = judged("tpot=28ms", batch=1)
    shares = [cause.gap_fraction for cause in found.causes]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1, abs=0.05)
    slow = judged("tpot=60ms", batch=1)
    assert "messages over PCIe" in {cause.cause for cause in slow.causes}
    assert any("sequences in a step" in cause.cause for cause in slow.causes)


def test_only_what_no_load_can_do_is_impossible() -> None:
    # Below the floor of a hundred together, above that of one: fewer may have run.
    found = judged("tpot=25ms", concurrency=100)
    together = fast(Ask(), concurrency=100).limits
    assert together is not None
    assert together.tpot_floor_s is not None
    assert found.limit < 0.025 < together.tpot_floor_s
    assert found.possible
    assert found.roofline_fraction < 1
    assert "fewer sequences" in found.text
    assert not judged("tpot=25ms", batch=100).possible


@pytest.mark.parametrize("load", [{"concurrency": 100}, {"concurrency": 16, "think_time_s": 5.0}, {"concurrency": 600}])
def test_the_floor_of_a_request_and_the_ceiling_of_throughput_say_the_same(load: dict[str, Any]) -> None:
    limits = fast(Ask(), **load).limits
    assert limits is not None
    answers_per_s = limits.output_tokens_ceiling_per_s / 2048
    # Clients that wait for their answers hold that many requests, or think (Little's law).
    assert answers_per_s * (limits.e2e_floor_s + load.get("think_time_s", 0.0)) >= load["concurrency"] * (1 - 1e-9)
    slow = judged(f"e2e={1.01 * limits.e2e_floor_s}s", **load)
    fast_one = judged(f"e2e={0.99 * limits.e2e_floor_s}s", **load)
    assert (slow.possible, fast_one.possible) == (True, False)


def test_the_end_of_a_finite_run_may_be_quicker() -> None:
    floors = [fast(Ask(), concurrency=100, num_requests=count).limits for count in (100, 1000, 100_000)]
    first, second, third = (one.e2e_floor_s for one in floors if one is not None)
    endless = fast(Ask(), concurrency=100).limits
    assert endless is not None
    assert first < second < third < endless.e2e_floor_s


def test_no_more_is_answered_than_arrives() -> None:
    found = judged("output-tokens-per-s=2500", requests_per_s=0.8)
    assert (found.verdict, found.possible) == (Verdict.IMPOSSIBLE, False)
    assert "1.53x the 1,638 tokens/s that arrive" in found.text
    assert judged("requests-per-s=0.81", requests_per_s=0.8).possible
    assert not judged("requests-per-s=0.9", requests_per_s=0.8).possible
    # Of a finite run nobody knows how its requests came.
    assert judged("requests-per-s=0.9", requests_per_s=0.8, num_requests=20).possible


def test_skewed_routing_is_not_called_impossible() -> None:
    ask = Ask(models=("qwen3-30b-a3b",), gpus=("h100",), num_gpus=1)
    floor = fast(ask, batch=64).limits
    assert floor is not None
    assert floor.tpot_floor_s is not None
    answer = estimate(ask, Offer(batch=64), measured=parse_measured([f"tpot={0.8e3 * floor.tpot_floor_s}ms"]))
    assert answer.result.measured[0].possible
    assert any("even routing" in note for note in answer.assumptions)


def test_what_a_load_does_not_have_cannot_be_measured() -> None:
    with pytest.raises(UsageError, match="has none"):
        judged("tpot=10ms", batch=1, output_tokens=1)


# Objectives


def test_an_objective_that_is_not_met_ends_with_4() -> None:
    met = estimate(SMALL, Offer(concurrency=4), slo=parse_slo(("tpot=50ms", "ttft=2s")))
    assert met.exit_code == 0
    assert all(one.met for one in met.result.slo)
    missed = estimate(SMALL, Offer(concurrency=4), slo=parse_slo(("tpot=1ms",)))
    assert missed.exit_code == 4
    assert any("not met" in text for text in missed.warnings)
    endless = estimate(SMALL, Offer(requests_per_s=1000), slo=parse_slo(("ttft=10s",)))
    assert endless.exit_code == 4


def test_percentiles_are_given_only_where_they_are_known() -> None:
    alike = estimate(SMALL, Offer(batch=4), slo=parse_slo(("ttft-p95=10s", "tpot-p99=50ms")))
    assert [one.statistic for one in alike.result.slo] == ["p95", "p99"]
    assert alike.exit_code == 0
    run = estimate(SMALL, Offer(concurrency=16, num_requests=100), slo=parse_slo(("ttft-p50=10s",)))
    assert run.result.slo[0].met
    with pytest.raises(UsageError, match="simulation"):
        estimate(SMALL, Offer(concurrency=4), slo=parse_slo(("ttft-p95=500ms",)))


# Explanations


def test_every_figure_explains_itself_only_when_asked() -> None:
    assert estimate(SMALL, Offer(concurrency=4)).explanations == ()
    answer = estimate(SMALL, Offer(concurrency=4), explain=True)
    told = {text.quantity: text for text in answer.explanations}
    assert {"step", "prefill_step", "tpot_s", "ttft_s", "e2e_s", "output_tokens_per_s", "tpot_floor_s"} < set(told)
    assert "usd_per_million_output_tokens" in told
    bandwidth = next(item for item in told["step"].inputs if item.name == "bandwidth_bytes_per_s")
    assert bandwidth.value == 3.35e12
    assert bandwidth.source
    assert "gate_up" in told["step"].substituted


# Refusals


@pytest.mark.parametrize(
    ("load", "place", "hint"),
    [
        ({"batch": 4, "concurrency": 4}, "--concurrency", "give one"),
        ({"batch": 4, "requests_per_s": 4.0}, "--rate", "give one"),
        ({"batch": 0}, "--batch", "from 1"),
        ({"concurrency": -1}, "--concurrency", "from 1"),
        ({"num_requests": 0, "concurrency": 4}, "--num-requests", "from 1"),
        ({"requests_per_s": 0.0}, "--rate", "above 0"),
        ({"requests_per_s": math.nan}, "--rate", "above 0"),
        ({"requests_per_s": math.inf}, "--rate", "above 0"),
        ({"think_time_s": -1.0, "concurrency": 4}, "--think-time", "30s"),
        ({"think_time_s": 1.0}, "--think-time", "--users"),
        ({"prefix_hit_fraction": 1.0}, "--prefix-hit", "0.8"),
        ({"input_tokens": "many"}, "--input-tokens", "lognormal"),
        ({"input_tokens": "lognormal:mean=3"}, "--input-tokens", "lognormal"),
        ({"output_tokens": 0}, "--output-tokens", "lognormal"),
        ({"input_tokens": 131_000, "output_tokens": 1000}, "--input-tokens", "131,072"),
        ({"batch": 4, "num_requests": 40}, "--num-requests", "--concurrency"),
        ({"concurrency": 4, "think_time_s": 2.0, "num_requests": 40}, "--num-requests", "one of the two"),
    ],
    ids=str,
)
def test_what_is_no_load_is_refused_with_the_mend(load: dict[str, Any], place: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        estimate(SMALL, Offer(**load))
    assert caught.value.place == place
    assert hint in str(caught.value.hint)


@pytest.mark.parametrize(
    "terms", [Terms(utilization_fraction=0), Terms(utilization_fraction=1.5), Terms(usd_per_hour=0)]
)
def test_terms_that_cannot_be_are_refused(terms: Terms) -> None:
    with pytest.raises(UsageError):
        estimate(SMALL, terms=terms)


def test_a_swept_quantity_is_not_given_too() -> None:
    with pytest.raises(UsageError, match="given and swept"):
        estimate(SMALL, Offer(batch=4), sweep=parse_sweep("batch=1..8"))
    with pytest.raises(UsageError, match="sweep and a measurement"):
        estimate(SMALL, sweep=parse_sweep("batch=1..8"), measured=parse_measured(["tpot=9ms"]))
    with pytest.raises(UsageError, match="no value of the sweep"):
        estimate(SMALL, Offer(requests_per_s=3), sweep=parse_sweep("batch=1..8"))


def test_without_graphs_no_step_is_shorter_than_its_launches() -> None:
    def step_s(tp: int = 1, *, eager: bool, model: str = "qwen3-0.6b", batch: int = 1) -> float:
        ask = Ask(models=(model,), gpus=("h100-sxm5-80gb",), tp=tp, enforce_eager=eager)
        result = estimate(ask, Offer(batch=batch, input_tokens=500, output_tokens=50)).result
        assert result.step is not None
        launches = [part for part in result.step.parts if part.name == "kernels launched one by one"]
        assert bool(launches) is (eager and model == "qwen3-0.6b")
        return result.step.time_s.value

    layers = 28
    # 8 to 15 launches of 4 to 6 us in each layer; 20 to 44 us more for each of two messages between GPUs.
    assert layers * 32e-6 < step_s(eager=True) <= layers * 90e-6 * (1 + 1e-9)
    assert layers * (90e-6 + 40e-6) < step_s(tp=4, eager=True) <= layers * (90e-6 + 88e-6) * (1 + 1e-9)
    assert step_s(tp=4, eager=False) < 0.7 * step_s(tp=4, eager=True)
    # Where the device takes longer than the host, nothing is lost.
    assert step_s(eager=True, model="llama3-8b", batch=64) == pytest.approx(
        step_s(eager=False, model="llama3-8b", batch=64)
    )


def test_without_graphs_it_says_what_a_launch_takes_and_from_where() -> None:
    ask = Ask(models=("llama3-8b",), gpus=("h100-sxm5-80gb",), tp=1, enforce_eager=True)
    answer = estimate(ask, Offer(batch=1), explain=True)
    assert any("90 us for a layer" in note and "launches of 4 to 6 us" in note for note in answer.assumptions)
    (step, *_) = (one for one in answer.explanations if one.quantity == "step")
    assert any(item.name == "eager_layer_s" and "no published run" in item.origin for item in step.inputs)


def test_graphs_that_were_off_are_a_likely_loss() -> None:
    ask = Ask(models=("llama3.2-1b",), gpus=("h100-sxm5-80gb",), tp=4)
    measured = parse_measured(["tpot=4ms"])
    (one,) = estimate(ask, Offer(batch=1, input_tokens=500, output_tokens=50), measured=measured).result.measured
    (cause,) = (cause for cause in one.causes if cause.cause == "CUDA graphs off")
    assert cause.gap_fraction is not None


def test_overheads_say_what_they_rest_on() -> None:
    ask = Ask(models=("llama3-8b",), gpus=("h100-sxm5-80gb",), tp=1, engine="sglang")
    answer = estimate(ask, Offer(concurrency=4), explain=True)
    inputs = {item.name: item for one in answer.explanations for item in one.inputs}
    assert inputs["per_layer_s"].origin == "set by hand: output tokens/s, TPOT of 1 source only (gpustack)"
    assert inputs["latency_s"].origin == "set by hand: no published run"
    slow = Ask(models=("deepseek-v3",), gpus=("h200-sxm-141gb",), tp=8, engine_version="0.7.3")
    answer = estimate(slow, Offer(concurrency=4), explain=True)
    factors = [item for one in answer.explanations for item in one.inputs if item.name == "kernel_factor"]
    assert factors
    assert all((item.value, "dstack_dsr1" in item.origin) == (2.0, True) for item in factors)


def test_the_knee_over_tp_is_told_in_its_own_words() -> None:
    ask = Ask(models=("llama3-8b",), gpus=("h100-sxm5-80gb",))
    curve = estimate(ask, Offer(concurrency=16), sweep=parse_sweep("tp=1,2,4,8")).result.sweep
    assert curve is not None
    assert curve.knee in {2, 4}
    times = [point.e2e_s.value for point in curve.points if point.e2e_s is not None]
    assert times == sorted(times, reverse=True)
    assert "more GPUs shorten a request" in curve.knee_text
    assert "grows" not in curve.knee_text


def test_inner_values_of_a_sweep_have_four_digits_and_its_ends_are_those_given() -> None:
    values = parse_sweep("rate=0.117078..0.84:12").values
    assert (values[0], values[-1], len(values)) == (0.117078, 0.84, 12)
    assert all(len(f"{value:g}".replace(".", "").lstrip("0")) <= 4 for value in values[1:-1])


def test_a_batch_beyond_the_room_says_what_its_first_token_is() -> None:
    within, beyond = (estimate(Ask(), Offer(batch=batch)) for batch in (100, 400))
    assert any("when all are computed" in note for note in within.assumptions)
    assert not any("one by one" in text for text in within.warnings)
    assert not any("when all are computed" in note for note in beyond.assumptions)
    assert any("one by one" in text for text in beyond.warnings)
