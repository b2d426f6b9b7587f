"""Views in a terminal: tables that fit its width, in colour where colour is wanted."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, TextIO

from infcalc.report.table import Table, View, cells, left_out, narrowed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rich.console import Console
    from rich.table import Table as RichTable

_WIDE = 110
_BETWEEN = 2
"""Blanks that each column takes beside its text."""


def show(view: View, stream: TextIO) -> None:
    """Print the view to a terminal."""
    from rich.console import Console  # noqa: PLC0415 - start-up: only a terminal needs rich

    # rich by itself would keep bold and dim where NO_COLOR is set.
    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(file=stream, highlight=False, soft_wrap=False, color_system=None if plain else "auto")
    if view.verdict:
        console.print(view.verdict, style="bold", markup=False)
    console.print(view.lead, style="dim", markup=False)
    for finding in view.findings:
        console.print(finding, style="bold", markup=False)
    if view.pasted:
        # Neither cropped nor folded: a terminal that is too narrow folds it by itself, and copies it whole.
        console.print()
        console.print(view.pasted, markup=False, soft_wrap=True)
    for table in view.tables:
        if table.rows:
            console.print()
            wide = console.width >= _WIDE
            _print_table(console, table if wide else narrowed(table))
            if not wide and left_out(table):
                console.print(left_out(table), style="dim", markup=False)
    drawing = view.drawing if view.drawn is None else view.drawn(console.width)
    if drawing:
        console.print()
        console.print(drawing, markup=False, no_wrap=True, overflow="crop")
    _print_texts(console, view)


def _print_texts(console: Console, view: View) -> None:
    """Print explanations and notes as lists."""
    from rich.padding import Padding  # noqa: PLC0415 - start-up: only a terminal needs rich

    for title, texts in (("explanation", view.explanations), ("notes", view.notes)):
        if texts:
            console.print(f"\n{title}:", style="dim")
            for text in texts:
                console.print(Padding(f"- {text}", (0, 0, 0, 2)), style="dim" if title == "notes" else "", markup=False)


def _print_table(console: Console, table: Table) -> None:
    """Print a table; what is too wide under headings of what its rows share, or in pieces side by side no longer.

    A number is never broken over lines, and a word only where nothing else helps.
    """
    if _widths(table, console.width) is not None:
        console.print(_rich(table, console.width))
        return
    groups = _groups(table)
    if groups:
        console.print(table.title, style="italic", markup=False)
        for heading, part in groups:
            console.print(heading, style="bold", markup=False)
            for piece in _pieces(part, console.width):
                console.print(_rich(piece, console.width))
        return
    for piece in _pieces(table, console.width):
        console.print(_rich(piece, console.width))


def _names(table: Table) -> int:
    """Return how many columns in front name a row."""
    texts = [column.left for column in table.columns]
    return texts.index(False) if False in texts else len(texts)


def _groups(table: Table) -> list[tuple[str, Table]]:
    """Return the rows by what all but the last of their names are, where several rows share that; else nothing."""
    shared = _names(table) - 1
    if shared < 1:
        return []
    found: dict[tuple[str, ...], list[Mapping[str, object]]] = {}
    for row, texts in zip(table.rows, cells(table), strict=True):
        found.setdefault(tuple(texts[:shared]), []).append(row)
    if len(found) == len(table.rows):
        return []
    columns = table.columns[shared:]
    return [(", ".join(names), Table(title="", columns=columns, rows=tuple(rows))) for names, rows in found.items()]


def _pieces(table: Table, room: int) -> list[Table]:
    """Return the table in as many pieces as it takes, each with what tells the rows apart and some of the columns."""
    kept = max(1, _names(table))
    rows = cells(table)
    while len({tuple(texts[:kept]) for texts in rows}) < len(rows) and kept < len(table.columns) - 1:
        kept += 1
    names, rest = table.columns[:kept], table.columns[kept:]
    found: list[Table] = []
    start = 0
    while start < len(rest):
        end = len(rest)
        while end > start + 1 and _widths(replace(table, columns=(*names, *rest[start:end])), room) is None:
            end -= 1
        title = table.title if start == 0 else ""
        found.append(replace(table, title=title, columns=(*names, *rest[start:end])))
        start = end
    return found or [table]


def _widths(table: Table, room: int) -> list[int] | None:
    """Return the width of each column with which the table fits, words and numbers whole; None where it does not."""
    texts = list(zip([column.heading for column in table.columns], *cells(table), strict=True))
    widths = [max(map(len, column)) for column in texts]
    # The first column names the row: a name broken over lines cannot be read, nor copied.
    least = [
        max(len(word) for text in texts[place] for word in (text.split() or [""])) if column.left and place else width
        for place, (column, width) in enumerate(zip(table.columns, widths, strict=True))
    ]
    over = sum(widths) + _BETWEEN * len(widths) - room
    while over > 0:
        spare, place = max((width - least[place], place) for place, width in enumerate(widths))
        if spare <= 0:
            return None
        widths[place] -= 1
        over -= 1
    return widths


def _rich(table: Table, room: int) -> RichTable:
    from rich import box  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    title = Text(table.title) if table.title else None
    drawn = RichTable(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    widths = _widths(table, room)
    for place, column in enumerate(table.columns):
        drawn.add_column(
            Text(column.heading),
            justify="left" if column.left else "right",
            overflow="fold",
            no_wrap=place == 0 or not column.left,
            width=widths[place] if widths else None,
        )
    for row in cells(table):
        drawn.add_row(*(Text(text) for text in row))
    return drawn
