"""Times in whole picoseconds: affine in context, and as right as what they are made of."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill
from infcalc.simulation.timing import StepTimer

WINDOW_TOKENS = 4096
SHARPNESS = 4


def engine(
    *, num_decodes: float, context_tokens: float, num_prefills: float, new_tokens: float, cached_tokens: float
) -> float:
    """Return the seconds of a made-up step: weights or arithmetic, a window, and prompts that add up.

    The one gives way to the other smoothly, as in the curves of kernels (``roofline.curves``).
    """
    tokens = num_decodes + num_prefills * new_tokens
    if not tokens:
        return 0.0
    pairs = num_prefills * (new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2)
    seen = num_decodes * (context_tokens + 0.5 * min(context_tokens, WINDOW_TOKENS))
    sequences = num_decodes + num_prefills
    return weights_or_arithmetic_s(tokens) + seen * 3e-8 + pairs * 2e-9 + sequences * 5e-6


def weights_or_arithmetic_s(tokens: float) -> float:
    return float((0.02**SHARPNESS + (tokens * 8e-5) ** SHARPNESS) ** (1 / SHARPNESS))


def shape(num_decodes: int, total_tokens: int, *prefills: tuple[int, int]) -> BatchShape:
    chunks = tuple(Prefill(new_tokens=new, cached_tokens=cached) for new, cached in prefills)
    return BatchShape(num_decodes=num_decodes, decode_context_tokens=total_tokens, prefills=chunks)


decodes = st.integers(1, 256)
contexts = st.integers(1, 32_000)
chunks = st.lists(st.tuples(st.integers(1, 2048), st.integers(0, 8000)), min_size=1, max_size=5)


@given(num_decodes=decodes, context=contexts, more=st.integers(0, 255))
def test_decode_steps_are_within_two_thousandths(num_decodes: int, context: int, more: int) -> None:
    total = num_decodes * context + more % num_decodes
    wanted = engine(
        num_decodes=num_decodes, context_tokens=total / num_decodes, num_prefills=0, new_tokens=0, cached_tokens=0
    )
    assert StepTimer(engine)(shape(num_decodes, total)) == pytest.approx(wanted * PS_PER_S, rel=2e-3)


@given(num_decodes=decodes, context=contexts)
def test_between_two_marks_a_step_is_affine_in_context_to_the_picosecond(num_decodes: int, context: int) -> None:
    timer = StepTimer(engine)
    line = timer.line(num_decodes, num_decodes * context)
    assert line.first_tokens <= num_decodes * context <= line.last_tokens
    for total in (line.first_tokens, num_decodes * context, line.last_tokens):
        assert timer.line(num_decodes, total) == line
        assert timer(shape(num_decodes, total)) == line.base_ps + line.ps_per_token * total
    assert timer.line(num_decodes, line.last_tokens + 1).first_tokens == line.last_tokens + 1


@given(num_decodes=st.integers(0, 256), context=contexts, prompts=chunks)
def test_prompts_are_within_a_hundredth_whatever_their_lengths(
    num_decodes: int, context: int, prompts: list[tuple[int, int]]
) -> None:
    wanted = weights_or_arithmetic_s(num_decodes + sum(new for new, _ in prompts))
    wanted += num_decodes * (context + 0.5 * min(context, WINDOW_TOKENS)) * 3e-8
    wanted += sum(new * cached + new * (new + 1) / 2 for new, cached in prompts) * 2e-9
    wanted += (num_decodes + len(prompts)) * 5e-6
    found = StepTimer(engine)(shape(num_decodes, num_decodes * context, *prompts))
    assert found == pytest.approx(wanted * PS_PER_S, rel=1e-2)


def test_the_order_and_the_history_of_questions_change_nothing() -> None:
    fresh, used = StepTimer(engine), StepTimer(engine)
    for total in range(8, 40_000, 1111):
        used(shape(8, total, (3, 0), (700, 50)))
    asked = shape(8, 9000, (500, 0), (17, 900), (17, 900))
    assert fresh(asked) == used(asked) == used(asked)


def test_no_step_takes_no_time() -> None:
    assert StepTimer(engine)(shape(0, 0)) == 0


def test_few_steps_are_priced_for_many() -> None:
    asked = []

    def counting(**step: float) -> float:
        asked.append(step)
        return engine(**step)

    timer = StepTimer(counting)
    for context in range(1, 4097):
        timer(shape(64, 64 * context))
    assert len(asked) <= 2 * 52
