"""What every drawing with axes shares: its size, grid, ticks with units, names of the axes, and the legend below."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.report.svg.element import Element, element
from infcalc.report.svg.labels import FONT, Box, text_width

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infcalc.report.svg.element import Child
    from infcalc.report.svg.scale import Scale

NARROW = 480
"""Width from which on a drawing has room for many ticks and labels."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 26.0, 42.0
_ROW = 20.0
_SWATCH = 18.0
_SIDE = 8.0
_TICK_EVERY, _TICK_EVERY_NARROW = 78.0, 52.0
"""Pixels for each tick of a horizontal axis."""
_TICK_EVERY_UP = 44.0


@frozen
class Axis:
    """A scale with its name and the way its ticks are written."""

    scale: Scale
    name: str
    show: Callable[[float], str]


@frozen
class Area:
    """Where the data of a drawing lies, in its units."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def box(self) -> Box:
        """The same as a box that labels stay in."""
        return Box(left=self.left, top=self.top, right=self.right, bottom=self.bottom)


@frozen
class Key:
    """An entry of a legend: the mark that is explained, drawn around (0, 0), and its meaning."""

    mark: Element
    text: str


def area_of(width: float, height: float) -> Area:
    """Return where the data lies in a drawing of this size, without its legend."""
    return Area(left=_LEFT, top=_TOP, right=width - _RIGHT, bottom=height - _BOTTOM)


def axes(area: Area, x: Axis, y: Axis) -> list[Element]:
    """Return grid, ticks and names of two axes."""
    found: list[Element] = []
    across = area.right - area.left
    every = _TICK_EVERY_NARROW if area.right < NARROW else _TICK_EVERY
    for value in x.scale.ticks(max(3, int(across / every))):
        at = x.scale.place(value)
        found.append(element("line", x1=at, x2=at, y1=area.top, y2=area.bottom, class_="grid"))
        found.append(element("text", x.show(value), x=at, y=area.bottom + 16, text_anchor="middle", class_="tick"))
    for value in y.scale.ticks(max(3, int((area.bottom - area.top) / _TICK_EVERY_UP))):
        at = y.scale.place(value)
        found.append(element("line", x1=area.left, x2=area.right, y1=at, y2=at, class_="grid"))
        found.append(element("text", y.show(value), x=area.left - 7, y=at + 4, text_anchor="end", class_="tick"))
    found += [
        element("line", x1=area.left, x2=area.right, y1=area.bottom, y2=area.bottom, class_="axis"),
        element("line", x1=area.left, x2=area.left, y1=area.top, y2=area.bottom, class_="axis"),
        element(
            "text", x.name, x=(area.left + area.right) / 2, y=area.bottom + 35, text_anchor="middle", class_="name"
        ),
        element("text", y.name, x=2, y=12, class_="name"),
    ]
    return found


def legend(keys: Sequence[Key], width: float, top: float) -> tuple[list[Element], float]:
    """Return the entries in as many rows as they take from ``top`` down, and where they end."""
    found: list[Element] = []
    x, y = _SIDE, top
    for key in keys:
        need = _SWATCH + text_width(key.text) + 18
        if x > _SIDE and x + need > width:
            x, y = _SIDE, y + _ROW
        found.append(element("g", key.mark, transform=f"translate({x + 6:.1f} {y:.1f})"))
        found.append(element("text", key.text, x=x + _SWATCH, y=y + 4, class_="label"))
        x += need
    return found, y + (_ROW if keys else 0.0)


@frozen
class Sheet:
    """What a drawing is made for: its width in pixels, what it shows in words, and its own name on the page."""

    width: float
    title: str
    description: str
    name: str

    @property
    def narrow(self) -> bool:
        """Whether there is room for few ticks and labels only."""
        return self.width < NARROW


def drawing(sheet: Sheet, height: float, *children: Child) -> Element:
    """Return the whole drawing: it scales with its place, and tells those who do not see it what it shows."""
    width, name = sheet.width, sheet.name
    return element(
        "svg",
        element("title", sheet.title, id=f"{name}-title"),
        element("desc", sheet.description, id=f"{name}-desc"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="img",
        aria_labelledby=f"{name}-title {name}-desc",
        font_size=FONT,
        style=f"max-width:{width:.0f}px",
    )


def dot(x: float = 0.0, y: float = 0.0, radius: float = 4.5, series: int = 0) -> Element:
    """Return a filled mark of a series."""
    return element("circle", cx=x, cy=y, r=radius, class_=f"s{series} mark")


def triangle(x: float = 0.0, y: float = 0.0, radius: float = 5.5, series: int = 0) -> Element:
    """Return a filled triangle of a series."""
    points = (
        f"M{x:.1f} {y - radius:.1f}L{x + radius:.1f} {y + radius * 0.8:.1f}L{x - radius:.1f} {y + radius * 0.8:.1f}Z"
    )
    return element("path", d=points, class_=f"s{series} mark")


def ring(x: float = 0.0, y: float = 0.0, radius: float = 8.0) -> Element:
    """Return an open mark around a point."""
    return element("circle", cx=x, cy=y, r=radius, class_="ring")


def diamond(x: float = 0.0, y: float = 0.0, radius: float = 7.0) -> Element:
    """Return the mark of what was chosen."""
    points = f"M{x:.1f} {y - radius:.1f}L{x + radius:.1f} {y:.1f}L{x:.1f} {y + radius:.1f}L{x - radius:.1f} {y:.1f}Z"
    return element("path", d=points, class_="chosen")


def dash(class_: str) -> Element:
    """Return a short piece of a line, for a legend."""
    return element("line", x1=-8, x2=8, y1=0, y2=0, class_=class_)


def patch(class_: str) -> Element:
    """Return a piece of a filled ground, for a legend."""
    return element("rect", x=-8, y=-5, width=15, height=10, class_=class_)


def cross(x: float = 0.0, y: float = 0.0, radius: float = 4.5) -> Element:
    """Return the mark of what cannot last."""
    points = (
        f"M{x - radius:.1f} {y - radius:.1f}L{x + radius:.1f} {y + radius:.1f}"
        f"M{x - radius:.1f} {y + radius:.1f}L{x + radius:.1f} {y - radius:.1f}"
    )
    return element("path", d=points, class_="alert")


def path(points: Sequence[tuple[float, float]], class_: str, *, closed: bool = False) -> Element:
    """Return a line through points."""
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return element("path", d=f"M{steps}{'Z' if closed else ''}", class_=class_)
