"""The time of one kernel and of one collective on one accelerator, from its efficiency curves.

A kernel takes ``((flop / (peak fc))^p + (bytes / (bandwidth fb))^p)^(1/p) + latency`` where the fraction fc of the peak
depends on tokens, fb on bytes, and p says how sharply one bound gives way to the other. No fraction exceeds 1 and no
fixed time is negative, so that no time is below max(flop / peak, bytes / bandwidth).

Fixed times are the kernel's own, as it runs inside a CUDA graph; what the host adds is the engine's affair.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, overload

from infcalc.errors import UsageError
from infcalc.roofline.alike import fraction
from infcalc.roofline.price import compute_precision
from infcalc.spec.efficiency import (
    IDEAL,
    AlgorithmKind,
    Basis,
    CollectiveKind,
    CollectiveShape,
    Fractions,
    GpuEfficiency,
    KernelCurve,
    KernelShape,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray

    from infcalc.lowering.ops import OpKind
    from infcalc.spec.hardware import Gpu

    Amount = float | NDArray[np.floating[Any]]

RANKS_PER_MACHINE: Final = 8
"""Ranks that share a machine where only their sum is told, as in the measured tables."""

EVEN_EXPERTS: Final = "moe_even"
"""Kind of the kernels of routed experts that all get about as many tokens; those of skewed routing are ``moe``."""

NETWORK_BYTES_PER_S: Final = 50e9
NETWORK_LATENCY_S: Final = 12e-6
"""One 400 Gb/s adapter per accelerator, and a round through it: where the efficiency states nothing else."""

_NARROW_BITS = 6
_BYTE_BITS = 12
_KINDS: Final[dict[str, str]] = {
    "gemm": "gemm",
    "router": "gemm",
    "lm_head": "gemm",
    "moe": "moe",
    "moe_even": "moe_even",
    "attention_prefill": "attention_prefill",
    "attention_decode": "attention_decode",
}
"""Curves by kind of op; every other kind moves data element by element."""
_ELEMENTWISE = "elementwise"
_EXPERTS = "moe"
_ATTENTION = ("attention_prefill", "attention_decode")
_LIBRARIES: Final[dict[str, tuple[str, ...]]] = {
    CollectiveKind.ALL_REDUCE: ("vllm", "tensorrt-llm", "sglang", "nccl"),
    CollectiveKind.ALL_TO_ALL: ("deepep", "nccl"),
}


@overload
def kernel_s(curve: KernelCurve, *, tokens: float, flop: float, num_bytes: float) -> float: ...
@overload
def kernel_s(curve: KernelCurve, *, tokens: Amount, flop: Amount, num_bytes: Amount) -> Amount: ...
def kernel_s(curve: KernelCurve, *, tokens: Amount, flop: Amount, num_bytes: Amount) -> Amount:
    """Return the seconds of one kernel that does ``flop`` on ``num_bytes`` for ``tokens``; numbers, or arrays of them.

    ``tokens`` are what fills the tiles of the kernel: tokens of the step for a matrix multiplication, tokens per
    touched expert for grouped ones, new tokens per sequence for prefill attention. For decode attention they are its
    blocks: sequences times KV heads of the rank.

    >>> curve = KernelCurve(peak_flop_per_s=1e12, bandwidth_bytes_per_s=1e11, latency_s=1e-6)
    >>> round(kernel_s(curve, tokens=1, flop=2e6, num_bytes=1e6) * 1e6, 3)
    11.0
    """
    if isinstance(flop, int | float) and isinstance(num_bytes, int | float) and isinstance(tokens, int | float):
        compute_s = memory_s = 0.0
        if flop > 0:
            compute_s = flop / (curve.peak_flop_per_s * fraction(curve.compute_fraction, tokens))
        if num_bytes > 0:
            memory_s = num_bytes / (curve.bandwidth_bytes_per_s * fraction(curve.bandwidth_fraction, num_bytes))
        fixed_s = curve.latency_s + tokens * curve.latency_per_token_s
        longer_s, shorter_s = (compute_s, memory_s) if compute_s > memory_s else (memory_s, compute_s)
        if not longer_s or math.isinf(curve.sharpness):
            return longer_s + fixed_s
        ratio = shorter_s / longer_s
        return longer_s * float((1 + ratio**curve.sharpness) ** (1 / curve.sharpness)) + fixed_s
    return _kernel_array_s(curve, tokens, flop, num_bytes)


def _kernel_array_s(curve: KernelCurve, tokens: Amount, flop: Amount, num_bytes: Amount) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415  slow to import, and single steps need none

    rate = curve.peak_flop_per_s * _fraction_array(curve.compute_fraction, tokens)
    speed = curve.bandwidth_bytes_per_s * _fraction_array(curve.bandwidth_fraction, num_bytes)
    compute_s = np.asarray(flop, dtype=float) / rate
    memory_s = np.asarray(num_bytes, dtype=float) / speed
    longer_s = np.maximum(compute_s, memory_s)
    fixed_s = curve.latency_s + np.asarray(tokens, dtype=float) * curve.latency_per_token_s
    if math.isinf(curve.sharpness):
        return np.asarray(longer_s + fixed_s)
    ratio = np.minimum(compute_s, memory_s) / np.where(longer_s > 0, longer_s, 1.0)
    smooth_s = longer_s * (1 + ratio**curve.sharpness) ** (1 / curve.sharpness)
    return np.asarray(smooth_s + fixed_s)


def _fraction_array(curve: Fractions, amount: Amount) -> NDArray[np.float64]:
    import numpy as np  # noqa: PLC0415  see above

    # The lowest positive number stands for none: the curve is constant below its first point.
    places = np.log2(np.maximum(np.asarray(amount, dtype=float), np.finfo(float).tiny))
    return np.asarray(np.interp(places, curve.knots, curve.fractions))


class GpuCurves:
    """The curves of one accelerator, its own peaks put in; a kernel's curve is made when it is first asked for.

    Raises:
        UsageError: on :meth:`kernel`, when the accelerator states no peak that could serve (see ``compute_precision``),
            or its efficiency no curve of that kind.

    """

    __slots__ = ("_collectives", "_gpu", "_kernels", "_lines", "_shapes", "efficiency")

    def __init__(self, gpu: Gpu, efficiency: GpuEfficiency) -> None:
        self._gpu = gpu
        self.efficiency = efficiency
        self._shapes = dict(efficiency.kernels)
        self._kernels: dict[tuple[str, str, float], KernelCurve] = {}
        self._collectives: dict[tuple[CollectiveKind, str | None], tuple[CollectiveShape, ...]] = {}
        self._lines: dict[tuple[CollectiveKind, int, str | None], tuple[tuple[float, float], ...]] = {}

    @property
    def gpu(self) -> Gpu:
        """The accelerator."""
        return self._gpu

    @property
    def is_ideal(self) -> bool:
        """Whether these are peak rates without any fixed time."""
        return "*" in self._shapes

    def kernel(self, kind: OpKind | str, precision: str = "bf16", weight_bits: float = 16) -> KernelCurve:
        """Return the curve of a kind of op.

        ``precision`` is what the weights allow the multiplication to run in (``bf16``, ``fp8``, ``fp8_block``,
        ``int8``, ``fp4``); the accelerator falls back to 16 bit where it has no units. ``weight_bits`` are the bits of
        one stored weight (with scales or without), for attention those of one element of the cache.
        """
        key = (str(kind), precision, weight_bits)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._bound(*key)
        return found

    def collective(self, kind: CollectiveKind, library: str | None = None) -> tuple[CollectiveShape, ...]:
        """Return the shapes of a collective by rising number of ranks: of ``library``, else of the first measured."""
        found = self._collectives.get((kind, library))
        if found is None:
            found = self._collectives[kind, library] = _of_one_library(self.efficiency, kind, library)
        return found

    def lines(self, kind: CollectiveKind, num_ranks: int, library: str | None) -> tuple[tuple[float, float], ...]:
        """Return fixed seconds and seconds per byte of each algorithm, where just so many ranks were measured."""
        key = (kind, num_ranks, library)
        found = self._lines.get(key)
        if found is None:
            found = self._lines[key] = tuple(
                (one.latency_s, float(traffic_bytes(one.kind, num_ranks, 1.0)) / one.bytes_per_s)
                for shape in self.collective(kind, library)
                if shape.num_ranks == num_ranks
                for one in shape.algorithms
            )
        return found

    def _bound(self, kind: str, precision: str, weight_bits: float) -> KernelCurve:
        gpu = self._gpu
        computed, peak_flop_per_s = compute_precision(gpu, "fp8" if precision == "fp8_block" else precision)
        shape, exact = self._shape(kind, precision if computed == "fp8" else computed, weight_bits)
        basis = shape.basis if exact or shape.basis is not Basis.CALIBRATED else Basis.MODELLED
        return KernelCurve(
            peak_flop_per_s=peak_flop_per_s,
            bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s,
            compute_fraction=shape.compute_fraction,
            bandwidth_fraction=shape.bandwidth_fraction,
            latency_s=shape.latency_s,
            latency_per_token_s=shape.latency_per_token_s,
            sharpness=shape.sharpness,
            basis=basis,
        )

    def _shape(self, kind: str, precision: str, weight_bits: float) -> tuple[KernelShape, bool]:
        """Return the shape nearest to what was asked, and whether it is of that very kind and precision."""
        wanted = [f"{family}/{variant}" for family, variant in _candidates(kind, precision, weight_bits)]
        for number, key in enumerate(wanted):
            shape = self._shapes.get(key)
            if shape is not None:
                return shape, number == 0
        ideal = self._shapes.get("*")
        if ideal is None:
            hint = f"state kernels.{_family(kind)} in an efficiency block of {self._gpu.name}"
            raise UsageError(f"{self.efficiency.name} states no efficiency of {_family(kind)} kernels", hint=hint)
        return ideal, True


def curves_of(gpu: Gpu, efficiency: GpuEfficiency = IDEAL) -> GpuCurves:
    """Return the curves of ``gpu`` with the fractions of ``efficiency``; without them, its ideal roofline."""
    return GpuCurves(gpu, efficiency)


def _family(kind: str) -> str:
    return _KINDS.get(kind, _ELEMENTWISE)


def _candidates(kind: str, precision: str, weight_bits: float) -> Iterator[tuple[str, str]]:
    """Yield the curves that may serve, the fitting one first."""
    family = _family(kind)
    if family == _ELEMENTWISE:
        yield family, "any"
        return
    if family in _ATTENTION:
        if weight_bits <= _BYTE_BITS or precision == "fp8":
            yield family, "fp8"
        yield family, "bf16"
        return
    variants = _variants(precision, weight_bits)
    for variant in variants:
        yield family, variant
        if family == EVEN_EXPERTS:
            yield _EXPERTS, variant
    if family in {_EXPERTS, EVEN_EXPERTS}:
        yield from (("gemm", variant) for variant in variants)


def _variants(precision: str, weight_bits: float) -> list[str]:
    match precision:
        case "mxfp4":
            return [precision, *_variants("fp8", weight_bits)]
        case "fp8_block" | "fp8" | "int8" | "fp4" | "int4":
            near = {"fp8_block": ["fp8"], "fp8": ["fp8_block", "int8"], "int8": ["fp8"], "fp4": ["fp8"]}
            return [precision, *near.get(precision, []), "bf16"]
        case _ if weight_bits <= _NARROW_BITS:
            return ["bf16_w4", "bf16_w8", "bf16"]
        case _ if weight_bits <= _BYTE_BITS:
            return ["bf16_w8", "bf16_w4", "bf16"]
        case _:
            return ["bf16"]


# Collectives


@overload
def collective_s(
    curves: GpuCurves,
    kind: CollectiveKind | str,
    *,
    num_ranks: int,
    message_bytes: float,
    inter_node: bool = False,
    library: str | None = None,
) -> float: ...
@overload
def collective_s(
    curves: GpuCurves,
    kind: CollectiveKind | str,
    *,
    num_ranks: int,
    message_bytes: Amount,
    inter_node: bool = False,
    library: str | None = None,
) -> Amount: ...
def collective_s(
    curves: GpuCurves,
    kind: CollectiveKind | str,
    *,
    num_ranks: int,
    message_bytes: Amount,
    inter_node: bool = False,
    library: str | None = None,
) -> Amount:
    """Return the seconds of one collective of ``num_ranks`` ranks.

    ``message_bytes`` is the whole buffer of one rank: what it holds before and after an all-reduce, what it has after
    an all-gather, what it gives into a reduce-scatter, what it sends to all ranks in an all-to-all, what it sends.
    ``inter_node`` says that the ranks span machines (of :data:`RANKS_PER_MACHINE` ranks where there are more than
    that, else one rank each). ``library`` is ``vllm``, ``sglang``, ``tensorrt-llm``, ``nccl`` or ``deepep``; without it
    the best of those that were measured. Ideal curves exchange for free.

    Rank counts between measured ones are interpolated in log2(ranks); beyond the largest, its fixed time grows with
    log2(ranks).
    """
    kind = CollectiveKind(kind)
    if curves.is_ideal or num_ranks <= 1:
        return 0.0
    way = _across_machines_s if inter_node else _within_machine_s
    # Nothing to send takes no time, whichever of many messages it is.
    return way(curves, kind, num_ranks, message_bytes, library) * (message_bytes > 0)


def collective_basis(curves: GpuCurves, kind: CollectiveKind | str, *, inter_node: bool = False) -> Basis:
    """Return what the time of a collective rests on."""
    kind = CollectiveKind(kind)
    if curves.is_ideal:
        return Basis.CALIBRATED
    shapes = curves.collective(kind)
    if not shapes:
        return Basis.UNCALIBRATED
    return Basis.MODELLED if inter_node and shapes[0].basis is Basis.CALIBRATED else shapes[0].basis


def traffic_bytes(algorithm: AlgorithmKind, num_ranks: int, message_bytes: Amount) -> Amount:
    """Return the bytes that pass one link in one direction.

    >>> traffic_bytes(AlgorithmKind.RING, 8, 1000), traffic_bytes(AlgorithmKind.ONE_SHOT, 8, 1000)
    (1750.0, 7000)
    """
    match algorithm:
        case AlgorithmKind.ONE_SHOT:
            return (num_ranks - 1) * message_bytes
        case AlgorithmKind.RING:
            return 2 * (num_ranks - 1) / num_ranks * message_bytes
        case AlgorithmKind.SHIFT:
            return (num_ranks - 1) / num_ranks * message_bytes
        case AlgorithmKind.DIRECT:
            return message_bytes


_NATURAL: Final = {
    CollectiveKind.ALL_REDUCE: AlgorithmKind.RING,
    CollectiveKind.ALL_GATHER: AlgorithmKind.SHIFT,
    CollectiveKind.REDUCE_SCATTER: AlgorithmKind.SHIFT,
    CollectiveKind.ALL_TO_ALL: AlgorithmKind.SHIFT,
    CollectiveKind.SEND: AlgorithmKind.DIRECT,
}


def _of_one_library(
    efficiency: GpuEfficiency, kind: CollectiveKind, library: str | None
) -> tuple[CollectiveShape, ...]:
    shapes = [shape for shape in efficiency.collectives if shape.kind is kind]
    libraries = {shape.library for shape in shapes}
    order = _LIBRARIES.get(kind, ("nccl",))
    chosen = next((name for name in (library, *order) if name in libraries), None)
    return tuple(sorted((shape for shape in shapes if shape.library == chosen), key=lambda shape: shape.num_ranks))


def _shape_s(shape: CollectiveShape, num_ranks: int, message_bytes: Amount, latency_factor: float = 1.0) -> Amount:
    times = (
        algorithm.latency_s * latency_factor
        + traffic_bytes(algorithm.kind, num_ranks, message_bytes) / algorithm.bytes_per_s
        for algorithm in shape.algorithms
    )
    if isinstance(message_bytes, (int, float)):
        return min(times)
    import numpy as np  # noqa: PLC0415  see above

    fastest_s: NDArray[np.float64] = np.minimum.reduce([np.asarray(time_s) for time_s in times])
    return fastest_s


def _within_machine_s(
    curves: GpuCurves, kind: CollectiveKind, num_ranks: int, message_bytes: Amount, library: str | None
) -> Amount:
    if isinstance(message_bytes, (int, float)):
        lines = curves.lines(kind, num_ranks, library)
        if lines:
            return min([fixed_s + message_bytes * byte_s for fixed_s, byte_s in lines])
    shapes = curves.collective(kind, library)
    if not shapes:
        return _assumed_s(curves.gpu, kind, num_ranks, message_bytes)
    above = bisect_right([shape.num_ranks for shape in shapes], num_ranks)
    if above and shapes[above - 1].num_ranks == num_ranks:
        return _shape_s(shapes[above - 1], num_ranks, message_bytes)
    if not above:
        return _shape_s(shapes[0], num_ranks, message_bytes)
    if above == len(shapes):
        factor = math.log2(num_ranks) / max(1.0, math.log2(shapes[-1].num_ranks))
        return _shape_s(shapes[-1], num_ranks, message_bytes, factor)
    low, high = shapes[above - 1], shapes[above]
    share = math.log2(num_ranks / low.num_ranks) / math.log2(high.num_ranks / low.num_ranks)
    low_s = _shape_s(low, low.num_ranks, message_bytes)
    return low_s + share * (_shape_s(high, high.num_ranks, message_bytes) - low_s)


_LINK_FRACTION = 0.7
_PCIE_FRACTION = 0.4
_HOP_S = 3e-6


def _assumed_s(gpu: Gpu, kind: CollectiveKind, num_ranks: int, message_bytes: Amount) -> Amount:
    """Return the time over the accelerator's stated links: a fixed time per hop, 70 % of a switch or 40 % of PCIe."""
    link = gpu.scale_up
    if link is not None and link.max_domain >= num_ranks:
        speed = link.bytes_per_s * _LINK_FRACTION
    else:
        speed = (gpu.pcie_bytes_per_s or 16e9) * _PCIE_FRACTION
    hops = 1.0 if kind is CollectiveKind.SEND else 1 + math.log2(num_ranks)
    return hops * _HOP_S + traffic_bytes(_NATURAL[kind], num_ranks, message_bytes) / speed


