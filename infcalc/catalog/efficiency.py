"""Catalog mappings to efficiency curves: the schema of ``efficiency.yaml`` and of a GPU's ``efficiency`` block."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, cast

from infcalc.catalog.codec import (
    INVALID,
    Fault,
    KeyPath,
    Reader,
    choice_reader,
    describe,
    format_fault,
    integer_reader,
    read_fields,
    read_mapping,
    read_text,
    read_texts,
)
from infcalc.errors import CatalogError
from infcalc.spec.efficiency import (
    Algorithm,
    AlgorithmKind,
    Basis,
    Calibration,
    CollectiveKind,
    CollectiveShape,
    EngineCalibration,
    Fractions,
    GpuEfficiency,
    KernelShape,
    MeasuredBand,
    Residual,
    broken_fractions,
    calibrated,
)
from infcalc.units import parse_quantity

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu

DEFAULT_CURVES: Final = "any"
"""The entry for what nothing was measured on."""

VARIANTS: Final[dict[str, tuple[str, ...]]] = {
    "gemm": ("bf16", "bf16_w8", "bf16_w4", "fp8", "fp8_block", "int8", "fp4"),
    "moe": ("bf16", "bf16_w8", "bf16_w4", "fp8", "fp8_block", "int8", "fp4"),
    "moe_even": ("bf16", "bf16_w8", "bf16_w4", "fp8", "fp8_block", "int8", "fp4"),
    "attention_prefill": ("bf16", "fp8"),
    "attention_decode": ("bf16", "fp8"),
    "elementwise": ("any",),
}
"""Kinds of kernels and their variants: what is computed, and ``_w8``, ``_w4`` where only the weights are narrow."""

ENGINES: Final = (
    *("vllm", "sglang", "tensorrt-llm", "llama.cpp"),
    *("gpt-fast", "lmdeploy", "tgi", "hf", "autoawq"),
)
"""Engines that a calibration may speak of: those whose pace is known."""

LIBRARIES: Final = ("nccl", "vllm", "sglang", "tensorrt-llm", "deepep")

_NUM_ENDS = 2
_MAX_RANKS = 4096
_MAX_POINTS = 64
_MAX_LATENCY_S = 1.0
_MAX_SHARPNESS = 64


def _number_reader(low: float, high: float) -> Reader:
    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            faults.append((path, f"expected a number, found {describe(value)}"))
        elif not low <= value <= high:
            faults.append((path, f"must be from {low:g} to {high:g}, found {value:g}"))
        else:
            return float(value)
        return INVALID

    return read


def _quantity_reader(dimension: str, low: float, high: float) -> Reader:
    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        try:
            quantity = parse_quantity(value, dimension)
        except ValueError as problem:
            faults.append((path, str(problem)))
            return INVALID
        if not low <= quantity <= high:
            faults.append((path, f"{value!r} is out of range"))
            return INVALID
        return quantity

    return read


_read_latency = _quantity_reader("seconds", 0.0, _MAX_LATENCY_S)
_read_speed = _quantity_reader("bytes_per_s", 1e6, 1e18)
_read_tokens = _number_reader(1e-3, 2**50)
_read_bytes = _quantity_reader("bytes", 1.0, 2.0**60)


def _fractions_reader(read_amount: Reader) -> Reader:
    """Return a reader of ``[[amount, fraction], ...]`` or of one fraction that holds everywhere."""

    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = [[None, value]]
        if not isinstance(value, list | tuple) or not 1 <= len(value) <= _MAX_POINTS:
            faults.append((path, f"expected points such as [[64, 0.4], [512, 0.8]], found {describe(value)}"))
            return INVALID
        before = len(faults)
        knots, fractions = [], []
        for number, point in enumerate(value):
            place = (*path, str(number))
            if not isinstance(point, list | tuple) or len(point) != _NUM_ENDS:
                faults.append((place, f"expected an amount and a fraction, found {describe(point)}"))
                continue
            amount = 1.0 if point[0] is None else read_amount(point[0], place, faults)
            fraction = _number_reader(1e-6, 1.0)(point[1], place, faults)
            if isinstance(amount, float) and isinstance(fraction, float):
                knots.append(math.log2(amount))
                fractions.append(fraction)
        if len(faults) > before:
            return INVALID
        if fault := broken_fractions(tuple(knots), tuple(fractions)):
            faults.append((path, fault))
            return INVALID
        return Fractions(knots=tuple(knots), fractions=tuple(fractions))

    return read


def _noun_reader(
    noun: type, readers: Mapping[str, Reader], required: tuple[str, ...], names: Mapping[str, str]
) -> Reader:
    """Return a reader of a mapping to ``noun``; ``names`` gives the field where it is called other than the key."""

    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        mapping = read_mapping(value, path, faults)
        if mapping is None:
            return INVALID
        values = cast("dict[str, Any] | None", read_fields(mapping, readers, required, path, faults))
        return INVALID if values is None else noun(**{names.get(key, key): item for key, item in values.items()})

    return read


_read_share = _number_reader(0.0, 1e3)
_read_residual = _noun_reader(
    Residual,
    {
        "points": integer_reader(1, 10**9),
        **dict.fromkeys(("median", "p90", "worst", "held_out_median", "held_out_p90"), _read_share),
    },
    ("points", "median", "p90", "worst"),
    {
        "points": "num_points",
        **{key: f"{key}_fraction" for key in ("median", "p90", "worst", "held_out_median", "held_out_p90")},
    },
)
_read_kernel = _noun_reader(
    KernelShape,
    {
        "compute": _fractions_reader(_read_tokens),
        "bandwidth": _fractions_reader(_read_bytes),
        "latency": _read_latency,
        "latency_per_token": _read_latency,
        "sharpness": _number_reader(1.0, _MAX_SHARPNESS),
        "basis": choice_reader(Basis),
        "error": _read_residual,
        "source": read_text,
    },
    (),
    {
        "compute": "compute_fraction",
        "bandwidth": "bandwidth_fraction",
        "latency": "latency_s",
        "latency_per_token": "latency_per_token_s",
        "error": "residual",
    },
)
_read_algorithm = _noun_reader(
    Algorithm,
    {"kind": choice_reader(AlgorithmKind), "latency": _read_latency, "speed": _read_speed},
    ("kind", "latency", "speed"),
    {"latency": "latency_s", "speed": "bytes_per_s"},
)


def _read_algorithms(value: object, path: KeyPath, faults: list[Fault]) -> object:
    if not isinstance(value, list | tuple) or not value:
        faults.append((path, f"expected a list of algorithms, found {describe(value)}"))
        return INVALID
    return tuple(_read_algorithm(item, (*path, str(number)), faults) for number, item in enumerate(value))


def name_reader(names: tuple[str, ...]) -> Reader:
    """Return a reader of one of ``names``."""

    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        if value in names:
            return value
        faults.append((path, f"{describe(value)} is none of {', '.join(names)}"))
        return INVALID

    return read


_read_collective = _noun_reader(
    CollectiveShape,
    {
        "kind": choice_reader(CollectiveKind),
        "library": name_reader(LIBRARIES),
        "ranks": integer_reader(2, _MAX_RANKS),
        "algorithms": _read_algorithms,
        "basis": choice_reader(Basis),
        "error": _read_residual,
        "source": read_text,
    },
    ("kind", "library", "ranks", "algorithms"),
    {"ranks": "num_ranks", "error": "residual"},
)


def _read_collectives(value: object, path: KeyPath, faults: list[Fault]) -> object:
    if not isinstance(value, list | tuple):
        faults.append((path, f"expected a list of collectives, found {describe(value)}"))
        return INVALID
    return tuple(_read_collective(item, (*path, str(number)), faults) for number, item in enumerate(value))


def _read_kernels(value: object, path: KeyPath, faults: list[Fault]) -> object:
    kinds = read_mapping(value, path, faults)
    if kinds is None:
        return INVALID
    found: list[tuple[str, object]] = []
    for kind, variants in kinds.items():
        known = VARIANTS.get(kind)
        if known is None:
            faults.append(((*path, kind), f"unknown kind of kernel; known are {', '.join(VARIANTS)}"))
            continue
        mapping = read_mapping(variants, (*path, kind), faults)
        values = None
        if mapping is not None:
            values = read_fields(mapping, dict.fromkeys(known, _read_kernel), (), (*path, kind), faults)
        found += [(f"{kind}/{variant}", shape) for variant, shape in (values or {}).items()]
    return tuple(found)


_READERS: dict[str, Reader] = {
    "measured_on": read_texts,
    "kernels": _read_kernels,
    "collectives": _read_collectives,
    "link": _read_speed,
    "network": _read_speed,
    "network_latency": _read_latency,
    "aliases": read_texts,
    "source": read_text,
    "date": read_text,
    "doubts": read_texts,
}
_FIELDS = {"link": "link_bytes_per_s", "network": "network_bytes_per_s", "network_latency": "network_latency_s"}


def read_efficiency(
    name: str, mapping: object, path: KeyPath, faults: list[Fault], *, required: tuple[str, ...] = ("source", "date")
) -> GpuEfficiency | None:
    """Return the curves of an entry, or None after appending all its faults to ``faults``."""
    entry = read_mapping(mapping, path, faults)
    if entry is None:
        return None
    before = len(faults)
    values = cast("dict[str, Any] | None", read_fields(entry, _READERS, required, path, faults))
    if values is None or len(faults) > before:
        return None
    values.pop("aliases", None)
    return GpuEfficiency(name=name, **{_FIELDS.get(key, key): value for key, value in values.items()})


def efficiency_from_mapping(name: str, mapping: object) -> GpuEfficiency:
    """Return the curves that an entry of the section ``efficiencies`` describes.

    Raises:
        CatalogError: the mapping has faults; all of them are listed with their key paths.

    """
    faults: list[Fault] = []
    found = read_efficiency(name, mapping, ("efficiencies", name), faults)
    if found is None:
        raise CatalogError(tuple(format_fault(fault) for fault in faults))
    return found


def read_gpu_efficiency(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read the ``efficiency`` block of a GPU, whose curves are of that GPU; a reader of ``catalog.gpus``."""
    found = read_efficiency(path[1] if len(path) > 1 else "", value, path, faults, required=())
    return INVALID if found is None else found


