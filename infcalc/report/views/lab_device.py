"""The view of ``infcalc lab measure --device``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_seconds, format_si

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.lab_device_nouns import CurveRow, DeviceMachine, DeviceResult, DeviceRow


def view(answer: Answer[DeviceResult]) -> View:
    """Return what was reached of the peaks, how right the curves are, and what was left out."""
    result = answer.result
    tables = [_kernels(result), _curves(result.curves), _left_out(result)]
    return view_of(
        answer,
        tables=tuple(table for table in tables if table.rows),
        verdict=_verdict(result.machine),
        findings=() if result.overlay else ("nothing of this is better than what the catalog has: no overlay",),
    )


def _verdict(machine: DeviceMachine) -> str:
    bandwidth = format_si(machine.reached_bytes_per_s, "B/s")
    rate = format_si(machine.reached_flop_per_s, "FLOP/s")
    if not machine.known:
        return f"{machine.title}: reaches {bandwidth} and {rate}; no catalog entry states its peaks"
    share = machine.reached_bytes_per_s / machine.bandwidth_bytes_per_s
    return f"{machine.title} as {machine.gpu}: reaches {bandwidth}, {share:.0%} of its bandwidth, and {rate}"


def _kernels(result: DeviceResult) -> Table:
    known = result.machine.known
    against = "what the catalog states" if known else "the fastest that was reached"
    return Table(
        title=f"Kernels by torch {result.machine.torch_version}: efficiency is measured over {against}",
        columns=(
            Column(key="kernel", heading="kernel", left=True),
            Column(key="precision", heading="in", left=True),
            Column(key="size", heading="size", left=True),
            Column(key="time_s", heading="time", show=_time),
            Column(key="spread_fraction", heading="spread", show=_share, aside=True),
            Column(key="bytes_per_s", heading="memory", show=lambda value: _si(value, "B/s"), aside=True),
            Column(key="flop_per_s", heading="compute", show=lambda value: _si(value, "FLOP/s"), aside=True),
            Column(key="bound_by", heading="bound by", left=True),
            Column(key="efficiency_fraction", heading="efficiency", show=_share),
            *((Column(key="error_fraction", heading="catalog", show=_signed, aside=True),) if known else ()),
        ),
        rows=tuple(_row(row) for row in result.kernels),
    )


def _row(row: DeviceRow) -> dict[str, object]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _curves(rows: tuple[CurveRow, ...]) -> Table:
    return Table(
        title="Curves of the overlay: absolute errors of what they predict",
        columns=(
            Column(key="curve", heading="curve", left=True),
            Column(key="num_points", heading="points", show=count),
            Column(key="median_abs_error_fraction", heading="median", show=_share),
            Column(key="worst_abs_error_fraction", heading="worst", show=_share),
            Column(key="held_out_median_abs_error_fraction", heading="shapes not seen", show=_share),
        ),
        rows=tuple({name: getattr(row, name) for name in row.__dataclass_fields__} for row in rows),
    )


def _left_out(result: DeviceResult) -> Table:
    """Return what was left out, all cases of one reason and precision in one line."""
    by_reason: dict[tuple[str, str], list[str]] = {}
    for one in result.left_out:
        head = ", ".join(one.case.split(", ")[:2])
        by_reason.setdefault((head, one.why), []).append(one.case)
    return Table(
        title="Left out",
        columns=(
            Column(key="case", heading="what", left=True),
            Column(key="number", heading="cases", show=count),
            Column(key="why", heading="why", left=True),
        ),
        rows=tuple(
            {"case": cases[0] if len(cases) == 1 else head, "number": len(cases), "why": why}
            for (head, why), cases in by_reason.items()
        ),
    )


def _time(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)


def _share(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, int | float) else str(value)


def _signed(value: object) -> str:
    return f"{value:+.0%}" if isinstance(value, int | float) else str(value)


def _si(value: object, unit: str) -> str:
    return format_si(value, unit) if isinstance(value, int | float) and value else "-"
