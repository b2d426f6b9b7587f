"""Plans by cost and time: the front of those that no other beats in both, and the deployment beside it."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from infcalc.report.svg.frame import Axis, Key, Sheet, area_of, axes, dash, diamond, dot, drawing, legend, path
from infcalc.report.svg.labels import Label, along, around_point, placed
from infcalc.report.svg.scale import around
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.plan_nouns import FrontPoint, Plan
    from infcalc.report.svg.element import Element

_THOUSAND = 1000


def price_front(points: Sequence[FrontPoint], own: Plan | None, sheet: Sheet) -> Element:
    """Return the drawing of at least one plan; ``own`` is the deployment with as many replicas as the load takes."""
    height = 290.0 if sheet.narrow else 360.0
    area = area_of(sheet.width, height)
    deployed = _where(own)
    beside = [] if deployed is None else [deployed]
    x = around([*(one.usd_per_month for one in points), *(usd for usd, _ in beside)], area.left, area.right)
    y = around([*(one.e2e_s for one in points), *(time for _, time in beside)], area.bottom, area.top)
    places = [(x.place(one.usd_per_month), y.place(one.e2e_s)) for one in points]
    found = axes(
        area,
        Axis(scale=x, name="USD a month (logarithmic)", show=_usd),
        Axis(scale=y, name="time of a request (logarithmic)", show=format_seconds),
    )
    found.append(path(_stairs(places), "l0"))
    found += [dot(*at) for at in places]
    labels = [
        Label(
            x=at[0],
            y=at[1],
            text=f"{number}" if sheet.narrow else f"{number}: {_named(one)}",
            short=f"{number}",
        )
        for number, (one, at) in enumerate(zip(points, places, strict=True), start=1)
    ]
    said = "the front" if sheet.narrow else "no plan is cheaper and quicker"
    keys = [Key(mark=dash("l0"), text=f"{said} (numbers: table below)")]
    taken = [*(around_point(*at, 4) for at in places), *along(_stairs(places))]
    if deployed is not None:
        at = (x.place(deployed[0]), y.place(deployed[1]))
        found.append(diamond(*at))
        taken.append(around_point(*at, 7))
        keys.append(Key(mark=diamond(), text="as deployed"))
    texts = placed(labels, taken, area.box)
    entries, end = legend(keys, sheet.width, height + 8)
    return drawing(sheet, end, *found, *texts, *entries)


def _where(own: Plan | None) -> tuple[float, float] | None:
    if own is None or own.usd_per_month is None or own.e2e_s is None:
        return None
    return own.usd_per_month.value, own.e2e_s.value


def _named(one: FrontPoint) -> str:
    drafts = f" {one.method} {one.num_draft_tokens}" if one.method is not None else ""
    return f"{one.total_gpus} x {one.gpu}{drafts}"


def _stairs(places: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the line of a front: between two plans nothing is quicker than the dearer one's price buys."""
    found = list(places[:1])
    for (_, above), (right, below) in pairwise(places):
        found += [(right, above), (right, below)]
    return found


def _usd(value: float) -> str:
    return f"{value / _THOUSAND:,.3g}k" if value >= _THOUSAND else f"{value:,.3g}"
