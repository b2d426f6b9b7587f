"""The nouns of a calibration: what may be fitted, what was measured, and what came out.

A knob is the logarithm of a factor, 0 where nothing is changed. What is predicted and measured are logarithms too, so
that an error of 10 % counts alike wherever it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    Array = NDArray[np.float64]


@frozen
class Knob:
    """One factor that may be fitted, and how far from 1 it is believed to be before anything is measured."""

    name: str
    engine: str = ""
    """Of which it is; empty where it is the machine's."""
    log_deviation: float
    """Standard deviation of its logarithm, of the belief before any measurement."""


@frozen
class Observed:
    """One measured figure."""

    run: int
    """Which run it is of: figures of one run are held out together."""
    group: str
    """The file that the run is in."""
    quantity: str
    measured: float
    load: str = ""
    """What ran under what load: runs of the same one are held out together, for one tells the other; empty: its own."""
    waits: bool = False
    """Whether it is mostly waiting, which scatters more than what is waited for."""


class Predict(Protocol):
    """The figures that a choice of knobs predicts."""

    def __call__(self, knobs: Sequence[float], figures: Sequence[int] | None = None) -> Array:
        """Return logarithms of the predictions of some figures (None: all); not a number where there is none."""


@frozen
class Determination:
    """What the measurements say of one knob."""

    knob: Knob
    factor: float
    """As it is used: 1 where it is not fitted."""
    factor_low: float
    factor_high: float
    """One standard deviation of the belief after the measurements, to either side."""
    fitted: bool
    determined: bool
    """Whether it is fitted, and the measurements tell it from all others."""
    why: str
    partner: str = ""
    """The fitted knob that it is most correlated with, by its label; empty where none is."""
    correlation: float = 0.0
    """Of what is known of both after the measurements."""
    trade: str = ""
    """Which other values of both would fit nearly as well, where they are hardly told apart."""


def label(knob: Knob) -> str:
    """Return how a knob is called.

    >>> label(Knob(name="front_end", engine="vllm", log_deviation=1.0))
    'front end of vllm'
    """
    name = knob.name.replace("_", " ")
    return f"{name} of {knob.engine}" if knob.engine else name


@frozen
class QuantityError:
    """Errors of one quantity on runs that were held out, with nothing fitted and with the fit to the others."""

    quantity: str
    num_figures: int
    before_median_fraction: float
    after_median_fraction: float


@frozen
class Outcome:
    """A calibration: factors, what determined them, and errors on held-out runs before and after.

    ``kept_prior`` where the fit would not have been better on held-out runs, or could not be judged: then all factors
    are 1 and both errors are the same.
    """

    determinations: tuple[Determination, ...]
    kept_prior: bool
    why: str
    num_figures: int
    num_runs: int
    num_folds: int
    held_out: str
    """What was left out at a time: ``run`` or ``file``."""
    before_median_fraction: float
    after_median_fraction: float
    quantities: tuple[QuantityError, ...]
    held_out_error_fraction: tuple[float, ...]
    """Of each figure on runs that were held out: predicted over measured, less 1, with the fit to the others."""
    outliers: tuple[int, ...]
    """Figures that the fit gives less weight, for they lie far from where the others put them."""

    @property
    def factors(self) -> tuple[float, ...]:
        """Of the knobs, in their order."""
        return tuple(one.factor for one in self.determinations)
