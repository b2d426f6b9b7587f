"""How much of its peaks an accelerator reaches: curves of kernels and collectives, with the error of their fit.

Curves hold fractions, not rates: a relative of a measured part inherits the fractions and keeps its own peaks.
"""

from __future__ import annotations

import math
from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Mapping


class Basis(StrEnum):
    """What a curve rests on."""

    CALIBRATED = "calibrated"
    """Fitted to measurements of this kind of kernel on this very part."""
    MODELLED = "modelled"
    """Derived from measurements of another kind of kernel, of another table, or from published whole-model figures."""
    UNCALIBRATED = "uncalibrated"
    """Taken from a relative, or a documented default."""


class CollectiveKind(StrEnum):
    """What ranks exchange. ``message_bytes`` of a kind is the whole buffer of one rank, as NCCL's tests count it."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    SEND = "send"


class AlgorithmKind(StrEnum):
    """How the buffers travel, which says how many bytes pass one link."""

    ONE_SHOT = "one_shot"
    """Every rank reads the buffers of all others: (p - 1) n bytes, one hop."""
    RING = "ring"
    """Reduce-scatter, then all-gather (two-shot kernels, rings, trees): 2 (p - 1) / p n bytes."""
    SHIFT = "shift"
    """Each rank passes on what is not its own: (p - 1) / p n bytes (gather, scatter, all-to-all)."""
    DIRECT = "direct"
    """n bytes from one rank to another."""


@frozen
class Fractions:
    """Fractions of a peak, linear between ``knots`` (logarithms base 2 of tokens or bytes) and constant outside them.

    They stay in 0..1, and never grow so fast that more work would take less time.
    """

    knots: tuple[float, ...] = (0.0,)
    fractions: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        """Refuse what would break a law of physics."""
        if fault := broken_fractions(self.knots, self.fractions):
            raise UsageError(f"efficiency curve: {fault}")


def broken_fractions(knots: tuple[float, ...], fractions: tuple[float, ...]) -> str | None:
    """Return what is wrong with a curve of fractions, or None.

    Time is work / fraction; it never falls with more work where the slope of the fraction over ln(work) is at most the
    fraction itself.

    >>> broken_fractions((0.0, 1.0), (0.5, 0.6))
    >>> broken_fractions((0.0, 1.0), (0.1, 0.6))
    'from 0.1 to 0.6 it grows faster than the work: more work would take less time'
    """
    if not knots or len(knots) != len(fractions):
        return "it needs at least one point"
    if not all(0 < fraction <= 1 for fraction in fractions):
        return "a fraction is above 0 and at most 1: nothing runs faster than its peak"
    for number in range(1, len(knots)):
        width = knots[number] - knots[number - 1]
        low, high = fractions[number - 1], fractions[number]
        if width <= 0:
            return "its points must rise"
        if high - low > low * width * math.log(2) * (1 + 1e-9):
            return f"from {low:g} to {high:g} it grows faster than the work: more work would take less time"
    return None


_WHOLE = Fractions()


@frozen
class Residual:
    """Absolute relative errors of a fit over its ``num_points`` measurements.

    ``held_out_*`` are the errors on shapes that the fit had not seen (whole shapes left out in turn).
    """

    num_points: int
    median_fraction: float
    p90_fraction: float
    worst_fraction: float
    held_out_median_fraction: float | None = None
    held_out_p90_fraction: float | None = None


@frozen
class KernelShape:
    """The part of a kernel's curve that relatives share: fractions, the kernel's own fixed time, and its sharpness."""

    compute_fraction: Fractions = _WHOLE
    """Of the peak rate, over tokens."""
    bandwidth_fraction: Fractions = _WHOLE
    """Of the memory bandwidth, over bytes."""
    latency_s: float = 0.0
    latency_per_token_s: float = 0.0
    """Fixed time per work item: only decode attention has one, per sequence and KV head."""
    sharpness: float = math.inf
    """Exponent p of the smooth maximum (c^p + m^p)^(1/p) of compute and memory time; infinite is the plain maximum."""
    basis: Basis = Basis.CALIBRATED
    residual: Residual | None = None
    source: str = ""


@frozen
class KernelCurve:
    """A kernel on one accelerator: its peaks and the fractions of them it reaches."""

    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    compute_fraction: Fractions = _WHOLE
    bandwidth_fraction: Fractions = _WHOLE
    latency_s: float = 0.0
    latency_per_token_s: float = 0.0
    sharpness: float = math.inf
    basis: Basis = Basis.CALIBRATED


@frozen
class Algorithm:
    """One way to run a collective: fixed time, and bytes/s that pass one link in one direction."""

    kind: AlgorithmKind
    latency_s: float
    bytes_per_s: float


@frozen
class CollectiveShape:
    """A collective of ``num_ranks`` ranks in one library: the library takes the fastest of its ``algorithms``."""

    kind: CollectiveKind
    library: str
    """``nccl``, ``vllm`` (custom all-reduce under CUDA graphs), ``sglang``, ``tensorrt-llm``, ``deepep``."""
    num_ranks: int
    algorithms: tuple[Algorithm, ...]
    basis: Basis = Basis.CALIBRATED
    residual: Residual | None = None
    source: str = ""


@frozen
class EngineCalibration:
    """What an engine adds on one machine, times as long as :mod:`infcalc.engines.pace` has it."""

    engine: str
    step_factor: float = 1.0
    """Of what it adds to a step: between kernels, before and after them, for each sequence."""
    front_end_factor: float = 1.0
    """Of what its front end takes: for a request, a token of a prompt, a streamed token, on the way in and out."""


@frozen
class MeasuredBand:
    """How measurements lay about predictions of a calibrated machine, on runs that the predictions had not seen."""

    of: str
    """The quantity, and whether requests come at a rate, as :func:`infcalc.api.bands.table_of` names both."""
    model: str
    engine: str
    num_figures: int
    measured_fraction_low: float
    """Measured over predicted: what a tenth of all measurements stays below, and what a tenth exceeds."""
    measured_fraction_high: float


@frozen
class Calibration:
    """A few factors that were fitted to somebody's own measurements, laid over the curves of an accelerator."""

    bandwidth_factor: float = 1.0
    """Of the bandwidth that kernels reach by their curves; what would pass the peak stays at it."""
    compute_factor: float = 1.0
    """Of the rate that kernels compute at by their curves, likewise."""
    link_factor: float = 1.0
    """Of the bytes/s that messages between accelerators pass at; none of what they take before the first byte."""
    message_factor: float = 1.0
    """What a message takes before its first byte, times as long."""
    engines: tuple[EngineCalibration, ...] = ()
    bands: tuple[MeasuredBand, ...] = ()
    source: str = ""
    date: str = ""

    def bands_of(self, model: str, engine: str) -> tuple[MeasuredBand, ...]:
        """Return how measurements of one model under one engine lay; none where too few were made."""
        return tuple(one for one in self.bands if (one.model, one.engine) == (model, engine))

    def of_engine(self, engine: str) -> EngineCalibration:
        """Return the factors of an engine: 1 where none are stated."""
        return next((one for one in self.engines if one.engine == engine), EngineCalibration(engine=engine))


