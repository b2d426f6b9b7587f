"""A server in one line: a step moves bytes, computes, and adds something; made for these tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from infcalc.calibration.nouns import Knob, Observed

if TYPE_CHECKING:
    from numpy.typing import NDArray

KNOBS = (
    Knob(name="bandwidth", log_deviation=0.5),
    Knob(name="compute", log_deviation=0.5),
    Knob(name="step", engine="vllm", log_deviation=1.0),
    Knob(name="link", log_deviation=0.5),
)
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


def times(knobs: Sequence[float], batches: Sequence[int] = BATCHES) -> NDArray[np.float64]:
    """Return the seconds of a step of each batch, of a large and a small model in turn; none depends on the link."""
    bandwidth, compute, step, _ = np.exp(np.array(knobs))
    size = np.array(batches, dtype=float)
    weights = np.where(np.arange(len(size)) % 2 == 0, 16e-3, 2e-3)
    return np.asarray((weights + 2e-5 * size) / bandwidth + 6e-5 * size / compute + 1e-3 * step)


class Predicted:
    """Logarithms of the times, and how often they were asked for."""

    def __init__(self, batches: Sequence[int] = BATCHES) -> None:
        self.batches = batches
        self.asked = 0

    def __call__(self, knobs: Sequence[float], figures: Sequence[int] | None = None) -> NDArray[np.float64]:
        """Return the logarithms of some times."""
        self.asked += 1
        found = np.log(times(knobs, self.batches))
        return np.asarray(found if figures is None else found[list(figures)])


def observed(values: Sequence[float] | NDArray[np.float64]) -> tuple[Observed, ...]:
    """Return a run for each value, all in one file."""
    return tuple(
        Observed(run=number, group="file", quantity="tpot_s", measured=float(value))
        for number, value in enumerate(values)
    )
