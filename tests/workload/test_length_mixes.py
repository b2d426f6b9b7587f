"""Drawn lengths and arrivals: the seed decides, means are those asked for, and nothing is longer than admitted."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.workload.length_mixes import (
    SHAREGPT_INPUTS,
    SHAREGPT_LONGEST_TOKENS,
    SHAREGPT_OUTPUTS,
    arrival_steps,
    drawn_requests,
    drawn_tokens,
    mean_live_of,
)
from infcalc.workload.lengths import mean_tokens, moment, parse_lengths, quantile_tokens
from infcalc.workload.residence import mean_live_tokens

SHAPES = ("512", "uniform:min=100,max=900", "exponential:mean=300", "lognormal:mean=500,cv=0.8")
DRAWS = 20_000


@pytest.mark.parametrize("shape", SHAPES)
def test_draws_follow_their_distribution(shape: str) -> None:
    lengths = parse_lengths(shape)
    chance = random.Random(11)  # noqa: S311 - no secrets
    values = sorted(drawn_tokens(lengths, chance) for _ in range(DRAWS))
    mean = mean_tokens(lengths)
    deviation = max(1e-9, moment(lengths, 2) - mean**2) ** 0.5
    # Five standard errors.
    assert sum(values) / DRAWS == pytest.approx(mean, abs=5 * deviation / DRAWS**0.5)
    for share in (0.1, 0.5, 0.9):
        assert values[int(share * DRAWS)] == pytest.approx(quantile_tokens(lengths, share), rel=0.1)


@given(longest=st.integers(2, 4000), seed=st.integers(0, 99))
def test_no_request_is_longer_than_admitted(longest: int, seed: int) -> None:
    inputs, outputs = parse_lengths(SHAREGPT_INPUTS), parse_lengths(SHAREGPT_OUTPUTS)
    found = drawn_requests(inputs, outputs, num_requests=30, longest_tokens=longest, seed=seed)
    free = drawn_requests(inputs, outputs, num_requests=30, longest_tokens=10**9, seed=seed)
    assert not any(one.cut for one in free)
    for one, whole in zip(found, free, strict=True):
        assert one.prompt_tokens >= 1 <= one.answer_tokens
        assert one.total_tokens <= longest
        assert one.cut == (whole.total_tokens > longest)
        assert one.cut or one == whole


def test_more_requests_do_not_change_the_first() -> None:
    inputs, outputs = parse_lengths(SHAREGPT_INPUTS), parse_lengths(SHAREGPT_OUTPUTS)
    few, many = (
        drawn_requests(inputs, outputs, num_requests=number, longest_tokens=2048, seed=4) for number in (10, 50)
    )
    assert many[:10] == few
    assert drawn_requests(inputs, outputs, num_requests=10, longest_tokens=2048, seed=5) != few


def test_the_mix_has_the_means_of_its_source() -> None:
    inputs, outputs = parse_lengths(SHAREGPT_INPUTS), parse_lengths(SHAREGPT_OUTPUTS)
    assert mean_tokens(inputs) == pytest.approx(161.31)
    assert mean_tokens(outputs) == pytest.approx(337.99)
    drawn = drawn_requests(inputs, outputs, num_requests=DRAWS, longest_tokens=SHAREGPT_LONGEST_TOKENS, seed=0)
    # A hundredth is cut to the longest, which takes some tokens of the mean.
    assert sum(one.cut for one in drawn) / DRAWS < 0.02
    assert mean_live_of(drawn) == pytest.approx(mean_live_tokens(inputs, outputs), rel=0.1)


def test_arrivals_come_at_their_rate_and_in_order() -> None:
    steps = arrival_steps(DRAWS, 2.5, seed=1)
    assert list(steps) == sorted(steps)
    assert DRAWS / steps[-1] == pytest.approx(2.5, rel=0.05)
    gaps = [after - before for before, after in pairwise(steps)]
    # Of a Poisson process, some steps have several arrivals and some none.
    assert 0 in gaps
    assert max(gaps) > 1
    assert arrival_steps(DRAWS, 2.5, seed=2) != steps
