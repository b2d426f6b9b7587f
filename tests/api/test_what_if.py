"""Features with and without: the same answer as two simulations, verdicts by the band, and what cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.what_if import (
    ALREADY,
    THROUGHPUT_BAND,
    TPOT_BAND,
    TTFT_BAND,
    features_of,
    verdict_of,
    what_if,
)
from infcalc.api.what_if_nouns import Factor, Feature, FeatureRow, Verdict
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import UsageError
from tests import measured

factor_bands = measured.script("factor_bands")

SMALL = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1)
LOAD = WorkloadAsk(num_clients=16, num_requests=60, input_tokens="600", output_tokens="100")
MOE = Ask(models=("qwen3-30b-a3b",), gpus=("h100",), num_gpus=2)


def row(feature: Feature, ask: Ask = SMALL, asked: SimulationAsk | None = None) -> FeatureRow:
    return what_if(ask, asked or SimulationAsk(load=LOAD), features=(str(feature),)).result.rows[0]


def test_factors_are_those_of_two_simulations() -> None:
    found = row(Feature.FP8_WEIGHTS)
    with_it = Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1, weights="fp8")
    on, off = (simulate(ask, SimulationAsk(load=LOAD)).result for ask in (with_it, SMALL))
    assert on.loaded_output_tokens_per_s is not None
    assert off.loaded_output_tokens_per_s is not None
    assert found.throughput_factor == on.loaded_output_tokens_per_s / off.loaded_output_tokens_per_s
    assert on.tpot_s is not None
    assert off.tpot_s is not None
    assert found.tpot_factor == on.tpot_s.mean / off.tpot_s.mean
    assert found.usd_per_million_factor == pytest.approx(1 / found.throughput_factor)
    now = what_if(SMALL, SimulationAsk(load=LOAD), features=("fp8-weights",)).result
    assert now.output_tokens_per_s == off.loaded_output_tokens_per_s
    # A GPU-hour over the tokens of an hour.
    rent = off.usd_per_month
    assert rent is not None
    assert now.usd_per_million_output_tokens == pytest.approx(
        rent / 730 / 3600 / off.loaded_output_tokens_per_s * 1e6, rel=1e-3
    )


def test_a_closed_loop_is_counted_while_its_clients_ask() -> None:
    # Requests under way are clients, until the last is sent: their number over the time of one (Little 1961).
    load = WorkloadAsk(num_clients=16, num_requests=800, input_tokens="600", output_tokens="100")
    run = simulate(SMALL, SimulationAsk(load=load)).result
    assert run.loaded_output_tokens_per_s is not None
    assert run.e2e_s is not None
    assert run.loaded_output_tokens_per_s == pytest.approx(16 * 100 / run.e2e_s.mean, rel=0.02)
    # What few requests make of it with the end of the run, where no client asks any more, is another number.
    short = simulate(SMALL, SimulationAsk(load=replace(load, num_requests=50))).result
    assert short.loaded_output_tokens_per_s == pytest.approx(run.loaded_output_tokens_per_s, rel=0.05)
    assert short.output_tokens_per_s < 0.9 * run.loaded_output_tokens_per_s
    # All at once: nothing is sent after the first.
    once = simulate(SMALL, SimulationAsk(load=replace(load, num_requests=16))).result
    assert once.loaded_output_tokens_per_s is None


def test_each_client_asks_more_than_once_where_nothing_is_said() -> None:
    answer = what_if(
        SMALL, SimulationAsk(load=replace(LOAD, num_clients=300, num_requests=None)), features=("int4-kv",)
    )
    told = {item.name: (item.value, item.origin) for item in answer.inputs}
    assert told["num_requests"] == (1200, "default")
    assert told["arrivals"][1] != "default"
    nothing = {item.name: item.origin for item in what_if(SMALL, features=("int4-kv",)).inputs}
    assert nothing["num_requests"] == nothing["arrivals"] == "default"


@pytest.mark.parametrize(
    ("feature", "ask"),
    [
        (Feature.FP8_WEIGHTS, replace(SMALL, weights="fp8")),
        (Feature.FP8_KV, replace(SMALL, kv_dtypes=("fp8",))),
        (Feature.INT4_KV, replace(SMALL, kv_dtypes=("int4",))),
        (Feature.INT4_WEIGHTS, replace(SMALL, weights="awq")),
        (Feature.INT4_WEIGHTS, replace(SMALL, weights="gptq")),
        (Feature.FP8_WEIGHTS, replace(MOE, models=("qwen3-30b-a3b-fp8",))),
        (Feature.EXPERT_PARALLEL, replace(MOE, ep=2)),
        (Feature.DP_ATTENTION, replace(MOE, tp=1, dp=2, ep=2)),
    ],
)
def test_what_is_so_already_is_said_in_one_way(feature: Feature, ask: Ask) -> None:
    found = row(feature, ask)
    assert (found.verdict, found.why) == (Verdict.SAME, ALREADY)
    assert found.throughput_factor is None


def test_either_side_has_as_many_gpus() -> None:
    one = row(Feature.TP_DOUBLED)
    assert one.num_gpus == 2
    two = row(Feature.TP_DOUBLED, asked=SimulationAsk(load=LOAD, num_replicas=2))
    assert two.num_gpus == 2
    assert two.throughput_factor == one.throughput_factor


def test_lessons_cost() -> None:
    for feature in (Feature.NO_KV_CACHE, Feature.STATIC_BATCHING):
        assert row(feature).verdict is Verdict.COSTS
    naive = row(Feature.NAIVE_ATTENTION)
    assert naive.ttft_factor is not None
    assert naive.ttft_factor > 1
    assert naive.throughput_factor is not None
    assert naive.throughput_factor < 1


def test_a_prefix_cache_pays_where_prompts_share() -> None:
    none = row(Feature.PREFIX_CACHE)
    assert none.verdict is Verdict.CANNOT
    assert "--shared-prefix" in none.why
    shared = WorkloadAsk(num_clients=64, num_requests=200, shared_prefix="tokens=4000", output_tokens="20")
    found = row(Feature.PREFIX_CACHE, asked=SimulationAsk(load=shared))
    assert found.verdict is Verdict.PAYS
    assert "hits 0 -> " in found.why


def test_turns_arrive_where_nothing_is_said_of_clients() -> None:
    asked = SimulationAsk(load=WorkloadAsk(turns="3", num_requests=30, output_tokens="50"))
    found = what_if(SMALL, asked, features=("prefix-cache",)).result
    assert found.judged_by == "time of a request"
    assert "hits 0 -> " in found.rows[0].why
    # Clients of a closed loop cannot send them: they are not told to.
    assert "--turns" not in row(Feature.PREFIX_CACHE).why


@pytest.mark.parametrize(
    ("feature", "ask", "why"),
    [
        (Feature.EXPERT_PARALLEL, SMALL, "mixture of experts"),
        (Feature.DP_ATTENTION, SMALL, "mixture of experts"),
        (Feature.DISAGGREGATION, SMALL, "one GPU has no second for decode"),
        (Feature.DISAGGREGATION, replace(SMALL, num_gpus=2, pp=2), "PP or DP"),
        (Feature.INT4_KV, replace(SMALL, engine="tensorrt-llm"), "stores KV in 16 bits, fp8 or nvfp4"),
        (Feature.FP8_WEIGHTS, replace(SMALL, gpus=("a100",), engine="tensorrt-llm"), "fp8 begins with Ada"),
        (Feature.FP8_KV, replace(SMALL, engine="llama.cpp"), "its 8-bit KV cache is q8_0"),
    ],
)
def test_what_cannot_be_says_why(feature: Feature, ask: Ask, why: str) -> None:
    found = row(feature, ask)
    assert found.verdict is Verdict.CANNOT
    assert why in found.why
    assert found.throughput_factor is None


def test_what_runs_without_kernels_of_its_own_says_so() -> None:
    found = row(Feature.FP8_KV, replace(SMALL, gpus=("a100",)))
    assert found.why.startswith("capacity doubles, speed does not")
    assert row(Feature.FP8_KV).why.startswith("a step reads")


def test_experts_and_attention_ranks_are_compared_on_a_mixture() -> None:
    for feature in (Feature.EXPERT_PARALLEL, Feature.DP_ATTENTION, Feature.DISAGGREGATION):
        assert row(feature, MOE).throughput_factor is not None


def test_an_open_load_is_judged_by_its_waits() -> None:
    asked = SimulationAsk(
        load=WorkloadAsk(requests_per_s=4.0, num_requests=100, input_tokens="600", output_tokens="100")
    )
    answer = what_if(SMALL, asked, features=("fp8-weights",))
    found = answer.result.rows[0]
    assert answer.result.judged_by == "time of a request"
    # Both serve all that comes: the hour is paid, and its tokens are the same.
    assert found.throughput_factor == found.usd_per_million_factor == 1
    assert found.gain_factor == pytest.approx(1 / (found.e2e_factor or 0))
    assert found.e2e_factor is not None
    assert found.e2e_factor < 1


def test_a_verdict_goes_by_the_whole_band() -> None:
    for value, low, high, verdict in (
        (1.5, 1.1, 2.0, Verdict.PAYS),
        (1.1, 0.9, 1.3, Verdict.MAY_PAY),
        (1.01, 0.9, 1.1, Verdict.SAME),
        (0.9, 0.7, 1.1, Verdict.MAY_COST),
        (0.5, 0.4, 0.6, Verdict.COSTS),
    ):
        assert verdict_of(Factor(value=value, low=low, high=high)) is verdict


def test_every_factor_has_a_band() -> None:
    found = row(Feature.FP8_WEIGHTS)
    for name, band in (
        ("throughput", THROUGHPUT_BAND),
        ("tpot", TPOT_BAND),
        ("ttft", TTFT_BAND),
        ("e2e", THROUGHPUT_BAND),
        ("usd_per_million", THROUGHPUT_BAND),
    ):
        value = getattr(found, f"{name}_factor")
        assert getattr(found, f"{name}_factor_low") == pytest.approx(value / band)
        assert getattr(found, f"{name}_factor_high") == pytest.approx(value * band)


def test_a_load_that_nothing_answers_is_refused() -> None:
    with pytest.raises(UsageError, match="400 of 400 requests were rejected"):
        what_if(SMALL, SimulationAsk(load=WorkloadAsk(num_clients=8, input_tokens="9000")))


def test_an_answer_of_one_token_has_no_second_to_compute_again() -> None:
    load = WorkloadAsk(num_clients=4, num_requests=20, input_tokens="600", output_tokens="1")
    found = row(Feature.NO_KV_CACHE, asked=SimulationAsk(load=load))
    assert found.verdict is Verdict.SAME
    assert found.tpot_factor is None


def test_features_are_named() -> None:
    assert features_of(()) == tuple(Feature)
    assert features_of(("FP8_KV", "speculation")) == (Feature.FP8_KV, Feature.SPECULATION)
    with pytest.raises(UsageError, match="'turbo' is not a feature"):
        features_of(("turbo",))


def test_the_bands_of_factors_are_those_of_published_pairs() -> None:
    for quantity, stated in (
        ("tpot_s", TPOT_BAND),
        ("output_tokens_per_s", THROUGHPUT_BAND),
        ("ttft_s", TTFT_BAND),
    ):
        found = factor_bands.errors(measured.runs(), measured.cases(), quantity)
        assert len(found) > 50
        assert factor_bands.band(found) == pytest.approx(stated, abs=0.005), "stale: run scripts/factor_bands.py"
    # Too few for a band: the time of a request has that of throughput, and all of them lie within it.
    few = factor_bands.errors(measured.runs(), measured.cases(), "e2e_s")
    assert 0 < len(few) < 20
    assert few[-1] < THROUGHPUT_BAND


def test_what_does_not_fit_as_it_is_asks_for_no_features() -> None:
    answer = what_if(Ask(models=("llama3-70b",), gpus=("h100",), num_gpus=1))
    assert answer.exit_code == 3
    assert answer.result.rows == ()
    assert answer.result.missing_bytes > 0
