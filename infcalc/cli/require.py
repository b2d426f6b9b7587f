"""``--require 'sequences>=100'``: gates on any key of a result."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, TypeAlias

from infcalc.errors import ObjectiveNotMet, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_GATE = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*(>=|<=|==|!=|>|<)\s*(.+?)\s*$")
_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
    "==": lambda left, right: left == right,
    "!=": lambda left, right: left != right,
}


Gate: TypeAlias = "tuple[str, str, float]"
"""Key, operator and the number to compare with."""


def read_gate(text: str) -> Gate:
    """Return a gate from its text.

    Raises:
        UsageError: it cannot be read.

    """
    match = _GATE.match(text)
    if match is None:
        raise UsageError(f"{text!r} is not a gate", place="--require", hint="write it like 'sequences>=100'")
    key, operator, number = match.groups()
    words = {"true": "1", "false": "0"}
    try:
        limit = float(words.get(number.lower(), number))
    except ValueError:
        limit = math.nan
    if not math.isfinite(limit):
        raise UsageError(f"{number!r} is not a number", place="--require", hint="compare with a number")
    return key, operator, limit


def check(gates: Iterable[str], result: object) -> None:
    """Check every gate against every value its key has in ``result`` (a key in several rows must hold in all).

    ``rows.sequences`` names a key by its path, ``sequences`` any key of that name at any depth.

    Raises:
        UsageError: a gate cannot be read or names no key with a number.
        ObjectiveNotMet: a gate does not hold; the message lists the values.

    """
    failed: list[str] = []
    for gate in gates:
        key, operator, limit = read_gate(gate)
        values = [value for path, value in numbers(result) if path == key or path.endswith(f".{key}")]
        if not values:
            known = sorted({path.rsplit(".", 1)[-1] for path, _ in numbers(result)})
            raise UsageError(f"no number {key!r} in the result", place="--require", hint=f"keys: {', '.join(known)}")
        broken = [value for value in values if not _OPERATORS[operator](value, limit)]
        if broken:
            failed.append(f"{gate}: found {', '.join(f'{value:,g}' for value in broken)}")
    if failed:
        raise ObjectiveNotMet("; ".join(failed), place="--require")


def numbers(value: object, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield every number in a JSON-like value with its dotted path (list positions left out)."""
    if isinstance(value, bool):
        yield path, float(value)
    elif isinstance(value, int | float):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item, path)
