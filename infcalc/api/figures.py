"""Figures of one deployment: a value with its band, held within what physics allows."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.bands import Kind, band, basis_of, class_of, request_band, table_of
from infcalc.api.offer import Figure
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.api.floors import Floors
    from infcalc.serving.server import Speed
    from infcalc.spec.efficiency import Basis, GpuEfficiency, MeasuredBand


@frozen
class Bands:
    """How the figures of one deployment spread, and what they rest on."""

    kind: str
    """Name of its class."""
    basis: Basis
    pace_low_fraction: float = 1.0
    """Least of the pace of answers, over its value, where tokens come in rounds of drafts; 1: one in each step."""
    pace_high_fraction: float = 1.0
    own: tuple[MeasuredBand, ...] = ()
    """Of this model and engine on this very machine, where a calibration states them: they go before its class's."""

    @property
    def of_burst(self) -> Bands:
        """How the figures spread where all requests come at once and nothing caps how many run."""
        return replace(self, kind=burst_class(self.kind))

    def figure(self, quantity: str, value: float, *, least: float = 0.0, most: float | None = None) -> Figure:
        """Return a figure with the band of ``quantity``, neither below ``least`` nor above ``most``."""
        value = max(value, least) if most is None else min(max(value, least), most)
        low, high = (value * end for end in self.factors(quantity))
        low, high = max(low, least), high if most is None else min(high, most)
        return Figure(value=value, low=min(low, value), high=max(high, value), basis=self.basis)

    def factors(self, quantity: str, *, at_rate: bool = False) -> tuple[float, float]:
        """Return the ends of the band of ``quantity`` over its value."""
        table = table_of(quantity, at_rate=at_rate)
        own = next((one for one in self.own if one.of == table), None)
        if own is None:
            return self._paced(quantity, *band(self.kind, table, 1.0))
        return self._paced(quantity, own.measured_fraction_low, own.measured_fraction_high)

    def _paced(self, quantity: str, low: float, high: float) -> tuple[float, float]:
        """Return a band with that of the pace of answers, as if both erred independently: logarithms add as squares."""
        if self.pace_low_fraction == self.pace_high_fraction or not 0 < low <= 1 <= high:
            return low, high
        if quantity.startswith("tpot_s"):
            slower, quicker = 1 / self.pace_low_fraction, 1 / self.pace_high_fraction
        elif quantity == "output_tokens_per_s":
            slower, quicker = self.pace_high_fraction, self.pace_low_fraction
        else:
            return low, high
        return (
            math.exp(-math.hypot(math.log(low), math.log(min(1.0, quicker)))),
            math.exp(math.hypot(math.log(high), math.log(max(1.0, slower)))),
        )

    def times(
        self,
        speed: Speed,
        floors: Floors,
        *,
        at_rate: bool,
        rate: Figure | None = None,
        num_clients: float | None = None,
        think_s: float = 0.0,
    ) -> Times:
        """Return the times of a request, whose bands agree: it cannot end before its first token.

        ``at_rate``: of requests that come at a rate. Of ``num_clients`` that are always served or think, the time of a
        request is what their ``rate`` leaves.
        """
        tpot = self.figure(table_of("tpot_s", at_rate=at_rate), speed.tpot_s, least=floors.tpot_s)
        if not (speed.stable or math.isfinite(speed.ttft_s)):
            return Times(ttft_s=None, tpot_s=tpot, e2e_s=None, queue_s=None)
        waits = table_of("ttft_s", at_rate=at_rate)
        ttft = self.figure(waits, speed.ttft_s, least=floors.ttft_s)
        value = max(speed.e2e_s, floors.e2e_s)
        each = (tpot.low / tpot.value, tpot.high / tpot.value) if tpot.value else (1.0, 1.0)
        low, high = request_band(value, (ttft.value, ttft.low, ttft.high), each)
        if num_clients is not None and rate is not None:
            low, high = min(low, num_clients / rate.high - think_s), max(high, num_clients / rate.low - think_s)
            low = max(low, floors.e2e_s)
            ttft = Figure(value=ttft.value, low=min(ttft.low, low), high=ttft.high, basis=ttft.basis)
        return Times(
            ttft_s=ttft,
            tpot_s=tpot,
            e2e_s=Figure(value=value, low=min(max(low, floors.e2e_s), value), high=high, basis=self.basis),
            queue_s=within(self.figure(waits, speed.queue_s), ttft),
        )


@frozen
class Times:
    """Times of a request with their bands; those that a queue without end is part of are None."""

    ttft_s: Figure | None
    tpot_s: Figure
    e2e_s: Figure | None
    queue_s: Figure | None


def burst_class(name: str) -> str:
    """Return the class of bursts on what is of class ``name``.

    >>> burst_class("NVIDIA MoE, calibrated, current engine")
    'burst, calibrated, current engine'
    """
    return ", ".join((Kind.BURST, *name.split(", ")[1:]))


def bands_of(deployment: Deployment, efficiency: GpuEfficiency) -> Bands:
    """Return how the figures of a deployment spread."""
    known, engine = efficiency.calibration, deployment.rules.engine
    return Bands(
        kind=class_of(deployment, efficiency),
        basis=basis_of(efficiency),
        own=() if known is None else known.bands_of(deployment.model.name, engine),
    )


def within(part: Figure, whole: Figure) -> Figure:
    """Return a part whose band does not leave that of the whole."""
    return Figure(
        value=part.value,
        low=min(part.low, whole.low),
        high=max(part.value, min(part.high, whole.high)),
        basis=part.basis,
    )


def scaled(figure: Figure, factor: float) -> Figure:
    """Return a figure times a factor."""
    return Figure(value=figure.value * factor, low=figure.low * factor, high=figure.high * factor, basis=figure.basis)


def inverse(figure: Figure | None) -> Figure | None:
    """Return one over a figure."""
    if figure is None:
        return None
    return Figure(value=1 / figure.value, low=1 / figure.high, high=1 / figure.low, basis=figure.basis)
