"""How far a knob may lie from its best value, with all others moved along: the ends of its profile.

Predictions bend: along a direction in which the runs tell little, slopes at the best place say too little of how far
it reaches. So the knob is moved, the others are fitted anew, and predictions are asked for, until the loss has risen by
one: one standard deviation to either side. Source: Venzon and Moolgavkar, "A method for computing
profile-likelihood-based confidence intervals" (Applied Statistics 37, 1988).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from infcalc.calibration.fitting import MOST
from infcalc.calibration.robust import HUBER, Linear, deviations, solved

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from infcalc.calibration.fitting import Subject

    Array = NDArray[np.float64]

_REACH = (1.0, 2.0, 4.0, 8.0)
"""Where the knob is moved to, in deviations as the slopes have them."""
_REFITS = 2
_LEAST_RISE = 1e-9


class Profile:
    """The profiles of a fit: ``model`` is at its best place, its ``free`` knobs fitted to ``rows``."""

    def __init__(self, subject: Subject, model: Linear, free: NDArray[np.bool_], rows: NDArray[np.bool_]) -> None:
        self._subject, self._model, self._free, self._rows = subject, model, free, rows
        self._scatter = deviations(model.errors, subject.kinds)[rows]
        self._least = self._loss(model)

    def ends(self, index: int, spread: float) -> tuple[Array, Array]:
        """Return all knobs at the low and at the high end of one; ``spread`` is its deviation as the slopes have it."""
        step = min(spread, float(self._subject.believed[index]))
        return self._end(index, -step), self._end(index, step)

    def _loss(self, model: Linear) -> float:
        return loss(model.errors[self._rows], self._scatter, model.place, self._subject.believed)

    def _end(self, index: int, step: float) -> Array:
        reached, risen, here = self._model.place, 0.0, self._model
        for times in _REACH:
            target = float(np.clip(self._model.place[index] + times * step, -MOST, MOST))
            here = self._held_at(here, index, target)
            now = max(0.0, self._loss(here) - self._least)
            if now >= 1:
                # The loss rises with the square of the way.
                share = max(0.0, 1 - math.sqrt(risen)) / max(_LEAST_RISE, math.sqrt(now) - math.sqrt(risen))
                return np.asarray(reached + min(1.0, share) * (here.place - reached))
            reached, risen = here.place, now
        return reached

    def _held_at(self, model: Linear, index: int, target: float) -> Linear:
        """Return predictions where one knob is at ``target`` and the others are fitted."""
        subject, others = self._subject, self._free.copy()
        others[index] = False
        place = model.place.copy()
        place[index] = target
        here = _moved(subject, model, place)
        for _ in range(_REFITS if others.any() else 0):
            slopes = here.slopes.copy()
            # It stays where it is: to the fit of the others nothing depends on it.
            slopes[:, index] = 0.0
            still = Linear(place=here.place, errors=here.errors, slopes=slopes)
            aim = solved(still, subject.kinds, subject.believed, others, self._rows)
            aim[index] = target
            here = _moved(subject, here, np.clip(aim, -MOST, MOST))
        return here


def loss(errors: Array, scatter: Array, place: Array, believed: Array) -> float:
    """Return twice Huber's losses of errors over their scatter, and the squares of knobs over their deviation.

    >>> loss(np.array([2.0]), np.array([2.0]), np.array([0.5]), np.array([0.25]))
    5.0
    """
    far = np.abs(errors) / scatter
    told = np.where(far <= HUBER, far**2, HUBER * (2 * far - HUBER))
    return float(np.sum(told) + np.sum((place / believed) ** 2))


def _moved(subject: Subject, model: Linear, place: Array) -> Linear:
    """Return predictions at ``place``, the slopes mended by what was found there (Broyden 1965)."""
    move = place - model.place
    if not move.any():
        return model
    errors = subject.errors_at(place)
    missed = (model.errors - errors) - model.slopes @ move
    return Linear(place=place, errors=errors, slopes=model.slopes + np.outer(missed, move) / float(move @ move))
