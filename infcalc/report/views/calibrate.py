"""The view of ``infcalc calibrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.calibrating import CalibrateResult

_MEANINGS = {
    "bandwidth": "bandwidth that kernels reach",
    "compute": "rate that kernels compute at",
    "link": "speed of messages between GPUs",
    "message": "time of a message before its first byte",
    "step": "what the engine adds to a step",
    "front_end": "what the front end takes",
}


def view(answer: Answer[CalibrateResult]) -> View:
    """Return the factors, and the errors on held-out runs before and after."""
    tables = tuple(
        table
        for result in answer.results
        for table in (_factors(result), _errors(result), *((_bands(result),) if result.bands else ()))
    )
    return view_of(
        answer,
        tables=tables,
        verdict="; ".join(result.verdict for result in answer.results),
        findings=tuple(text for result in answer.results for text in _findings(result)),
        data=_data(answer.results),
    )


def _findings(result: CalibrateResult) -> list[str]:
    found = list(result.trades)
    if result.kept_prior or result.bands:
        return found
    return [*found, f"{result.gpu}: too few figures for bands of its own: estimates keep those of their class"]


def _bands(result: CalibrateResult) -> Table:
    return Table(
        title=f"{result.gpu}: bands of estimates with the overlay, measured over predicted on held-out runs",
        columns=(
            Column(key="of", heading="of", left=True),
            Column(key="model", heading="model", left=True),
            Column(key="engine", heading="engine", left=True),
            Column(key="num_figures", heading="figures", show=count),
            Column(key="measured_fraction_low", heading="low", show=_factor),
            Column(key="measured_fraction_high", heading="high", show=_factor),
        ),
        rows=tuple({name: getattr(one, name) for name in one.__dataclass_fields__} for one in result.bands),
    )


def _factors(result: CalibrateResult) -> Table:
    return Table(
        title=f"{result.gpu}: factors to what is known already (1 changes nothing)",
        columns=(
            Column(key="means", heading="factor", left=True),
            Column(key="value", heading="value", show=_factor),
            Column(key="low", heading="low", show=_factor, aside=True),
            Column(key="high", heading="high", show=_factor, aside=True),
            Column(key="why", heading="why", left=True),
        ),
        rows=_rows(result),
    )


def _rows(result: CalibrateResult) -> tuple[dict[str, object], ...]:
    return tuple(
        {
            "gpu": result.gpu,
            "factor": one.factor,
            "engine": one.engine,
            "means": _MEANINGS[one.factor] + (f", {one.engine}" if one.engine else ""),
            "value": one.value,
            "low": one.low,
            "high": one.high,
            "fitted": one.fitted,
            "determined": one.determined,
            "partner": one.partner,
            "correlation": one.correlation,
            "why": one.why,
        }
        for one in result.factors
    )


def _errors(result: CalibrateResult) -> Table:
    pairs = zip((result.before, *result.quantities_before), (result.after, *result.quantities_after), strict=True)
    return Table(
        title=f"{result.gpu}: median error on runs that were held out, {result.num_folds} folds by {result.held_out}",
        columns=(
            Column(key="quantity", heading="quantity", left=True),
            Column(key="num_figures", heading="figures", show=count),
            Column(key="before", heading="before", show=_share),
            Column(key="after", heading="after", show=_share),
        ),
        rows=tuple(
            {
                "quantity": before.quantity,
                "num_figures": before.num_figures,
                "before": before.median_abs_error_fraction,
                "after": after.median_abs_error_fraction,
            }
            for before, after in pairs
        ),
    )


def _data(results: tuple[CalibrateResult, ...]) -> Table:
    """Return the factors and the errors of all accelerators, a line each, as JSON has them."""
    keys = ("gpu", "factor", "engine", "value", "low", "high", "fitted", "determined", "why", "partner", "correlation")
    errors = ("quantity", "num_figures", "before_median_abs_error_fraction", "after_median_abs_error_fraction")
    rows: list[dict[str, object]] = [row for result in results for row in _rows(result)]
    for result in results:
        pairs = zip((result.before, *result.quantities_before), (result.after, *result.quantities_after), strict=True)
        rows += [
            {
                "gpu": result.gpu,
                "quantity": before.quantity,
                "num_figures": before.num_figures,
                "before_median_abs_error_fraction": before.median_abs_error_fraction,
                "after_median_abs_error_fraction": after.median_abs_error_fraction,
            }
            for before, after in pairs
        ]
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in (*keys, *errors)), rows=tuple(rows))


def _factor(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def _share(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else str(value)
