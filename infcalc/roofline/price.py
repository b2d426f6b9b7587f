"""The time of one op on one GPU: the longer of computing it at peak and moving its bytes at full bandwidth."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.lowering.ops import Op
    from infcalc.spec.hardware import Gpu

# A GPU without units for a narrow type widens it in registers and multiplies in 16 bit: fewer bytes, no more FLOP/s.
_FALLBACKS = ("bf16", "fp16", "tf32", "fp32")
_MXFP4 = "mxfp4"
_AMD = "AMD"


class Bound(StrEnum):
    """What limits an op or a step."""

    COMPUTE = "compute"
    MEMORY = "memory"
    LATENCY = "latency"
    """The fixed times of kernels, messages and the engine."""
    LINK = "link"
    """Links between GPUs."""


@frozen
class Efficiency:
    """Fractions of peak that are reached: they change times, never bytes or FLOP. 1 is the ideal roofline."""

    compute_fraction: float = 1.0
    bandwidth_fraction: float = 1.0

    def __post_init__(self) -> None:
        """Refuse fractions outside 0..1: nothing runs faster than the hardware."""
        for name, value in (("compute", self.compute_fraction), ("bandwidth", self.bandwidth_fraction)):
            if not 0 < value <= 1:
                raise UsageError(f"{name} efficiency {value:g} is not above 0 and at most 1", hint="write 80 % as 0.8")


IDEAL = Efficiency()


@frozen
class OpTime:
    """An op and its time on one GPU: ``time_s`` is the longer of ``compute_s`` and ``memory_s``."""

    op: Op
    precision: str
    """What the GPU computes in: the op's own precision, or the widest it falls back to."""
    compute_s: float
    memory_s: float

    @property
    def time_s(self) -> float:
        """The longer of both."""
        return max(self.compute_s, self.memory_s)

    @property
    def bound_by(self) -> Bound:
        """What limits the op."""
        return Bound.COMPUTE if self.compute_s > self.memory_s else Bound.MEMORY


def compute_precision(gpu: Gpu, precision: str) -> tuple[str, float]:
    """Return the precision in which ``gpu`` computes what is meant for ``precision``, and its peak in FLOP/s.

    Narrow types without units of their own run as 16 bit (fp8 on A100, mxfp4 on H100: weight-only kernels). MXFP4
    weights meet activations in MXFP8 on Blackwell, at the rate of fp8 (support matrix of the TensorRT-LLM deployment
    guide for gpt-oss; vLLM with its MXFP8 backend, whose default are 16-bit ones), and in MXFP4 on AMD (AITER).

    Raises:
        UsageError: the GPU states no peak that could serve.

    """
    peaks = dict(gpu.peak_flop_per_s)
    if precision == _MXFP4 and "fp4" in peaks:
        precision = "fp4" if gpu.vendor == _AMD else "fp8"
    for candidate in (precision, *_FALLBACKS):
        if peak := peaks.get(candidate):
            return candidate, peak
    raise UsageError(f"{gpu.name} states no peak rate for {precision} or 16 bit", hint=f"add one to {gpu.name}")


def price(op: Op, gpu: Gpu, efficiency: Efficiency = IDEAL) -> OpTime:
    """Return the time of ``op`` on ``gpu``.

    ``compute_s`` = FLOP / (peak x compute fraction), ``memory_s`` = bytes / (bandwidth x bandwidth fraction).
    Source: the roofline model of Williams, Waterman, Patterson 2009.

    Raises:
        UsageError: see :func:`compute_precision`.

    """
    precision, peak_flop_per_s = compute_precision(gpu, op.precision)
    return OpTime(
        op=op,
        precision=precision,
        compute_s=op.flop / (peak_flop_per_s * efficiency.compute_fraction),
        memory_s=op.total_bytes / (gpu.bandwidth_bytes_per_s * efficiency.bandwidth_fraction),
    )
