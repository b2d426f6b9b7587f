"""From measurements to a calibration that is no worse on held-out runs than none."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from infcalc.calibration.determined import MOST_LEFT, chosen, partners, spreads
from infcalc.calibration.fitting import Subject, fitted
from infcalc.calibration.held_out import LEAST_FOLDS, folds_of, held_out_errors
from infcalc.calibration.nouns import Determination, Outcome, QuantityError, label
from infcalc.calibration.profile import Profile
from infcalc.calibration.robust import HUBER, deviations
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from infcalc.calibration.nouns import Knob, Observed, Predict
    from infcalc.calibration.robust import Linear

    Array = NDArray[np.float64]

_FEW = 3
_OUTLYING = 0.5
"""Weight below which a figure is called an outlier."""
_ALIKE = 0.7
"""Correlation from which half of what one knob does another may do as well (its square)."""


def calibrate(
    predict: Predict, observed: Sequence[Observed], knobs: tuple[Knob, ...], tell: Callable[[], None] = lambda: None
) -> Outcome:
    """Return the factors that ``observed`` determine, with errors on held-out runs before and after.

    The knobs that the runs tell something of are fitted, those that act alike together, divided by what was believed
    of each; where that is not better on held-out runs, in the median and the mean of all figures and no worse in the
    median of any quantity, the least determined is left out, and so on; in the end
    nothing is changed. The same is tried without the figures that are mostly waiting, and the better of both is kept.
    ``tell`` is called after each place that was predicted.
    """
    subject = Subject(predict, observed, knobs, tell)
    prior = subject.linear_at(np.zeros(len(knobs)))
    folds, left_out = folds_of(observed)
    before = np.exp(-prior.errors) - 1
    tested = _Tested(folds=folds, held_out=left_out, before=before, after=before)
    every = np.ones(len(observed), dtype=bool)
    working = np.array([not one.waits for one in observed])
    whole = fitted(subject, prior, np.ones(len(knobs), dtype=bool), every)
    free, why = chosen(whole, subject.kinds, knobs)
    number = len(set(folds))
    if number < LEAST_FOLDS:
        runs = len({one.run for one in observed})
        found = ("1 run" if runs == 1 else f"{runs} runs") + (
            f" of {number} different {'load' if number == 1 else 'loads'}" if runs > number else ""
        )
        reason = f"{found}: with fewer than {LEAST_FOLDS} no fit can be tested on runs that it has not seen"
    elif not free.any():
        reason = "the measurements determine none of the factors"
    else:
        views = [every] if working.all() or not working.any() else [every, working]
        tries = [_descend(subject, whole, tested, _Choice(free=free, why=why), rows) for rows in views]
        good = [one for one in tries if one is not None]
        if good:
            return min(good, key=lambda one: one.after_median_fraction)
        reason = "no fit is better on held-out runs than what was known before"
    return _outcome(subject, tested, prior, _Choice(free=np.zeros(len(knobs), dtype=bool), why=why), reason=reason)


@frozen
class _Choice:
    """Which knobs are fitted, and why the others are not."""

    free: NDArray[np.bool_]
    why: tuple[str, ...]

    def without(self, index: int, why: str) -> _Choice:
        free = self.free.copy()
        free[index] = False
        return _Choice(free=free, why=(*self.why[:index], why, *self.why[index + 1 :]))


def _descend(
    subject: Subject, whole: Linear, tested: _Tested, choice: _Choice, rows: NDArray[np.bool_]
) -> Outcome | None:
    """Return the fit to ``rows`` of as many knobs as are good on held-out runs; None where none is."""
    while choice.free.any():
        model = fitted(subject, whole, choice.free, rows)
        after = held_out_errors(subject, model, choice.free, rows, tested.folds)
        if _better(tested.before, after, subject.kinds):
            return _outcome(subject, replace(tested, after=after), model, choice, rows)
        left = spreads(model, subject.kinds, subject.knobs, choice.free) / subject.believed
        worst = int(np.argmax(np.where(choice.free, left, -math.inf)))
        choice = choice.without(worst, "with it, errors on held-out runs would be larger")
    return None


def _better(before: Array, after: Array, kinds: Array) -> bool:
    if not _median(after) < _median(before) or not _mean(after) < _mean(before):
        return False
    return all(
        _median(after[kinds == kind]) <= _median(before[kinds == kind])
        for kind in np.unique(kinds)
        if int(np.sum(kinds == kind)) >= _FEW
    )


@frozen
class _Tested:
    """Errors of every figure on runs that were held out, before and after, and how they were held out."""

    folds: tuple[int, ...]
    held_out: str
    before: Array
    after: Array

    def quantities(self, names: Sequence[str], kinds: Array) -> tuple[QuantityError, ...]:
        """Return the errors of each quantity."""
        rows = [kinds == number for number in range(len(names))]
        return tuple(
            QuantityError(
                quantity=name,
                num_figures=int(np.sum(of_kind)),
                before_median_fraction=_median(self.before[of_kind]),
                after_median_fraction=_median(self.after[of_kind]),
            )
            for name, of_kind in zip(names, rows, strict=True)
        )


def _median(errors: Array) -> float:
    return float(np.median(np.abs(errors)))


def _mean(errors: Array) -> float:
    """Return the mean error, of which one figure can be no more than all of what was measured."""
    return float(np.mean(np.minimum(1.0, np.abs(errors))))


def _outcome(
    subject: Subject,
    tested: _Tested,
    model: Linear,
    choice: _Choice,
    rows: NDArray[np.bool_] | None = None,
    *,
    reason: str = "",
) -> Outcome:
    far = np.abs(model.errors) / deviations(model.errors, subject.kinds)
    return Outcome(
        determinations=_determinations(subject, model, choice, rows, reason),
        kept_prior=not choice.free.any(),
        why=reason,
        num_figures=len(subject.observed),
        num_runs=len({one.run for one in subject.observed}),
        num_folds=len(set(tested.folds)),
        held_out=tested.held_out,
        before_median_fraction=_median(tested.before),
        after_median_fraction=_median(tested.after),
        quantities=tested.quantities(subject.names, subject.kinds),
        held_out_error_fraction=tuple(float(error) for error in tested.after),
        outliers=tuple(int(index) for index in np.flatnonzero(far > HUBER / _OUTLYING)),
    )


def _determinations(
    subject: Subject, model: Linear, choice: _Choice, rows: NDArray[np.bool_] | None, reason: str
) -> tuple[Determination, ...]:
    free, knobs = choice.free, subject.knobs
    spread = spreads(model, subject.kinds, knobs, free)
    together = partners(model, subject.kinds, knobs, free)
    place = np.where(free, model.place, 0.0)
    profile = Profile(subject, model, free, rows) if rows is not None else None
    found = []
    for index, knob in enumerate(knobs):
        low, high = place[index] - spread[index], place[index] + spread[index]
        other, correlation = together[index]
        trade = ""
        why = "the runs determine it" if free[index] else choice.why[index] or reason
        if free[index] and profile is not None and abs(correlation) >= _ALIKE:
            below, above = profile.ends(index, float(spread[index]))
            low, high = min(low, below[index]), max(high, above[index])
            pairs = " or ".join(f"{math.exp(end[index]):.2g} with {math.exp(end[other]):.2g}" for end in (below, above))
            why = f"told with {label(knobs[other])}, hardly apart"
            trade = (
                f"{label(knob)} and {label(knobs[other])} change these runs nearly alike (correlation "
                f"{correlation:+.2f}): {pairs} would fit nearly as well, and what was believed before divides them"
            )
        told = max(high - place[index], place[index] - low) <= MOST_LEFT * knob.log_deviation
        found.append(
            Determination(
                knob=knob,
                factor=math.exp(place[index]),
                factor_low=math.exp(low),
                factor_high=math.exp(high),
                fitted=bool(free[index]),
                determined=bool(free[index] and told),
                why=why,
                partner=label(knobs[other]) if other != index else "",
                correlation=correlation,
                trade=trade,
            )
        )
    return tuple(found)
