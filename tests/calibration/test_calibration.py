from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest

from infcalc.calibration.calibration import calibrate
from infcalc.calibration.held_out import folds_of
from infcalc.calibration.nouns import Knob, Observed, Outcome
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


def test_factors_that_act_alike_are_not_told_apart() -> None:
    def alike(knobs: list[float], figures: list[int] | None = None) -> NDArray[np.float64]:
        found: NDArray[np.float64] = np.log(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])) - knobs[0] - knobs[1]
        if figures is None:
            return found
        chosen: NDArray[np.float64] = found[figures]
        return chosen

    knobs = (Knob(name="bandwidth", log_deviation=0.3), Knob(name="compute", log_deviation=0.3))
    found = calibrate(alike, observed([1.2, 2.4, 3.6, 4.8, 6.0, 7.2]), knobs)  # type: ignore[arg-type]

    assert [one.determined for one in found.determinations].count(True) == 1
    (other,) = (one for one in found.determinations if not one.determined)
    assert "cannot be told from" in other.why


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
