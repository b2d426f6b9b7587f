"""What fills one GPU, as one bar from left to right with its legend in the same order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.palette import SERIES
from infcalc.report.svg.element import Element, element
from infcalc.report.svg.frame import Sheet, drawing
from infcalc.report.svg.labels import text_width
from infcalc.report.svg.scale import Scale
from infcalc.units import GIB, format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

_LEFT_ALONE = "left alone"
_TOP, _HEIGHT = 30.0, 46.0
_SIDE = 16.0
_ROW = 22.0
_LEAST = 2.0
"""Pixels of the smallest piece that is there."""


def memory_bar(parts: Sequence[tuple[str, int]], total_bytes: int, sheet: Sheet) -> Element:
    """Return the bar of ``parts`` (name, bytes) in order against ``total_bytes``, which a line marks."""
    width = sheet.width
    shown = [(part, size) for part, size in parts if size > 0]
    whole = max(total_bytes, sum(size for _, size in shown), 1)
    scale = Scale(low=0.0, high=float(whole), start=_SIDE, end=width - _SIDE)
    found: list[Element] = []
    reached = 0
    for index, (part, size) in enumerate(shown):
        left = scale.place(reached)
        reached += size
        piece = element(
            "rect",
            element("title", f"{part}: {format_bytes(size)}"),
            x=left,
            y=_TOP,
            width=max(_LEAST, scale.place(reached) - left),
            height=_HEIGHT,
            class_=f"{_class(part, index)} piece",
        )
        found.append(piece)
    end = scale.place(total_bytes)
    found.append(element("line", x1=end, x2=end, y1=_TOP - 8, y2=_TOP + _HEIGHT + 8, class_="axis"))
    total = f"{format_bytes(total_bytes)} that CUDA reports"
    found.append(element("text", total, x=min(end, width - 2), y=_TOP - 12, text_anchor="end", class_="label"))
    for value in Scale(low=0, high=whole / GIB, start=0, end=1).ticks(6 if sheet.narrow else 10):
        at = scale.place(value * GIB)
        found.append(element("line", x1=at, x2=at, y1=_TOP + _HEIGHT, y2=_TOP + _HEIGHT + 5, class_="axis"))
        found.append(element("text", f"{value:g}", x=at, y=_TOP + _HEIGHT + 19, text_anchor="middle", class_="tick"))
    below = _TOP + _HEIGHT + 38
    found.append(element("text", "GiB of the governing GPU", x=width / 2, y=below, text_anchor="middle", class_="name"))
    entries, height = _legend(shown, width, below + 24)
    return drawing(sheet, height, *found, *entries)


def _class(part: str, index: int) -> str:
    return "rest" if part == _LEFT_ALONE else f"s{index % len(SERIES)}"


def _legend(shown: Sequence[tuple[str, int]], width: float, top: float) -> tuple[list[Element], float]:
    """Return one entry for each piece, in columns as wide as the widest, and where they end."""
    texts = [f"{part}, {format_bytes(size)}" for part, size in shown]
    each = 34 + max(text_width(text) for text in texts)
    columns = max(1, int((width - _SIDE) / each))
    found: list[Element] = []
    for index, ((part, _), text) in enumerate(zip(shown, texts, strict=True)):
        x, y = _SIDE + (index % columns) * each, top + (index // columns) * _ROW
        found.append(element("rect", x=x, y=y - 10, width=13, height=13, class_=f"{_class(part, index)} piece"))
        found.append(element("text", text, x=x + 20, y=y + 1, class_="label"))
    return found, top + ((len(shown) - 1) // columns) * _ROW + 10
