"""What every view shares: the lead line, notes and explanations of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from infcalc.report.table import Column, Drawing, Table, View, lead_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from infcalc.api.answer import Answer

R = TypeVar("R")
Named = tuple[dict[str, object], R]
"""A result, and what names it in the rows of a table."""
_WHO = (Column(key="model", heading="model", left=True), Column(key="gpu", heading="GPU", left=True))


def side_by_side(answer: Answer[Any]) -> tuple[tuple[Column, ...], list[Named[Any]]]:
    """Return the columns that name deployments, none where there is one, and each result with its names."""
    named = [({"model": one.model, "gpu": f"{one.num_gpus} x {one.gpu}"}, one) for one in answer.results]
    return (_WHO if len(answer.results) > 1 else ()), named


def row_table(
    title: str,
    who: tuple[Column, ...],
    columns: tuple[Column, ...],
    named: Sequence[Named[R]],
    rows_of: Callable[[R], Iterable[object]],
) -> Table:
    """Return a table of the rows of all results, whose columns are fields of a row."""
    rows = tuple(
        names | {column.key: getattr(row, column.key) for column in columns}
        for names, one in named
        for row in rows_of(one)
    )
    return Table(title=title, columns=(*who, *columns), rows=rows)


def view_of(
    answer: Answer[object],
    *,
    tables: tuple[Table, ...],
    data: Table | None = None,
    verdict: str = "",
    findings: tuple[str, ...] = (),
    drawing: str = "",
    drawn: Drawing | None = None,
    pasted: str = "",
    notes: tuple[str, ...] = (),
) -> View:
    """Return the view of an answer around its tables and findings."""
    explanations: tuple[str, ...] = ()
    if answer.explanations:
        from infcalc.report.explained import lines  # noqa: PLC0415 - only when asked

        explanations = lines(answer.explanations)
    return View(
        lead=lead_line(answer.inputs),
        verdict=verdict,
        findings=findings,
        tables=tables,
        data=data,
        drawing=drawing,
        drawn=drawn,
        pasted=pasted,
        notes=(*notes, *answer.assumptions),
        warnings=answer.warnings,
        explanations=explanations,
    )
