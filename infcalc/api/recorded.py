"""Entries of a file of recorded logs, checked: what is read of them has the type it must have."""

from __future__ import annotations

import math
from typing import Any

from infcalc.errors import FileProblem

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
_FRACTIONS = ("gpu_memory_utilization", "mem_fraction_static", "kv_cache_free_gpu_mem_fraction")
_AMOUNTS = ("total_gpu_memory_gib",)
_PRINTED = ("weights_gib_per_gpu", "available_kv_gib", "kv_cache_tokens", "num_gpu_blocks", "max_concurrency")
_MOST = 2**40
_SHOWN_LETTERS = 40


def checked(entries: object, place: str) -> tuple[list[dict[str, Any]], list[FileProblem]]:
    """Return the entries of quality full in a file, and what is wrong with those that cannot be scored.

    Raises:
        FileProblem: no list of entries, or none of them can be scored; the message names entry and key.

    """
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        hint = "a list of entries with id, engine, model, gpu, quality and the printed figures"
        raise FileProblem("this is no list of recorded logs", place=place, hint=hint)
    found: list[dict[str, Any]] = []
    problems: list[FileProblem] = []
    for number, entry in enumerate(entries, start=1):
        if entry.get("quality") == FULL:
            try:
                found.append(_entry(entry, f"{place}, {_called(entry, number)}"))
            except FileProblem as problem:
                problems.append(problem)
    if problems and not found:
        raise problems[0]
    return found, problems


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
        (_FRACTIONS, 0, 1, "a number above 0 and at most 1"),
        (_AMOUNTS, 0, _MOST, "a positive number"),
        (_PRINTED, -_MOST, _MOST, "a number"),
    ):
        for key in keys:
            value = entry.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise _wrong(key, value, what, place)
            whole, zero = "whole" in what, key == "gpu_count"
            if not low <= value <= high or (low == 0 and value == 0 and not zero) or (whole and value != int(value)):
                raise _wrong(key, value, what, place)
            if whole:
                found[key] = int(value)
    return found


def _wrong(key: str, value: object, what: str, place: str) -> FileProblem:
    shown = repr(value)
    shown = shown if len(shown) <= _SHOWN_LETTERS else f"{shown[:_SHOWN_LETTERS]}..."
    return FileProblem(f"{key} is {shown}", place=place, hint=f"{key} is {what}, or left out")
