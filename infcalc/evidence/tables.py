"""Tables as benchmarks write them, row by row: CSV, and the bars of Markdown."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

from infcalc.errors import FileProblem
from infcalc.evidence.lines import whole_lines

if TYPE_CHECKING:
    from collections.abc import Sequence


def csv_rows(text: str, place: str) -> tuple[tuple[tuple[int, tuple[str, ...]], ...], str]:
    """Return the rows of a CSV text with their lines, blank ones as empty rows; and what is to be said of a cut one.

    Raises:
        FileProblem: a quote that is never closed.

    """
    lines, cut = whole_lines(text, ends=('"',) if text.count('"') % 2 == 0 else ())
    reader = csv.reader(lines, strict=True)
    rows: list[tuple[int, tuple[str, ...]]] = []
    try:
        rows.extend((reader.line_num, tuple(cell.strip() for cell in row)) for row in reader)
    except csv.Error as problem:
        raise FileProblem(f"line {reader.line_num}: {problem}", place=place, hint="save the file again") from problem
    return tuple(rows), cut


def markdown_rows(text: str) -> tuple[tuple[tuple[int, tuple[str, ...]], ...], str]:
    r"""Return the rows of the tables of a Markdown text with their lines, the line of dashes left out.

    >>> markdown_rows("| a | b |\n| - | -: |\n| 1 | 2 |\n")[0]
    ((1, ('a', 'b')), (3, ('1', '2')))
    """
    lines, cut = whole_lines(text, ends=("|",))
    rows = []
    for number, line in enumerate(lines, start=1):
        plain = line.strip()
        if not plain.startswith("|") or not plain.endswith("|") or len(plain) < 2:  # noqa: PLR2004 - two bars
            continue
        cells = tuple(cell.strip() for cell in plain[1:-1].split("|"))
        if not all(set(cell) <= {"-", ":", " "} for cell in cells):
            rows.append((number, cells))
    return tuple(rows), cut


def keyed(header: Sequence[str], row: Sequence[str], line: int, place: str) -> dict[str, str]:
    """Return a row by the names of its columns.

    Raises:
        FileProblem: it has more cells than there are columns, or fewer.

    """
    if len(row) != len(header):
        raise FileProblem(
            f"line {line}: {len(row)} cells, and {len(header)} columns", place=place, hint="the row may be cut off"
        )
    return dict(zip(header, row, strict=True))
