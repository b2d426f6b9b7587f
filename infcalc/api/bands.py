"""How far measurements lie from predictions, by class: the band that is meant to hold eight of ten of them."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.spec.layers import MoeFeedForward

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment


class Kind(StrEnum):
    """Class of a prediction: what its band is drawn from."""

    DENSE = "NVIDIA dense"
    MOE = "NVIDIA MoE"
    OTHER = "AMD and others"
    BURST = "burst"


_BANDS: dict[str, dict[str, tuple[float, float]]] = {}
"""Measured over predicted, the tenth and the ninetieth of a hundred, by class and quantity."""
_WIDE = (0.6, 1.6)


def kind_of(deployment: Deployment) -> Kind:
    """Return the class of a deployment."""
    if deployment.gpu.vendor != "NVIDIA":
        return Kind.OTHER
    experts = any(isinstance(run.layer.feed_forward, MoeFeedForward) for run in deployment.model.layers)
    return Kind.MOE if experts else Kind.DENSE


def band(kind: str, quantity: str, value: float) -> tuple[float, float]:
    """Return low and high of a predicted figure."""
    low, high = _BANDS.get(kind, {}).get(quantity, _WIDE)
    return value * low, value * high
