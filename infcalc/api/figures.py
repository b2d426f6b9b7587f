"""Figures of one deployment: a value with its band, held within what physics allows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.bands import band, basis_of, class_of
from infcalc.api.offer import Figure
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.spec.efficiency import Basis, GpuEfficiency


@frozen
class Bands:
    """How the figures of one deployment spread, and what they rest on."""

    kind: str
    """Name of its class."""
    basis: Basis

    def figure(self, quantity: str, value: float, *, least: float = 0.0, most: float | None = None) -> Figure:
        """Return a figure with the band of ``quantity``, neither below ``least`` nor above ``most``."""
        value = max(value, least) if most is None else min(max(value, least), most)
        low, high = band(self.kind, quantity, value)
        low, high = max(low, least), high if most is None else min(high, most)
        return Figure(value=value, low=min(low, value), high=max(high, value), basis=self.basis)


def bands_of(deployment: Deployment, efficiency: GpuEfficiency) -> Bands:
    """Return how the figures of a deployment spread."""
    return Bands(kind=class_of(deployment, efficiency), basis=basis_of(efficiency))


def scaled(figure: Figure, factor: float) -> Figure:
    """Return a figure times a factor."""
    return Figure(value=figure.value * factor, low=figure.low * factor, high=figure.high * factor, basis=figure.basis)


def inverse(figure: Figure | None) -> Figure | None:
    """Return one over a figure."""
    if figure is None:
        return None
    return Figure(value=1 / figure.value, low=1 / figure.high, high=1 / figure.low, basis=figure.basis)
