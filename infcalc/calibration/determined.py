"""What measurements can tell of each knob, from how predictions change with it.

A knob is determined where the measurements leave at most half of the deviation that was believed before. Where they do
not, either predictions hardly change with it, or they change as with another knob.
"""

from __future__ import annotations

import math
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
    """Return which knobs are determined, and for each of the others why it is not.

    The worst determined is left out first: what cannot be told apart from it may be told once it is fixed.
    """
    believed = np.array([knob.log_deviation for knob in knobs])
    free = np.ones(len(knobs), dtype=bool)
    why = [""] * len(knobs)
    while free.any():
        columns = np.flatnonzero(free)
        inverse = information(model, kinds, believed, free)
        covariance: Array = np.asarray(np.linalg.inv(inverse), dtype=np.float64)
        left = np.sqrt(np.diag(covariance)) / believed[columns]
        worst = int(np.argmax(left))
        if left[worst] <= MOST_LEFT:
            break
        index = int(columns[worst])
        alone = 1 / math.sqrt(inverse[worst, worst]) / believed[index]
        why[index] = _why(model, knobs, columns, covariance, worst=worst, alone=alone)
        free[index] = False
    return free, tuple(why)


def _why(
    model: Linear, knobs: tuple[Knob, ...], columns: NDArray[np.int64], covariance: Array, *, worst: int, alone: float
) -> str:
    share = float(np.mean(np.abs(model.slopes[:, columns[worst]])))
    if share < _NEVER:
        return "nothing that was measured depends on it"
    if alone > MOST_LEFT:
        return f"a change of 10 % moves what was measured by {share:.1%} of 10 %: less than it scatters"
    spread = np.sqrt(np.diag(covariance))
    together = np.abs(covariance[worst] / (spread * spread[worst]))
    together[worst] = 0.0
    other = knobs[int(columns[int(np.argmax(together))])]
    name = other.name.replace("_", " ") + (f" of {other.engine}" if other.engine else "")
    return f"its effect cannot be told from that of {name}: the runs change with both alike"


def spreads(model: Linear, kinds: Array, knobs: tuple[Knob, ...], free: NDArray[np.bool_]) -> Array:
    """Return the deviation of each knob after the measurements; what was believed, for those that are not free."""
    believed = np.array([knob.log_deviation for knob in knobs])
    found = believed.copy()
    if free.any():
        found[np.flatnonzero(free)] = np.sqrt(np.diag(np.linalg.inv(information(model, kinds, believed, free))))
    return found
