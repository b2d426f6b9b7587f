"""Views as plain text, Markdown and CSV: for pipes, documents and scripts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infcalc.report.table import Table, View, cells

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_NOTE_WIDTH = 100
CELL_WIDTH = 60


def plain(view: View) -> str:
    """Return the view as aligned text without colour."""
    parts = [view.verdict, view.lead, *view.findings]
    blocks = ["\n".join(part for part in parts if part), view.pasted]
    blocks += [_aligned(table) for table in view.tables if table.rows]
    blocks += [text for text in (view.drawing, _bullets("explanation", view.explanations)) if text]
    blocks.append(_bullets("notes", view.notes))
    return "\n\n".join(block for block in blocks if block) + "\n"


def markdown(view: View) -> str:
    """Return the view as Markdown; the numbers are those of the screen."""
    blocks = [view.verdict, view.lead, *view.findings]
    if view.pasted:
        blocks.append(f"```\n{view.pasted}\n```")
    blocks += [markdown_table(table) for table in view.tables if table.rows]
    if view.drawing:
        blocks.append(f"```\n{view.drawing}\n```")
    blocks += [f"- {text}" for text in (*view.explanations, *view.notes)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def markdown_table(table: Table) -> str:
    """Return a table as Markdown under its title."""
    head = "| " + " | ".join(_cell(column.heading) for column in table.columns) + " |"
    rule = "|" + "|".join("---" if column.left else "---:" for column in table.columns) + "|"
    lines = ["| " + " | ".join(_cell(text) for text in row) + " |" for row in cells(table)]
    return "\n".join([f"**{inline(table.title)}**", "", head, rule, *lines])


def as_csv(view: View) -> str:
    """Return the raw rows of what the view has for scripts, or else of its main table, under their keys."""
    import csv  # noqa: PLC0415 - start-up
    import io  # noqa: PLC0415

    out = io.StringIO()
    table = view.data or view.tables[0]
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.key for column in table.columns])
    for row in table.rows:
        writer.writerow([_raw(row.get(column.key)) for column in table.columns])
    return out.getvalue()


def _raw(value: object) -> object:
    """Return a value as scripts read it: nothing is empty, and truth is written as in JSON."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value


def _aligned(table: Table) -> str:
    headings = [column.heading for column in table.columns]
    rows = [lines for row in cells(table) for lines in _folded(row)]
    # A text of many lines' length must not push the other rows apart: where it ends its row, it runs over.
    widths = [
        max((len(text) for text in texts if len(text) <= CELL_WIDTH), default=len(texts[0]))
        for texts in zip(headings, *rows, strict=True)
    ]

    def line(texts: Iterable[str]) -> str:
        padded = (
            text.ljust(width) if column.left else text.rjust(width)
            for text, width, column in zip(texts, widths, table.columns, strict=True)
        )
        return "  ".join(padded).rstrip()

    return "\n".join([table.title, line(headings), "  ".join("-" * width for width in widths), *map(line, rows)])


def _folded(row: Sequence[str]) -> list[Sequence[str]]:
    """Return the lines of a row: a long text is folded where another stands to the right of it, or that would move."""
    last = max((place for place, text in enumerate(row) if text), default=0)
    if all(len(text) <= CELL_WIDTH for text in row[:last]):
        return [row]
    import textwrap  # noqa: PLC0415 - start-up
    from itertools import zip_longest  # noqa: PLC0415

    parts = [
        textwrap.wrap(text, CELL_WIDTH, break_long_words=False, break_on_hyphens=False) if place < last else [text]
        for place, text in enumerate(row)
    ]
    return list(zip_longest(*parts, fillvalue=""))


def _bullets(title: str, texts: tuple[str, ...]) -> str:
    if not texts:
        return ""
    import textwrap  # noqa: PLC0415 - start-up

    wrapped = (
        textwrap.fill(
            text,
            _NOTE_WIDTH,
            initial_indent="  - ",
            subsequent_indent="    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
        for text in texts
    )
    return "\n".join([f"{title}:", *wrapped])


def inline(text: str) -> str:
    """Return text that is no markup of HTML and stays on one line of a Markdown document.

    >>> inline("<b>fast</b>, < 0.1 %")
    '&lt;b>fast&lt;/b>, < 0.1 %'
    """
    return _TAG.sub("&lt;", " ".join(text.splitlines()))


_TAG = re.compile("<(?=[A-Za-z/!?])")


def _cell(text: str) -> str:
    return inline(text).replace("|", "\\|")
