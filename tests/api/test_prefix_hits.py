"""What prefix reuse saves: the stated exercise, its bound, and the prices of the time model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask
from infcalc.api.estimator import Estimator
from infcalc.api.offer import Offer
from infcalc.api.prefix_hits import PrefixCacheResult, prefix_cache
from infcalc.api.prefix_pricing import Saving
from infcalc.api.prefix_stream import PrefixAsk
from infcalc.errors import UsageError
from infcalc.kvcache.prefix_index import IndexKind, Policy
from infcalc.report.views.prefix_cache import view

SMALL = PrefixAsk(num_requests=100, prefix_tokens=200, input_tokens=50, output_tokens=20)


def saved(result: PrefixCacheResult) -> Saving:
    assert result.saving is not None
    return result.saving


@pytest.fixture(scope="module")
def exercise() -> PrefixCacheResult:
    return prefix_cache().result


def test_the_exercise_reaches_its_bound(exercise: PrefixCacheResult) -> None:
    assert (exercise.requests, exercise.sharing_requests, exercise.prefixes) == (1000, 600, 5)
    assert (exercise.index, exercise.policy, exercise.max_entries) == ("radix-tree", "lru", 500)
    assert exercise.bound_requests_fraction == 0.595
    assert 0.55 < exercise.hit_rate_requests_fraction <= 0.595
    assert exercise.bound_tokens_fraction == 595 * 1000 / (1000 * 1250)
    assert exercise.hit_rate_tokens_fraction <= exercise.bound_tokens_fraction
    # 1,000 leaves and 5 prefixes are made, and 500 stay.
    assert exercise.evictions == 505


def test_a_smaller_cache_finds_less(exercise: PrefixCacheResult) -> None:
    for limit in ("tokens", "entries"):
        points = [point for point in exercise.curve if point.limit == limit]
        rates = [point.found_requests_fraction for point in points]
        assert [point.size for point in points] == sorted({point.size for point in points})
        assert rates == sorted(rates)
        assert rates[0] < 0.1
        assert rates[-1] == exercise.bound_requests_fraction
        assert points[-1].evicted == 0
    tight = {row.policy: row.tight_found_requests_fraction for row in exercise.policies}
    # Where ten entries are left, what was hit often must stay.
    assert tight["lru"] < 0.45
    assert tight["lfu"] > 0.55


def test_both_kinds_find_the_prefix_blocks_in_whole_blocks(exercise: PrefixCacheResult) -> None:
    tree, blocks = exercise.indexes
    assert (tree.index, blocks.index, blocks.page_tokens) == ("radix-tree", "hash-blocks", 16)
    assert tree.found_tokens_fraction == pytest.approx(595 * 1000 / 1_250_000)
    assert blocks.found_tokens_fraction == pytest.approx(595 * 992 / 1_250_000)


def test_prefill_is_priced_by_the_time_model_of_estimate(exercise: PrefixCacheResult) -> None:
    one = saved(exercise)
    assert exercise.prefill_saved_s == one.prefill_saved_s == one.prefill_without_s - one.prefill_with_s
    assert one.prefill_saved_s_low < one.prefill_saved_s < one.prefill_saved_s_high
    estimator = Estimator(Ask())
    offer = Offer(batch=1, input_tokens=1250, output_tokens=2)
    plain, hit = estimator.estimate(offer).ttft_s, estimator.estimate(replace(offer, prefix_hit_fraction=0.8)).ttft_s
    assert plain is not None
    assert hit is not None
    assert (one.ttft_without_s, one.ttft_hit_s) == (plain.value, hit.value)
    # Alone, a prompt also pays for the weights that full steps share.
    assert one.prefill_without_s / 1000 < plain.value
    # Four GPUs for as long, once per request of a thousand.
    assert one.gpu_saved_s == pytest.approx(4 * one.prefill_saved_s)
    assert one.gpu_saved_s_per_s == pytest.approx(one.gpu_saved_s / 1000)
    assert one.busy_without_fraction - one.busy_with_fraction == pytest.approx(one.prefill_saved_s / 1000)


def test_money_is_gpu_seconds_at_the_price_of_the_hour() -> None:
    one = saved(prefix_cache(None, replace(SMALL, requests_per_s=3.0), terms=Terms(usd_per_hour=7.2)).result)
    assert one.gpu_usd_per_hour == 7.2
    assert one.saved_usd == pytest.approx(one.gpu_saved_s * 7.2 / 3600)
    assert one.saved_usd_per_hour == pytest.approx(3600 * one.gpu_saved_s_per_s * 7.2 / 3600)
    assert one.gpu_saved_s_per_s == pytest.approx(3 * one.gpu_saved_s / 100)


def test_lanes_share_the_gpus() -> None:
    whole = saved(prefix_cache(Ask(models=("llama3-8b",), num_gpus=2), SMALL).result)
    split = saved(prefix_cache(Ask(models=("llama3-8b",), num_gpus=2, dp=2), SMALL).result)
    single = saved(prefix_cache(Ask(models=("llama3-8b",), num_gpus=1), SMALL).result)
    assert (whole.num_gpus_per_lane, split.num_gpus_per_lane) == (2, 1)
    assert split.gpu_saved_s == pytest.approx(single.gpu_saved_s)
    assert split.busy_without_fraction == pytest.approx(single.busy_without_fraction / 2)


def test_nothing_shared_saves_nothing() -> None:
    result = prefix_cache(None, replace(SMALL, sharing_fraction=0.0)).result
    assert result.hit_rate_requests_fraction == result.bound_requests_fraction == 0
    assert result.prefill_saved_s == 0
    assert saved(result).ttft_hit_s is None
    everyone = prefix_cache(None, replace(SMALL, sharing_fraction=1.0, num_prefixes=1)).result
    assert everyone.hit_rate_requests_fraction == 0.99


@pytest.mark.parametrize(
    ("engine", "index", "page"),
    [
        (None, "radix-tree", 1),
        ("sglang", "radix-tree", 1),
        ("vllm", "hash-blocks", 16),
        ("tensorrt-llm", "hash-blocks", 32),
    ],
)
def test_a_named_engine_decides_how_prefixes_are_found(engine: str | None, index: str, page: int) -> None:
    result = prefix_cache(Ask(engine=engine), SMALL).result
    assert (result.index, result.page_tokens) == (index, page)
    assert {row.index for row in result.indexes} == {"radix-tree", "hash-blocks"}
    assert bool(result.policies) == (index == "radix-tree")
    assert result.bound_tokens_fraction == pytest.approx(55 * (200 // page * page) / 25_000)
    assert result.hit_rate_tokens_fraction == pytest.approx(result.bound_tokens_fraction)


def test_a_model_that_does_not_fit_saves_nothing() -> None:
    answer = prefix_cache(Ask(num_gpus=1), SMALL)
    assert answer.exit_code == 3
    assert answer.result.prefill_saved_s is None
    assert answer.result.hit_rate_requests_fraction == 0
    # The size of the cache may be stated; what hits spare is then still not known.
    stated = prefix_cache(Ask(num_gpus=1), replace(SMALL, max_tokens=100_000))
    assert stated.exit_code == 3
    assert stated.result.hit_rate_requests_fraction == 0.55


def test_a_load_beyond_the_devices_is_told() -> None:
    warnings = prefix_cache(None, replace(SMALL, requests_per_s=1000.0)).warnings
    assert any("of the devices' time" in text for text in warnings)


def test_the_seed_decides_the_order() -> None:
    tight = replace(SMALL, max_entries=3)
    one, again, other = (prefix_cache(None, replace(tight, seed=seed)).result for seed in (1, 1, 2))
    assert one == again
    assert one.hit_rate_requests_fraction != other.hit_rate_requests_fraction


def test_figures_explain_themselves() -> None:
    answer = prefix_cache(None, SMALL, explain=True)
    found = {text.quantity: text.substituted for text in answer.explanations}
    assert found["bound_requests_fraction"] == "(60 - 5) / 100 = 0.5500"
    assert found["hit_rate_tokens_fraction"] == "11,000 / 25,000 = 0.4400"
    assert {"prefill_saved_s", "gpu_saved_s_per_s", "saved_usd_per_hour"} <= set(found)


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        (PrefixAsk(num_requests=0), "--requests"),
        (PrefixAsk(num_requests=100_000), "--requests"),
        (PrefixAsk(num_prefixes=0), "--prefixes"),
        (PrefixAsk(sharing_fraction=1.1), "--sharing"),
        (PrefixAsk(sharing_fraction=float("nan")), "--sharing"),
        (PrefixAsk(prefix_tokens=0), "--prefix-tokens"),
        (PrefixAsk(prefix_tokens=8000), "--prefix-tokens"),
        (PrefixAsk(input_tokens="soon"), "--input-tokens"),
        (PrefixAsk(page_tokens=0), "--page-size"),
        (PrefixAsk(max_entries=0), "--max-entries"),
        (PrefixAsk(max_tokens=0), "--max-tokens"),
        (PrefixAsk(requests_per_s=0.0), "--rate"),
        (PrefixAsk(seed=-1), "--seed"),
        (PrefixAsk(index=IndexKind.BLOCKS, max_entries=5), "--max-entries"),
        (PrefixAsk(index=IndexKind.BLOCKS, policy=Policy.LFU), "--policy"),
    ],
)
def test_what_cannot_be_is_refused(wanted: PrefixAsk, place: str) -> None:
    with pytest.raises(UsageError) as refused:
        prefix_cache(None, wanted)
    assert refused.value.place == place
    assert refused.value.hint


def test_a_model_that_keeps_nothing_per_token_has_nothing_to_find() -> None:
    answer = prefix_cache(Ask(models=("falcon-mamba-7b",)), PrefixAsk(num_requests=50), explain=True)
    result = answer.result
    assert answer.exit_code == 0
    assert result.nothing_per_token
    assert (result.hit_rate_requests_fraction, result.hit_rate_tokens_fraction, result.evictions) == (0, 0, 0)
    assert result.prefill_saved_s == 0
    assert not answer.explanations
    (finding,) = view(answer).findings
    assert "finds nothing" in finding
    assert "does not fit" not in finding
    assert not view(answer).tables


def test_a_rate_out_of_range_is_told_with_its_range() -> None:
    with pytest.raises(UsageError, match="1e\\+12") as refused:
        prefix_cache(stream_ask=PrefixAsk(requests_per_s=1e12))
    assert refused.value.hint == "above 0 and at most 1,000,000"
