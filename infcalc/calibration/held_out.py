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

    Runs in the order in which they were read go to the folds in turn, ten at most. What shares a load stays together:
    a run is not unseen where its like was fitted.
    """
    by_file = _together([one.group for one in observed], observed)
    if len(set(by_file)) >= LEAST_FOLDS:
        return _in_turn(by_file), "file"
    return _in_turn(_together([str(one.run) for one in observed], observed)), "run"


def _in_turn(names: Sequence[str]) -> tuple[int, ...]:
    place = {name: number % MOST_FOLDS for number, name in enumerate(dict.fromkeys(names))}
    return tuple(place[name] for name in names)


def _together(names: Sequence[str], observed: Sequence[Observed]) -> list[str]:
    """Return names of which those that share a load are one."""
    first = {name: name for name in names}

    def found(name: str) -> str:
        while first[name] != name:
            name = first[name]
        return name

    of_load: dict[str, str] = {}
    for name, one in zip(names, observed, strict=True):
        if one.load:
            first[found(name)] = found(of_load.setdefault(one.load, name))
    return [found(name) for name in names]


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
