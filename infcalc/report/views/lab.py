"""The views of ``infcalc lab``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_bytes, format_seconds, format_si

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.lab_report import LabResult, LabRow, MachineResult, MeasureResult

_SHOWN_POINTS = 4


def view(answer: Answer[LabResult]) -> View:
    """Return measured against predicted, what caches save, and the computer."""
    result = answer.result
    steps = Table(
        title=f"Steps of {result.model}: measured, and predicted from kernels timed one by one",
        columns=(
            Column(key="case", heading="step", left=True),
            Column(key="batch", heading="batch", show=count),
            Column(key="context_tokens", heading="context", show=_whole),
            Column(key="new_tokens", heading="new", show=_whole),
            Column(key="measured_s", heading="measured", show=_time),
            Column(key="measured_s_low", heading="low", show=_time, aside=True),
            Column(key="measured_s_high", heading="high", show=_time, aside=True),
            Column(key="predicted_s", heading="predicted", show=_time),
            Column(key="error_fraction", heading="error", show=_signed),
            Column(key="ideal_s", heading="ideal", show=_time, aside=True),
            Column(key="bound_by", heading="bound by", left=True, aside=True),
        ),
        rows=tuple(_step(row) for row in result.rows),
    )
    return view_of(
        answer,
        tables=(steps, _projections(result), _machine(result.machine)),
        findings=tuple(_findings(result)),
    )


def measure_view(answer: Answer[MeasureResult]) -> View:
    """Return the kernels that were timed, and the computer."""
    result = answer.result
    kernels = Table(
        title="Kernels, each timed by itself",
        columns=(
            Column(key="kernel", heading="kernel", left=True),
            Column(key="tokens", heading="tokens", show=count),
            Column(key="context_tokens", heading="context", show=count),
            Column(key="bytes", heading="traffic", show=lambda value: format_bytes(float(str(value)))),
            Column(key="time_s", heading="time", show=_time),
            Column(key="time_s_low", heading="low", show=_time, aside=True),
            Column(key="time_s_high", heading="high", show=_time, aside=True),
            Column(key="bytes_per_s", heading="memory", show=lambda value: _si(value, "B/s")),
            Column(key="flop_per_s", heading="compute", show=lambda value: _si(value, "FLOP/s")),
        ),
        rows=tuple({name: getattr(row, name) for name in row.__dataclass_fields__} for row in result.kernels),
    )
    return view_of(answer, tables=(kernels, _machine(result.machine)))


def _step(row: LabRow) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _projections(result: LabResult) -> Table:
    """Return what was computed on the way, at a few lengths: no cache grows with the square, a cache in a line."""
    by_tokens: dict[int, dict[str, object]] = {}
    for point in result.projections:
        key = "uncached" if point.cache == "no cache" else "cached"
        row = by_tokens.setdefault(point.tokens, {"tokens": point.tokens})
        row |= {
            f"{key}_first": point.first_token_projections,
            f"{key}_total": point.total_projections,
            f"{key}_s": point.elapsed_s,
        }
    rows = [by_tokens[tokens] for tokens in sorted(by_tokens)]
    every = max(1, len(rows) // _SHOWN_POINTS)
    return Table(
        title="Projections by the time that token N is produced: without a cache, and with one",
        columns=(
            Column(key="tokens", heading="N", show=count),
            Column(key="uncached_first", heading="first token", show=count),
            Column(key="uncached_total", heading="all tokens", show=count),
            Column(key="uncached_s", heading="time", show=_time),
            Column(key="cached_first", heading="cached: first", show=count),
            Column(key="cached_total", heading="all", show=count),
            Column(key="cached_s", heading="time", show=_time),
        ),
        rows=tuple(rows[every - 1 :: every]),
    )


def _machine(machine: MachineResult) -> Table:
    cache = "unknown" if machine.cache_bytes is None else format_bytes(machine.cache_bytes)
    return Table(
        title="This computer",
        columns=(Column(key="name", heading="property", left=True), Column(key="value", heading="value", left=True)),
        rows=(
            {"name": "processor", "value": machine.title},
            {"name": "threads", "value": machine.num_threads},
            {"name": "last-level cache", "value": cache},
            {"name": "memory bandwidth", "value": format_si(machine.bandwidth_bytes_per_s, "B/s")},
            {"name": f"peak, {machine.precision}", "value": format_si(machine.peak_flop_per_s, "FLOP/s")},
            {"name": "numpy", "value": machine.numpy_version},
            {"name": "kernels, end against beginning", "value": f"{machine.drift_fraction:+.1%}"},
        ),
    )


def _findings(result: LabResult) -> list[str]:
    lines = []
    uncached, cached = (
        next((point for point in reversed(result.projections) if (point.cache == "no cache") is without), None)
        for without in (True, False)
    )
    if uncached and cached:
        times = "once" if cached.first_token_projections == 1 else f"{cached.first_token_projections} times"
        lines.append(
            f"without a cache the first token is projected {uncached.first_token_projections:,} times by the time "
            f"token {uncached.tokens:,} is produced, with one {times}"
        )
    decodes = [row for row in result.rows if row.case == "decode, contiguous cache"]
    if decodes:
        first = decodes[0]
        lines.append(
            f"a token takes {format_seconds(first.measured_s)} at batch {first.batch}, predicted "
            f"{format_seconds(first.predicted_s)} ({first.error_fraction:+.0%})"
        )
    same = "the same tokens" if result.same_tokens else "DIFFERENT tokens: this is a bug"
    lines.append(f"no cache, a contiguous and a paged cache give {same}, bit for bit in double precision")
    return lines


def _time(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _whole(value: object) -> str:
    return f"{value:,.0f}" if isinstance(value, int | float) else str(value)


def _signed(value: object) -> str:
    return f"{value:+.1%}" if isinstance(value, int | float) else str(value)


def _si(value: object, unit: str) -> str:
    return format_si(value, unit) if isinstance(value, int | float) and value else "-"