def _across_machines_s(
    curves: GpuCurves, kind: CollectiveKind, num_ranks: int, message_bytes: Amount, library: str | None
) -> Amount:
    """Return the time across machines: inside each first, then each rank with its peers over the network."""
    efficiency = curves.efficiency
    speed = efficiency.network_bytes_per_s or NETWORK_BYTES_PER_S
    latency_s = efficiency.network_latency_s or NETWORK_LATENCY_S
    if kind is CollectiveKind.SEND:
        return latency_s + message_bytes / speed
    if kind is CollectiveKind.ALL_TO_ALL:
        spanning = [shape for shape in curves.collective(kind, library) if shape.num_ranks > RANKS_PER_MACHINE]
        if spanning:
            nearest = min(spanning, key=lambda shape: abs(math.log2(shape.num_ranks / num_ranks)))
            return _shape_s(nearest, num_ranks, message_bytes)
    local = RANKS_PER_MACHINE if num_ranks > RANKS_PER_MACHINE else 1
    machines = math.ceil(num_ranks / local)
    outside = message_bytes if kind is CollectiveKind.ALL_TO_ALL else message_bytes / local
    rounds = math.log2(machines) + 1
    outside_s = rounds * latency_s + traffic_bytes(_NATURAL[kind], machines, outside) / speed
    inside_s = _within_machine_s(curves, kind, local, message_bytes, library) if local > 1 else 0.0
    return inside_s + outside_s
