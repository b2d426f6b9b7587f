"""What every view shares: the lead line, notes and explanations of an answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Drawing, Table, View, lead_line

if TYPE_CHECKING:
    from infcalc.api.answer import Answer


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