_LEAST_FACTOR, _MOST_FACTOR = 0.01, 1000.0
_read_factor = _number_reader(_LEAST_FACTOR, _MOST_FACTOR)
_ENGINE_FACTORS: dict[str, Reader] = {"step": _read_factor, "front_end": _read_factor}


def _read_engines(value: object, path: KeyPath, faults: list[Fault]) -> object:
    mapping = read_mapping(value, path, faults)
    if mapping is None:
        return INVALID
    found = []
    for engine, factors in mapping.items():
        if engine not in ENGINES:
            faults.append(((*path, engine), f"unknown engine; known are {', '.join(ENGINES)}"))
            continue
        given = read_mapping(factors, (*path, engine), faults)
        values = None if given is None else read_fields(given, _ENGINE_FACTORS, (), (*path, engine), faults)
        if values is not None:
            named = cast("dict[str, Any]", {f"{key}_factor": item for key, item in values.items()})
            found.append(EngineCalibration(engine=engine, **named))
    return tuple(found)


BANDED: Final = ("tpot_s", "tpot_s at a rate", "ttft_s", "ttft_s at a rate", "output_tokens_per_s")
"""What a calibration may state bands of."""

_read_band = _noun_reader(
    MeasuredBand,
    {
        "of": name_reader(BANDED),
        "model": read_text,
        "engine": name_reader(ENGINES),
        "figures": integer_reader(1, 10**9),
        "low": _read_factor,
        "high": _read_factor,
    },
    ("of", "model", "engine", "figures", "low", "high"),
    {"figures": "num_figures", "low": "measured_fraction_low", "high": "measured_fraction_high"},
)


