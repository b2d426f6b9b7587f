"""Pairs of laws with a given acceptance, to run the sampler on where no real models are at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.errors import UsageError
from infcalc.speculation.exact import one_hot, overlap, tempered

if TYPE_CHECKING:
    from numpy.random import Generator

    from infcalc.speculation.exact import Laws

_SPREAD = 1.5
"""Standard deviation of the target's logits: its best of 32 tokens has about a third of the mass."""
_NOISE = 4.0
"""Standard deviation of the noise on the draft's logits at the end of the way."""
_LATE = 8
"""Power with which mass goes to the absent token: noise alone makes all but the least acceptances."""


def laws_of_overlap(alpha: float, vocab_size: int, generator: Generator) -> tuple[Laws, Laws]:
    """Return laws (V) of a target and a draft that accept a drafted token with probability ``alpha``.

    The draft is the target with noise on its logits, and some of its mass on a token that the target never writes; both
    grow until the overlap is ``alpha``. At 1 the two are equal, at 0 their supports are disjoint. As in real drafts, a
    second try after a rejection is accepted less often than the first.

    Raises:
        UsageError: not a probability, or fewer than three tokens.

    """
    if not 0 <= alpha <= 1 or vocab_size < 3:  # noqa: PLR2004
        raise UsageError(f"acceptance {alpha:g} with {vocab_size} tokens", hint="0 to 1, with three tokens or more")
    logits = _SPREAD * generator.standard_normal(vocab_size)
    logits[-1] = -np.inf
    noise = generator.standard_normal(vocab_size)
    absent = one_hot(np.array(vocab_size - 1), vocab_size)
    target = tempered(logits, 1.0)

    def draft_at(step: float) -> Laws:
        lost = step**_LATE
        return (1 - lost) * tempered(logits + _NOISE * step * noise, 1.0) + lost * absent

    # The overlap falls from 1 to 0 along the way, without a jump.
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if overlap(target, draft_at(middle)) > alpha else (low, middle)
    return target, draft_at(low if alpha == 1 else high)
