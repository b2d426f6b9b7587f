"""How many drafts of each round are accepted: drawn by seed, request and round alone, whoever asks and whenever."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

DRAW_BITS = 32
GOLDEN = 0x9E3779B97F4A7C15
"""2**64 over the golden ratio: the stride of SplitMix64."""
FIRST_FACTOR, SECOND_FACTOR = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
STRIDE = 0xD1342543DE82EF95
"""Between requests: odd, and nothing that the other constants are made of."""
_MASK = (1 << 64) - 1


@frozen
class AcceptanceChance:
    """The law of a chain's rounds: draft i and all before it are accepted with the chance ``rates[i - 1]``.

    A round is numbered by request, through its preemptions: what is drafted of a text depends on the text, and a round
    that is cut short where the answer ends has been drawn like any other. Draws have 32 bits.

    >>> sure = AcceptanceChance(seed=1, rates=(1.0, 1.0)); sure.accepted(7, 0)
    2
    >>> AcceptanceChance(seed=1, rates=(0.0, 0.0)).accepted(7, 0)
    0
    """

    seed: int
    rates: tuple[float, ...]
    """Unconditional survival by position, never rising (:func:`infcalc.speculation.linear.survival_rates`)."""

    @property
    def marks(self) -> tuple[int, ...]:
        """The rates as whole numbers, rising: as many drafts are accepted as marks lie above the draw."""
        return tuple(round(rate * (1 << DRAW_BITS)) for rate in reversed(self.rates))

    def accepted(self, request: int, round_number: int) -> int:
        """Return how many drafts are accepted in one round of one request."""
        marks = self.marks
        return len(marks) - bisect_right(marks, draw(self.seed, request, round_number))


def draw(seed: int, request: int, round_number: int) -> int:
    """Return 32 evenly distributed bits. Source: SplitMix64 (Steele, Lea, Flood 2014), its state set anew each time."""
    state = mixed(mixed(seed * GOLDEN & _MASK) + request * STRIDE & _MASK)
    return mixed(state + (round_number + 1) * GOLDEN & _MASK) >> (64 - DRAW_BITS)


def mixed(state: int) -> int:
    """Return 64 bits that each depend on all of ``state``: the finish of SplitMix64."""
    state = (state ^ state >> 30) * FIRST_FACTOR & _MASK
    state = (state ^ state >> 27) * SECOND_FACTOR & _MASK
    return state ^ state >> 31


@frozen
class RoundCounts:
    """Rounds that were computed, and drafts that were accepted in them, as engines count them: cut ones whole."""

    num_rounds: int = 0
    num_accepted: int = 0

    @property
    def tokens_per_round(self) -> float | None:
        """The mean, the token that follows the drafts included; None where there was no round."""
        return 1 + self.num_accepted / self.num_rounds if self.num_rounds else None


def summed(counts: Sequence[RoundCounts]) -> RoundCounts:
    """Return the counts of several together."""
    return RoundCounts(
        num_rounds=sum(one.num_rounds for one in counts), num_accepted=sum(one.num_accepted for one in counts)
    )
