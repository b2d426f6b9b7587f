"""Times in whole picoseconds: affine in context, and as right as what they are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.simulation.batch_shape import PS_PER_S, BatchShape, Prefill
from infcalc.simulation.timing import StepTimer

if TYPE_CHECKING:
    from infcalc.simulation.prices import Floats

WINDOW_TOKENS = 4096
SHARPNESS = 4


def engine(
    *,
    num_decodes: float | Floats,
    context_tokens: float | Floats,
    num_prefills: float,
    new_tokens: float | Floats,
    cached_tokens: float,
) -> float | Floats:
    """Return the seconds of a made-up step: weights or arithmetic, a window, and prompts that add up.

    The one gives way to the other smoothly, as in the curves of kernels (``roofline.curves``).
    """
    tokens = num_decodes + num_prefills * new_tokens
    pairs = num_prefills * (new_tokens * cached_tokens + new_tokens * (new_tokens + 1) / 2)
    seen = num_decodes * (context_tokens + 0.5 * np.minimum(context_tokens, WINDOW_TOKENS))
    sequences = num_decodes + num_prefills
    found: Floats = weights_or_arithmetic_s(tokens) + seen * 3e-8 + pairs * 2e-9 + sequences * 5e-6
    return np.where(np.asarray(tokens) > 0, found, 0.0)


def weights_or_arithmetic_s(tokens: float | Floats) -> float | Floats:
    found: float | Floats = (0.02**SHARPNESS + (tokens * 8e-5) ** SHARPNESS) ** (1 / SHARPNESS)
    return found


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
    assert StepTimer(engine, in_blocks=True)(shape(num_decodes, total)) == pytest.approx(wanted * PS_PER_S, rel=2e-3)


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
    found = StepTimer(engine, in_blocks=True)(shape(num_decodes, num_decodes * context, *prompts))
    assert found == pytest.approx(wanted * PS_PER_S, rel=1e-2)


@pytest.mark.parametrize("in_blocks", [False, True])
def test_the_order_and_the_history_of_questions_change_nothing(*, in_blocks: bool) -> None:
    fresh, used = StepTimer(engine, in_blocks=in_blocks), StepTimer(engine, in_blocks=in_blocks)
    for total in range(8, 40_000, 1111):
        used(shape(8, total, (3, 0), (700, 50)))
    asked = shape(8, 9000, (500, 0), (17, 900), (17, 900))
    assert fresh(asked) == used(asked) == used(asked)


def test_no_step_takes_no_time() -> None:
    assert StepTimer(engine)(shape(0, 0)) == 0


def test_few_questions_are_asked_for_many_steps() -> None:
    asked = []

    def counting(**step: float | Floats) -> float | Floats:
        asked.append(step)
        return engine(**step)  # type: ignore[arg-type] # numbers of prefills are no arrays

    timer = StepTimer(counting, in_blocks=True)
    for context in range(1, 4097):
        timer(shape(64, 64 * context))
    octaves = 9  # up to 15, then one each up to 4,095, and that of 4,096
    assert len(asked) <= octaves + 1
    for tokens in range(1, 2048):
        timer(shape(65, 65 * 1000, (tokens, 0)))
    assert len(asked) <= octaves + 1 + 4
