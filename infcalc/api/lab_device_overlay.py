"""From times on a device to the overlay of the catalog, and to the rows that show them beside its peaks."""

from __future__ import annotations

from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any

from infcalc.api.lab_device_cases import NUM_KV_HEADS
from infcalc.api.lab_device_curves import (
    best_of_16_bit,
    collective,
    copy_curve,
    decode_curve,
    fastest,
    gemm_curve,
    prefill_curve,
    quickest,
    written,
)
from infcalc.api.lab_device_nouns import (
    COPIES,
    PRODUCTS,
    CurveRow,
    DeviceMachine,
    DeviceRow,
    Family,
    LeftOut,
)
from infcalc.catalog.efficiency import efficiency_for
from infcalc.catalog.gpus import gpu_from_mapping
from infcalc.frozen import frozen
from infcalc.roofline.curves import collective_s, curves_of, kernel_s
from infcalc.roofline.price import compute_precision
from infcalc.spec.efficiency import Basis
from infcalc.units import GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infcalc.api.lab_device_nouns import Case, Course, Timing
    from infcalc.roofline.curves import GpuCurves
    from infcalc.spec.efficiency import GpuEfficiency
    from infcalc.spec.hardware import Gpu

_UNTOLD_BYTES = 8 * GIB
_KINDS = {
    **dict.fromkeys(PRODUCTS, "gemm"),
    Family.PREFILL: "attention_prefill",
    Family.DECODE: "attention_decode",
    Family.COPY: "elementwise",
}
_NO_VARIANT = "the catalog has one curve for 16 bit and none for single precision: shown, and not written"
_ENGINES_OWN = "the catalog has times of the engines' own kernels on this part; torch's are others, and replace none"
_MOST_ERROR = 0.3
"""Median error, on what a curve was made of or on shapes that it has not seen, beyond which it describes nothing."""


@frozen
class Target:
    """The device with what is known of it; ``gpu`` is its entry of the catalog, None where it gets one of its own."""

    kind: str
    title: str
    name: str
    num_devices: int
    torch_version: str
    memory_bytes: int | None
    cache_bytes: int | None
    architecture: str
    gpu: Gpu | None
    efficiency: GpuEfficiency | None
    peak_flop_per_s: tuple[tuple[str, float], ...] = ()
    """FLOP/s by precision: stated ones, or the fastest that was reached."""
    bandwidth_bytes_per_s: float = 0.0
    reached_bytes_per_s: float = 0.0
    reached_flop_per_s: float = 0.0

    @property
    def machine(self) -> DeviceMachine:
        """The device as the answer shows it."""
        return DeviceMachine(
            device=self.kind,
            title=self.title,
            gpu=self.name,
            known=self.gpu is not None,
            num_devices=self.num_devices,
            torch_version=self.torch_version,
            bandwidth_bytes_per_s=self.bandwidth_bytes_per_s,
            peak_flop_per_s=self.peak("bf16") or self.peak("fp32") or 0.0,
            reached_bytes_per_s=self.reached_bytes_per_s,
            reached_flop_per_s=self.reached_flop_per_s,
        )

    def peak(self, precision: str) -> float | None:
        """Return the peak that a precision is measured against; both 16-bit ones have the same."""
        peaks = dict(self.peak_flop_per_s)
        return peaks.get("bf16" if precision == "fp16" and self.gpu is not None else precision)


def described(target: Target, course: Course) -> Target:
    """Return the device with its peaks: of its catalog entry, else the fastest that was reached."""
    moved = quickest(course.of(Family.COPY, Family.STREAM, Family.DECODE))
    reached = {
        precision: fastest(course.of(*PRODUCTS, Family.PREFILL, precision=precision))
        for precision in ("fp32", "fp16", "bf16", "fp8")
    }
    best = max(reached.values())
    gpu = target.gpu
    return replace(
        target,
        peak_flop_per_s=gpu.peak_flop_per_s
        if gpu is not None
        else tuple((key, rate) for key, rate in reached.items() if rate),
        bandwidth_bytes_per_s=gpu.bandwidth_bytes_per_s if gpu is not None else moved,
        reached_bytes_per_s=moved,
        reached_flop_per_s=best,
    )


