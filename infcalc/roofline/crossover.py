"""Where a GPU turns from memory-bound to compute-bound: its peak rate over its memory bandwidth.

Source: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model for multicore architectures",
CACM 52(4), 2009 (there: ridge point).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_si

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu


@frozen
class Crossover:
    """The ridge of one GPU at one precision: work below ``crossover_flop_per_byte`` is bound by memory."""

    gpu: str
    precision: str
    peak_flop_per_s: float
    bandwidth_bytes_per_s: float
    crossover_flop_per_byte: float


def crossover(gpu: Gpu) -> tuple[Crossover, ...]:
    """Return peak over bandwidth for each precision the GPU computes in, in FLOP per byte.

    Worked example, A100 80 GB SXM in bf16: 312e12 FLOP/s / 2039e9 B/s = 153.0 FLOP/B.
    """
    return tuple(
        Crossover(
            gpu=gpu.name,
            precision=precision,
            peak_flop_per_s=peak_flop_per_s,
            bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
            crossover_flop_per_byte=peak_flop_per_s / gpu.bandwidth_bytes_per_s,
        )
        for precision, peak_flop_per_s in gpu.peak_flop_per_s
    )


def explain_crossover(gpu: Gpu) -> tuple[Explanation, ...]:
    """Return how each figure of :func:`crossover` came about."""
    origin = f"gpus.yaml {gpu.name}"
    return tuple(
        Explanation(
            quantity=f"crossover_flop_per_byte[{ridge.precision}]",
            formula="peak_flop_per_s / bandwidth_bytes_per_s",
            substituted=(
                f"{format_si(ridge.peak_flop_per_s, 'FLOP/s')} / {format_si(ridge.bandwidth_bytes_per_s, 'B/s')}"
                f" = {ridge.crossover_flop_per_byte:.1f} FLOP/B"
            ),
            inputs=(
                Input(name="peak_flop_per_s", value=ridge.peak_flop_per_s, origin=origin, source=gpu.source),
                Input(
                    name="bandwidth_bytes_per_s", value=ridge.bandwidth_bytes_per_s, origin=origin, source=gpu.source
                ),
            ),
            source="Williams, Waterman, Patterson 2009",
        )
        for ridge in crossover(gpu)
    )
