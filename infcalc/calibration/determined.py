"""What measurements can tell of each knob, from how predictions change with it.

A knob is fitted where the measurements, were all others known, leave at most half of the deviation that was believed
before. Knobs that act alike are fitted together, and what was believed before divides between them (ridge regression:
Hoerl and Kennard 1970): one of them held at 1 would give the other all of it. A fitted knob is determined where that
much is left with the others unknown; where it is not, the answer names the knob that it cannot be told from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.calibration.robust import information

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from infcalc.calibration.nouns import Knob
    from infcalc.calibration.robust import Linear

    Array = NDArray[np.float64]

MOST_LEFT = 0.5
"""Of the deviation that was believed before: a knob of which more is left is not determined."""
_NEVER = 1e-4


def chosen(model: Linear, kinds: Array, knobs: tuple[Knob, ...]) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Return which knobs are fitted, and for each of the others why it is not."""
    believed = np.array([knob.log_deviation for knob in knobs])
    everything = np.ones(len(knobs), dtype=bool)
    inverse = information(model, kinds, believed, everything)
    alone = 1 / np.sqrt(np.diag(inverse)) / believed
    share = np.mean(np.abs(model.slopes), axis=0)
    why = tuple(_why(float(part)) if left > MOST_LEFT else "" for left, part in zip(alone, share, strict=True))
    return np.asarray(alone <= MOST_LEFT), why


def _why(share: float) -> str:
    if share < _NEVER:
        return "nothing that was measured depends on it"
    return f"a change of 10 % moves what was measured by {share:.1%} of 10 %: less than it scatters"


def partners(
    model: Linear, kinds: Array, knobs: tuple[Knob, ...], free: NDArray[np.bool_]
) -> tuple[tuple[int, float], ...]:
    """Return for each knob the other free one that it is most correlated with, and how much; itself and 0 of none.

    The correlation is of what is known of both after the measurements: near -1 or 1 the runs tell one combination of
    them, and what was believed before divides it.
    """
    found = [(index, 0.0) for index in range(len(knobs))]
    columns = np.flatnonzero(free)
    if len(columns) < 2:  # noqa: PLR2004 - a pair
        return tuple(found)
    believed = np.array([knob.log_deviation for knob in knobs])
    covariance: Array = np.asarray(np.linalg.inv(information(model, kinds, believed, free)), dtype=np.float64)
    spread = np.sqrt(np.diag(covariance))
    together = covariance / np.outer(spread, spread)
    np.fill_diagonal(together, 0.0)
    for row, index in enumerate(columns):
        other = int(np.argmax(np.abs(together[row])))
        found[int(index)] = (int(columns[other]), float(together[row, other]))
    return tuple(found)


def spreads(model: Linear, kinds: Array, knobs: tuple[Knob, ...], free: NDArray[np.bool_]) -> Array:
    """Return the deviation of each knob after the measurements; what was believed, for those that are not free."""
    believed = np.array([knob.log_deviation for knob in knobs])
    found = believed.copy()
    if free.any():
        found[np.flatnonzero(free)] = np.sqrt(np.diag(np.linalg.inv(information(model, kinds, believed, free))))
    return found
