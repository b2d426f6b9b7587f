"""Catalog mappings to accelerators: the schema of ``gpus.yaml``, and the CUDA total of parts that publish none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias, cast

from infcalc.catalog.codec import (
    INVALID,
    Fault,
    KeyPath,
    Reader,
    describe,
    format_fault,
    integer_reader,
    read_fields,
    read_flag,
    read_mapping,
    read_text,
    read_texts,
)
from infcalc.errors import CatalogError
from infcalc.spec.hardware import Gpu, Link, Price
from infcalc.units import format_bytes, parse_quantity

PRECISIONS = ("fp32", "tf32", "bf16", "fp8", "int8", "fp4", "int4")
"""Keys of the dense peak rates, in the order of :attr:`Gpu.peak_flop_per_s`."""

CudaRatios: TypeAlias = Mapping[str, float]
"""CUDA total as a fraction of another total: by ``<base>/<group>``, base ``driver_total`` or ``memory``."""

_RANGES = {
    "bytes": (2**20, 2**50),
    "bytes_per_s": (1e6, 1e18),
    "flop_per_s": (1e9, 1e21),
    "watt": (1.0, 1e6),
    "usd_per_hour": (0.0, 1e6),
}
"""What a figure of one accelerator can be: from far below a microcontroller to far above a rack."""

_MAX_DOMAIN = 2**20
_MAX_SMS = 2**20
_NUM_RANGE_ENDS = 2


def quantity_reader(dimension: str, *, whole: bool = False) -> Reader:
    """Return a reader of text with a unit of ``dimension`` (see :func:`infcalc.units.parse_quantity`)."""
    low, high = _RANGES[dimension]

    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        try:
            quantity = parse_quantity(value, dimension)
        except ValueError as problem:
            faults.append((path, str(problem)))
            return INVALID
        if not low <= quantity <= high or not quantity:
            faults.append((path, f"{value!r} is out of range"))
            return INVALID
        return round(quantity) if whole else quantity

    return read


_read_bytes = quantity_reader("bytes", whole=True)
_read_rate = quantity_reader("bytes_per_s")
_read_peak = quantity_reader("flop_per_s")
_read_usd = quantity_reader("usd_per_hour")


def _read_link(value: object, path: KeyPath, faults: list[Fault]) -> object:
    mapping = read_mapping(value, path, faults)
    if mapping is None:
        return INVALID
    readers: dict[str, Reader] = {
        "name": read_text,
        "bandwidth": _read_rate,
        "max_domain": integer_reader(1, _MAX_DOMAIN),
        "optional": read_flag,
    }
    values = cast("dict[str, Any] | None", read_fields(mapping, readers, ("name", "bandwidth"), path, faults))
    if values is None:
        return INVALID
    return Link(
        name=values["name"],
        bytes_per_s=values["bandwidth"],
        max_domain=values.get("max_domain", 1),
        optional=values.get("optional", False),
    )


def _read_price_value(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read a price or a range ``[low, high]`` of prices as a tuple of its two ends (the same for one price)."""
    ends = value if isinstance(value, list | tuple) else [value, value]
    if len(ends) != _NUM_RANGE_ENDS:
        faults.append((path, f"expected a price or a range of two prices, found {describe(value)}"))
        return INVALID
    low, high = (_read_usd(end, path, faults) for end in ends)
    if isinstance(low, float) and isinstance(high, float):
        if low <= high:
            return low, high
        faults.append((path, "the range ends below its start"))
    return INVALID


def _read_price(value: object, path: KeyPath, faults: list[Fault]) -> object:
    mapping = read_mapping(value, path, faults)
    if mapping is None:
        return INVALID
    readers: dict[str, Reader] = {
        "value": _read_price_value,
        "provider": read_text,
        "source": read_text,
        "date": read_text,
        "note": read_text,
    }
    fields = cast("dict[str, Any] | None", read_fields(mapping, readers, ("value",), path, faults))
    if fields is None:
        return INVALID
    low, high = fields.pop("value")
    fields.setdefault("provider", "")
    return Price(usd_per_hour=low, usd_per_hour_high=high if high > low else None, **fields)


def _read_prices(value: object, path: KeyPath, faults: list[Fault]) -> object:
    if isinstance(value, list | tuple):
        return tuple(_read_price(item, (*path, str(number)), faults) for number, item in enumerate(value))
    return (_read_price(value, path, faults),)


