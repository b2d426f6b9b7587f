"""The roof of a GPU, and where prefill and decode of one deployment stand under it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.chart import HIGHEST_FLOP_PER_BYTE, LOWEST_FLOP_PER_BYTE
from infcalc.report.svg.element import Element, element
from infcalc.report.svg.frame import (
    Axis,
    Key,
    Sheet,
    area_of,
    axes,
    dash,
    diamond,
    dot,
    drawing,
    legend,
    path,
    triangle,
)
from infcalc.report.svg.labels import Label, around_point, placed
from infcalc.report.svg.scale import Scale, around
from infcalc.units import format_si

if TYPE_CHECKING:
    from infcalc.api.bounds import RooflinePoint, RooflineResult
    from infcalc.roofline.crossover import Crossover

_SERIES_OF = {"decode": 0, "prefill": 3}


def roofline_drawing(result: RooflineResult, roof: Crossover, batch: int | None, sheet: Sheet) -> Element:
    """Return the drawing under ``roof``; the decode step of ``batch`` sequences is marked as the load's own."""
    height = 300.0 if sheet.narrow else 390.0
    area = area_of(sheet.width, height)
    points = [one for one in result.points if one.attention_io == "flash"]
    low, high = LOWEST_FLOP_PER_BYTE, HIGHEST_FLOP_PER_BYTE
    x = Scale(low=low, high=high, start=area.left, end=area.right, logarithmic=True)
    y = around(
        [roof.bandwidth_bytes_per_s * low, roof.peak_flop_per_s * 1.6, *(one.flop_per_s for one in points)],
        area.bottom,
        area.top,
    )
    edge, peak = roof.crossover_flop_per_byte, roof.peak_flop_per_s
    corner = (x.place(edge), y.place(peak))
    left = (area.left, y.place(roof.bandwidth_bytes_per_s * low))
    found = axes(
        area,
        Axis(scale=x, name="work per byte moved, FLOP/B (logarithmic)", show=lambda value: f"{value:,g}"),
        Axis(scale=y, name="FLOP/s per GPU (logarithmic)", show=_rate),
    )
    found.append(path([left, corner, (area.right, corner[1])], "roof"))
    found.append(element("line", x1=corner[0], x2=corner[0], y1=corner[1], y2=area.bottom, class_="guide"))
    marks, labels = _marks(points, batch, x, y)
    taken = [around_point(x.place(one.flop_per_byte), y.place(one.flop_per_s), 6) for one in points]
    told = [
        Label(x=corner[0], y=corner[1], text=f"{edge:,.0f} FLOP/B", strong=True),
        *sorted(labels, key=lambda label: not label.strong),
    ]
    keys = [
        Key(mark=dash("roof"), text=f"roof: {format_si(roof.bandwidth_bytes_per_s, 'B/s')}, then {_rate(peak)}FLOP/s"),
        Key(mark=dot(series=_SERIES_OF["decode"]), text="decode at batch b"),
        Key(mark=triangle(series=_SERIES_OF["prefill"]), text="prefill"),
    ]
    if any(one.phase == "decode" and one.batch == batch for one in points):
        keys.append(Key(mark=diamond(), text=f"decode under this load, b{batch}"))
    entries, end = legend(keys, sheet.width, height + 8)
    texts = placed(told, taken, area.box)
    return drawing(sheet, end, *found, *marks, *texts, *entries)


def _marks(points: list[RooflinePoint], batch: int | None, x: Scale, y: Scale) -> tuple[list[Element], list[Label]]:
    marks: list[Element] = []
    labels: list[Label] = []
    for one in points:
        at = (x.place(one.flop_per_byte), y.place(one.flop_per_s))
        own = one.phase == "decode" and one.batch == batch
        if one.phase == "prefill":
            marks.append(triangle(*at, series=_SERIES_OF["prefill"]))
            continue
        marks.append(diamond(*at) if own else dot(*at, series=_SERIES_OF["decode"]))
        labels.append(Label(x=at[0], y=at[1], text=f"b{one.batch:,}", strong=own))
    # The mark of the load lies above the others.
    marks.sort(key=lambda mark: ("class", "chosen") in mark.attributes)
    return marks, labels


def _rate(value: float) -> str:
    return format_si(value, "")