def _read_bands(value: object, path: KeyPath, faults: list[Fault]) -> object:
    if not isinstance(value, list | tuple):
        faults.append((path, f"expected a list of bands, found {describe(value)}"))
        return INVALID
    found = [_read_band(item, (*path, str(number)), faults) for number, item in enumerate(value)]
    for number, one in enumerate(found):
        if isinstance(one, MeasuredBand) and one.measured_fraction_low > one.measured_fraction_high:
            faults.append(((*path, str(number)), "low is above high"))
    return tuple(found)


read_calibration = _noun_reader(
    Calibration,
    {
        **dict.fromkeys(("bandwidth", "compute", "link", "message"), _read_factor),
        "engines": _read_engines,
        "bands": _read_bands,
        "source": read_text,
        "date": read_text,
    },
    (),
    {key: f"{key}_factor" for key in ("bandwidth", "compute", "link", "message")},
)
"""Read the ``calibration`` block of a GPU: what ``infcalc calibrate`` writes."""


def calibration_mapping(calibration: Calibration) -> dict[str, object]:
    """Return a calibration in the words of a catalog; factors of 1 are left out.

    >>> calibration_mapping(Calibration(bandwidth_factor=0.9))
    {'bandwidth': 0.9}
    """
    named: dict[str, object] = {
        "bandwidth": calibration.bandwidth_factor,
        "compute": calibration.compute_factor,
        "link": calibration.link_factor,
        "message": calibration.message_factor,
    }
    written = {key: value for key, value in named.items() if value != 1}
    engines = {
        one.engine: {
            key: value for key, value in (("step", one.step_factor), ("front_end", one.front_end_factor)) if value != 1
        }
        for one in calibration.engines
    }
    if engines := {engine: factors for engine, factors in engines.items() if factors}:
        written["engines"] = engines
    if calibration.bands:
        written["bands"] = [
            {
                "of": one.of,
                "model": one.model,
                "engine": one.engine,
                "figures": one.num_figures,
                "low": one.measured_fraction_low,
                "high": one.measured_fraction_high,
            }
            for one in calibration.bands
        ]
    said = {"source": calibration.source, "date": calibration.date}
    return written | {key: text for key, text in said.items() if text}


