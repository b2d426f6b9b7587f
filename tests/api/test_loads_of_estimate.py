from __future__ import annotations

import math
from typing import Any

import pytest

from infcalc.api.bands import band
from infcalc.api.deployment import Ask
from infcalc.api.estimator import Estimate, Estimator
from infcalc.api.offer import Figure, LoadKind, Offer
from infcalc.api.speed import SpeedResult, estimate
from infcalc.errors import UsageError

SMALL = Ask(models=("llama3.1-8b",), gpus=("h100-sxm5-80gb",), tp=1)


def fast(ask: Ask = SMALL, **load: Any) -> SpeedResult:  # noqa: ANN401 - the fields of an offer
    return estimate(ask, Offer(**load)).result


def value(figure: Figure | None) -> float:
    assert figure is not None
    return figure.value


def test_the_reference_scenario_is_answered_without_any_option() -> None:
    answer = estimate()
    result = answer.result
    assert (result.model, result.gpu, result.num_gpus) == ("llama3-70b", "a100-sxm4-80gb", 4)
    assert result.load is LoadKind.MAXIMUM
    assert result.bound_by in {"max_num_seqs", "KV room", "front end"}
    assert answer.exit_code == 0


def test_one_user_of_the_reference_scenario_stays_below_the_roofline() -> None:
    result = fast(Ask(), concurrency=1, input_tokens=4096, output_tokens=256)
    # 58.7 tokens/s is what reading the weights alone would allow.
    assert 30 < value(result.output_tokens_per_s_per_user) < 58.7


def test_figures_lie_in_their_bands_and_agree_with_one_another() -> None:
    result = fast(concurrency=32, input_tokens=1000, output_tokens=200)
    for figure in (result.ttft_s, result.tpot_s, result.e2e_s, result.output_tokens_per_s, result.requests_per_s):
        assert figure is not None
        assert figure.low < figure.value < figure.high
    assert value(result.e2e_s) == pytest.approx(value(result.ttft_s) + 199 * value(result.tpot_s), rel=1e-3)
    assert value(result.output_tokens_per_s) == pytest.approx(200 * value(result.requests_per_s))
    assert value(result.output_tokens_per_s_per_user) == pytest.approx(1 / value(result.tpot_s))
    assert value(result.requests_per_s) * value(result.e2e_s) == pytest.approx(32, rel=0.01)


def test_beyond_saturation_it_says_unstable() -> None:
    answer = estimate(SMALL, Offer(requests_per_s=1000, input_tokens=1000, output_tokens=200))
    assert not answer.result.stable
    assert answer.result.ttft_s is None
    assert any("unstable" in text for text in answer.warnings)
    limit = value(fast(input_tokens=1000, output_tokens=200).requests_per_s)
    assert value(answer.result.requests_per_s) == pytest.approx(limit, rel=0.01)


def test_a_finite_burst_has_an_end_even_beyond_saturation() -> None:
    result = fast(requests_per_s=1000, num_requests=500, input_tokens=1000, output_tokens=200)
    assert math.isfinite(value(result.ttft_s))


def test_prefix_hits_shorten_the_wait_for_the_first_token() -> None:
    cold, warm = (fast(concurrency=8, input_tokens=8000, prefix_hit_fraction=share) for share in (0.0, 0.9))
    assert value(warm.ttft_s) < 0.4 * value(cold.ttft_s)
    assert value(warm.tpot_s) < value(cold.tpot_s)


def test_more_memory_admits_more() -> None:
    small, large = (
        fast(Ask(models=("llama3.1-8b",), gpus=(gpu,), tp=1, max_num_seqs=4096), input_tokens=8000)
        for gpu in ("h100-sxm5-80gb", "h200-sxm-141gb")
    )
    assert large.max_batch > 1.5 * small.max_batch
    assert small.bound_by == "KV room"


def test_a_model_that_does_not_fit_is_a_result() -> None:
    answer = estimate(Ask(models=("llama3-70b",), gpus=("rtx-4090",), tp=1), Offer(concurrency=1))
    assert answer.exit_code == 3
    assert not answer.result.fits
    assert answer.result.missing_bytes > 0


@pytest.mark.parametrize(
    ("load", "place"),
    [
        ({"batch": 4, "concurrency": 4}, "--concurrency"),
        ({"batch": 0}, "--batch"),
        ({"requests_per_s": 0.0}, "--rate"),
        ({"prefix_hit_fraction": 1.0}, "--prefix-hit"),
        ({"input_tokens": "many"}, "--input-tokens"),
        ({"think_time_s": -1.0}, "--think-time"),
    ],
)
def test_what_is_no_load_is_refused_with_the_option(load: dict[str, Any], place: str) -> None:
    with pytest.raises(UsageError) as caught:
        estimate(SMALL, Offer(**load))
    assert place in str(caught.value.place)
    assert caught.value.hint


