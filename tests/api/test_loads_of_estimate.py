from __future__ import annotations

import math
from typing import Any

import pytest

from infcalc.api.deployment import Ask
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
