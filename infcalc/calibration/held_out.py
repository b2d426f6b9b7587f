"""Errors on runs that a fit has not seen: each fold is left out in turn, fitted to the others, and predicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.calibration.fitting import MOST
from infcalc.calibration.robust import solved

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from infcalc.calibration.fitting import Subject
    from infcalc.calibration.nouns import Observed
    from infcalc.calibration.robust import Linear

    Array = NDArray[np.float64]

MOST_FOLDS = 10
LEAST_FOLDS = 5
"""The median of fewer errors falls and rises by chance."""


def folds_of(observed: Sequence[Observed]) -> tuple[tuple[int, ...], str]:
    """Return the fold of each figure, and what is left out at a time: a file where there are five or more, else a run.

    Runs in the order in which they were read go to the folds in turn, ten at most.
    """
    files = list(dict.fromkeys(one.group for one in observed))
    if len(files) >= LEAST_FOLDS:
        place = {group: number % MOST_FOLDS for number, group in enumerate(files)}
        return tuple(place[one.group] for one in observed), "file"
    runs = list(dict.fromkeys(one.run for one in observed))
    number_of = {run: number % MOST_FOLDS for number, run in enumerate(runs)}
    return tuple(number_of[one.run] for one in observed), "run"


def held_out_errors(
    subject: Subject, model: Linear, free: NDArray[np.bool_], rows: NDArray[np.bool_], folds: Sequence[int]
) -> Array:
    """Return the error of each figure (predicted over measured, less 1) with knobs fitted to ``rows`` without its fold.

    Fits of folds go by the slopes of ``model``, what they predict by the true function.
    """
    number = np.array(folds)
    found = np.empty(len(number))
    for fold in np.unique(number):
        out = number == fold
        knobs = np.clip(solved(model, subject.kinds, subject.believed, free, rows & ~out), -MOST, MOST)
        left = np.flatnonzero(out)
        guess = subject.predict(knobs.tolist(), left.tolist())
        found[left] = np.where(np.isfinite(guess), np.exp(guess - subject.measured[left]) - 1, np.inf)
    return found
