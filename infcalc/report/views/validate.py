"""The view of ``infcalc validate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.validating import ValidationResult
    from infcalc.api.validating_serving import ServingValidation

_ASSUMED = "not stated, so assumed"


def view(answer: Answer[ValidationResult] | Answer[ServingValidation], *, entry: str = "log", groups: str = "") -> View:
    """Return the cases, the summary over all of them, and the summary by group.

    ``entry`` is what one case is of, ``groups`` what cases are grouped by.
    """
    result = answer.result
    # Measured runs have none: what they do not state is told for the file.
    told = any(getattr(case, "assumed", ()) for case in result.cases)
    cases = Table(
        title=f"Predictions against recorded {entry}s",
        columns=(
            Column(key="id", heading=entry, left=True),
            Column(key="quantity", heading="quantity", left=True),
            Column(key="measured", heading="measured", text_key="measured_text"),
            Column(key="predicted", heading="predicted", text_key="predicted_text"),
            Column(key="low", heading="low", aside=True, text_key="low_text"),
            Column(key="high", heading="high", aside=True, text_key="high_text"),
            Column(key="error_fraction", heading="error", show=_signed),
            Column(key="status", heading="status", left=True, aside=True),
            Column(key="reason", heading="reason", left=True, aside=True),
            *((Column(key="assumed", heading=_ASSUMED, left=True, aside=True),) if told else ()),
        ),
        rows=tuple(
            {
                "id": case.id,
                "quantity": case.quantity,
                "measured": case.measured,
                "predicted": case.predicted,
                "low": case.low,
                "high": case.high,
                "measured_text": _shown(case.quantity, case.measured),
                "predicted_text": _shown(case.quantity, case.predicted),
                "low_text": _shown(case.quantity, case.low),
                "high_text": _shown(case.quantity, case.high),
                "error_fraction": case.error_fraction,
                "status": case.status,
                "reason": case.reason,
                "assumed": ", ".join(getattr(case, "assumed", ())),
            }
            for case in result.cases
        ),
    )
    return view_of(
        answer,
        tables=(cases, _summary(result, "all", entry, groups), _summary(result, "", entry, groups)),
        findings=tuple(
            f"drafting: {side.predicted_so} of {side.cases} measured {side.measured} are predicted as {side.measured}"
            for side in getattr(result, "sides", ())
        ),
    )


def _summary(result: ValidationResult | ServingValidation, group: str, entry: str, groups: str) -> Table:
    return Table(
        title=f"All {entry}s" if group else f"By {groups or 'engine, version, attention and TP'}",
        columns=(
            Column(key="quantity", heading="quantity", left=True),
            *(() if group else (Column(key="group", heading="group", left=True),)),
            Column(key="cases", heading="cases", show=count),
            Column(key="skipped", heading="skipped", show=count),
            Column(key="median_abs_error_fraction", heading="median", show=_share),
            Column(key="mean_abs_error_fraction", heading="mean", show=_share),
            Column(key="p90_abs_error_fraction", heading="p90", show=_share),
            Column(key="worst", heading="worst", show=_share),
            Column(key="band_coverage_fraction", heading="in band", show=_share),
            Column(key="worst_id", heading=f"worst {entry}", left=True, aside=True),
        ),
        rows=tuple(
            {
                "quantity": row.quantity,
                "group": row.group,
                "cases": row.cases,
                "skipped": row.skipped,
                "median_abs_error_fraction": row.median_abs_error_fraction,
                "mean_abs_error_fraction": row.mean_abs_error_fraction,
                "p90_abs_error_fraction": row.p90_abs_error_fraction,
                "worst": row.worst,
                "band_coverage_fraction": row.band_coverage_fraction,
                "worst_id": row.worst_id,
            }
            for row in result.summary
            if (row.group == "all") == bool(group)
        ),
    )


def _shown(quantity: str, value: float | None) -> str | None:
    if value is None:
        return None
    if quantity.endswith("_bytes"):
        return format_bytes(value)
    if quantity.endswith("_per_s"):
        return f"{value:,.4g}"
    if quantity.endswith("_s"):
        return format_seconds(value)
    if quantity.endswith("_fraction"):
        return f"{value:.1%}"
    return f"{value:,.2f}" if quantity in {"max_concurrency", "speedup"} else f"{value:,.0f}"


def _share(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else str(value)


def _signed(value: object) -> str:
    return f"{value:+.1%}" if isinstance(value, int | float) else str(value)
