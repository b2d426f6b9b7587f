"""``--require 'sequences>=100'``: gates on any key of a result, in all of its rows or in those that are picked."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias

from infcalc.errors import ObjectiveNotMet, UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

_GATE = re.compile(r"^\s*([A-Za-z_][\w.]*(?:\[[^\][]+\][\w.]*)*)\s*(>=|<=|==|!=|>|<)\s*(.+?)\s*$")
_STEP = re.compile(r"([^.\[]+)((?:\[[^\]]*\])?)(?:\.|$)")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}


@frozen
class Step:
    """One name on the way to a number, and what the row that it leads to must hold: texts by key."""

    name: str
    row: Mapping[str, str]


Gate: TypeAlias = "tuple[str, str, float]"
"""Key, operator and the number to compare with."""
Place: TypeAlias = "tuple[tuple[str, Mapping[str, object]], ...]"
"""Where a number stands: each name on the way to it, and the row (of a list) that it led to, else nothing."""


def read_gate(text: str) -> Gate:
    """Return a gate from its text.

    Raises:
        UsageError: it cannot be read.

    """
    match = _GATE.match(text)
    if match is None:
        raise UsageError(
            f"{text!r} is not a gate",
            place="--require",
            hint="write it like 'sequences>=100' or 'rows[kv_dtype=fp8].sequences>=100'",
        )
    key, operator, number = match.groups()
    steps_of(key)
    words = {"true": "1", "false": "0"}
    try:
        limit = float(words.get(number.lower(), number))
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise UsageError(f"{number!r} is not a number", place="--require", hint="compare with a number")
    return key, operator, limit


def steps_of(key: str) -> tuple[Step, ...]:
    """Return the steps of a key such as ``summary[quantity=kv_pool_bytes,group=all].median_abs_error_fraction``.

    Raises:
        UsageError: a condition in brackets is not ``key=text``.

    """
    steps = []
    for name, brackets in _STEP.findall(key):
        row: dict[str, str] = {}
        for condition in brackets.strip("[]").split(",") if brackets else ():
            word, equals, wanted = condition.partition("=")
            if not equals or not word.strip() or not wanted.strip("=' \""):
                raise UsageError(
                    f"{brackets} picks no rows", place="--require", hint="write it like rows[kv_dtype=fp8].sequences"
                )
            row[word.strip()] = wanted.strip("=' \"")
        steps.append(Step(name=name, row=row))
    return tuple(steps)


def check(gates: Iterable[str], result: object) -> None:
    """Check every gate against every value its key has in ``result`` (a key in several rows must hold in all).

    ``rows.sequences`` names a key by its path, ``sequences`` any key of that name;
    ``rows[kv_dtype=fp8].sequences`` only the rows that hold that text. Where a key leads to several places, those meant
    are the least deep, and of tables there the first: what is asked for stands before what was only looked at for it.

    Raises:
        UsageError: a gate cannot be read or names no key with a number.
        ObjectiveNotMet: a gate does not hold; the message lists the values.

    """
    failed: list[str] = []
    found = tuple(figures(result))
    for gate in gates:
        key, operator, limit = read_gate(gate)
        steps = steps_of(key)
        meant = _meant([(place, value) for place, value in found if _leads_to(steps, place)])
        if not meant:
            raise _nowhere(key, steps, tuple(place for place, value in found if value is not None))
        values = [value for _, value in meant if value is not None]
        broken = [value for value in values if not _OPERATORS[operator](value, limit)]
        if not values:
            failed.append(f"{gate}: there is no such figure")
        elif broken:
            failed.append(f"{gate}: found {', '.join(f'{value:,g}' for value in broken)}")
    if failed:
        raise ObjectiveNotMet("; ".join(failed), place="--require")


def _meant(found: list[tuple[Place, float | None]]) -> list[tuple[Place, float | None]]:
    """Return the least deep of the places that a key leads to: all that are in no table, else those of the first."""
    depth = min((len(place) for place, _ in found), default=0)
    near = [(place, value) for place, value in found if len(place) == depth]
    alone = [(place, value) for place, value in near if not _in_table(place)]
    return alone or [(place, value) for place, value in near if _names(place) == _names(near[0][0])]


def _in_table(place: Place) -> bool:
    # Answers side by side are no table of one answer.
    return any(row for name, row in place if name != _BESIDE)


def _names(place: Place) -> list[str]:
    return [name for name, _ in place]


_BESIDE = "side_by_side"


def _leads_to(steps: tuple[Step, ...], place: Place, *, named_only: bool = False) -> bool:
    """Return whether a number stands where a key says, which may leave out the first names of its path."""
    if len(steps) > len(place):
        return False
    for step, (name, row) in zip(steps, place[-len(steps) :], strict=True):
        if step.name != name:
            return False
        if not named_only and any(_text(row.get(key)) != wanted.lower() for key, wanted in step.row.items()):
            return False
    return True


def _text(value: object) -> str:
    return str(value).lower()


def _nowhere(key: str, steps: tuple[Step, ...], places: tuple[Place, ...]) -> UsageError:
    """Return the error for a key that leads to no number, with what would."""
    rows = [
        row
        for place in places
        if _leads_to(steps, place, named_only=True)
        for step, (_, row) in zip(steps, place[-len(steps) :], strict=True)
        if step.row
    ]
    if rows:
        wanted = dict.fromkeys(word for step in steps for word in step.row)
        listed = [
            f"{word}: {', '.join(dict.fromkeys(_text(row[word]) for row in rows if word in row)) or 'in no row'}"
            for word in wanted
        ]
        return UsageError(f"no row of {key!r} with a number", place="--require", hint=f"rows have {'; '.join(listed)}")
    known = sorted({place[-1][0] for place in places if place})
    return UsageError(f"no number {key!r} in the result", place="--require", hint=f"keys: {', '.join(known)}")


_FIGURE = {"value", "low", "high", "basis"}


def figures(value: object, place: Place = ()) -> Iterator[tuple[Place, float | None]]:
    """Yield every number in a JSON-like value with the names and rows that lead to it.

    None: what its name leads to is not there, a time beyond saturation, say.
    """
    if value is None:
        yield place, None
    elif isinstance(value, bool):
        yield place, float(value)
    elif isinstance(value, int | float):
        yield place, value
    elif isinstance(value, dict):
        if value.keys() == _FIGURE and isinstance(value["value"], int | float):
            # ``tpot_s`` names the value of a figure, ``tpot_s.high`` the end of its band.
            yield place, value["value"]
        for key, item in value.items():
            yield from figures(item, (*place, (str(key), {})))
    elif isinstance(value, list):
        for item in value:
            row = item if isinstance(item, dict) else {}
            yield from figures(item, (*place[:-1], (place[-1][0], row)) if place else place)
