from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.workload.lengths import Lengths, mean_tokens, moment, parse_lengths, quantile_tokens
from infcalc.workload.residence import (
    Demand,
    Part,
    demand,
    live_quantile_tokens,
    mean_live_tokens,
    requests_within,
    share_beyond,
    users_of,
)

PAIRS = [
    ("1000", "140"),
    ("lognormal:mean=500,cv=1.2", "200"),
    ("800", "exponential:mean=300"),
    ("uniform:min=100,max=900", "lognormal:mean=250,cv=0.8"),
    ("lognormal:mean=500,cv=1.2", "lognormal:mean=250,cv=1.0"),
]


def watched(inputs: Lengths, outputs: Lengths, *, slots: int = 200_000) -> list[float]:
    """Live tokens of a request met at random times: each life is met in proportion to its length."""
    chance = random.Random(7)  # noqa: S311 - a test needs no secrets
    prompts = [quantile_tokens(inputs, chance.random()) for _ in range(slots // 10)]
    answers = [quantile_tokens(outputs, chance.random()) for _ in range(slots // 10)]
    met = chance.choices(range(len(answers)), weights=answers, k=slots)
    return [prompts[index] + chance.random() * answers[index] for index in met]


def test_a_prompt_and_half_the_answer_are_alive() -> None:
    assert mean_live_tokens(parse_lengths("1000"), parse_lengths("140")) == 1070


def test_varying_answers_hold_more_than_equal_ones() -> None:
    # E[o^2] / (2 E[o]) = mean (1 + cv^2) / 2.
    assert mean_live_tokens(parse_lengths("1000"), parse_lengths("exponential:mean=140")) == pytest.approx(1140)


def test_reserving_takes_the_whole_answer_at_once() -> None:
    assert mean_live_tokens(parse_lengths("1000"), parse_lengths("140"), reserved=True) == 1140


@pytest.mark.parametrize(("prompt", "answer"), PAIRS)
def test_the_formulas_agree_with_watching_a_server(prompt: str, answer: str) -> None:
    inputs, outputs = parse_lengths(prompt), parse_lengths(answer)
    seen = watched(inputs, outputs)
    mean = math.fsum(seen) / len(seen)
    deviation = math.sqrt(math.fsum((tokens - mean) ** 2 for tokens in seen) / len(seen))
    assert mean_live_tokens(inputs, outputs) == pytest.approx(mean, rel=0.02)
    assert demand(inputs, outputs, (Part(bytes_per_token=1),)).deviation_bytes == pytest.approx(deviation, rel=0.06)
    ordered = sorted(seen)
    assert live_quantile_tokens(inputs, outputs, 0.95) == pytest.approx(ordered[int(0.95 * len(seen))], rel=0.03)


@pytest.mark.parametrize(("prompt", "answer"), PAIRS)
@pytest.mark.parametrize("window", [200, 700])
def test_windows_saturate_as_they_are_seen_to(prompt: str, answer: str, window: int) -> None:
    inputs, outputs = parse_lengths(prompt), parse_lengths(answer)
    found = demand(inputs, outputs, (Part(bytes_per_token=3, window_tokens=window), Part(bytes_per_token=1)))
    seen = [3 * min(tokens, window) + tokens for tokens in watched(inputs, outputs)]
    assert found.mean_bytes == pytest.approx(math.fsum(seen) / len(seen), rel=0.02)


@pytest.mark.parametrize(("prompt", "answer"), PAIRS)
@pytest.mark.parametrize("reserved", [False, True])
def test_nodes_and_closed_form_agree_where_no_window_is_reached(prompt: str, answer: str, reserved: bool) -> None:
    inputs, outputs = parse_lengths(prompt), parse_lengths(answer)
    plain = Part(bytes_per_token=2, padding_tokens=8)
    closed = demand(inputs, outputs, (plain,), constant_bytes=50, reserved=reserved)
    summed = demand(
        inputs,
        outputs,
        (Part(bytes_per_token=2, window_tokens=1e12, padding_tokens=8),),
        constant_bytes=50,
        reserved=reserved,
    )
    assert summed.mean_bytes == pytest.approx(closed.mean_bytes, rel=1e-6)
    assert summed.deviation_bytes == pytest.approx(closed.deviation_bytes, rel=1e-5, abs=1e-6)


@given(st.integers(1, 5000), st.integers(1, 5000), st.integers(1, 3000))
def test_a_window_never_holds_more_than_it_can(prompt: int, answer: int, window: int) -> None:
    inputs, outputs = parse_lengths(str(prompt)), parse_lengths(str(answer))
    found = demand(inputs, outputs, (Part(bytes_per_token=1, window_tokens=window),))
    assert 0 < found.mean_bytes <= window + 1e-9
    assert found.mean_bytes <= mean_live_tokens(inputs, outputs) + 1e-9


def test_requests_at_mean_demand_and_with_room_to_spare() -> None:
    one = Demand(mean_bytes=1070, deviation_bytes=400)
    assert requests_within(77_088, one) == pytest.approx(72.04, abs=0.01)
    safe = requests_within(77_088, one, 0.95)
    assert 60 < safe < 72
    # The definition: N m + z s sqrt(N) fills the pool.
    assert safe * 1070 + 1.6448536 * 400 * math.sqrt(safe) == pytest.approx(77_088)


def test_without_variation_the_safe_number_is_the_mean_one() -> None:
    one = Demand(mean_bytes=1000, deviation_bytes=0)
    assert requests_within(50_000, one, 0.95) == pytest.approx(requests_within(50_000, one)) == pytest.approx(50)


@pytest.mark.parametrize(("pool", "mean"), [(0, 10), (10, 0)])
def test_nothing_fits_into_nothing(pool: float, mean: float) -> None:
    assert requests_within(pool, Demand(mean_bytes=mean, deviation_bytes=1)) == 0


def test_the_safe_number_keeps_its_promise() -> None:
    inputs, outputs = parse_lengths("lognormal:mean=500,cv=1.0"), parse_lengths("lognormal:mean=250,cv=1.0")
    one = demand(inputs, outputs, (Part(bytes_per_token=1),))
    pool = 200 * one.mean_bytes
    count = int(requests_within(pool, one, 0.95))
    seen = watched(inputs, outputs)
    chance = random.Random(3)  # noqa: S311
    over = sum(sum(chance.choices(seen, k=count)) > pool for _ in range(1500)) / 1500
    assert over == pytest.approx(0.05, abs=0.03)


def test_the_share_of_requests_beyond_a_limit() -> None:
    uniform = parse_lengths("uniform:min=100,max=900")
    assert share_beyond(uniform, parse_lengths("100"), 900) == pytest.approx(1 / 8, abs=0.02)
    assert share_beyond(parse_lengths("100"), parse_lengths("100"), 200) == 0
    assert share_beyond(parse_lengths("100"), parse_lengths("101"), 200) == 1


def test_who_thinks_holds_no_slot() -> None:
    assert users_of(72, think_time_s=0, service_time_s=10) == 72
    assert users_of(72, think_time_s=30, service_time_s=10) == 288


@given(st.floats(1, 1e4), st.floats(0, 1e4), st.floats(0.1, 1e3))
def test_users_are_never_fewer_than_requests(requests: float, think: float, service: float) -> None:
    assert users_of(requests, think_time_s=think, service_time_s=service) >= requests


def test_moments_of_what_is_alive() -> None:
    inputs, outputs = parse_lengths("lognormal:mean=500,cv=1.2"), parse_lengths("exponential:mean=100")
    expected = mean_tokens(inputs) + moment(outputs, 2) / (2 * mean_tokens(outputs))
    assert demand(inputs, outputs, (Part(bytes_per_token=1),)).mean_bytes == pytest.approx(expected)
