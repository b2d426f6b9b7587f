"""The view of ``infcalc roofline``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.chart import roofline_chart
from infcalc.report.table import Column, Table, View, count
from infcalc.report.views.frame import view_of
from infcalc.units import format_seconds, format_si

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.bounds import RooflinePoint, RooflineResult


def view(answer: Answer[RooflineResult]) -> View:
    """Return where each phase stands, the crossovers and a drawing of the first GPU."""
    result = answer.result
    several = len({(point.model, point.gpu) for point in result.points}) > 1
    who = (Column(key="model", heading="model", left=True), Column(key="gpu", heading="GPU", left=True))
    rows = tuple(_row(flash, naive) for flash, naive in _pairs(result))
    stands = Table(
        title=f"Where {result.context_tokens:,} tokens stand (the work of one GPU; times are floors)",
        columns=(
            *(who if several else ()),
            Column(key="phase", heading="phase", left=True),
            Column(key="batch", heading="batch", show=count),
            Column(key="tokens", heading="tokens", show=count),
            Column(key="flop", heading="work", show=lambda value: _si(value, "FLOP")),
            Column(key="bytes", heading="traffic", show=lambda value: _si(value, "B")),
            Column(key="flop_per_byte", heading="FLOP/B", show=count),
            Column(key="bound_by", heading="bound by", left=True),
            Column(key="time_s", heading="time", show=_time),
        ),
        rows=rows,
    )
    attention = Table(
        title="Attention that keeps its scores on chip (flash), and that sends them through memory (naive)",
        columns=(
            *(who if several else ()),
            Column(key="phase", heading="phase", left=True),
            Column(key="batch", heading="batch", show=count),
            Column(key="tokens_per_s", heading="tokens/s", show=count),
            Column(key="bytes", heading="flash traffic", show=lambda value: _si(value, "B")),
            Column(key="naive_bytes", heading="naive traffic", show=lambda value: _si(value, "B")),
            Column(key="flop_per_byte", heading="FLOP/B", show=count),
            Column(key="naive_flop_per_byte", heading="naive", show=count),
            Column(key="naive_time_s", heading="naive time", show=_time),
        ),
        rows=rows,
    )
    crossings = Table(
        title="Crossover: work per byte above which compute is the limit",
        columns=(
            Column(key="gpu", heading="GPU", left=True),
            Column(key="precision", heading="precision", left=True),
            Column(key="peak_flop_per_s", heading="peak", show=lambda value: _si(value, "FLOP/s")),
            Column(key="bandwidth_bytes_per_s", heading="bandwidth", show=lambda value: _si(value, "B/s")),
            Column(key="crossover_flop_per_byte", heading="FLOP/B", show=count),
        ),
        rows=tuple(
            {
                "gpu": one.gpu,
                "precision": one.precision,
                "peak_flop_per_s": one.peak_flop_per_s,
                "bandwidth_bytes_per_s": one.bandwidth_bytes_per_s,
                "crossover_flop_per_byte": one.crossover_flop_per_byte,
            }
            for one in result.gpus
        ),
    )
    return view_of(
        answer, tables=(stands, attention, crossings), findings=tuple(_findings(result)), drawing=roofline_chart(result)
    )


def _findings(result: RooflineResult) -> list[str]:
    lines = []
    for phase, what in (("decode", "per token"), ("prefill", "for the prompt")):
        point = next((p for p in result.points if p.phase == phase and p.attention_io == "flash"), None)
        if point is not None:
            lines.append(
                f"{phase} at batch {point.batch}: bound by {point.bound_by}, at least {format_seconds(point.time_s)} "
                f"{what} ({point.model} on {point.num_gpus} x {point.gpu})"
            )
    return lines


def _pairs(result: RooflineResult) -> list[tuple[RooflinePoint, RooflinePoint]]:
    """Return each point with FlashAttention beside the same point with naive attention."""

    def where(point: RooflinePoint) -> tuple[object, ...]:
        return point.model, point.gpu, point.num_gpus, point.phase, point.batch

    naive = {where(point): point for point in result.points if point.attention_io == "naive"}
    return [(point, naive[where(point)]) for point in result.points if point.attention_io == "flash"]


def _row(point: RooflinePoint, naive: RooflinePoint) -> dict[str, object]:
    return {
        "model": point.model,
        "gpu": f"{point.num_gpus} x {point.gpu}",
        "phase": point.phase,
        "batch": point.batch,
        "tokens": point.tokens,
        "flop": point.flop,
        "bytes": point.bytes,
        "flop_per_byte": point.flop_per_byte,
        "bound_by": point.bound_by,
        "time_s": point.time_s,
        "tokens_per_s": point.tokens_per_s,
        "naive_bytes": naive.bytes,
        "naive_flop_per_byte": naive.flop_per_byte,
        "naive_time_s": naive.time_s,
    }


def _si(value: object, unit: str) -> str:
    return format_si(value, unit) if isinstance(value, int | float) else str(value)


def _time(value: object) -> str:
    return format_seconds(value) if isinstance(value, int | float) else str(value)