# The overlay


def overlay_of(
    target: Target, course: Course, library: str, today: str
) -> tuple[dict[str, object], tuple[CurveRow, ...], tuple[LeftOut, ...]]:
    """Return the entry of the overlay, how right its curves are, and what was measured but is not in it.

    A curve that misses the very times it was made of, or shapes that it has not seen, is not written.
    """
    source = f"infcalc lab measure --device {target.kind}: torch {target.torch_version}"
    kernels, why_not = _kernels(target, course)
    collectives, unwritten = _collectives(course, library)
    block = _block(target, kernels, collectives, source, today)
    rows = curve_rows(target, course, block)
    wrong = {row.curve: row for row in rows if _worst(row) > _MOST_ERROR}
    refused = [
        LeftOut(case=name, why=f"its curve misses what was measured by {_worst(row):.0%} in the median")
        for name, row in wrong.items()
    ]
    kept = {key: None if key in wrong else curve for key, curve in kernels.items()}
    messages = [] if str(Family.ALL_REDUCE) in wrong else collectives
    return (
        _block(target, kept, messages, source, today),
        tuple(row for row in rows if row.curve not in wrong),
        (*why_not, *unwritten, *refused),
    )


def _worst(row: CurveRow) -> float:
    return max(row.median_abs_error_fraction, row.held_out_median_abs_error_fraction or 0.0)


def _block(
    target: Target,
    kernels: Mapping[str, dict[str, object] | None],
    collectives: list[dict[str, object]],
    source: str,
    today: str,
) -> dict[str, object]:
    block: dict[str, object] = {}
    if nested := written(kernels):
        block["kernels"] = nested
    if collectives:
        block["collectives"] = collectives
    efficiency: dict[str, object] = {"efficiency": block | {"source": source, "date": today}} if block else {}
    return efficiency if target.gpu is not None else _entry(target, source, today) | efficiency


def _kernels(target: Target, course: Course) -> tuple[dict[str, dict[str, object] | None], list[LeftOut]]:
    curves: dict[str, dict[str, object] | None] = {}
    why_not: list[LeftOut] = []
    best = best_of_16_bit(course)
    for precision, variant in (("fp32", ""), ("fp16", ""), ("bf16", ""), ("fp8", "fp8")):
        into = "bf16" if precision == (best or "fp32") else variant
        peak = target.peak(precision)
        if not course.of(*PRODUCTS, precision=precision):
            continue
        name = f"products in {precision}"
        if not into:
            why_not.append(LeftOut(case=name, why=_NO_VARIANT))
        elif not peak:
            why_not.append(LeftOut(case=name, why=f"{target.name} states no peak in {precision}"))
        else:
            made = gemm_curve(course, precision, peak=peak, bandwidth=target.bandwidth_bytes_per_s)
            curves[f"gemm/{into}"] = made
            if made is None:
                why_not.append(LeftOut(case=name, why="too few of them ran to make a curve of"))
    peak = target.peak("bf16") or target.peak("fp32")
    others = {
        "attention_prefill/bf16": prefill_curve(course, peak=peak) if peak else None,
        "attention_decode/bf16": decode_curve(course, bandwidth=target.bandwidth_bytes_per_s),
        "elementwise/any": copy_curve(course, bandwidth=target.bandwidth_bytes_per_s),
    }
    for key, made in others.items():
        if made is not None and _is_measured(target, key):
            why_not.append(LeftOut(case=key.replace("_", " "), why=_ENGINES_OWN))
        elif made is not None:
            # Engines have kernels of their own, and norms are no copies: near to the thing, not the thing itself.
            curves[key] = made | {"basis": str(Basis.MODELLED)}
    return curves, why_not


