"""From times on a device to its efficiency curves, in the words of the catalog.

A curve is a few numbers: fractions of the peaks, and a fixed time. What a line explains is fitted by least squares of
relative errors with coefficients that are never negative; fractions of products are read off point by point.
"""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.lab_curves import admissible
from infcalc.api.lab_device_cases import NUM_KV_HEADS
from infcalc.api.lab_device_nouns import Family
from infcalc.roofline.curves import traffic_bytes
from infcalc.spec.efficiency import AlgorithmKind, CollectiveKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from infcalc.api.lab_device_nouns import Course, Timing

    Array = NDArray[np.float64]

VARIANT = {"bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "fp32": "bf16"}
"""The curve that a precision is written to; one for 16 bit, and for single precision where nothing narrower runs."""
_MEMORY_SHARE = 0.8
"""A product of which the memory explains so much tells nothing of the rate that it computes at."""
_LEAST_S = 1e-12
_DIGITS = 4
_LEAST_FRACTION = 1e-5
_LEAST_SPEED, _MOST_SPEED = 1e6, 1e15
_LEAST_POINTS = 2
_BETTER = 0.5
"""Two lines have four numbers: they stand where they leave at most half of what one leaves."""


def line_of(columns: Sequence[Sequence[float]], times_s: Sequence[float]) -> Array:
    """Return the coefficients of ``columns``, none of them negative, whose sum is nearest to ``times_s``.

    Nearest by the squares of relative errors, over all subsets of the columns: there are at most three.

    >>> line_of([[1, 1, 1], [1, 2, 4]], [3.0, 5.0, 9.0]).round(6).tolist()
    [1.0, 2.0]
    """
    matrix = np.array(columns, dtype=float).T / np.array(times_s)[:, None]
    ones = np.ones(len(times_s))
    found, least = np.zeros(len(columns)), np.inf
    for number in range(1, len(columns) + 1):
        for chosen in combinations(range(len(columns)), number):
            part = np.linalg.lstsq(matrix[:, chosen], ones, rcond=None)[0]
            missed = float(np.sum((matrix[:, chosen] @ part - ones) ** 2))
            if (part >= 0).all() and missed < least * (1 - 1e-9):
                least, found = missed, np.zeros(len(columns))
                found[list(chosen)] = part
    return found


def gemm_curve(course: Course, precision: str, *, peak: float, bandwidth: float) -> dict[str, object] | None:
    """Return the curve of products in ``precision``: None where too few of them ran.

    Fractions of the bandwidth are those of few rows, by bytes. A fraction of the ``peak`` (FLOP/s) stands where memory
    does not explain the time, and where memory explains it but the fraction is above the next one: the curve is
    constant below its first point, and must not be slower than what was measured there.
    """
    call = course.of(Family.CALL, precision=precision)
    streams = course.of(Family.STREAM, precision=precision)
    rows = [one for one in course.of(Family.GEMM, precision=precision) if not one.case.held_out]
    if not call or not streams or len(rows) < _LEAST_POINTS:
        return None
    call_s = min(call[0].time_s, min(one.time_s for one in streams) * (1 - 1e-6))
    moved = admissible(
        {one.case.num_bytes: _share(one.case.num_bytes, one.time_s - call_s, bandwidth) for one in streams}
    )
    reached: dict[float, float] = {}
    for one in sorted(rows, key=lambda timing: -timing.case.tokens):
        own_s = one.time_s - call_s
        fraction = _share(one.case.flop, own_s, peak)
        memory_s = one.case.num_bytes / (bandwidth * _at(moved, one.case.num_bytes))
        above = reached[min(reached)] if reached else 0.0
        if memory_s < _MEMORY_SHARE * own_s or fraction > above:
            reached[float(one.case.tokens)] = fraction
    return {
        "compute": _points(admissible(reached)),
        "bandwidth": [[f"{amount:.0f} B", fraction] for amount, fraction in _points(moved)],
        "latency": seconds(call_s),
    }


def prefill_curve(course: Course, *, peak: float) -> dict[str, object] | None:
    """Return the curve of prefill attention by new tokens; the shortest prompt is its fixed time."""
    found = sorted(course.of(Family.PREFILL), key=lambda one: one.case.tokens)
    if len(found) <= _LEAST_POINTS:
        return None
    call_s = found[0].time_s
    reached = {float(one.case.tokens): _share(one.case.flop, one.time_s - call_s, peak) for one in found[1:]}
    return {"compute": _points(admissible(reached)), "latency": seconds(call_s)}


def decode_curve(course: Course, *, bandwidth: float) -> dict[str, object] | None:
    """Return the curve of decode attention: a fixed time, a time per sequence and KV head, and the bandwidth."""
    found = course.of(Family.DECODE)
    if len(found) <= _LEAST_POINTS:
        return None
    blocks = [float(one.case.num_sequences * NUM_KV_HEADS) for one in found]
    fixed_s, block_s, byte_s = line_of(
        [[1.0] * len(found), blocks, [one.case.num_bytes for one in found]], [one.time_s for one in found]
    )
    return {
        "bandwidth": fraction_of(1 / max(float(byte_s) * bandwidth, 1.0)),
        "latency": seconds(float(fixed_s)),
        "latency_per_token": seconds(float(block_s)),
    }


def copy_curve(course: Course, *, bandwidth: float) -> dict[str, object] | None:
    """Return the curve of what moves data element by element, as copies do."""
    found = course.of(Family.COPY)
    if len(found) < _LEAST_POINTS:
        return None
    fixed_s, byte_s = line_of(
        [[1.0] * len(found), [one.case.num_bytes for one in found]], [one.time_s for one in found]
    )
    return {
        "bandwidth": fraction_of(1 / max(float(byte_s) * bandwidth, 1.0)),
        "latency": seconds(float(fixed_s)),
    }


def collective(timings: Sequence[Timing], library: str) -> dict[str, object] | None:
    """Return the all-reduce between so many ranks, as one line or the lower of two.

    Two where small messages are faster than the line of large ones: a library changes its way with the size.
    """
    found = sorted(timings, key=lambda one: one.case.num_bytes)
    if len(found) < _LEAST_POINTS:
        return None
    ranks = found[0].case.num_ranks
    passed = [float(traffic_bytes(AlgorithmKind.RING, ranks, one.case.num_bytes)) for one in found]
    times_s = [one.time_s for one in found]
    lines = [_line(passed, times_s)]
    for cut in range(_LEAST_POINTS, len(found) - 1):
        two = [_line(passed[:cut], times_s[:cut]), _line(passed[cut:], times_s[cut:])]
        if _missed(two, passed, times_s) < _BETTER * _missed(lines, passed, times_s):
            lines = two
    return {
        "kind": str(CollectiveKind.ALL_REDUCE),
        "library": library,
        "ranks": ranks,
        "algorithms": [
            {"kind": str(AlgorithmKind.RING), "latency": seconds(fixed_s), "speed": f"{_speed(byte_s) / 1e9:.4g} GB/s"}
            for fixed_s, byte_s in lines
        ],
    }


def _line(passed: Sequence[float], times_s: Sequence[float]) -> tuple[float, float]:
    fixed_s, byte_s = line_of([[1.0] * len(passed), passed], times_s)
    return float(fixed_s), float(byte_s)


def _missed(lines: Sequence[tuple[float, float]], passed: Sequence[float], times_s: Sequence[float]) -> float:
    """Return the sum of the squares of relative errors of the lowest of the lines."""
    least = [min(fixed_s + amount * byte_s for fixed_s, byte_s in lines) for amount in passed]
    return sum((low_s / time_s - 1) ** 2 for time_s, low_s in zip(times_s, least, strict=True))


def _speed(byte_s: float) -> float:
    """Return bytes/s; of a line that does not rise, as fast as the catalog can say."""
    return min(_MOST_SPEED, max(_LEAST_SPEED, 1 / max(byte_s, 1 / _MOST_SPEED)))


def _share(work: float, time_s: float, peak: float) -> float:
    return min(1.0, max(work / max(time_s, _LEAST_S) / peak, _LEAST_FRACTION))


def _at(points: Sequence[Sequence[float]], amount: float) -> float:
    places = [np.log2(point[0]) for point in points]
    return float(np.interp(np.log2(amount), places, [point[1] for point in points]))


def _points(points: Sequence[Sequence[float]]) -> list[list[float]]:
    """Return points as they are written, where neighbours that say the same are one."""
    kept: list[list[float]] = []
    for amount, fraction in points:
        if len(kept) > 1 and kept[-1][1] == kept[-2][1] == fraction:
            kept.pop()
        kept.append([amount, fraction])
    return kept


def fraction_of(value: float) -> float:
    """Return a fraction as it is written."""
    return float(f"{min(1.0, max(value, _LEAST_FRACTION)):.{_DIGITS}g}")


def seconds(value_s: float) -> str:
    """Return seconds as they are written."""
    return f"{max(0.0, value_s) * 1e6:.{_DIGITS}g} us"


def best_of_16_bit(course: Course) -> str | None:
    """Return which 16-bit precision is written: bf16, unless fp16 has units and bf16 has none."""
    rates = {
        name: max((one.flop_per_s for one in course.of(Family.GEMM, precision=name)), default=0.0)
        for name in ("bf16", "fp16")
    }
    if not any(rates.values()):
        return None
    return "fp16" if rates["fp16"] > _UNITS * rates["bf16"] else "bf16"


_UNITS = 1.5


def fastest(timings: Sequence[Timing]) -> float:
    """Return the highest rate of computing, FLOP/s; 0 of none."""
    return max((one.flop_per_s for one in timings), default=0.0)


def quickest(timings: Sequence[Timing]) -> float:
    """Return the highest rate of moving, bytes/s; 0 of none."""
    return max((one.bytes_per_s for one in timings), default=0.0)


def written(kernels: Mapping[str, Mapping[str, object] | None]) -> dict[str, dict[str, object]]:
    """Return curves by ``kind/variant`` as the catalog nests them; those that are None are left out."""
    nested: dict[str, dict[str, object]] = {}
    for key, curve in kernels.items():
        if curve is not None:
            kind, _, variant = key.partition("/")
            nested.setdefault(kind, {})[variant] = dict(curve)
    return nested
