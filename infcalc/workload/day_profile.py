"""A load over the hours of a day or of a week, as people write it down: a table of hours and levels."""

from __future__ import annotations

import csv
import math
import re
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.errors import ProfileError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S
_WEEK_S = 7 * _DAY_S
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?")
_MINUTES = 60
_MOST = 1e12


class Unit(StrEnum):
    """What a level of a profile counts."""

    RATE = "rate"
    """Requests per second."""
    USERS = "users"
    """Requests under way, or users that wait for them."""
    FRACTION = "fraction"
    """Of the highest load, which is stated elsewhere."""


_TIMES = ("hour", "time")
_UNITS = {
    "rate": Unit.RATE,
    "requests_per_s": Unit.RATE,
    "rps": Unit.RATE,
    "qps": Unit.RATE,
    "users": Unit.USERS,
    "concurrency": Unit.USERS,
    "fraction": Unit.FRACTION,
}
_HINT = "two columns: hour or time, and rate, users or fraction; such as: hour,rate / 0,1.5 / 8,12"


@frozen
class DayProfile:
    """Levels that each hold from their start to the next one; after ``period_s`` it begins again.

    Before the first start the last level holds. ``levels`` are in ``unit``.
    """

    starts_s: tuple[float, ...]
    levels: tuple[float, ...]
    period_s: float
    unit: Unit

    @property
    def lengths_s(self) -> tuple[float, ...]:
        """How long each level holds in one period."""
        ends = (*self.starts_s[1:], self.period_s + self.starts_s[0])
        return tuple(end - start for start, end in zip(self.starts_s, ends, strict=True))

    @property
    def mean_level(self) -> float:
        """The level over the whole period, in ``unit``."""
        return sum(level * length for level, length in zip(self.levels, self.lengths_s, strict=True)) / self.period_s


def read_profile(text: str, place: str) -> DayProfile:
    r"""Return the profile of a table with a header; ``place`` names it in errors.

    Times are hours (``8``, ``8.5``) or a clock (``08:30``), ever later. Up to 24 hours it is a day, up to 168 a week.
    Columns are parted by commas, semicolons or tabs; empty lines and lines that begin with ``#`` are left out.

    Raises:
        ProfileError: faults, all of them with their lines.

    >>> read_profile("hour,users\n0,10\n8,100\n", "day.csv").lengths_s
    (28800.0, 57600.0)

    """
    rows = list(_rows(text))
    if not rows:
        raise ProfileError(place, ("line 1: nothing is there",), hint=_HINT)
    (first, header), *body = rows
    columns = [name.strip().lower() for name in header]
    faults = _header_faults(first, columns)
    if faults:
        raise ProfileError(place, tuple(faults), hint=_HINT)
    at = next(number for number, name in enumerate(columns) if name in _TIMES)
    value = 1 - at
    unit = _UNITS[columns[value]]
    starts: list[float] = []
    levels: list[float] = []
    for line, cells in body:
        if len(cells) != len(columns):
            faults.append(f"line {line}: {len(cells)} cells, and {len(columns)} columns")
            continue
        start, wrong = _start_s(cells[at].strip())
        level, amiss = _level(cells[value].strip(), unit)
        told = [text for text in (wrong, amiss) if text]
        if not told and starts and start <= starts[-1]:
            told = [f"{cells[at].strip()} is not later than the time before it"]
        faults += [f"line {line}: {text}" for text in told]
        if not told:
            starts.append(start)
            levels.append(level)
    if not faults and not starts:
        faults.append(f"line {first}: no line below the header")
    if not faults and not any(levels):
        faults.append("all levels are 0")
    if faults:
        raise ProfileError(place, tuple(faults), hint=_HINT)
    return DayProfile(
        starts_s=tuple(starts),
        levels=tuple(levels),
        period_s=_DAY_S if starts[-1] < _DAY_S else _WEEK_S,
        unit=unit,
    )


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    lines = text.splitlines()
    head = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    mark = next((one for one in ("\t", ";") if one in head), ",")
    for number, line in enumerate(lines, start=1):
        if line.strip() and not line.startswith("#"):
            yield number, next(csv.reader([line], delimiter=mark))


def _header_faults(line: int, columns: list[str]) -> list[str]:
    faults = [
        f"line {line}: unknown column {name!r}; known are {', '.join((*_TIMES, *_UNITS))}"
        for name in columns
        if name not in _TIMES and name not in _UNITS
    ]
    for known, word in ((_TIMES, "time"), (tuple(_UNITS), "load")):
        found = [name for name in columns if name in known]
        if len(found) != 1:
            named = f": {', '.join(found)}" if found else ""
            faults.append(f"line {line}: {len(found)} columns of {word}{named}; one is needed")
    return faults


def _start_s(text: str) -> tuple[float, str]:
    clock = _CLOCK.fullmatch(text)
    if clock:
        hours, minutes, seconds = (int(part or 0) for part in clock.groups())
        if minutes < _MINUTES and seconds < _MINUTES:
            return _checked(hours * _HOUR_S + minutes * _MINUTES + seconds, text)
    number = _number(text)
    if number is None:
        return 0.0, f"{text!r} is no time: write 8, 8.5 or 08:30"
    return _checked(number * _HOUR_S, text)


def _checked(start_s: float, text: str) -> tuple[float, str]:
    if 0 <= start_s < _WEEK_S:
        return start_s, ""
    return 0.0, f"{text} is out of range: hours from 0 to below 168"


def _level(text: str, unit: Unit) -> tuple[float, str]:
    number = _number(text)
    if number is None:
        return 0.0, f"{text!r} is no number"
    if unit is Unit.FRACTION and not 0 <= number <= 1:
        return 0.0, f"{text} is out of range: a fraction from 0 to 1"
    if not 0 <= number <= _MOST:
        return 0.0, f"{text} is out of range: from 0 on"
    return number, ""


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
