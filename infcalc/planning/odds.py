"""How sure a limit is kept: a band of 80 % and its median read as a law of two log-normal halves."""

from __future__ import annotations

import math

from infcalc.frozen import frozen

Z80 = 1.2815515655446004
"""Half the width of the middle 80 % of a normal law, in standard deviations."""
SAFE = 0.9
"""Probability from which on a limit is kept by the whole band: its far end is the ninth of ten."""


def normal_below(deviations: float) -> float:
    """Return the probability that a standard normal figure is below so many standard deviations.

    >>> round(normal_below(Z80), 9)
    0.9
    """
    return 0.5 * math.erfc(-deviations / math.sqrt(2))


@frozen
class Law:
    """Where a figure lies over its prediction.

    One in ten is below the low factor, half are below the middle one, one in ten is above the high one.
    Between and beyond them its logarithm is normal, with one standard deviation below the middle and another above:
    log(middle / low) / z and log(high / middle) / z, z = 1.2816.

    >>> law = Law(low_factor=0.8, middle_factor=1.0, high_factor=2.0)
    >>> round(law.probability_below(2.0), 6), round(law.probability_below(1.0), 6), round(law.at(-Z80), 6)
    (0.9, 0.5, 0.8)
    """

    low_factor: float
    middle_factor: float
    high_factor: float

    def at(self, deviations: float) -> float:
        """Return the figure at so many standard deviations of the normal law behind it."""
        end = self.low_factor if deviations < 0 else self.high_factor
        return self.middle_factor * math.exp(math.log(end / self.middle_factor) * abs(deviations) / Z80)

    def probability_below(self, limit: float) -> float:
        """Return the probability that the figure is at most ``limit``."""
        if limit <= 0:
            return 0.0
        end = self.low_factor if limit < self.middle_factor else self.high_factor
        width = abs(math.log(end / self.middle_factor))
        if width < _NO_WIDTH:
            return 1.0 if limit >= self.middle_factor * (1 - _NO_WIDTH) else 0.0
        return round(normal_below(math.log(limit / self.middle_factor) / width * Z80), 12)


_NO_WIDTH = 1e-12


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
