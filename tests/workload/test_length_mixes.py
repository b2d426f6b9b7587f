"""Drawn lengths and arrivals: the seed decides, means are those asked for, and nothing is longer than admitted."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.workload.length_mixes import (
    SHAREGPT_INPUTS,
    SHAREGPT_LONGEST_TOKENS,
    SHAREGPT_OUTPUTS,
    arrival_steps,
    drawn_requests,
    mean_live_of,
)
from infcalc.workload.lengths import mean_tokens, parse_lengths
from infcalc.workload.residence import mean_live_tokens

DRAWS = 20_000


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


@given(longest=st.integers(2, 4000), seed=st.integers(0, 99))
def test_no_request_is_longer_than_admitted(longest: int, seed: int) -> None:
    inputs, outputs = parse_lengths(SHAREGPT_INPUTS), parse_lengths(SHAREGPT_OUTPUTS)
    found = drawn_requests(inputs, outputs, num_requests=30, longest_tokens=longest, rng=rng(seed))
    free = drawn_requests(inputs, outputs, num_requests=30, longest_tokens=10**9, rng=rng(seed))
    assert not any(one.cut for one in free)
    for one, whole in zip(found, free, strict=True):
        assert one.prompt_tokens >= 1 <= one.answer_tokens
        assert one.total_tokens <= longest
        assert one.cut == (whole.total_tokens > longest)
        assert one.cut or one == whole


def test_more_requests_do_not_change_the_first() -> None:
    inputs, outputs = parse_lengths(SHAREGPT_INPUTS), parse_lengths(SHAREGPT_OUTPUTS)
    few, many = (
        drawn_requests(inputs, outputs, num_requests=number, longest_tokens=2048, rng=rng(4)) for number in (10, 50)
    )
    assert many[:10] == few
    assert drawn_requests(inputs, outputs, num_requests=10, longest_tokens=2048, rng=rng(5)) != few


def test_the_mix_has_the_means_of_its_source() -> None:
    inputs, outputs = parse_lengths(SHAREGPT_INPUTS), parse_lengths(SHAREGPT_OUTPUTS)
    assert mean_tokens(inputs) == pytest.approx(161.31)
    assert mean_tokens(outputs) == pytest.approx(337.99)
    drawn = drawn_requests(inputs, outputs, num_requests=DRAWS, longest_tokens=SHAREGPT_LONGEST_TOKENS, rng=rng(0))
    # A hundredth is cut to the longest, which takes some tokens of the mean.
    assert sum(one.cut for one in drawn) / DRAWS < 0.02
    assert mean_live_of(drawn) == pytest.approx(mean_live_tokens(inputs, outputs), rel=0.1)


def test_arrivals_come_at_their_rate_and_in_order() -> None:
    steps = arrival_steps(DRAWS, 2.5, rng(1))
    assert list(steps) == sorted(steps)
    assert DRAWS / steps[-1] == pytest.approx(2.5, rel=0.05)
    gaps = [after - before for before, after in pairwise(steps)]
    # Of a Poisson process, some steps have several arrivals and some none.
    assert 0 in gaps
    assert max(gaps) > 1
    assert arrival_steps(DRAWS, 2.5, rng(2)) != steps
