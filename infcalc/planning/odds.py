"""How sure a limit is kept: a band of 80 % read as that of a log-normal law."""

from __future__ import annotations

import math

Z80 = 1.2815515655446004
"""Half the width of the middle 80 % of a normal law, in standard deviations."""
SAFE = 0.9
"""Probability from which on a limit is kept by the whole band: its far end is the ninth of ten."""


def probability_below(limit: float, low: float, high: float) -> float:
    """Return the probability that a figure with the band ``low``..``high`` is at most ``limit``.

    The band holds the middle 80 % of a log-normal law: its logarithm is normal around the middle of those of its ends,
    with standard deviation log(high / low) / (2 z), z = 1.2816.

    >>> probability_below(20.0, 10.0, 20.0), probability_below(10.0, 10.0, 20.0)
    (0.9, 0.1)
    """
    if limit <= 0 or low <= 0:
        return 1.0 if high <= limit else 0.0
    if high <= low * (1 + 1e-12):
        return 1.0 if high <= limit * (1 + 1e-12) else 0.0
    middle, deviation = 0.5 * (math.log(low) + math.log(high)), math.log(high / low) / (2 * Z80)
    return round(0.5 * math.erfc(-(math.log(limit) - middle) / (deviation * math.sqrt(2))), 12)


def probability_above(limit: float, low: float, high: float) -> float:
    """Return the probability that a figure with the band ``low``..``high`` is at least ``limit``.

    >>> probability_above(10.0, 10.0, 20.0)
    0.9
    """
    return round(1.0 - probability_below(limit, low, high), 12)


def quantile_factor(squared_cv: float, deviations: float) -> float:
    """Return a quantile over the mean of a log-normal law with this squared coefficient of variation.

    ``deviations`` is the standard normal quantile: 1.6449 for the 95th of a hundred.

    >>> quantile_factor(0.0, 1.6449)
    1.0
    >>> round(quantile_factor(1.0, 1.6449), 3)
    2.781
    """
    log_variance = math.log1p(max(0.0, squared_cv))
    return math.exp(deviations * math.sqrt(log_variance) - 0.5 * log_variance)
