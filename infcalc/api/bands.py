"""How far measurements lie from predictions, by class: the band that is meant to hold eight of ten of them.

The bands are data (:mod:`infcalc.api.band_table`), drawn by ``scripts/serving_bands.py`` from published measurements.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.api.band_table import BANDS
from infcalc.api.peer_table import PEERS, SHARES
from infcalc.engines.rules import parse_version
from infcalc.spec.efficiency import Basis

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.spec.efficiency import GpuEfficiency


class Kind(StrEnum):
    """Coarse class of a prediction: what its goals are stated for."""

    DENSE = "NVIDIA dense"
    MOE = "NVIDIA MoE"
    OTHER = "AMD and others"
    BURST = "burst"


class Era(StrEnum):
    """Whether the host of an engine works beside the device or keeps it waiting."""

    CURRENT = "current engine"
    EARLIER = "earlier engine"


_CURRENT_FROM: dict[str, tuple[int, ...] | None] = {
    # V1: the engine core in a process of its own.
    "vllm": (0, 8),
    # The overlap scheduler by default.
    "sglang": (0, 5),
    # The PyTorch backend.
    "tensorrt-llm": (1,),
    # Python between the kernels, in all versions that were measured.
    "tgi": None,
    "hf": None,
    "autoawq": None,
}
_AT_RATE = ("ttft_s", "tpot_s")
ALL = "all"
"""Class of all measured runs together."""
_SEPARATOR = ", "
_WIDE = (0.6, 1.6)
"""Of what no class was measured for: as wide as the widest sixth of all errors is far."""


def kind_of(deployment: Deployment) -> Kind:
    """Return the coarse class of a deployment."""
    if deployment.gpu.vendor != "NVIDIA":
        return Kind.OTHER
    return Kind.MOE if deployment.model.has_experts else Kind.DENSE


def basis_of(efficiency: GpuEfficiency) -> Basis:
    """Return what times rest on: the kernels that most of any step is made of."""
    found = {shape.basis for name, shape in efficiency.kernels if name.startswith("gemm/")}
    return next((basis for basis in (Basis.CALIBRATED, Basis.MODELLED) if basis in found), Basis.UNCALIBRATED)


def era_of(engine: str, version: str | None) -> Era:
    """Return the era of an engine at a version (None: the newest); one without versions is of its own time."""
    since = _CURRENT_FROM.get(engine, ())
    if since is None:
        return Era.EARLIER
    if version is None or not since:
        return Era.CURRENT
    return Era.CURRENT if parse_version(version.partition("+")[0]) >= since else Era.EARLIER


def class_of(deployment: Deployment, efficiency: GpuEfficiency, engine: str | None = None) -> str:
    """Return the class that a deployment's band is drawn from: its kind, whether its GPU was measured, its era.

    ``engine`` where its pace is not that of the deployment's rules.

    """
    rules = deployment.rules
    era = era_of(engine or rules.engine, rules.version if engine in {None, rules.engine} else None)
    return class_name(kind_of(deployment), basis_of(efficiency), era)


def class_name(kind: Kind, basis: Basis, era: Era) -> str:
    """Return the name of a class; what stands before each comma is a wider one.

    >>> class_name(Kind.MOE, Basis.CALIBRATED, Era.CURRENT)
    'NVIDIA MoE, calibrated, current engine'
    """
    return _SEPARATOR.join((kind, "calibrated" if basis is Basis.CALIBRATED else "uncalibrated", era))


def pools(name: str) -> tuple[str, ...]:
    """Return a class and the wider ones around it, the narrowest first.

    >>> pools("burst, calibrated, earlier engine")
    ('burst, calibrated, earlier engine', 'burst, calibrated', 'burst', '')
    """
    parts = name.split(_SEPARATOR)
    return (*(_SEPARATOR.join(parts[:count]) for count in range(len(parts), 0, -1)), "")


def table_of(quantity: str, *, at_rate: bool) -> str:
    """Return which bands are those of a quantity.

    >>> table_of("ttft_s", at_rate=True), table_of("output_tokens_per_s", at_rate=True)
    ('ttft_s at a rate', 'output_tokens_per_s')
    """
    return f"{quantity} at a rate" if at_rate and quantity in _AT_RATE else quantity


def band(kind: str, quantity: str, value: float, *, at_rate: bool = False) -> tuple[float, float]:
    """Return low and high of a predicted figure; ``kind`` is a :class:`Kind` or a name of :func:`class_of`.

    Of the narrowest class around it that enough was measured of. ``at_rate``: of requests that come at a rate, whether
    or not the server keeps up; times then spread more, for near saturation a small error is a long queue.
    """
    _, (low, high) = drawn_from(kind, table_of(quantity, at_rate=at_rate))
    return value * low, value * high


def typical(kind: str, quantity: str, *, at_rate: bool = False) -> float:
    """Return the median of measured over predicted, of the narrowest class around ``kind`` that it is known of.

    1 where too little was published: the prediction itself.

    >>> 0.9 < typical("NVIDIA dense", "tpot_s") < 1.1
    True
    """
    rows = PEERS.get(table_of(quantity, at_rate=at_rate), {})
    name = next((name for name in pools(kind) if name in rows), None)
    return 1.0 if name is None else rows[name][2][SHARES.index(0.5)]


def drawn_from(kind: str, table: str) -> tuple[str, tuple[float, float]]:
    """Return the class whose runs the bands of ``kind`` are drawn from, and low and high over what is predicted.

    ``table`` as :func:`table_of` names it. The class is ``all`` where the runs are those of all classes, and empty
    where nothing of the kind was measured.

    >>> drawn_from("NVIDIA dense, uncalibrated, current engine", "tpot_s")[0]
    'NVIDIA dense'
    """
    bands = BANDS.get(table, {})
    return next(((name or ALL, bands[name]) for name in pools(kind) if name in bands), ("", _WIDE))


def request_band(e2e_s: float, first: tuple[float, float, float], each: tuple[float, float]) -> tuple[float, float]:
    """Return low and high of a whole request, from the bands of its parts as if these erred independently.

    ``first`` is the time to the first token with its low and high, ``each`` are low and high of the time per token as
    fractions of it. No end lies within that of the first token: a request ends after it.

    >>> request_band(12.0, (4.0, 1.0, 7.0), (0.5, 1.5))
    (7.0, 17.0)
    """
    first_s, low_s, high_s = first
    rest_s = max(0.0, e2e_s - first_s)
    low = e2e_s - math.hypot(first_s - low_s, rest_s * (1 - each[0]))
    high = e2e_s + math.hypot(high_s - first_s, rest_s * (each[1] - 1))
    return max(low, min(low_s, e2e_s)), max(high, high_s)