@frozen
class GpuEfficiency:
    """All curves of one accelerator or of a family. ``kernels`` are pairs of ``kind/variant`` and shape."""

    name: str
    measured_on: tuple[str, ...] = ()
    """Names of the accelerators whose measurements were fitted."""
    kernels: tuple[tuple[str, KernelShape], ...] = ()
    collectives: tuple[CollectiveShape, ...] = ()
    link_bytes_per_s: float | None = None
    """Stated bytes/s per direction of the link that the collectives were measured over."""
    network_bytes_per_s: float | None = None
    """Bytes/s per accelerator and direction between machines."""
    network_latency_s: float | None = None
    source: str = ""
    date: str = ""
    doubts: tuple[str, ...] = ()
    calibration: Calibration | None = None
    """What was fitted to measurements; the curves have it in them already, what engines add does not."""


def calibrated(efficiency: GpuEfficiency, calibration: Calibration) -> GpuEfficiency:
    """Return the curves with the factors of a calibration in them."""
    kernels = tuple(
        (
            key,
            replace(
                shape,
                compute_fraction=_scaled(shape.compute_fraction, calibration.compute_factor),
                bandwidth_fraction=_scaled(shape.bandwidth_fraction, calibration.bandwidth_factor),
            ),
        )
        for key, shape in efficiency.kernels
    )
    later, faster = calibration.message_factor, calibration.link_factor
    collectives = tuple(
        replace(
            shape,
            algorithms=tuple(
                replace(one, latency_s=one.latency_s * later, bytes_per_s=one.bytes_per_s * faster)
                for one in shape.algorithms
            ),
        )
        for shape in efficiency.collectives
    )
    return replace(efficiency, kernels=kernels, collectives=collectives, calibration=calibration)


def _scaled(curve: Fractions, factor: float) -> Fractions:
    return replace(curve, fractions=tuple(min(1.0, factor * fraction) for fraction in curve.fractions))


def with_compute_shares(efficiency: GpuEfficiency, shares: Mapping[str, float]) -> GpuEfficiency:
    """Return the curves with a share of the compute efficiency of some kernels: those that were measured are better."""
    if not shares:
        return efficiency
    kernels = []
    for key, shape in efficiency.kernels:
        curve, share = shape.compute_fraction, shares.get(key, 1.0)
        reached = replace(curve, fractions=tuple(share * fraction for fraction in curve.fractions))
        kernels.append((key, replace(shape, compute_fraction=reached)))
    return replace(efficiency, kernels=tuple(kernels))


IDEAL = GpuEfficiency(name="ideal", kernels=(("*", KernelShape()),))
"""Peak rates, no fixed times, plain maximum, collectives for free: the roofline itself."""
