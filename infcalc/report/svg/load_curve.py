"""A time against throughput along a sweep: its band, the knee, the load's own point and the limits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.report.svg.element import Element, element
from infcalc.report.svg.frame import (
    Axis,
    Key,
    Sheet,
    area_of,
    axes,
    cross,
    dash,
    diamond,
    dot,
    drawing,
    legend,
    patch,
    path,
    ring,
)
from infcalc.report.svg.labels import Label, along, around_point, placed
from infcalc.report.svg.scale import Scale, around
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.offer import Figure
    from infcalc.api.sweeping import Curve, SweepPoint


@frozen
class Limit:
    """A limit on the time of the drawing, and its name."""

    limit_s: float
    name: str


@frozen
class Shown:
    """Which time of a curve is drawn, under which name of its axis, with which limits.

    ``value`` is that of the variable at the load itself, if any.
    """

    quantity: str
    axis: str
    limits: tuple[Limit, ...]
    value: float | None


def load_curve(curve: Curve, shown: Shown, sheet: Sheet) -> Element:
    """Return the drawing of one time of each point that has one; some point must."""
    limits, own = shown.limits, shown.value
    drawn = [(point, figure) for point in curve.points if (figure := getattr(point, shown.quantity)) is not None]
    height = 290.0 if sheet.narrow else 360.0
    area = area_of(sheet.width, height)
    x = around([point.output_tokens_per_s.value for point, _ in drawn], area.left, area.right)
    times = [end for _, figure in drawn for end in (figure.low, figure.high)]
    y = around([*times, *(limit.limit_s for limit in limits)], area.bottom, area.top)
    places = [(x.place(point.output_tokens_per_s.value), y.place(figure.value)) for point, figure in drawn]
    found = axes(
        area,
        Axis(scale=x, name="output tokens/s of one replica (logarithmic)", show=lambda value: f"{value:,.6g}"),
        Axis(scale=y, name=shown.axis, show=format_seconds),
    )
    found.append(_band(drawn, x, y))
    found.append(path(places, "l0"))
    keys = [
        Key(mark=dash("l0"), text=f"mean at {curve.variable} as written"),
        Key(mark=patch("band"), text="80 % band"),
    ]
    labels: list[Label] = []
    for limit in limits:
        level = y.place(limit.limit_s)
        found.append(element("line", x1=area.left, x2=area.right, y1=level, y2=level, class_="limit"))
        keys.append(Key(mark=dash("limit"), text=f"limit: {limit.name}"))
    knee, chosen = _at(curve.knee, drawn, places), _at(own, drawn, places)
    for (point, _), at in zip(drawn, places, strict=True):
        found.append(cross(*at) if not point.stable else dot(*at, radius=3.2))
        labels.append(Label(x=at[0], y=at[1], text=f"{point.value:,.4g}"))
    if any(not point.stable for point, _ in drawn):
        keys.append(Key(mark=cross(), text="beyond saturation"))
    strong: list[Label] = []
    if knee is not None and curve.knee is not None:
        found.append(ring(*knee))
        keys.append(Key(mark=ring(radius=7), text=f"knee, {curve.variable} {curve.knee:,.4g}"))
    if chosen is not None and own is not None:
        found.append(diamond(*chosen))
        keys.append(Key(mark=diamond(), text=f"this load, {curve.variable} {own:,.4g}"))
        strong.append(Label(x=chosen[0], y=chosen[1], text=f"{own:,.4g}", strong=True))
    # The ends of a curve say most: after the load's own point they come first.
    others = [label for label in labels if chosen is None or (label.x, label.y) != chosen]
    ordered = [*strong, *others[:1], *others[-1:], *others[1:-1]]
    texts = placed(ordered, [*(around_point(*at, 4) for at in places), *along(places)], area.box)
    entries, end = legend(keys, sheet.width, height + 8)
    return drawing(sheet, end, *found, *texts, *entries)


def _at(
    value: float | None, drawn: Sequence[tuple[SweepPoint, Figure]], places: Sequence[tuple[float, float]]
) -> tuple[float, float] | None:
    return next((at for (point, _), at in zip(drawn, places, strict=True) if point.value == value), None)


def _band(drawn: Sequence[tuple[SweepPoint, Figure]], x: Scale, y: Scale) -> Element:
    """Return the band of the points up to the most throughput: past it a band would run back over itself."""
    rates = [point.output_tokens_per_s.value for point, _ in drawn]
    rising = drawn[: rates.index(max(rates)) + 1]
    low = [(x.place(point.output_tokens_per_s.value), y.place(figure.low)) for point, figure in rising]
    high = [(x.place(point.output_tokens_per_s.value), y.place(figure.high)) for point, figure in rising]
    return path([*low, *reversed(high)], "band", closed=True)
