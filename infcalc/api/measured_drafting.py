"""Measurements of servers that draft, beside a prediction of the same server without: what drafting gains there.

No file says how a server drafts, so that nothing is predicted of the drafting itself. A difference is then no error of
the prediction. What physics allows is: a round reads all weights once, and each of its tokens has its share of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.evidence.nouns import Quantity
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.evidence.nouns import BenchmarkRun, Measured, MetricsSnapshot

_OF_PROMPTS = frozenset({Quantity.TTFT, Quantity.QUEUE, Quantity.PREFILL, Quantity.INPUT_PER_S})
"""What drafting leaves as it is: nothing of it is of tokens after the first."""


def per_round(evidence: BenchmarkRun | MetricsSnapshot) -> float:
    """Return the tokens that a round of a drafting server gives, as the file states them; 1 where it does not draft."""
    rounds = (one.value for one in evidence.measured if one.quantity is Quantity.TOKENS_PER_ROUND)
    return max((value for value in rounds if value > 1), default=1.0)


def tokens_of(quantity: Quantity, each: float) -> float:
    """Return how many tokens of ``each`` round count for a quantity: 1 where drafting does not change it."""
    return 1.0 if quantity in _OF_PROMPTS else each


def limited(quantity: Quantity, limit: float, each: float) -> float:
    """Return a floor of a time, or a ceiling of a rate, of a server whose rounds give ``each`` tokens.

    >>> limited(Quantity.TPOT, 0.006, 3.0), limited(Quantity.OUTPUT_PER_S, 100.0, 3.0)
    (0.002, 300.0)
    """
    return limit * each if _is_rate(quantity) else limit / each


def gained(one: Measured, predicted: float, each: float) -> str:
    """Return what drafting makes of a figure that is ``predicted`` without it."""
    gain = one.value / predicted if _is_rate(one.quantity) else predicted / one.value
    text = f"predicted without drafting, with which it is {gain:.2g} times as fast"
    if one.quantity is not Quantity.TPOT:
        return text
    round_s = one.value * each
    return (
        f"{text}: a round of {each:.3g} tokens takes {format_seconds(round_s)}, {round_s / predicted:.2g} plain "
        f"steps as predicted; drafting gains below {each:.3g}"
    )


def doubt(place: str) -> str:
    """Return the warning that a difference is no error of the prediction."""
    return (
        f"{place}: the server drafts tokens, and files do not say how: what is predicted is the same server without "
        "drafting, so that a difference is what drafting gains or loses, and no error of the prediction (infcalc "
        "speculate and infcalc simulate --method predict a way of drafting)"
    )


def _is_rate(quantity: Quantity) -> bool:
    return str(quantity).endswith("_per_s") or quantity is Quantity.PER_USER