def _read_capability(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read a compute capability; YAML takes an unquoted ``8.0`` for a number."""
    return str(value) if isinstance(value, float) else read_text(value, path, faults)


def _read_efficiency(value: object, path: KeyPath, faults: list[Fault]) -> object:
    from infcalc.catalog.efficiency import read_gpu_efficiency  # noqa: PLC0415  few entries have the block

    return read_gpu_efficiency(value, path, faults)


def _read_calibration(value: object, path: KeyPath, faults: list[Fault]) -> object:
    from infcalc.catalog.efficiency import read_calibration  # noqa: PLC0415  few entries have the block

    return read_calibration(value, path, faults)


_READERS: dict[str, Reader] = {
    "title": read_text,
    "vendor": read_text,
    "architecture": read_text,
    "memory": _read_bytes,
    "cuda_total": _read_bytes,
    "driver_total": _read_bytes,
    "bandwidth": _read_rate,
    **dict.fromkeys(PRECISIONS, _read_peak),
    "scale_up": _read_link,
    "pcie": _read_rate,
    "tdp": quantity_reader("watt"),
    "num_sms": integer_reader(1, _MAX_SMS),
    "cache": _read_bytes,
    "compute_capability": _read_capability,
    "unified_memory": read_flag,
    "price": _read_prices,
    "aliases": read_texts,
    "source": read_text,
    "date": read_text,
    "doubts": read_texts,
    "recalled": read_texts,
    "efficiency": _read_efficiency,
    "calibration": _read_calibration,
}
_REQUIRED = ("memory", "bandwidth", "source", "date")
# Keys of the mapping whose name in the noun carries a unit or is a plural.
_FIELDS = {
    "memory": "memory_bytes",
    "cuda_total": "cuda_total_bytes",
    "driver_total": "driver_total_bytes",
    "bandwidth": "bandwidth_bytes_per_s",
    "pcie": "pcie_bytes_per_s",
    "tdp": "tdp_watt",
    "cache": "cache_bytes",
    "price": "prices",
}
_OPTIONAL = frozenset(_READERS) - set(_REQUIRED)


def read_gpu(name: str, mapping: object, ratios: CudaRatios, path: KeyPath, faults: list[Fault]) -> Gpu | None:
    """Return the accelerator of an entry, or None after appending all its faults to ``faults``.

    An entry without ``cuda_total`` gets the share of ``ratios`` that its nearest relatives have, and a doubt saying so.
    """
    entry = read_mapping(mapping, path, faults)
    if entry is None:
        return None
    before = len(faults)
    present = {key: value for key, value in entry.items() if value is not None or key not in _OPTIONAL}
    values = cast("dict[str, Any] | None", read_fields(present, _READERS, _REQUIRED, path, faults))
    if values is None:
        return None
    peaks = tuple((precision, values.pop(precision)) for precision in PRECISIONS if precision in values)
    fields = {_FIELDS.get(key, key): value for key, value in values.items()}
    fields["doubts"] = fields.get("doubts", ())
    if not peaks and not fields["doubts"]:
        faults.append((path, "state a dense peak, such as bf16: 312 TFLOPS, or say in doubts why none is known"))
    if "cuda_total_bytes" not in fields:
        _estimate_cuda_total(fields, ratios)
    _check_totals(fields, path, faults)
    if len(faults) > before:
        return None
    for key, default in (("title", name), ("vendor", "unknown"), ("architecture", "unknown")):
        fields.setdefault(key, default)
    return Gpu(name=name, peak_flop_per_s=peaks, **fields)


def gpu_from_mapping(name: str, mapping: object, ratios: CudaRatios) -> Gpu:
    """Return the accelerator that an entry of the section ``gpus`` describes.

    Raises:
        CatalogError: the mapping has faults; all of them are listed with their key paths.

    """
    faults: list[Fault] = []
    gpu = read_gpu(name, mapping, ratios, ("gpus", name), faults)
    if gpu is None:
        raise CatalogError(tuple(format_fault(fault) for fault in faults))
    return gpu


def _check_totals(fields: Mapping[str, Any], path: KeyPath, faults: list[Fault]) -> None:
    """Append a fault where CUDA reports more than the driver, or the driver more than the box promises."""
    limits = (("cuda_total_bytes", "driver_total_bytes"), ("driver_total_bytes", "memory_bytes"))
    for smaller, larger in (*limits, ("cuda_total_bytes", "memory_bytes")):
        if fields.get(smaller) and fields.get(larger) and fields[smaller] > fields[larger]:
            key = smaller.removesuffix("_bytes")
            given = f"{format_bytes(fields[smaller])} exceeds {larger.removesuffix('_bytes')}"
            faults.append(((*path, key), f"{given} {format_bytes(fields[larger])}"))
            return


def cuda_ratios(entries: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the median CUDA total of known parts as a fraction of their driver total and of their marketed memory.

    Keys are ``<base>/<group>`` where base is ``driver_total`` or ``memory``, and group an architecture, its first word,
    a vendor, or ``all``. The driver total is the better base: on GDDR parts error correction already takes 6 % there.
    """
    samples: dict[str, list[float]] = {}
    for entry in entries:
        if not entry.get("cuda_total"):
            continue
        cuda_total = parse_quantity(entry["cuda_total"], "bytes")
        for base in ("driver_total", "memory"):
            if entry.get(base):
                ratio = cuda_total / parse_quantity(entry[base], "bytes")
                for group in _groups(entry):
                    samples.setdefault(f"{base}/{group}", []).append(ratio)
    return {key: round(_median(ratios), 4) for key, ratios in samples.items()}


def _groups(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the groups an entry belongs to, nearest relatives first."""
    architecture = str(entry.get("architecture") or "unknown")
    vendor = str(entry.get("vendor") or "unknown")
    return tuple(dict.fromkeys((architecture, architecture.partition(" ")[0], vendor, "all")))


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


_BASE_WORDS = {"driver_total": "memory the driver reports", "memory": "marketed memory"}


def _estimate_cuda_total(fields: dict[str, Any], ratios: CudaRatios) -> None:
    """Fill in the CUDA total from the nearest relatives whose total is known, and the doubt that says so."""
    base = "driver_total" if "driver_total_bytes" in fields else "memory"
    group, ratio = next(
        ((group, ratios[f"{base}/{group}"]) for group in _groups(fields) if f"{base}/{group}" in ratios), ("all", 1.0)
    )
    fields["cuda_total_bytes"] = int(fields[f"{base}_bytes"] * ratio)
    fields["cuda_total_estimated"] = True
    relatives = "all known parts" if group == "all" else f"{group} parts"
    doubt = (
        f"the total that CUDA reports is not published; taken as {ratio:.1%} of the {_BASE_WORDS[base]}, "
        f"as on {relatives}"
    )
    fields["doubts"] = (*fields["doubts"], doubt)