def efficiency_for(
    gpu: Gpu,
    *,
    base: GpuEfficiency | None,
    link_of: Callable[[str], GpuEfficiency | None],
    default: GpuEfficiency | None = None,
) -> GpuEfficiency:
    """Return the curves of ``gpu``: those of ``base``, uncalibrated where it was not measured, under its own.

    ``link_of`` gives the curves measured over a link, by the first word of its name or ``PCIe``. Where ``base`` lacks a
    kind of kernel altogether, ``default`` serves. A block ``efficiency`` of the accelerator goes before all: its
    kernels replace those of the same kind and variant, its collectives those of the same kind and library. A block
    ``calibration`` scales what comes out.
    """
    found = base or GpuEfficiency(name=gpu.name)
    if gpu.name not in found.measured_on:
        found = replace(
            found,
            kernels=tuple((key, replace(shape, basis=Basis.UNCALIBRATED)) for key, shape in found.kernels),
            collectives=(),
        )
    kinds = {key.partition("/")[0] for key, _ in found.kernels}
    missing = default.kernels if default else ()
    kernels = dict(found.kernels) | {key: shape for key, shape in missing if key.partition("/")[0] not in kinds}
    collectives = found.collectives or _over_links(gpu, link_of)
    own = gpu.efficiency or GpuEfficiency(name=gpu.name)
    replaced = {(shape.kind, shape.library) for shape in own.collectives}
    kept = tuple(shape for shape in collectives if (shape.kind, shape.library) not in replaced)
    whole = replace(
        found,
        kernels=tuple((kernels | dict(own.kernels)).items()),
        collectives=(*kept, *own.collectives),
        network_bytes_per_s=own.network_bytes_per_s or found.network_bytes_per_s,
        network_latency_s=own.network_latency_s or found.network_latency_s,
        doubts=(*found.doubts, *own.doubts),
    )
    return whole if gpu.calibration is None else calibrated(whole, gpu.calibration)


_VIA_HOST_S = 40e-6
_VIA_HOST_SHARE = 0.6
"""GeForce cards have no peer access over PCIe: what they exchange passes the host's memory. How much longer that takes,
and what is left of the speed, lies between what runs of whole models on RTX 4090 machines of two sources have.
"""


def _over_links(gpu: Gpu, link_of: Callable[[str], GpuEfficiency | None]) -> tuple[CollectiveShape, ...]:
    """Return collectives measured on other parts over links like those of ``gpu``, speeds scaled to its own link.

    Bridges that are optional are not counted on; beyond the ranks that a link joins, PCIe serves.
    """
    link, domain = gpu.scale_up, 1
    shapes: list[CollectiveShape] = []
    if link is not None and not link.optional:
        domain = link.max_domain
        measured = link_of(link.name.partition(" ")[0].rstrip(";"))
        if measured is not None:
            scale = link.bytes_per_s / (measured.link_bytes_per_s or link.bytes_per_s)
            shapes += (_scaled(shape, scale) for shape in measured.collectives if shape.num_ranks <= domain)
    slow = link_of("PCIe") if gpu.pcie_bytes_per_s else None
    if slow is not None:
        scale = min(1.0, (gpu.pcie_bytes_per_s or 0.0) / (slow.link_bytes_per_s or math.inf))
        later_s, share = (_VIA_HOST_S, _VIA_HOST_SHARE) if "GeForce" in gpu.title else (0.0, 1.0)
        shapes += (_scaled(shape, share * scale, later_s) for shape in slow.collectives if shape.num_ranks > domain)
    return tuple(shapes)


def _scaled(shape: CollectiveShape, scale: float, later_s: float = 0.0) -> CollectiveShape:
    algorithms = tuple(
        replace(algorithm, bytes_per_s=algorithm.bytes_per_s * scale, latency_s=algorithm.latency_s + later_s)
        for algorithm in shape.algorithms
    )
    return replace(shape, algorithms=algorithms, basis=Basis.UNCALIBRATED)
