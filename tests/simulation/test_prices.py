"""Prices by the block are those of single steps, whatever was asked before."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.simulation.prices import (
    CONTEXT_BITS,
    LEAST_CONTEXT_BITS,
    PROMPT_BITS,
    REFERENCE_TOKENS,
    Prices,
    marks,
)
from tests.simulation.test_timing import engine


@given(num_decodes=st.integers(1, 2000), context=st.integers(0, 200_000), at_end=st.booleans())
def test_decodes_at_a_mark_cost_what_they_cost_alone(num_decodes: int, context: int, *, at_end: bool) -> None:
    low, high = marks(context, CONTEXT_BITS, LEAST_CONTEXT_BITS)
    tokens = high - 1 if at_end else low
    alone = engine(num_decodes=num_decodes, context_tokens=tokens, num_prefills=0, new_tokens=0, cached_tokens=0)
    assert Prices(engine, in_blocks=True).decode_s(num_decodes, tokens) == pytest.approx(float(alone), rel=1e-12)


@given(num_decodes=st.integers(0, 2000), tokens=st.integers(1, 200_000))
def test_a_prompt_of_a_mark_costs_what_it_costs_alone(num_decodes: int, tokens: int) -> None:
    mark = marks(tokens, PROMPT_BITS, 0)[0]
    context = REFERENCE_TOKENS if num_decodes else 0
    alone = engine(num_decodes=num_decodes, context_tokens=context, num_prefills=1, new_tokens=mark, cached_tokens=0)
    assert Prices(engine, in_blocks=True).prompt_s(num_decodes, mark) == pytest.approx(float(alone), rel=1e-12)


def test_what_was_asked_before_does_not_matter() -> None:
    prompts = [1, 7, 8, 112, 128, 1792, 2048, 4096]
    up, down = Prices(engine, in_blocks=True), Prices(engine, in_blocks=True)
    found = [up.prompt_s(number, tokens) for number in (0, 31, 32) for tokens in prompts]
    again = [down.prompt_s(number, tokens) for number in (32, 31, 0) for tokens in reversed(prompts)]
    assert found == again[::-1]
