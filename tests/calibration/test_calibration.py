from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pytest

from infcalc.calibration.calibration import calibrate
from infcalc.calibration.held_out import folds_of
from infcalc.calibration.nouns import Knob, Observed, Outcome
from infcalc.calibration.profile import loss
from infcalc.calibration.robust import LEAST_DEVIATION
from tests.calibration.machine import BATCHES, KNOBS, Predicted, observed, times

if TYPE_CHECKING:
    from numpy.typing import NDArray

TRUE = (math.log(0.7), 0.0, math.log(2.0), 0.0)


def by_name(outcome: Outcome) -> dict[str, float]:
    return {one.knob.name: one.factor for one in outcome.determinations}


def test_what_the_runs_determine_is_found_and_runs_not_seen_are_predicted() -> None:
    found = calibrate(Predicted(), observed(times(TRUE)), KNOBS)

    assert not found.kept_prior
    assert found.before_median_fraction > 0.2
    assert found.after_median_fraction < 0.01
    assert by_name(found)["bandwidth"] == pytest.approx(0.7, rel=0.05)


def test_a_factor_that_nothing_depends_on_is_left_at_one_with_the_reason() -> None:
    found = calibrate(Predicted(), observed(times(TRUE)), KNOBS)

    (link,) = (one for one in found.determinations if one.knob.name == "link")
    assert (link.determined, link.factor) == (False, 1.0)
    assert link.why == "nothing that was measured depends on it"


def alike(knobs: Sequence[float], figures: Sequence[int] | None = None) -> NDArray[np.float64]:
    found = np.log(np.arange(1.0, 7.0)) - knobs[0] - knobs[1]
    return np.asarray(found if figures is None else found[list(figures)])


def test_factors_that_act_alike_are_divided_by_what_was_believed_and_named() -> None:
    values = [1.2, 2.4, 3.6, 4.8, 6.0, 7.2]
    knobs = (Knob(name="bandwidth", log_deviation=0.1), Knob(name="compute", log_deviation=0.15))
    found = calibrate(alike, observed(values), knobs)

    one, other = found.determinations
    assert (one.fitted, other.fitted) == (True, True)
    assert (one.determined, other.determined) == (False, False)
    # 20 % longer in all, divided as the variances of what was believed are.
    assert one.factor * other.factor == pytest.approx(1 / 1.2, rel=0.01)
    assert math.log(other.factor) / math.log(one.factor) == pytest.approx(2.25, rel=0.01)
    assert one.correlation < -0.95
    assert (one.partner, other.partner) == ("compute", "bandwidth")
    assert "would fit nearly as well" in one.trade
    # What is not known of their shares is about what was believed before of the surer one.
    assert math.log(one.factor_high / one.factor_low) / 2 == pytest.approx(0.15 * 0.1 / math.hypot(0.1, 0.15), rel=0.15)


@pytest.mark.parametrize(("bandwidth", "step"), [(0.8, 3.0), (0.9, 1.5), (1.2, 0.5), (0.7, 6.0)])
def test_true_factors_lie_within_two_deviations_where_two_act_alike(bandwidth: float, step: float) -> None:
    # One model and small batches: reading its weights and what a step adds are the same all along.
    batches = (1, 2, 3, 4, 5, 6, 8, 10)

    def small(knobs: Sequence[float], figures: Sequence[int] | None = None) -> NDArray[np.float64]:
        size = np.array(batches, dtype=float)
        found = np.log((5e-3 + 2e-4 * size) / math.exp(knobs[0]) + 1e-3 * math.exp(knobs[1]))
        return np.asarray(found if figures is None else found[list(figures)])

    knobs = (Knob(name="bandwidth", log_deviation=0.15), Knob(name="step", engine="vllm", log_deviation=1.0))
    true = [math.log(bandwidth), math.log(step)]
    found = calibrate(small, observed(np.exp(small(true))), knobs)

    assert found.after_median_fraction < 0.01
    assert max(abs(one.correlation) for one in found.determinations) > 0.8
    for one, value in zip(found.determinations, true, strict=True):
        low, high, best = (math.log(end) for end in (one.factor_low, one.factor_high, one.factor))
        assert best - 2.5 * (best - low) <= value <= best + 2.5 * (high - best), one


