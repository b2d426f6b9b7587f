"""A prompt's share of steps that are full of prompts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.serving.prefill import prefill_s

FIXED_S, PER_TOKEN_S, PER_PAIR_S = 0.01, 1e-4, 1e-8


class Linear:
    """Weights once, each token, and each token's look at those before it."""

    def step_s(self, **step: Any) -> float:  # noqa: ANN401 - numbers
        number, new, cached = step["num_prefills"], step["new_tokens"], step["cached_tokens"]
        pairs = number * new * (cached + new / 2)
        return float(FIXED_S + PER_TOKEN_S * number * new + PER_PAIR_S * pairs)


@given(prompt=st.integers(1, 50_000), cached=st.integers(0, 50_000), budget=st.integers(1, 10_000))
def test_a_prompt_pays_for_its_tokens_and_its_share_of_the_weights(prompt: int, cached: int, budget: int) -> None:
    found = prefill_s(Linear(), new_tokens=prompt, cached_tokens=cached, budget_tokens=budget)
    pairs = prompt * (cached + prompt / 2)
    assert found == pytest.approx(FIXED_S * prompt / budget + PER_TOKEN_S * prompt + PER_PAIR_S * pairs)


def test_what_was_found_is_spared() -> None:
    whole = prefill_s(Linear(), new_tokens=1000, cached_tokens=0, budget_tokens=2048)
    rest = prefill_s(Linear(), new_tokens=200, cached_tokens=800, budget_tokens=2048)
    assert 0 < rest < 0.25 * whole


def test_one_token_is_always_computed() -> None:
    none = prefill_s(Linear(), new_tokens=0, cached_tokens=1000, budget_tokens=2048)
    assert none == prefill_s(Linear(), new_tokens=1, cached_tokens=1000, budget_tokens=2048) > 0