def _is_measured(target: Target, key: str) -> bool:
    if target.efficiency is None:
        return False
    shape = dict(target.efficiency.kernels).get(key)
    return shape is not None and shape.basis is Basis.CALIBRATED


def _collectives(course: Course, library: str) -> tuple[list[dict[str, object]], list[LeftOut]]:
    timings = course.of(Family.ALL_REDUCE)
    if timings and library != "nccl":
        why = f"the catalog knows no messages by {library}: it is shown, and not written"
        return [], [LeftOut(case="all-reduce", why=why)]
    found = [
        collective([one for one in timings if one.case.num_ranks == ranks], library)
        for ranks in sorted({one.case.num_ranks for one in timings})
    ]
    return [one for one in found if one is not None], []


def _entry(target: Target, source: str, today: str) -> dict[str, object]:
    """Return the entry of a device that the catalog does not know: its peaks are what was reached."""
    memory = f"{target.memory_bytes or _UNTOLD_BYTES} B"
    doubts = ["peaks are the fastest that torch reached, not stated ones"]
    if not target.memory_bytes:
        doubts.append(f"the operating system does not tell the memory; {format_bytes(_UNTOLD_BYTES)} is taken")
    stated = {key: rate for key, rate in target.peak_flop_per_s if key != "fp16"}
    if "bf16" not in stated and (half := dict(target.peak_flop_per_s).get("fp16")):
        stated["bf16"] = half
    entry: dict[str, object] = {
        "title": target.title,
        "vendor": "torch" if target.kind == "cpu" else "unknown",
        "architecture": target.architecture,
        "memory": memory,
        "cuda_total": memory,
        "bandwidth": f"{target.bandwidth_bytes_per_s / 1e9:.6g} GB/s",
        **{key: f"{rate / 1e9:.6g} GFLOPS" for key, rate in stated.items()},
    }
    if target.kind == "cpu":
        entry["unified_memory"] = True
    if target.cache_bytes:
        entry["cache"] = f"{target.cache_bytes} B"
    return entry | {"doubts": doubts, "source": source, "date": today}


# Rows


def curves_from(target: Target, block: Mapping[str, object]) -> GpuCurves:
    """Return the curves that the catalog reads in an overlay."""
    if target.gpu is None:
        gpu = gpu_from_mapping(target.name, block, {})
        return curves_of(gpu, efficiency_for(gpu, base=None, link_of=lambda _: None))
    from infcalc.catalog.efficiency import efficiency_from_mapping  # noqa: PLC0415 - of known parts alone

    own = efficiency_from_mapping(target.name, block["efficiency"])
    gpu = replace(target.gpu, efficiency=own, calibration=None)
    return curves_of(gpu, efficiency_for(gpu, base=target.efficiency, link_of=lambda _: None))


def curve_rows(target: Target, course: Course, block: Mapping[str, Any]) -> tuple[CurveRow, ...]:
    """Return how far each curve of the overlay is from what it was made of, and from shapes that it has not seen."""
    own = block.get("efficiency")
    if own is None:
        return ()
    keys = {f"{kind}/{variant}" for kind, variants in own.get("kernels", {}).items() for variant in variants}
    keys |= {str(Family.ALL_REDUCE)} if own.get("collectives") else set()
    return tuple(_curve_rows(course, curves_from(target, block), keys))


def _curve_rows(course: Course, curves: GpuCurves, keys: set[str]) -> Iterator[CurveRow]:
    seen: dict[str, list[tuple[bool, float]]] = {}
    best = best_of_16_bit(course) or "fp32"
    for one in course.timings:
        case = one.case
        key = _key(case, best)
        predicted_s = predicted(curves, case) if key in keys else None
        if predicted_s is not None:
            seen.setdefault(key, []).append((case.held_out, abs(predicted_s / one.time_s - 1)))
    for key, errors in seen.items():
        own, others = ([error for held_out, error in errors if held_out is which] for which in (False, True))
        if own:
            yield CurveRow(
                curve=key,
                num_points=len(own),
                median_abs_error_fraction=median(own),
                worst_abs_error_fraction=max(own),
                held_out_median_abs_error_fraction=median(others) if others else None,
            )


