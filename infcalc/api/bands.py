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


_BANDS: dict[str, dict[str, tuple[float, float]]] = {
    Kind.DENSE: {
        "output_tokens_per_s": (0.75, 1.2),
        "tpot_s": (0.85, 1.5),
        "ttft_s": (0.72, 2.0),
        "e2e_s": (0.83, 1.35),
    },
    Kind.MOE: {
        "output_tokens_per_s": (0.62, 1.37),
        "tpot_s": (0.8, 1.5),
        "ttft_s": (0.85, 2.5),
        "e2e_s": (0.8, 1.7),
    },
    Kind.OTHER: {
        "output_tokens_per_s": (0.4, 1.15),
        "tpot_s": (0.85, 2.2),
        "ttft_s": (0.9, 3.5),
        "e2e_s": (0.8, 2.0),
    },
    Kind.BURST: {
        "output_tokens_per_s": (0.5, 1.05),
        "tpot_s": (0.6, 2.0),
        "ttft_s": (0.8, 2.2),
        "e2e_s": (0.8, 2.0),
    },
}
"""Measured over predicted, the tenth and the ninetieth of a hundred, by class and quantity.

Of 1,195 figures of 21 sources, each source weighted by the root of its number of figures, rounded outwards where few
sources state the quantity.
"""
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
