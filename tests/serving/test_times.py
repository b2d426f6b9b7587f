from __future__ import annotations

import pytest

from infcalc.serving.times import step_times
from tests.serving.clock import CONTEXT_S, DECODE_S, FIXED_S, TOKEN_S, Formula


def test_the_grid_gives_back_a_law_that_is_linear_in_each() -> None:
    times = step_times(
        Formula(),
        most_decodes=100,
        least_context_tokens=1000,
        most_context_tokens=3000,
        prompt_tokens=1000,
        cached_tokens=0,
        budget_tokens=8192,
    )
    for decodes in (1, 3, 17, 99.5, 140):
        for context in (1000, 1234, 3000, 3500):
            for new in (0, 5, 1000, 5000):
                expected = FIXED_S + decodes * (DECODE_S + CONTEXT_S * context) + TOKEN_S * new
                assert times.at(decodes, context, new) == pytest.approx(expected, rel=1e-9)


def test_a_step_without_anything_takes_no_time() -> None:
    times = step_times(
        Formula(),
        most_decodes=1,
        least_context_tokens=10,
        most_context_tokens=20,
        prompt_tokens=10,
        cached_tokens=0,
        budget_tokens=64,
    )
    assert times.at(0, 10) == 0