def _key(case: Case, best: str) -> str:
    """Return the curve that a case belongs to; empty where none is made of it."""
    if case.family is Family.ALL_REDUCE:
        return str(case.family)
    kind = _KINDS.get(case.family, "")
    if case.family in PRODUCTS:
        variant = {best: "bf16", "fp8": "fp8"}.get(case.precision)
        return f"{kind}/{variant}" if variant else ""
    return f"{kind}/any" if case.family is Family.COPY else f"{kind}/bf16"


def predicted(curves: GpuCurves, case: Case) -> float | None:
    """Return the seconds that curves predict of a case; None where they have none of its kind."""
    if case.family is Family.ALL_REDUCE:
        if not curves.efficiency.collectives:
            return None
        return collective_s(
            curves, "all_reduce", num_ranks=case.num_ranks, message_bytes=case.num_bytes, library="nccl"
        )
    kind = _KINDS.get(case.family)
    if kind is None:
        return None
    precision = "bf16" if case.precision in {"", "fp16", "fp32"} else case.precision
    bits = 8 if case.precision == "fp8" else 16
    if precision != "bf16" and compute_precision(curves.gpu, precision)[0] != precision:
        return None
    curve = curves.kernel(kind, precision, bits)
    tokens = case.num_sequences * NUM_KV_HEADS if case.family is Family.DECODE else max(1, case.tokens)
    return kernel_s(curve, tokens=tokens, flop=case.flop, num_bytes=case.num_bytes)


def device_rows(target: Target, course: Course) -> tuple[DeviceRow, ...]:
    """Return all that was timed, beside the peak that bounds it and what the catalog's curves had predicted."""
    known = None if target.gpu is None or target.efficiency is None else curves_of(target.gpu, target.efficiency)
    return tuple(_row(target, one, known) for one in course.timings)


def _row(target: Target, one: Timing, known: GpuCurves | None) -> DeviceRow:
    case, samples = one.case, one.samples
    bound, share = _bound(target, one)
    # No curve is of single precision, and none of a part's that computes in it alone is the catalog's.
    guess = None if known is None or case.precision == "fp32" else predicted(known, case)
    return DeviceRow(
        kernel=str(case.family),
        precision=case.precision,
        size=case.size,
        tokens=case.tokens,
        context_tokens=case.context_tokens,
        num_ranks=case.num_ranks,
        flop=case.flop,
        bytes=case.num_bytes,
        time_s=samples.time_s,
        time_s_low=samples.low_s,
        time_s_high=samples.high_s,
        spread_fraction=samples.spread_fraction,
        num_samples=samples.num_samples,
        bytes_per_s=one.bytes_per_s,
        flop_per_s=one.flop_per_s,
        bound_by=bound,
        efficiency_fraction=share,
        predicted_s=guess,
        error_fraction=None if guess is None else guess / one.time_s - 1,
    )


def _bound(target: Target, one: Timing) -> tuple[str, float | None]:
    """Return what bounds a case at the peaks, and how much of that it reached."""
    case = one.case
    if case.family is Family.ALL_REDUCE:
        return "link", None
    if case.family in COPIES and case.family is not Family.COPY:
        speed = None if target.gpu is None else target.gpu.pcie_bytes_per_s
        return "host link", one.bytes_per_s / speed if speed else None
    precision = case.precision or "bf16"
    peak = target.peak(precision) or (target.peak("fp32") if case.family is Family.PREFILL else None)
    memory_s = case.num_bytes / target.bandwidth_bytes_per_s if target.bandwidth_bytes_per_s else 0.0
    if not case.flop:
        return "memory", memory_s / one.time_s
    if peak is None:
        return "unknown", None
    compute_s = case.flop / peak
    longer_s = max(compute_s, memory_s)
    return ("compute" if compute_s >= memory_s else "memory"), longer_s / one.time_s
