"""Lines of a trace as columns of raw values: CSV by its header, JSON lines (or a JSON list) by their keys."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from infcalc.errors import TraceError
from infcalc.frozen import frozen
from infcalc.workload.faults import Faults, Values, shown
from infcalc.workload.trace_formats import Names, TraceFormat, names_among

_HEADER = 200
"""Characters of a header that an error shows."""
_LARGEST = 2.0**40
"""What is larger, or no number, is looked at again, to be told with its line."""
_UNNAMED = ("arrival", "input_tokens", "output_tokens")
_HINT = (
    "needed are a time, input and output tokens, such as arrival_s,input_tokens,output_tokens; "
    "--trace-format names a format"
)


@frozen
class Columns:
    """Raw values of the requests of a trace, with the line (or entry) that each stands in.

    ``records`` are the whole objects, where the trace is one of JSON.
    """

    names: Names
    lines: Sequence[int]
    times: Values | None
    inputs: Values
    outputs: Values
    records: Sequence[Mapping[str, Any]] = ()


def csv_columns(text: str, place: str, form: TraceFormat, faults: Faults) -> Columns:
    """Return the columns of a CSV text.

    Raises:
        TraceError: it has no columns that could be a trace.

    """
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        first = next((row for row in reader if row), [])
        header = [name.strip() for name in first]
        headed = len(header) < len(_UNNAMED) or not all(_is_number(name) for name in header[: len(_UNNAMED)])
        if not headed:
            header = [*_UNNAMED, *(f"column {number}" for number in range(len(_UNNAMED), len(header)))]
        names = names_among(header, form)
        if names is None:
            among = f"no columns of input and output tokens among {', '.join(header)[:_HEADER]}"
            raise TraceError(place, (f"line {reader.line_num}: {among}",), hint=_HINT)
        at = [header.index(name) for name in (names.time, names.input, names.output) if name is not None]
        plain = None if form is TraceFormat.AZURE else _plain(text, names, at, headed=headed and reader.line_num == 1)
        if plain is not None:
            return plain
        rows = [] if headed else [(reader.line_num, first)]
        rows += [(reader.line_num, row) for row in reader if row]
    except csv.Error as wrong:
        raise TraceError(place, (f"line {reader.line_num}: not CSV: {wrong}",), hint=_HINT) from None
    needed = max(at) + 1
    for line, row in rows:
        if len(row) < needed:
            faults.add(line, f"{len(row)} value{'s' if len(row) != 1 else ''} where {needed} are needed: {shown(row)}")
    whole = [(line, row) for line, row in rows if len(row) >= needed] if len(faults) else rows
    return Columns(
        names=names,
        lines=[line for line, _ in whole],
        times=None if names.time is None else [row[at[0]] for _, row in whole],
        inputs=[row[at[-2]] for _, row in whole],
        outputs=[row[at[-1]] for _, row in whole],
    )


def _plain(text: str, names: Names, at: list[int], *, headed: bool) -> Columns | None:
    """Return the columns of a CSV of nothing but good numbers, in a tenth of the memory; None where it is another."""
    if '"' in text or "\n" not in text.strip():
        return None
    try:
        table = np.loadtxt(io.StringIO(text), delimiter=",", skiprows=int(headed), usecols=at, comments=None, ndmin=2)
    except ValueError:
        return None
    counts = table[:, -2:]
    if not ((table >= 0) & (table <= _LARGEST)).all() or (counts != np.floor(counts)).any():
        return None
    return Columns(
        names=names,
        lines=range(1, len(table) + 1),
        times=None if names.time is None else table[:, 0],
        inputs=table[:, -2],
        outputs=table[:, -1],
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def json_columns(
    records: Sequence[Mapping[str, Any]], lines: Sequence[int], place: str, form: TraceFormat, faults: Faults
) -> Columns:
    """Return the columns of JSON objects, by the names of the first of them.

    Raises:
        TraceError: the first has no keys that could be those of a request.

    """
    if not records:
        raise TraceError(place, faults.texts() or ("it is empty",), hint=_HINT)
    names = names_among(records[0], form)
    if names is None:
        among = f"no keys of input and output tokens among {', '.join(records[0])[:_HEADER] or 'none'}"
        raise TraceError(place, (*faults.texts(), f"{faults.unit} {lines[0]}: {among}"), hint=_HINT)
    asked = [name for name in (names.time, names.input, names.output) if name is not None]
    try:
        found = [[record[name] for record in records] for name in asked]
    except KeyError:
        for line, record in zip(lines, records, strict=True):
            missing = [name for name in asked if name not in record]
            if missing:
                faults.add(line, f"there is no {' and no '.join(missing)}")
        kept = [(line, record) for line, record in zip(lines, records, strict=True) if set(asked) <= set(record)]
        lines, records = [line for line, _ in kept], [record for _, record in kept]
        found = [[record[name] for record in records] for name in asked]
    return Columns(
        names=names,
        lines=lines,
        times=found[0] if names.time is not None else None,
        inputs=found[-2],
        outputs=found[-1],
        records=records,
    )


def json_records(text: str, faults: Faults) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the objects of JSON lines, or of one JSON list, with their lines (or places in the list)."""
    if text.lstrip().startswith("["):
        return _listed(text, faults)
    # Not splitlines: a text may hold other line ends, which JSON does not write in another way.
    found = [(line, part) for line, part in enumerate(text.split("\n"), 1) if part.strip()]
    lines = [line for line, _ in found]
    try:
        values = json.loads(f"[{','.join(part for _, part in found)}]")
    except (ValueError, RecursionError):
        values = []
    if len(values) != len(found):
        values = [_value(part, line, faults) for line, part in found]
    if not all(type(value) is dict for value in values):
        for value, line in zip(values, lines, strict=True):
            if not isinstance(value, dict | None):
                faults.add(line, f"not a JSON object: {shown(value)}")
        kept = [(value, line) for value, line in zip(values, lines, strict=True) if isinstance(value, dict)]
        return [value for value, _ in kept], [line for _, line in kept]
    return values, lines


def _value(text: str, line: int, faults: Faults) -> object:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        reason = wrong.msg if isinstance(wrong, json.JSONDecodeError) else "nested too deep, or a number too long"
        faults.add(line, f"not JSON ({reason}): {shown(text.strip())}")
        return None
    if value is None:
        faults.add(line, "not a JSON object: null")
    return value


def _listed(text: str, faults: Faults) -> tuple[list[dict[str, Any]], list[int]]:
    """Return the objects of a JSON list with their places; a text that is no JSON has a line where it breaks off."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as wrong:
        line, reason = (wrong.lineno, wrong.msg) if isinstance(wrong, json.JSONDecodeError) else (1, "nested too deep")
        faults.add(line, f"not JSON ({reason})")
        return [], []
    faults.unit = "entry"
    kept = [(value, place) for place, value in enumerate(values, 1) if isinstance(value, dict)]
    for place, value in enumerate(values, 1):
        if not isinstance(value, dict):
            faults.add(place, f"not a JSON object: {shown(value)}")
    return [value for value, _ in kept], [place for _, place in kept]
