"""The fit: Gauss and Newton's steps on predictions that are handed in as a function, robust against bad points."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from infcalc.calibration.robust import Linear, solved

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from infcalc.calibration.nouns import Knob, Observed, Predict

    Array = NDArray[np.float64]

MOST = math.log(20.0)
"""No factor leaves 1/20 .. 20: beyond, it is another machine."""
_STEP = 0.05
_LARGEST_MOVE = math.log(3.0)
_STEPS = 4
_NEAR = 0.02
_FAR = 0.1


class Subject:
    """Predictions with what was measured; ``tell`` is called for each place at which they are asked for."""

    def __init__(
        self, predict: Predict, observed: Sequence[Observed], knobs: tuple[Knob, ...], tell: Callable[[], None]
    ) -> None:
        self.predict = predict
        self.tell = tell
        self.observed = observed
        self.names = list(dict.fromkeys(one.quantity for one in observed))
        self.measured = np.log(np.array([one.measured for one in observed]))
        self.kinds = np.array([float(self.names.index(one.quantity)) for one in observed])
        self.knobs = knobs
        self.believed = np.array([knob.log_deviation for knob in knobs])

    def errors_at(self, place: Array) -> Array:
        """Return measured less predicted, in logarithms; figures without a prediction there count as far off."""
        found = self.measured - self.predict(place.tolist())
        self.tell()
        return np.asarray(np.where(np.isfinite(found), found, _UNPREDICTED))

    def linear_at(self, place: Array, errors: Array | None = None) -> Linear:
        """Return predictions near ``place``, by differences."""
        here = self.errors_at(place) if errors is None else errors
        columns = []
        for index in range(len(self.knobs)):
            moved = place.copy()
            moved[index] += _STEP
            columns.append((here - self.errors_at(moved)) / _STEP)
        return Linear(place=place, errors=here, slopes=np.stack(columns, axis=1))


_UNPREDICTED = 3.0


def fitted(subject: Subject, start: Linear, free: NDArray[np.bool_], rows: NDArray[np.bool_]) -> Linear:
    """Return predictions near the knobs that fit ``rows`` best; those that are not ``free`` are 0.

    Slopes are kept from place to place by Broyden's update (Broyden 1965, "A class of methods for solving nonlinear
    simultaneous equations"), and taken anew where the last place is far from where they were taken.
    """
    model = start
    for _ in range(_STEPS):
        aim = solved(model, subject.kinds, subject.believed, free, rows)
        move = np.clip(aim - model.place, -_LARGEST_MOVE, _LARGEST_MOVE)
        place = np.where(free, np.clip(model.place + move, -MOST, MOST), 0.0)
        move = place - model.place
        if float(np.max(np.abs(move))) < _NEAR / 4:
            break
        errors = subject.errors_at(place)
        missed = (model.errors - errors) - model.slopes @ move
        slopes = model.slopes + np.outer(missed, move) / float(move @ move)
        model = Linear(place=place, errors=errors, slopes=slopes)
        if float(np.max(np.abs(move))) < _NEAR:
            break
    if float(np.max(np.abs(model.place - start.place))) > _FAR:
        model = subject.linear_at(model.place, model.errors)
        aim = np.clip(solved(model, subject.kinds, subject.believed, free, rows), -MOST, MOST)
        errors = subject.errors_at(aim)
        model = Linear(place=aim, errors=errors, slopes=model.slopes)
    return model
