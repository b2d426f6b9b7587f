"""Published cases that ask whether a feature pays, asked as their users would: by ``infcalc what-if``.

Each check is the one of the file that holds the case, with its tolerance; one that what-if alone misses is a strict
xfail here, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.journeys.command import answer
from tests.journeys.published import assert_holds, cases_of

PLACE = Path(__file__).parents[1] / "published"
Capture = pytest.CaptureFixture[str]
Row = dict[str, Any]
ANSWERS: dict[tuple[str, str], Callable[[Capture], float]] = {}
MISSES = {
    ("UC-101", "awq_over_fp16_b256"): (
        "0.97: kernels of 2023 dequantised whole matrices at large batches; the curves are of those of 2025"
    ),
    ("UC-108", "ttft_ep_over_tp_c8"): (
        "1.01: expert parallelism is priced with even routing and the same kernels as tensor parallelism"
    ),
    ("UC-118", "throughput_gain_pct"): (
        "neither model nor lengths are stated, and the share of prefill decides: 91 % with prompts of 1,000 and "
        "answers of 300 tokens on the reference deployment"
    ),
}


def asks(case: str, key: str) -> Callable[[Callable[[Capture], float]], Callable[[Capture], float]]:
    def remember(function: Callable[[Capture], float]) -> Callable[[Capture], float]:
        ANSWERS[case, key] = function
        return function

    return remember


def check_of(case: str, key: str) -> dict[str, Any]:
    """Return a check of a case, of whatever file holds it."""
    found: dict[str, Any]
    (found,) = {
        str(check): check
        for path in PLACE.glob("user_cases*.yaml")
        for one in cases_of(path)
        if one["id"] == case
        for check in one.get("checks", ())
        if check["key"] == key
    }.values()
    return found


def row(capsys: Capture, feature: str, users: int, prompt: int, tokens: int, *more: str) -> Row:
    """Return the row of a feature with so many users, each with four requests of so many tokens."""
    load = ("--users", users, "--num-requests", max(32, 4 * users), "--input-tokens", prompt, "--output-tokens", tokens)
    ran = answer(capsys, "what-if", "--feature", feature, *(str(one) for one in load), *more)
    found: Row = ran.result["rows"][0]
    return found


@asks("UC-100", "e2e_speedup")
def _fp8_cache_on_a_gpu_without_fp8(capsys: Capture) -> float:
    gpu = ("-m", "qwen3-8b", "-g", "a100-80gb", "-n", "1", "--engine-version", "0.26")
    found = [1 / row(capsys, "fp8-kv", 8, prompt, 256, *gpu)["e2e_factor"] for prompt in (1000, 4000, 8000, 16_000)]
    return float(sum(found) / len(found))


def _awq(capsys: Capture, batch: int) -> float:
    gpu = ("-m", "llama2-13b", "-g", "a100-80gb", "-n", "1", "--weights", "fp16")
    return float(row(capsys, "int4-weights", batch, 64, 128, *gpu)["throughput_factor"])


@asks("UC-101", "awq_over_fp16_b8")
def _awq_at_a_small_batch(capsys: Capture) -> float:
    return _awq(capsys, 8)


@asks("UC-101", "awq_over_fp16_b256")
def _awq_at_a_large_batch(capsys: Capture) -> float:
    return _awq(capsys, 256)


@asks("UC-108", "ttft_ep_over_tp_c8")
def _experts_spread_over_a_node(capsys: Capture) -> float:
    node = ("-m", "deepseek-r1", "-g", "h200", "-n", "8", "--engine", "sglang", "--engine-version", "0.4.6")
    return float(row(capsys, "expert-parallel", 8, 1600, 600, *node)["ttft_factor"])


@asks("UC-118", "throughput_gain_pct")
def _hits_where_decoding_dominates(capsys: Capture) -> float:
    found = row(capsys, "prefix-cache", 64, 54, 300, "--shared-prefix", "tokens=946")
    return 100 * (float(found["throughput_factor"]) - 1)


@asks("UC-144", "gain")
def _pools_of_one_node_at_38_tokens_per_s_of_each_user(capsys: Capture) -> float:
    # So many users that the pools still give each of them what is wanted.
    node = ("-m", "llama3-70b", "-g", "h100", "-n", "8", "--weights", "fp8", "--kv-dtype", "fp8")
    found = row(capsys, "disaggregation", 64, 3000, 150, *node)
    told = re.search(r"a token takes [\d.]+ ms -> ([\d.]+) ms", found["why"])
    assert told is not None
    assert 38 <= 1e3 / float(told[1]) < 50
    return float(found["throughput_factor"])


@pytest.mark.parametrize(
    ("case", "key"),
    [
        pytest.param(*one, marks=pytest.mark.xfail(reason=MISSES[one], raises=AssertionError, strict=True))
        if one in MISSES
        else one
        for one in ANSWERS
    ],
)
def test_a_published_gain_comes_out(capsys: Capture, case: str, key: str) -> None:
    assert_holds(check_of(case, key), ANSWERS[case, key](capsys))


def test_every_miss_is_of_a_case_that_is_asked() -> None:
    assert set(MISSES) <= set(ANSWERS)


# What a case says without a number, or of numbers that what-if is not told.


def test_awq_gains_less_the_more_are_served(capsys: Capture) -> None:
    # UC-101: faster up to a batch of some 32, and not beyond.
    few, some, many = (_awq(capsys, batch) for batch in (8, 32, 256))
    assert few > some > many
    assert many < 1


def test_a_narrow_cache_without_units_is_no_sure_gain(capsys: Capture) -> None:
    # UC-100: the pool holds twice the tokens, and requests are as fast as before.
    found = row(capsys, "fp8-kv", 8, 4000, 256, "-m", "qwen3-8b", "-g", "a100-80gb", "-n", "1")
    assert "capacity doubles, speed does not" in found["why"]
    assert found["verdict"] in {"may pay", "no difference"}
    assert found["e2e_factor_low"] < 1 / 1.02 < found["e2e_factor_high"]


def test_drafting_pays_for_one_and_less_on_more_ranks(capsys: Capture) -> None:
    # UC-110, UC-112, UC-116: 1.3 to 1.8 times as fast for one request, less the shorter the target's step is.
    one = row(capsys, "speculation", 1, 512, 256, "-m", "llama3-8b", "-g", "h100", "-n", "1")
    assert one["verdict"] == "pays"
    single, four = (
        row(capsys, "speculation", 1, 512, 256, "-m", "llama3-70b", "-g", "h200", "-n", ranks) for ranks in ("2", "8")
    )
    assert single["tpot_factor"] < four["tpot_factor"] < 1


def test_hits_gain_what_prefill_takes(capsys: Capture) -> None:
    # UC-118: 1 / (1 - hits x share of prefill). With short prompts and long answers hits are worth next to nothing.
    short = row(capsys, "prefix-cache", 64, 10, 1000, "--shared-prefix", "tokens=180")
    told = re.search(r"hits 0 -> (\d+) %", short["why"])
    assert told is not None
    assert int(told[1]) > 90
    assert 1.0 < short["throughput_factor"] < 1.15
    assert short["ttft_factor"] < 0.8


def test_pools_are_not_held_against_a_weak_layout(capsys: Capture) -> None:
    # UC-145: of 8 x H200 with gpt-oss 120b, TP 8 is none that anybody should serve 64 users with.
    found = row(capsys, "disaggregation", 64, 3000, 150, "-m", "gpt-oss-120b", "-g", "h200", "-n", "8")
    assert "against 1 x TP 8" not in found["why"]
    assert "the best plain replicas" in found["why"]
