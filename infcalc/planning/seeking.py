"""The least number that a costly trial confirms: larger and larger steps from one that missed, then halving."""

from __future__ import annotations

import math
from dataclasses import replace

from infcalc.frozen import frozen

_MOST_FACTOR = 2.0


@frozen
class Seeking:
    """What trials have told so far of numbers from ``num_first`` to ``num_most``.

    Whatever is confirmed with a number is taken to be confirmed with greater ones: the least then lies above
    ``num_below``, and is ``num_above`` at most, where that is known.
    """

    num_first: int
    num_most: int
    num_below: int
    """The greatest that missed; before any trial one less than ``num_first``."""
    num_above: int | None = None
    """The least that was confirmed."""
    num_last_step: int = 0
    """From the miss before to the last one."""
    value_over_limit_fraction: float = 1.0
    """Of the last miss: what was found over its limit."""

    @property
    def found(self) -> int | None:
        """The least number, once it is known."""
        return self.num_above if self.num_above is not None and self.num_above == self.num_below + 1 else None

    @property
    def over(self) -> bool:
        """Whether no number is left to try."""
        return self.found is not None or self.num_below >= self.num_most

    @property
    def next(self) -> int:
        """The number to try next: the first, one by the miss, one further by twice the step before, or halfway.

        >>> seeking(10, 1000).missed(10, 1.3).next
        13
        """
        if self.num_above is not None:
            return (self.num_below + self.num_above) // 2
        if self.num_below < self.num_first:
            return self.num_first
        by_miss = math.ceil(self.num_below * min(_MOST_FACTOR, self.value_over_limit_fraction) - 1e-9)
        return min(self.num_most, max(self.num_below + 1, by_miss, self.num_below + 2 * self.num_last_step))

    def missed(self, number: int, factor: float) -> Seeking:
        """Return what is known once ``number`` has missed by ``factor``."""
        step = number - self.num_below if self.num_below >= self.num_first else 0
        return replace(self, num_below=number, num_last_step=step, value_over_limit_fraction=max(1.0, factor))

    def confirmed(self, number: int) -> Seeking:
        """Return what is known once ``number`` was confirmed."""
        return replace(self, num_above=number)

    def hopeless(self) -> Seeking:
        """Return that no number will do."""
        return replace(self, num_below=self.num_most)


def seeking(first: int, most: int) -> Seeking:
    """Return what is known before any trial: ``first`` is the least that may do."""
    return Seeking(num_first=first, num_most=max(first, most), num_below=first - 1)
