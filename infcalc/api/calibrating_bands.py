"""From errors on held-out runs to the bands of estimates of a calibrated machine.

Of n figures and the next one, each is as likely to be the k-th: between the k-th least and the k-th largest of n lie
(n + 1 - 2 k) / (n + 1) of the next ones, whatever their law, if they are like these (order statistics: Wilks,
"Determination of Sample Sizes for Setting Tolerance Limits", Ann. Math. Statist. 12, 1941). Eight of ten takes nine.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.spec.efficiency import MeasuredBand

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.calibrating_runs import Subject

_GOAL = 0.8
LEAST_OF_A_BAND = 9
_LEAST, _MOST = 0.01, 1000.0
"""What a catalog can say."""
_DIGITS = 4


def bands_of_residuals(subjects: Sequence[Subject], residuals: Sequence[float]) -> tuple[MeasuredBand, ...]:
    """Return the bands of each model, engine and quantity with enough figures.

    ``residuals`` are those of the subjects' figures in their order: predicted over measured, less 1, of predictions
    that had not seen the run.
    """
    ratios: dict[tuple[str, str, str], list[float]] = {}
    figures = ((subject, figure) for subject in subjects for figure in subject.figures)
    for (subject, figure), residual in zip(figures, residuals, strict=True):
        if figure.table and math.isfinite(residual) and residual > -1:
            key = (figure.table, subject.deployment.model.name, subject.paced)
            ratios.setdefault(key, []).append(1 / (1 + residual))
    return tuple(
        MeasuredBand(
            of=of,
            model=model,
            engine=engine,
            num_figures=len(found),
            measured_fraction_low=_written(low),
            measured_fraction_high=_written(high),
        )
        for (of, model, engine), found in ratios.items()
        if len(found) >= LEAST_OF_A_BAND
        for low, high in (ends(found),)
    )


def ends(ratios: Sequence[float]) -> tuple[float, float]:
    """Return what holds eight of ten of the next ratios, of nine or more.

    >>> ends([1.0, 0.9, 1.1, 1.2, 0.8, 1.0, 1.0, 1.0, 1.0])
    (0.8, 1.2)
    """
    ordered, number = sorted(ratios), len(ratios)
    place = max(1, math.floor((number + 1) * (1 - _GOAL) / 2 + 1e-9))
    return ordered[place - 1], ordered[number - place]


def _written(ratio: float) -> float:
    return float(f"{min(_MOST, max(_LEAST, ratio)):.{_DIGITS}g}")
