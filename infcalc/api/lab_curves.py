"""From timed kernels to the catalog entry of a computer: peaks, and the fractions of them that each kernel reaches."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from infcalc.api.lab_probes import Family
from infcalc.frozen import frozen
from infcalc.units import GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from infcalc.api.lab_machine import Computer
    from infcalc.api.lab_probes import Probe
    from infcalc.api.lab_timing import Spread
    from infcalc.spec.layers import GroupedAttention

PRECISION = "fp32"
_MOST_PIECES = 6
_GROWTH = 0.999
"""Of the steepest growth that curves admit: what rounding of written figures takes is left free."""
_DIGITS = 6
_LEAST_S = 1e-12
_UNTOLD_BYTES = 8 * GIB
_LEAST_FRACTION = 1e-5


@frozen
class Timed:
    """A probe with its times; ``kernel_s`` are the seconds of one of its kernels."""

    probe: Probe
    times: Spread

    @property
    def kernel_s(self) -> float:
        """Seconds of one kernel, the lower quartile of all runs."""
        return self.times.time_s / self.probe.num_kernels

    @property
    def bytes_per_s(self) -> float:
        """Bytes that the kernel moves per second."""
        return self.probe.num_bytes / self.kernel_s

    @property
    def flop_per_s(self) -> float:
        """FLOP that it computes per second."""
        return self.probe.flop / self.kernel_s


def bandwidth_bytes_per_s(timed: Sequence[Timed]) -> float:
    """Return the fastest that memory was read, by the products of a matrix with a vector."""
    return max(one.bytes_per_s for one in _of(timed, Family.STREAM))


def peak_flop_per_s(timed: Sequence[Timed]) -> float:
    """Return the fastest that anything was multiplied."""
    return max(one.flop_per_s for one in timed)


def entry(
    timed: Sequence[Timed], computer: Computer, mixer: GroupedAttention, *, today: str, numpy_version: str
) -> dict[str, object]:
    """Return the catalog entry of ``computer``, in the words of ``gpus.yaml``.

    ``mixer`` is that of the model whose attention was timed. Memory is the only figure that was not measured.
    """
    bandwidth, peak = bandwidth_bytes_per_s(timed), peak_flop_per_s(timed)
    how = f"infcalc lab measure: numpy {numpy_version}, {computer.num_threads} threads, single precision"
    memory = f"{computer.memory_bytes or _UNTOLD_BYTES} B"
    written: dict[str, object] = {
        "title": f"{computer.title} (numpy)",
        "vendor": "numpy",
        "architecture": f"numpy {computer.architecture}",
        "memory": memory,
        "cuda_total": memory,
        "bandwidth": f"{bandwidth / 1e9:.6g} GB/s",
        PRECISION: f"{peak / 1e9:.6g} GFLOPS",
    }
    if not computer.memory_bytes:
        written["doubts"] = [f"the operating system does not tell the memory; {format_bytes(_UNTOLD_BYTES)} is taken"]
    if computer.cache_bytes:
        written["cache"] = f"{computer.cache_bytes} B"
    return written | {
        "unified_memory": True,
        "source": how,
        "date": today,
        "efficiency": {
            "kernels": {
                "gemm": {"bf16": _gemm(timed, bandwidth, peak)},
                "attention_prefill": {"bf16": _prefill(timed, peak)},
                "attention_decode": {"bf16": decode_attention(timed, Family.DECODE, mixer, bandwidth)},
                "elementwise": {"any": _elementwise(timed, bandwidth)},
            },
            "source": how,
            "date": today,
        },
    }


def decode_attention(
    timed: Sequence[Timed], family: Family, mixer: GroupedAttention, bandwidth: float
) -> dict[str, object]:
    """Return the curve of decode attention over one kind of cache, as a catalog writes it.

    Its time is a + b sequences + c bytes: c from a long context against a short one, b from many sequences against one,
    a from what is left. ``bandwidth`` is that of memory in bytes/s.
    """
    short, long, many = _of(timed, family)
    per_byte_s = (long.kernel_s - short.kernel_s) / (long.probe.num_bytes - short.probe.num_bytes)
    per_byte_s = max(per_byte_s, 1 / bandwidth)
    more_bytes = many.probe.num_bytes - short.probe.num_bytes
    more_s = many.kernel_s - short.kernel_s - more_bytes * per_byte_s
    each_s = max(0.0, more_s / (many.probe.tokens - short.probe.tokens))
    fixed_s = max(0.0, short.kernel_s - each_s - short.probe.num_bytes * per_byte_s)
    return {
        "bandwidth": _fraction(1 / (per_byte_s * bandwidth)),
        "latency": _seconds(fixed_s),
        "latency_per_token": _seconds(each_s / mixer.num_kv_heads),
    }


def admissible(points: Mapping[float, float]) -> list[list[float]]:
    """Return fractions by amount as points that no curve refuses (:func:`infcalc.spec.efficiency.broken_fractions`).

    Between measured points a fraction goes by a power of the amount, written as short straight pieces. Where it rises
    faster than the work, the lower end is raised.

    >>> admissible({1: 0.4, 4: 0.2})
    [[1, 0.4], [4, 0.2]]
    """
    amounts = sorted(points)
    places, fractions = [math.log2(amounts[0])], [points[amounts[0]]]
    for low, high in pairwise(amounts):
        width, ratio = math.log2(high / low), points[high] / points[low]
        num = next((n for n in range(1, _MOST_PIECES) if _steepest(width / n) ** n >= ratio), _MOST_PIECES)
        places += [math.log2(low) + width * piece / num for piece in range(1, num + 1)]
        fractions += [points[low] * ratio ** (piece / num) for piece in range(1, num + 1)]
    for index in range(len(places) - 2, -1, -1):
        fractions[index] = max(fractions[index], fractions[index + 1] / _steepest(places[index + 1] - places[index]))
    return [
        [round(2**place, 6) if place % 1 else int(2**place), _fraction(fraction)]
        for place, fraction in zip(places, fractions, strict=True)
    ]


def _steepest(width: float) -> float:
    """Return how many times a fraction may grow over ``width`` powers of 2 in one straight piece."""
    return 1 + width * math.log(2) * _GROWTH


def _gemm(timed: Sequence[Timed], bandwidth: float, peak: float) -> dict[str, object]:
    """Return the curve of products: of the peak by rows, of the bandwidth by bytes, and what a call takes.

    Rows were multiplied with matrices from memory: what the curve says of few rows holds what waiting for them takes.
    """
    call_s = _of(timed, Family.CALL)[0].kernel_s
    # One row is a vector: what bounds it is memory, and no more of the peak is known than the fastest of them reached.
    reached = {1.0: max(one.flop_per_s for one in _of(timed, Family.STREAM)) / peak} | {
        float(one.probe.tokens): one.probe.flop / max(one.kernel_s - call_s, _LEAST_S) / peak
        for one in _of(timed, Family.GEMM)
    }
    read = {
        one.probe.num_bytes: one.probe.num_bytes / max(one.kernel_s - call_s, _LEAST_S) / bandwidth
        for one in _of(timed, Family.STREAM)
    }
    moved = admissible({amount: min(1.0, fraction) for amount, fraction in read.items()})
    return {
        "compute": admissible(reached),
        "bandwidth": [[f"{amount:.0f} B", fraction] for amount, fraction in moved],
        "latency": _seconds(call_s),
    }


def _prefill(timed: Sequence[Timed], peak: float) -> dict[str, object]:
    first, *others = _of(timed, Family.PREFILL)
    reached = {
        float(one.probe.tokens): one.probe.flop / max(one.kernel_s - first.kernel_s, _LEAST_S) / peak for one in others
    }
    return {"compute": admissible(reached), "latency": _seconds(first.kernel_s)}


def _elementwise(timed: Sequence[Timed], bandwidth: float) -> dict[str, object]:
    one, many = _of(timed, Family.ELEMENTWISE)
    grown_s = max(many.kernel_s - one.kernel_s, _LEAST_S)
    reached = (many.probe.num_bytes - one.probe.num_bytes) / grown_s / bandwidth
    return {"bandwidth": _fraction(reached), "latency": _seconds(one.kernel_s)}


def _of(timed: Sequence[Timed], family: Family) -> list[Timed]:
    return [one for one in timed if one.probe.family is family]


def _fraction(value: float) -> float:
    return float(f"{min(1.0, max(value, _LEAST_FRACTION)):.{_DIGITS}g}")


def _seconds(value_s: float) -> str:
    return f"{value_s * 1e6:.4g} us"