def test_the_loss_of_a_profile_rises_by_one() -> None:
    found = calibrate(alike, observed([1.2, 2.4, 3.6, 4.8, 6.0, 7.2]), ALIKE)
    best = [math.log(one.factor) for one in found.determinations]
    scatter, believed = np.full(6, LEAST_DEVIATION), np.array([knob.log_deviation for knob in ALIKE])

    def risen(first: float) -> float:
        """Return the least loss with the first knob held: its partner then goes where it is best."""
        losses = []
        for second in np.linspace(-0.6, 0.4, 4001):
            place = np.array([first, second])
            errors = np.log(1.2) - np.full(6, -place.sum())
            losses.append(loss(errors, scatter, place, believed))
        return min(losses)

    one = found.determinations[0]
    least = risen(best[0])
    assert risen(math.log(one.factor_low)) - least == pytest.approx(1, abs=0.1)
    assert risen(math.log(one.factor_high)) - least == pytest.approx(1, abs=0.1)


ALIKE = (Knob(name="bandwidth", log_deviation=0.1), Knob(name="compute", log_deviation=0.15))


@pytest.mark.parametrize("bad", range(len(BATCHES)))
@pytest.mark.parametrize("times_as_long", [0.05, 10.0])
def test_one_bad_point_does_not_bend_the_fit(bad: int, times_as_long: float) -> None:
    values = times(TRUE)
    values[bad] *= times_as_long

    found = calibrate(Predicted(), observed(values), KNOBS)

    place = [math.log(factor) for factor in found.factors]
    assert np.median(np.abs(times(place) / times(TRUE) - 1)) < 0.03
    assert found.outliers == (bad,)


@pytest.mark.parametrize("seed", range(20))
def test_held_out_errors_are_never_larger_than_with_nothing_fitted(seed: int) -> None:
    noise = np.random.default_rng(seed)
    values = times((0.0, 0.0, 0.0, 0.0)) * np.exp(noise.normal(0, 0.3, len(BATCHES)))

    found = calibrate(Predicted(), observed(values), KNOBS)

    assert found.after_median_fraction <= found.before_median_fraction
    assert all(one.after_median_fraction <= one.before_median_fraction for one in found.quantities)
    assert found.kept_prior is all(factor == 1 for factor in found.factors)


def test_where_the_prior_is_right_it_is_kept_and_said() -> None:
    found = calibrate(Predicted(), observed(times((0.0, 0.0, 0.0, 0.0))), KNOBS)

    assert found.kept_prior
    assert found.factors == (1.0, 1.0, 1.0, 1.0)
    assert "no fit is better on held-out runs" in found.why


@pytest.mark.parametrize(("number", "text"), [(1, "1 run:"), (4, "4 runs:")])
def test_too_few_runs_change_nothing(number: int, text: str) -> None:
    batches = BATCHES[:number]
    found = calibrate(Predicted(batches), observed(times(TRUE, batches)), KNOBS)

    assert found.kept_prior
    assert found.why.startswith(text)


def test_figures_of_one_run_are_held_out_together_and_files_where_there_are_five() -> None:
    runs = [Observed(run=number // 2, group="a", quantity=str(number % 2), measured=1.0) for number in range(12)]
    folds, unit = folds_of(runs)
    assert unit == "run"
    assert folds[0::2] == folds[1::2]

    files = [Observed(run=number, group=str(number // 2), quantity="a", measured=1.0) for number in range(10)]
    folds, unit = folds_of(files)
    assert unit == "file"
    assert folds[0::2] == folds[1::2] == (0, 1, 2, 3, 4)


def test_runs_of_one_load_are_held_out_together_whatever_their_files() -> None:
    loads = ("x", "y", "x", "z", "v", "w", "u")
    figures = [
        Observed(run=number, group=str(number), quantity="a", measured=1.0, load=load)
        for number, load in enumerate(loads)
    ]
    folds, unit = folds_of(figures)
    assert unit == "file"
    assert folds == (0, 1, 0, 2, 3, 4, 5)

    twice = [
        Observed(run=number, group="one", quantity="a", measured=1.0, load=load) for number, load in enumerate("xyxyzz")
    ]
    assert folds_of(twice) == ((0, 1, 0, 1, 2, 2), "run")
