"""A number with the range it may lie in, and the arithmetic that carries the range along."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class Spread:
    """A value, and the least and the most it may be. All are in the unit that the field beside it names."""

    value: float
    low: float
    high: float


def exact(value: float) -> Spread:
    """Return a value without a range."""
    return Spread(value=value, low=value, high=value)


def scaled(spread: Spread, factor: float) -> Spread:
    """Return a spread times a factor that is not negative."""
    return Spread(value=spread.value * factor, low=spread.low * factor, high=spread.high * factor)


def total(*spreads: Spread) -> Spread:
    """Return the sum: the ends of all are added, as if all lay at the same end."""
    return Spread(
        value=sum(one.value for one in spreads),
        low=sum(one.low for one in spreads),
        high=sum(one.high for one in spreads),
    )


def quotient(above: Spread, below: Spread) -> Spread:
    """Return a quotient of two positive spreads.

    >>> quotient(Spread(value=10, low=8, high=12), Spread(value=2, low=1, high=4))
    Spread(value=5.0, low=2.0, high=12.0)
    """
    return Spread(value=above.value / below.value, low=above.low / below.high, high=above.high / below.low)
