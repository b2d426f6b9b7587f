"""How sure a modelled time or rate is: its basis, and the factors between which measurements lie.

The factors are the 10th and 90th percentile of measured over predicted, by class and quantity, on published runs of
servers (``infcalc validate serving``); a band is meant to hold 80 % of measurements. Where efficiencies were inherited
or guessed, the band is wider by the factors of :data:`_WIDER`, set by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.estimating import Basis, Figure
from infcalc.frozen import frozen
from infcalc.spec.layers import MoeFeedForward

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model


@frozen
class Spread:
    """Of one quantity: what the value is multiplied with at the lower and upper end of its band."""

    low: float
    high: float

    @property
    def inverse(self) -> Spread:
        """The band of the reciprocal."""
        return Spread(low=1 / self.high, high=1 / self.low)


@frozen
class Bands:
    """Spreads of the figures of one deployment, and what they rest on."""

    basis: Basis
    ttft: Spread
    tpot: Spread
    e2e: Spread
    throughput: Spread

    def figure(
        self, value: float, spread: Spread, *, least: float = 0.0, most: float | None = None, spare: float = 1.0
    ) -> Figure:
        """Return a figure with its band, neither below ``least`` nor above ``most``: what physics allows.

        ``spare`` widens the band further, for figures that rest on something else that is modelled.
        """
        value = max(value, least) if most is None else min(max(value, least), most)
        low, high = max(value * spread.low / spare, least), value * spread.high * spare
        if most is not None:
            high = min(high, most)
        return Figure(value=value, low=min(low, value), high=max(high, value), basis=self.basis)


_DENSE = (Spread(low=0.7, high=2.5), Spread(low=0.88, high=1.55), Spread(low=0.85, high=1.5), Spread(low=0.7, high=1.2))
_MOE = (Spread(low=0.8, high=4.0), Spread(low=0.75, high=1.8), Spread(low=0.75, high=2.0), Spread(low=0.55, high=1.35))
_OTHERS = (Spread(low=0.8, high=4.0), Spread(low=0.7, high=2.5), Spread(low=0.75, high=2.0), Spread(low=0.4, high=1.3))
_WIDER = {Basis.CALIBRATED: 1.0, Basis.MODELLED: 1.15, Basis.UNCALIBRATED: 1.4}
_MEASURED = ("GA100", "GH100", "AD102", "GB100", "GB202")
"""Chips of which kernels were timed."""


def bands_of(model: Model, gpu: Gpu) -> Bands:
    """Return the spreads of a deployment's figures."""
    routed = any(isinstance(run.layer.feed_forward, MoeFeedForward) for run in model.layers)
    ttft, tpot, e2e, throughput = _OTHERS if gpu.vendor != "NVIDIA" else _MOE if routed else _DENSE
    basis = basis_of(gpu)
    wider = _WIDER[basis]
    return Bands(
        basis=basis,
        ttft=_widened(ttft, wider),
        tpot=_widened(tpot, wider),
        e2e=_widened(e2e, wider),
        throughput=_widened(throughput, wider),
    )


def basis_of(gpu: Gpu) -> Basis:
    """Return what the efficiencies of a GPU rest on."""
    if any(chip in gpu.architecture for chip in _MEASURED):
        return Basis.CALIBRATED
    return Basis.MODELLED if gpu.vendor == "NVIDIA" else Basis.UNCALIBRATED


def _widened(spread: Spread, factor: float) -> Spread:
    return Spread(low=spread.low / factor, high=spread.high * factor)
