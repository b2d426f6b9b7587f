"""Requests with drawn lengths that arrive at random: what allocators are compared under.

The mix of ShareGPT conversations has the means that Kwon et al. 2023 (PagedAttention, section 6.1, figure 11) give for
it: 161.31 tokens of a prompt and 337.99 of an answer, within the 2,048 tokens of the models it was served by. They show
a long tail and give no spread; a lognormal with a coefficient of variation of 1 is assumed here.
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.workload.lengths import Lengths, quantile_tokens

if TYPE_CHECKING:
    import numpy as np

SHAREGPT_INPUTS = "lognormal:mean=161.31,cv=1"
SHAREGPT_OUTPUTS = "lognormal:mean=337.99,cv=1"
SHAREGPT_LONGEST_TOKENS = 2048
SHAREGPT_SOURCE = "ShareGPT means of Kwon et al. 2023 (PagedAttention), figure 11; the spread is assumed"


@frozen
class RequestLengths:
    """Prompt and answer of one request, in tokens."""

    prompt_tokens: int
    answer_tokens: int
    cut: bool = False
    """It was longer, and was cut to the longest that is admitted."""

    @property
    def total_tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.answer_tokens


def drawn_requests(
    inputs: Lengths, outputs: Lengths, *, num_requests: int, longest_tokens: int, rng: np.random.Generator
) -> tuple[RequestLengths, ...]:
    """Return requests of at least one token each way, cut to ``longest_tokens`` (2 or more) of prompt and answer.

    The answer is cut first, as engines do; what is drawn for the first requests does not depend on how many follow.
    """
    found = []
    for first, second in rng.random((num_requests, 2)).tolist():
        prompt = max(1, round(quantile_tokens(inputs, first)))
        answer = max(1, round(quantile_tokens(outputs, second)))
        kept = min(prompt, longest_tokens - 1)
        given = min(answer, longest_tokens - kept)
        found.append(RequestLengths(prompt_tokens=kept, answer_tokens=given, cut=(kept, given) != (prompt, answer)))
    return tuple(found)


def mean_live_of(requests: tuple[RequestLengths, ...]) -> float:
    """Return the tokens that a running one of these requests holds on average over its life: see ``residence``.

    >>> mean_live_of((RequestLengths(prompt_tokens=1000, answer_tokens=140),))
    1070.0
    """
    lives = sum(one.answer_tokens for one in requests)
    return sum(one.answer_tokens * (one.prompt_tokens + one.answer_tokens / 2) for one in requests) / lives


def arrival_steps(num_requests: int, per_step: float, rng: np.random.Generator) -> tuple[int, ...]:
    """Return the steps at which requests arrive at random, ``per_step`` on average (a Poisson process)."""
    # Through the exponential's quantile: the same seed gives the same steps with any release of numpy.
    gaps = [-math.log1p(-share) / per_step for share in rng.random(num_requests).tolist()]
    return tuple(int(when) for when in accumulate(gaps))
