"""Draws without a generator's state to set: the same numbers every time, spread as their law says."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.workload.lengths import normal_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infcalc.workload.quadrature import Node

_FACTOR, _SHIFT, _SIZE = 6364136223846793005, 1442695040888963407, 2**64
"""Knuth's linear congruential generator MMIX (The Art of Computer Programming, volume 2)."""
_START = 20


def draws(start: int = 1) -> Iterator[float]:
    """Yield numbers between 0 and 1 without end."""
    state = start
    for _ in range(_START):
        state = (state * _FACTOR + _SHIFT) % _SIZE
    while True:
        state = (state * _FACTOR + _SHIFT) % _SIZE
        yield ((state >> 11) + 0.5) / 2**53


def shuffled(nodes: Sequence[Node], number: int, start: int = 1) -> list[float]:
    """Return ``number`` lengths that have the weights of ``nodes`` as exactly as can be, in an order by chance.

    >>> sorted(shuffled(((0.5, 10.0), (0.5, 20.0)), 4))
    [10.0, 10.0, 20.0, 20.0]
    """
    found: list[float] = []
    reached = 0.0
    for weight, length in nodes:
        reached += weight
        found += [length] * (round(reached * number) - len(found))
    found += [nodes[-1][1]] * (number - len(found))
    if len(nodes) > 1:
        chance = draws(start)
        for last in range(number - 1, 0, -1):
            other = int(next(chance) * (last + 1))
            found[last], found[other] = found[other], found[last]
    return found


def slices(scatter: float) -> tuple[Node, ...]:
    """Return lengths of equal weight, in means, whose squared coefficient of variation is about ``scatter``.

    Those of a lognormal, the shape that prompts of chat services have.
    """
    if not scatter:
        return ((1.0, 1.0),)
    spread = math.sqrt(math.log1p(scatter))
    found = [math.exp(spread * normal_quantile((place + 0.5) / _SLICES)) for place in range(_SLICES)]
    mean = sum(found) / _SLICES
    return tuple((1 / _SLICES, length / mean) for length in found)


_SLICES = 24


def arrivals(number: int, rate: float, start: int = 3) -> list[float]:
    """Return when ``number`` requests come at random at ``rate`` (Poisson), the last of them after number / rate."""
    chance = draws(start)
    moments: list[float] = []
    now = 0.0
    for _ in range(number):
        moments.append(now)
        now -= math.log(next(chance))
    scale = number / rate / now
    return [moment * scale for moment in moments]
