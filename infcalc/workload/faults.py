"""Numbers of a trace, read by the column: fast where all is well, and with every fault and its line where not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from infcalc.workload.trace import Floats, Ints

Values: TypeAlias = Sequence[Any] | Floats
"""Raw values of a column, or numbers already."""
_MOST_TOKENS = 2**40
_MOST_S = 1e12
_SHOWN = 40


class Faults:
    """What is wrong with a trace, by line (or by ``unit``, where it has no lines); grows while it is read."""

    def __init__(self) -> None:
        self.unit = "line"
        self._found: list[tuple[int, str]] = []

    def add(self, line: int, message: str) -> None:
        """Note a fault."""
        self._found.append((line, message))

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._found)

    def texts(self) -> tuple[str, ...]:
        """Return the faults in the order of their lines."""
        return tuple(f"{self.unit} {line}: {message}" for line, message in sorted(self._found))


def numbers(values: Values, lines: Sequence[int], name: str, faults: Faults) -> Floats:
    """Return values as numbers; NaN and a fault where one is none."""
    try:
        found = np.asarray(values) if isinstance(values, np.ndarray) else np.fromiter(map(float, values), dtype=float)
    except (ValueError, TypeError, OverflowError):
        return np.array([_number(value, line, name, faults) for value, line in zip(values, lines, strict=True)])
    for place in np.flatnonzero(~np.isfinite(found)).tolist():
        faults.add(lines[place], f"{name} {shown(values[place])} is not a number")
    return found


def _number(value: object, line: int, name: str, faults: Faults) -> float:
    try:
        found = float(value)  # type: ignore[arg-type]
    except (ValueError, TypeError, OverflowError):
        found = float("nan")
    if not np.isfinite(found):
        faults.add(line, f"{name} {shown(value)} is not a number" if value is not None else f"there is no {name}")
        return float("nan")
    return found


def tokens(values: Values, lines: Sequence[int], name: str, faults: Faults) -> Ints:
    """Return values as token counts; 0 and a fault where one is none."""
    found = numbers(values, lines, name, faults)
    bad = np.isnan(found)
    wrong = ~bad & ((found < 0) | (found > _MOST_TOKENS) | (found != np.floor(np.where(bad, 0, found))))
    for place in np.flatnonzero(wrong & np.isfinite(found)).tolist():
        faults.add(lines[place], f"{name} {shown(values[place])} is not a whole number of tokens from 0 up")
    whole: Ints = np.where(bad | wrong, 0, found).astype(np.int64)
    return whole


def times_s(values: Values, lines: Sequence[int], name: str, faults: Faults, *, unit_s: float) -> Floats:
    """Return times in seconds; NaN and a fault where one is none, negative ones included."""
    found = numbers(values, lines, name, faults) * unit_s
    for place in np.flatnonzero(np.isfinite(found) & ((found < 0) | (found > _MOST_S))).tolist():
        faults.add(lines[place], f"{name} {shown(values[place])} is not a time from 0 up")
    return found


def dates_s(values: Sequence[str], lines: Sequence[int], name: str, faults: Faults) -> Floats:
    """Return dates with a time of day (``2023-11-16 18:17:03.9799600``, UTC where no zone is named) as seconds."""
    plain = [value.removesuffix("+00:00").removesuffix("Z") for value in values]
    try:
        moments = np.array(plain, dtype="datetime64[ns]")
    except (ValueError, OverflowError):
        moments = np.array([_date(text, line, name, faults) for text, line in zip(plain, lines, strict=True)])
    seconds: Floats = moments.astype(np.int64) / 1e9
    return np.where(np.isnat(moments), np.nan, seconds)


def _date(text: str, line: int, name: str, faults: Faults) -> np.datetime64:
    try:
        return np.datetime64(text, "ns")
    except (ValueError, OverflowError):
        faults.add(line, f"{name} {shown(text)} is not a date such as 2023-11-16 18:17:03.9799600")
        return np.datetime64("NaT", "ns")


def shown(value: object, most: int = _SHOWN) -> str:
    """Return a value as an error shows it: no longer than ``most`` characters."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}..."
