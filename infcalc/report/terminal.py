"""Views in a terminal: tables that fit its width, in colour where colour is wanted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TextIO

from infcalc.report.table import Table, View, cells, left_out, narrowed

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_WIDE = 110


def show(view: View, stream: TextIO) -> None:
    """Print the view to a terminal."""
    from rich.console import Console  # noqa: PLC0415 - start-up: only a terminal needs rich
    from rich.padding import Padding  # noqa: PLC0415

    # rich by itself would keep bold and dim where NO_COLOR is set.
    plain = bool(os.environ.get("NO_COLOR"))
    console = Console(file=stream, highlight=False, soft_wrap=False, color_system=None if plain else "auto")
    if view.verdict:
        console.print(view.verdict, style="bold", markup=False)
    console.print(view.lead, style="dim", markup=False)
    for finding in view.findings:
        console.print(finding, style="bold", markup=False)
    for table in view.tables:
        if table.rows:
            console.print()
            wide = console.width >= _WIDE
            console.print(_rich(table if wide else narrowed(table)))
            if not wide and left_out(table):
                console.print(left_out(table), style="dim", markup=False)
    if view.drawing:
        console.print()
        console.print(view.drawing, markup=False, no_wrap=True, overflow="crop")
    for title, texts in (("explanation", view.explanations), ("notes", view.notes)):
        if texts:
            console.print(f"\n{title}:", style="dim")
            for text in texts:
                console.print(Padding(f"- {text}", (0, 0, 0, 2)), style="dim" if title == "notes" else "", markup=False)


def _rich(table: Table) -> RichTable:
    from rich import box  # noqa: PLC0415
    from rich.table import Table as RichTable  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    drawn = RichTable(
        title=Text(table.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0)
    )
    for position, column in enumerate(table.columns):
        # The first column names the row: a name broken over lines cannot be read, nor copied.
        drawn.add_column(
            Text(column.heading), justify="left" if column.left else "right", overflow="fold", no_wrap=position == 0
        )
    for row in cells(table):
        drawn.add_row(*(Text(text) for text in row))
    return drawn
