"""Labels that do not lie on each other: each is put at the first free side of its point, or left out."""

from __future__ import annotations

from itertools import pairwise, product
from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.report.svg.element import Element, element

if TYPE_CHECKING:
    from collections.abc import Sequence

FONT = 12.0
"""Height of letters in units of a drawing, which are pixels where it is shown at its own size."""
_WIDTH = 0.56
"""Of a letter over its height, in the mean of common sans-serif fonts."""
_GAP = 7.0


def text_width(text: str, size: float = FONT) -> float:
    """Return about how wide a text is drawn."""
    return _WIDTH * size * len(text)


@frozen
class Box:
    """A rectangle that is taken."""

    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        """Return whether two rectangles have a place in common."""
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )

    def within(self, other: Box) -> bool:
        """Return whether it lies in another one whole."""
        return (
            other.left <= self.left
            and self.right <= other.right
            and other.top <= self.top
            and self.bottom <= other.bottom
        )


@frozen
class Label:
    """A text beside a point; ``short`` stands there where the whole text finds no place."""

    x: float
    y: float
    text: str
    strong: bool = False
    short: str = ""


def placed(labels: Sequence[Label], taken: Sequence[Box], room: Box, *, size: float = FONT) -> list[Element]:
    """Return the texts of those labels that have a free place, in the order of their weight: the first come first."""
    boxes = list(taken)
    found: list[Element] = []
    for label in labels:
        for text, (anchor, dx, dy) in product((label.text, label.short), _SIDES):
            box = _box(label, text, (anchor, dx, dy), size)
            if not text or not box.within(room) or any(box.meets(other) for other in boxes):
                continue
            boxes.append(box)
            class_ = "strong" if label.strong else "label"
            place = (label.x + dx, label.y + dy + size * _BASELINE)
            found.append(element("text", text, x=place[0], y=place[1], text_anchor=anchor, class_=class_))
            break
    return found


_BASELINE = 0.35
"""Of the height of letters, from their middle down to their foot."""
_SIDES = (
    ("start", _GAP, _GAP + 3),
    ("end", -_GAP, -_GAP - 3),
    ("start", _GAP, -_GAP - 3),
    ("end", -_GAP, _GAP + 3),
    ("middle", 0.0, -_GAP - 9),
    ("middle", 0.0, _GAP + 9),
)


def _box(label: Label, text: str, side: tuple[str, float, float], size: float) -> Box:
    anchor, dx, dy = side
    width = text_width(text, size)
    left = label.x + dx - {"start": 0.0, "middle": width / 2, "end": width}[anchor]
    return Box(left=left, top=label.y + dy - size * 0.6, right=left + width, bottom=label.y + dy + size * 0.6)


def around_point(x: float, y: float, radius: float) -> Box:
    """Return the box of a mark."""
    return Box(left=x - radius, top=y - radius, right=x + radius, bottom=y + radius)


def along(points: Sequence[tuple[float, float]], radius: float = 2.0) -> list[Box]:
    """Return boxes that cover a line through points."""
    found: list[Box] = []
    for (left, top), (right, bottom) in pairwise(points):
        steps = max(1, round(max(abs(right - left), abs(bottom - top)) / _EVERY))
        found += [
            around_point(left + (right - left) * step / steps, top + (bottom - top) * step / steps, radius)
            for step in range(steps + 1)
        ]
    return found


_EVERY = 4.0
"""Pixels between two boxes of a line: labels are higher."""
