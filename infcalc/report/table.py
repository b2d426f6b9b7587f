"""A table before it has a look: columns with a key, a heading and a way to print a value."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from infcalc.frozen import frozen
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.spec.explain import Input


Drawing: TypeAlias = "Callable[[int], str]"
"""Draws for a terminal of so many columns."""


@frozen
class Column:
    """One column. ``key`` names the value in a row (and in CSV); ``show`` prints it for people."""

    key: str
    heading: str
    show: Callable[[object], str] = str
    left: bool = False
    aside: bool = False
    """Left out where a terminal is narrow."""
    text_key: str = ""
    """Key of the text that people see instead, where the unit depends on the row."""


@frozen
class Table:
    """Rows of raw values, each printed by its column. CSV holds the first table of a view, or its ``data``."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[Mapping[str, object], ...]


@frozen
class View:
    """All that is shown for one answer: a line on the inputs, findings in words, tables, a drawing, notes."""

    lead: str
    verdict: str = ""
    """Shown above all else, where the question has an answer of one sentence."""
    findings: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()
    data: Table | None = None
    """What CSV holds, where that is more than the first table shows."""
    drawing: str = ""
    drawn: Drawing | None = None
    """The drawing for a terminal of so many columns, where it can be made to fit."""
    pasted: str = ""
    """Text to be copied: it stands before the tables as it is, at any width."""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Shown on stderr, apart from the data."""
    explanations: tuple[str, ...] = ()


def cells(table: Table) -> list[list[str]]:
    """Return the printed cells of a table, row by row."""
    return [[_cell(row, column) for column in table.columns] for row in table.rows]


def _cell(row: Mapping[str, object], column: Column) -> str:
    if column.text_key:
        text = row.get(column.text_key)
        return "-" if text is None else str(text)
    return shown(row.get(column.key), column)


def narrowed(table: Table) -> Table:
    """Return the table without the columns that a narrow terminal can do without."""
    return replace(table, columns=tuple(column for column in table.columns if not column.aside))


def left_out(table: Table) -> str:
    """Return in words which columns :func:`narrowed` drops, and where they are; empty where it drops none."""
    headings = list(dict.fromkeys(column.heading for column in table.columns if column.aside))
    return f"not shown at this width: {', '.join(headings)}; --json has all" if headings else ""


def shown(value: object, column: Column) -> str:
    """Return one value as its column prints it; a value that does not exist is a dash."""
    return "-" if value is None else column.show(value)


def count(value: object) -> str:
    """Return a whole number with thousands separators; a fraction to three digits."""
    if isinstance(value, float) and value != int(value):
        return f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.1f}"  # noqa: PLR2004 - four digits read as whole
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


_QUIET = {"pp": 1, "dp": 1, "ep": 1, "dcp": 1, "utilization_fraction": 1}
_ONLY_IN_JSON = frozenset({"max_num_batched_tokens", "block_tokens", "max_num_seqs", "max_model_len", "pace"})


def lead_line(inputs: tuple[Input, ...]) -> str:
    """Return the first line of a table: what was assumed, then what was given."""
    given = [named(item) for item in inputs if item.origin.startswith("given")]
    assumed = [
        named(item)
        for item in inputs
        if not item.origin.startswith("given")
        and item.name not in _ONLY_IN_JSON
        and _QUIET.get(item.name) != item.value
    ]
    return "; ".join(f"{word}: {', '.join(items)}" for word, items in (("assumed", assumed), ("given", given)) if items)


def named(item: Input) -> str:
    """Return an input in words: its name and its values with their unit."""
    return " ".join(named_value(item)).removesuffix(" True")


def named_value(item: Input) -> tuple[str, str]:
    """Return the name of an input without its unit, and its value with it, as people read them."""
    values = item.value if isinstance(item.value, tuple) else (item.value,)
    unit = next((unit for unit in _SHOW_IN if item.name.endswith(unit)), "")
    return item.name.removesuffix(unit).replace("_", " "), " ".join(_input(value, unit) for value in values)


_SHOW_IN: dict[str, Callable[[float], str]] = {
    "_bytes": format_bytes,
    "_per_s": "{:g} per s".format,
    "_s": format_seconds,
}
"""Endings of inputs that name a unit, and how such a value is shown without it."""


def _input(value: object, unit: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if unit:
        return _SHOW_IN[unit](value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.12g}"
