"""Least squares that one bad point cannot bend: Huber's weights, and scales by medians.

Source: Huber, "Robust Estimation of a Location Parameter" (Ann. Math. Statist. 35, 1964); weights and iteration as in
Holland and Welsch, "Robust regression using iteratively reweighted least-squares" (Commun. Stat. A6, 1977).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[np.float64]

HUBER = 1.345
"""Where Huber's loss turns from squares to absolute values: 95 % efficient on normal errors."""
_TO_DEVIATION = 1.4826
"""The standard deviation of a normal law over its median absolute deviation."""
LEAST_DEVIATION = 0.03
"""No server repeats itself, and no model is right, to better than some 3 %."""
_ROUNDS = 50
_STILL = 1e-9


def deviations(errors: Array, kinds: Array) -> Array:
    """Return the scatter of each figure's kind, by the median of absolute errors; never below the least.

    >>> deviations(np.array([0.1, -0.1, 9.0]), np.array([0.0, 0.0, 0.0])).round(3)
    array([0.148, 0.148, 0.148])
    """
    found = np.empty_like(errors)
    for kind in np.unique(kinds):
        of_kind = kinds == kind
        found[of_kind] = max(LEAST_DEVIATION, _TO_DEVIATION * float(np.median(np.abs(errors[of_kind]))))
    return found


def weights(errors: Array, scatter: Array) -> Array:
    """Return Huber's weights: 1 up to 1.345 deviations, then less in proportion.

    >>> weights(np.array([0.0, 2.69]), np.array([1.0, 1.0]))
    array([1. , 0.5])
    """
    far = np.abs(errors) / scatter
    return np.asarray(np.minimum(1.0, HUBER / np.maximum(far, HUBER)))


@frozen
class Linear:
    """Predictions near a place: ``errors`` (measured less predicted) at ``place``, and how predictions change."""

    place: Array
    errors: Array
    slopes: Array
    """Of each prediction by each knob."""

    def at(self, knobs: Array) -> Array:
        """Return the errors at other knobs."""
        return np.asarray(self.errors - self.slopes @ (knobs - self.place))


def solved(model: Linear, kinds: Array, believed: Array, free: NDArray[np.bool_], rows: NDArray[np.bool_]) -> Array:
    """Return the knobs that fit ``rows`` best, under the belief that each is 0 with deviation ``believed``.

    Knobs that are not ``free`` are 0. It minimises the sum of Huber's losses of errors over their scatter, and of the
    squares of knobs over their deviation.
    """
    knobs = np.where(free, model.place, 0.0)
    columns = np.flatnonzero(free)
    if not len(columns) or not rows.any():
        return np.zeros_like(model.place)
    slopes, kind = model.slopes[np.ix_(rows, columns)], kinds[rows]
    inverse = np.diag(believed[columns] ** -2.0)
    for _ in range(_ROUNDS):
        errors = model.at(knobs)[rows]
        scatter = deviations(errors, kind)
        weight = weights(errors, scatter) / scatter**2
        lifted = errors + slopes @ knobs[columns]
        found = np.linalg.solve(slopes.T @ (weight[:, None] * slopes) + inverse, slopes.T @ (weight * lifted))
        moved = float(np.max(np.abs(found - knobs[columns])))
        knobs[columns] = found
        if moved < _STILL:
            break
    return knobs


def information(model: Linear, kinds: Array, believed: Array, free: NDArray[np.bool_]) -> Array:
    """Return the inverse covariance of the free knobs after the measurements, beliefs included."""
    columns = np.flatnonzero(free)
    slopes, scatter = model.slopes[:, columns], deviations(model.errors, kinds)
    weight = weights(model.errors, scatter) / scatter**2
    return np.asarray(slopes.T @ (weight[:, None] * slopes) + np.diag(believed[columns] ** -2.0))
