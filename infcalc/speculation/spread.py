"""How far the tokens of single rounds spread around their mean, and what a measured mean says."""

from __future__ import annotations

import math

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.speculation.linear import Acceptance, survival_rates

_Z95 = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""


def tokens_per_round_variance(acceptance: Acceptance, num_draft_tokens: int) -> float:
    """Return the variance of the tokens of one round.

    With s_i the chance that i drafts or more are accepted, the mean of the accepted is the sum of s_i and that of their
    square the sum of (2i - 1) s_i (summation by parts). Trees: their survival by depth, and their depth.

    Raises:
        UsageError: a rate is outside 0..1 or the draft length negative.

    >>> from infcalc.speculation.linear import UniformAcceptance
    >>> tokens_per_round_variance(UniformAcceptance(alpha=0.5), 1), tokens_per_round_variance(
    ...     UniformAcceptance(alpha=1), 5)
    (0.25, 0.0)

    """
    rates = survival_rates(acceptance, num_draft_tokens)
    mean = math.fsum(rates)
    square = math.fsum((2 * index - 1) * rate for index, rate in enumerate(rates, start=1))
    return max(0.0, square - mean * mean)


@frozen
class MeasuredTokens:
    """Tokens per round as counted over ``num_rounds`` rounds, with the 95 % interval of their mean."""

    num_rounds: int
    tokens_per_round: float
    standard_error_tokens: float
    tokens_per_round_low: float
    tokens_per_round_high: float


def measured_tokens(counts: dict[int, int]) -> MeasuredTokens:
    """Return mean and 95 % interval of the tokens per round, from how many rounds yielded 1, 2, ... tokens.

    The interval is the normal one: mean and 1.96 standard errors.

    Raises:
        UsageError: no round was counted.

    >>> found = measured_tokens({1: 50, 3: 50})
    >>> found.tokens_per_round, round(found.standard_error_tokens, 3)
    (2.0, 0.101)

    """
    rounds = sum(counts.values())
    if not rounds:
        raise UsageError("no round was counted", hint="simulate at least one")
    mean = math.fsum(tokens * number for tokens, number in counts.items()) / rounds
    squares = math.fsum(number * (tokens - mean) ** 2 for tokens, number in counts.items())
    error = math.sqrt(squares / max(1, rounds - 1) / rounds)
    return MeasuredTokens(
        num_rounds=rounds,
        tokens_per_round=mean,
        standard_error_tokens=error,
        tokens_per_round_low=mean - _Z95 * error,
        tokens_per_round_high=mean + _Z95 * error,
    )