def test_decode_beyond_the_graphs_of_v0_is_launched_layer_by_layer() -> None:
    def tpot_s(version: str, input_tokens: int) -> float:
        ask = Ask(models=("llama3.1-8b",), gpus=("h200-sxm-141gb",), tp=1, engine="vllm", engine_version=version)
        return value(fast(ask, concurrency=1, input_tokens=input_tokens, output_tokens=200).tpot_s)

    assert tpot_s("0.7.3", 20_000) > 2 * tpot_s("0.7.3", 4_000)
    assert tpot_s("0.11.0", 20_000) < 1.3 * tpot_s("0.11.0", 4_000)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "tensorrt-llm"])
def test_no_number_of_waves_is_a_cliff_and_many_are_the_steady_state(engine: str) -> None:
    estimator = Estimator(Ask(models=("llama3.1-8b",), gpus=("h100-sxm5-80gb",), tp=1, engine=engine))
    for clients, lengths in ((8, (1000, 1000)), (64, (1000, 1000)), (128, (4000, 200)), (400, (1000, 1000))):

        def run(waves: int | None) -> Estimate:
            count = None if waves is None else waves * clients  # noqa: B023 - called at once
            prompt, answer = lengths  # noqa: B023
            return estimator.estimate(
                Offer(concurrency=clients, num_requests=count, input_tokens=prompt, output_tokens=answer)  # noqa: B023
            )

        before, after, many, steady = (run(waves) for waves in (39, 41, 3000, None))
        for name in ("ttft_s", "tpot_s", "e2e_s", "requests_per_s"):
            assert value(getattr(after, name)) == pytest.approx(value(getattr(before, name)), rel=0.06)
            assert value(getattr(many, name)) == pytest.approx(value(getattr(steady, name)), rel=0.05)
        assert value(steady.requests_per_s) * value(steady.e2e_s) == pytest.approx(clients, rel=0.02)
        assert value(before.requests_per_s) * value(before.e2e_s) == pytest.approx(clients, rel=0.05)


def test_prompts_that_take_all_steps_wait_and_tokens_do_not() -> None:
    ask = Ask(models=("llama3.1-8b",), gpus=("a100-sxm4-80gb",), tp=1)
    result = fast(ask, concurrency=200, input_tokens=2000, output_tokens=20)
    # A step of 2,048 tokens takes some 0.13 to 0.16 s; 2048 / (1 + 2000 / 19) sequences decode.
    assert value(result.tpot_s) < 0.165
    assert result.batch == pytest.approx(2048 / (1 + 2000 / 19), rel=0.02)
    assert value(result.ttft_s) > 15


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_replicas_behind_front_ends_of_their_own_add_up(ranks: int) -> None:
    def rate(count: int) -> float:
        ask = Ask(models=("llama3-8b",), gpus=("h100-sxm5-80gb",), num_gpus=count, tp=1, dp=count)
        return value(fast(ask, input_tokens=128, output_tokens=512).output_tokens_per_s)

    assert rate(ranks) == pytest.approx(ranks * rate(1), rel=0.01)


def test_a_burst_is_banded_as_bursts_are() -> None:
    burst = fast(num_requests=1000, input_tokens=200, output_tokens=200)
    swift = fast(num_requests=1000, requests_per_s=500.0, input_tokens=200, output_tokens=200)
    paced = fast(num_requests=1000, concurrency=1000, input_tokens=200, output_tokens=200)
    for figure, kind in (
        (burst.output_tokens_per_s, "burst, calibrated, current engine"),
        (swift.output_tokens_per_s, "burst, calibrated, current engine"),
        (paced.output_tokens_per_s, "NVIDIA dense, calibrated, current engine"),
    ):
        assert figure is not None
        low, _ = band(kind, "output_tokens_per_s", figure.value)
        assert figure.low == pytest.approx(low)


def test_fewer_requests_than_clients_are_so_many_clients() -> None:
    crowd, few = (
        fast(concurrency=clients, num_requests=10, input_tokens=1000, output_tokens=200) for clients in (100, 10)
    )
    assert crowd.e2e_s == few.e2e_s
    assert crowd.requests_per_s == few.requests_per_s
