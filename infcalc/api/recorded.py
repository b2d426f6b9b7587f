"""Entries of a file of recorded logs, checked: what is read of them has the type it must have."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from infcalc.errors import FileProblem
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


@frozen
class Rejected:
    """An entry with a value of another kind than it must have, and what is wrong with it."""

    entry: Mapping[str, Any]
    problem: FileProblem


FULL = "full"
"""Quality of the entries that are scored: settings and figures are all there."""
_TEXTS = (
    *("id", "engine", "version", "model", "gpu", "quality"),
    *("dtype", "quantization", "kv_cache_dtype", "spec_decode"),
)
_COUNTS = (
    *("tp", "pp", "dp", "ep", "dcp"),
    *("max_model_len", "context_len", "max_num_seqs", "max_num_batched_tokens", "block_size"),
)
FRACTIONS = ("gpu_memory_utilization", "mem_fraction_static", "kv_cache_free_gpu_mem_fraction")
_AMOUNTS = ("total_gpu_memory_gib", "weights_gib_per_gpu")
_PRINTED_COUNTS = ("kv_cache_tokens", "num_gpu_blocks", "max_concurrency")
_POOLS = ("available_kv_gib",)
_MOST_GIB = 4096
"""More than any card has; a larger number is in another unit."""
_MOST = 2**40
_ABOVE_ZERO = math.ulp(0.0)
_SHOWN_LETTERS = 40


def checked(
    entries: object,
    place: str,
    *,
    entry: Callable[[dict[str, Any], str], dict[str, Any]] | None = None,
    what: str = "recorded logs",
    hint: str = "a list of entries with id, engine, model, gpu, quality and the printed figures",
    every_quality: bool = False,
) -> tuple[list[dict[str, Any]], list[Rejected]]:
    """Return the entries of quality full in a file, and those that cannot be scored with what is wrong.

    ``entry`` checks one (None: that of a start-up log); ``every_quality`` returns the others too.

    Raises:
        FileProblem: no list of entries, or none of them can be scored; the message names entry and key.

    """
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise FileProblem(f"this is no list of {what}", place=place, hint=hint)
    check = entry or _entry
    found: list[dict[str, Any]] = []
    rejected: list[Rejected] = []
    for number, one in enumerate(entries, start=1):
        if every_quality or one.get("quality") == FULL:
            try:
                found.append(check(one, f"{place}, {_called(one, number)}"))
            except FileProblem as problem:
                rejected.append(Rejected(entry=one, problem=problem))
    if rejected and not found:
        raise rejected[0].problem
    return found, rejected


def _called(entry: dict[str, Any], number: int) -> str:
    name = entry.get("id")
    return name if isinstance(name, str) and name else f"entry {number}"


def _entry(entry: dict[str, Any], place: str) -> dict[str, Any]:
    found = dict(entry)
    for key in _TEXTS:
        value = entry.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _wrong(key, value, "a text", place)
        # An unquoted version is a number in YAML.
        found[key] = str(value)
    for keys, low, high, what in (
        # 0 GPUs: a run on the processor.
        (("gpu_count",), 0, _MOST, "a whole number"),
        (_COUNTS, 1, _MOST, "a whole number, 1 or more"),
        (FRACTIONS, _ABOVE_ZERO, 1, "a number above 0 and at most 1"),
        (_AMOUNTS, _ABOVE_ZERO, _MOST_GIB, f"a positive number of GiB, {_MOST_GIB:,} at most"),
        # An engine for whose KV nothing is left prints 0, or how much is missing.
        (_PRINTED_COUNTS, 0, _MOST, "a number, 0 or more"),
        (_POOLS, -_MOST_GIB, _MOST_GIB, f"a number of GiB, {_MOST_GIB:,} at most"),
    ):
        for key in keys:
            value = entry.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise _wrong(key, value, what, place)
            whole = "whole" in what
            if not low <= value <= high or (whole and value != int(value)):
                raise _wrong(key, value, what, place)
            if whole:
                found[key] = int(value)
    return found


_PARTS = ("engine", "gpu", "parallel", "workload", "measured", "flags", "source")
_LOAD_COUNTS = ("num_requests", "concurrency", "batch")
_LOAD_AMOUNTS = ("input_tokens", "output_tokens", "output_tokens_max")
_MEASURED_AMOUNTS = ("output_tok_s", "speedup")
DRAFT_LENGTHS = (
    *("draft_tokens", "num_draft_tokens", "num_speculative_tokens", "num_spec_tokens", "speculative_num_draft_tokens"),
    *("k", "gamma"),
)
DRAFT_STEPS = ("num_steps", "speculative_num_steps")
DRAFT_WIDTHS = ("topk", "eagle_topk", "speculative_eagle_topk")
"""How reports call the length of a draft, and the depth and the width of a tree."""
_MEASURED_TIMES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms")


def measurement(entry: dict[str, Any], place: str) -> dict[str, Any]:
    """Return an entry of a file of measured runs, checked: each part a mapping, each amount a number.

    Raises:
        FileProblem: the message names entry and key.

    """
    found = dict(entry)
    for key in _PARTS:
        part = entry.get(key)
        if part is None:
            found[key] = {}
        elif not isinstance(part, dict):
            raise _wrong(key, part, "a mapping", place)
    load, measured, ranks = found["workload"], found["measured"], found["parallel"]
    for part, keys, what, least in (
        (load, _LOAD_COUNTS, "a whole number, 1 or more", 1),
        (ranks, ("tp", "pp", "dp", "ep"), "a whole number, 1 or more", 1),
        (load, _LOAD_AMOUNTS, "a number of tokens", 0),
        (measured, _MEASURED_AMOUNTS, "a positive number", 0),
    ):
        _check_amounts(part, keys, what, least, place)
    for key in _MEASURED_TIMES:
        values = measured.get(key)
        if values is not None:
            if not isinstance(values, dict):
                raise _wrong(key, values, "a mapping with mean, median or unspecified", place)
            _check_amounts(values, tuple(values), "a number of milliseconds", 0, place)
    accepted = measured.get("acceptance")
    if accepted is not None and not isinstance(accepted, dict):
        raise _wrong("acceptance", accepted, "a mapping with mean_tokens_per_step", place)
    _check_amounts(accepted or {}, ("mean_tokens_per_step",), "a number of tokens, 1 or more", 1, place)
    drafted = (*DRAFT_LENGTHS, *DRAFT_STEPS, *DRAFT_WIDTHS)
    _check_amounts(found["flags"], drafted, "a whole number, 1 or more", 1, place)
    rate = load.get("request_rate")
    if rate is not None and not (rate in {"inf", ".inf"} or (_is_number(rate) and float(rate) > 0)):
        raise _wrong("request_rate", rate, "a positive number of requests per second, or inf", place)
    return found


def _check_amounts(part: Mapping[str, Any], keys: tuple[str, ...], what: str, least: float, place: str) -> None:
    for key in keys:
        value = part.get(key)
        if value is None:
            continue
        whole = "whole" in what
        if not _is_number(value) or not math.isfinite(value) or not least <= value <= _MOST:
            raise _wrong(key, value, what, place)
        if whole and value != int(value):
            raise _wrong(key, value, what, place)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _wrong(key: str, value: object, what: str, place: str) -> FileProblem:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_LETTERS else f"{shown[:_SHOWN_LETTERS]}..."
    return FileProblem(f"{key} is {shown}", place=place, hint=f"{key} is {what}, or left out")
