"""The view of ``infcalc workload``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.as_json import value_of
from infcalc.report.table import Column, Table, View, count
from infcalc.report.timeline import columns_drawn
from infcalc.report.views.frame import view_of
from infcalc.units import format_span

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.answer import Answer
    from infcalc.api.workloads import WorkloadResult

_NARROW = 40


def view(answer: Answer[WorkloadResult]) -> View:
    """Return the lengths as a table, the rates in words, and requests per second over time."""
    result = answer.result
    return view_of(
        answer,
        tables=(_lengths(result), _sharing(result)),
        data=_data(result),
        findings=_findings(result),
        drawing=_drawing(result, 80),
        drawn=lambda width: _drawing(result, max(_NARROW, width)),
        notes=(f"a trace like this: infcalc workload {result.like}",) if result.trace_format != "generated" else (),
    )


def _lengths(result: WorkloadResult) -> Table:
    names = ("mean", "p50", "p90", "p99", "max")
    estimated = result.input_tokens.mean_low is not None
    band = ("mean_low", "mean_high") if estimated else ()
    headings = {"mean_low": "mean low", "mean_high": "mean high"}
    return Table(
        title="Lengths in tokens",
        columns=(
            Column(key="part", heading="part", left=True),
            *(Column(key=name, heading=headings.get(name, name), show=_tokens) for name in (*names, *band)),
            Column(key="cv", heading="CV", show=_two),
        ),
        rows=tuple(
            {"part": part} | {name: getattr(summary, name) for name in (*names, *band, "cv")}
            for part, summary in (("input", result.input_tokens), ("output", result.output_tokens))
        ),
    )


def _sharing(result: WorkloadResult) -> Table:
    """Return what prompts share, where they share anything."""
    rows: tuple[Mapping[str, object], ...] = (
        {"of": "prompt tokens", "fraction": result.prefix_share_fraction},
        {"of": "requests", "fraction": result.prefix_share_requests_fraction},
    )
    return Table(
        title="What an endless prefix cache would find",
        columns=(
            Column(key="of", heading="share of", left=True),
            Column(key="fraction", heading="found", show=_percent),
        ),
        rows=rows if result.prefix_share_fraction else (),
    )


def _findings(result: WorkloadResult) -> tuple[str, ...]:
    found = [_arriving(result)]
    if result.sessions != result.requests:
        found.append(f"{result.sessions:,} sessions of {result.requests / result.sessions:.2f} turns on average")
    return tuple(found)


def _arriving(result: WorkloadResult) -> str:
    many = f"{result.requests:,} request{'s' if result.requests != 1 else ''}"
    if result.concurrency is not None:
        return f"{many}, sent by {result.concurrency:,} clients as they get their answers"
    if result.rate_per_s is None or result.burstiness_cv is None:
        return f"{many}, all at once"
    rate = f"{result.rate_per_s:.3g} per s on average"
    peak = "" if result.peak_rate_per_s is None else f", {result.peak_rate_per_s:.3g} in the busiest stretch"
    burst = f"gaps vary by {result.burstiness_cv:.2f} of their mean (Poisson: 1)"
    return f"{many} over {format_span(result.duration_s)}: {rate}{peak}; {burst}"


def _drawing(result: WorkloadResult, width: int) -> str:
    if not result.over_time:
        return ""
    step_s = result.over_time[1].start_s if len(result.over_time) > 1 else result.duration_s
    drawn = columns_drawn(
        [interval.requests_per_s for interval in result.over_time],
        "per s",
        format_span(step_s * len(result.over_time)),
        width=width,
    )
    return f"Requests per second over time, in stretches of {format_span(step_s)}\n{drawn}"


def _data(result: WorkloadResult) -> Table:
    """Return all that JSON holds: a row of the whole, then one for each stretch of time."""
    whole = value_of(result)
    row: dict[str, object] = {"row": "result"}
    for key, value in whole.items() if isinstance(whole, dict) else ():
        if isinstance(value, dict):
            row |= {f"{key}.{name}": item for name, item in value.items()}
        elif key != "over_time":
            row[key] = value
    rows = [row]
    for interval in result.over_time:
        part = value_of(interval)
        rows.append({"row": "interval", **(part if isinstance(part, dict) else {})})
    keys = dict.fromkeys(key for one in rows for key in one)
    return Table(title="", columns=tuple(Column(key=key, heading=key) for key in keys), rows=tuple(rows))


def _tokens(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, float) and value >= _WHOLE else count(value)


_WHOLE = 100


def _two(value: object) -> str:
    return f"{value:.2f}" if isinstance(value, int | float) else str(value)


def _percent(value: object) -> str:
    return f"{100 * value:.1f} %" if isinstance(value, int | float) else str(value)
