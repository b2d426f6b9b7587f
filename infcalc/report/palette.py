"""The colours of every picture: told apart by people who see fewer of them, and on paper without any.

They are those of Okabe and Ito, Color Universal Design (2008, https://jfly.uni-koeln.de/color/), without black, which
is the ink, and without yellow, which is hardly seen on white. A test simulates the three kinds of dichromacy.
"""

from __future__ import annotations

from infcalc.frozen import frozen

BLUE, VERMILLION, GREEN = "#0072b2", "#d55e00", "#009e73"
ORANGE, PURPLE, SKY = "#e69f00", "#cc79a7", "#56b4e9"
SERIES = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE)
"""In the order in which series take them."""
INK = "#1a1a1a"
"""Text, axes and marks that belong to no series."""
PAPER = "#ffffff"
GRID = "#dddddd"
"""Lines of a grid, and what is empty or free."""
DASHES = ("", "5 1.5", "1.5 1.5", "7 1.5 1.5 1.5")
"""Lengths drawn and left out in turn, as ``stroke-dasharray`` of SVG takes them: a solid line first."""
HATCHES = ("", "//", "..", "\\\\")


@frozen
class Style:
    """How one series is drawn: two of one colour differ in the dash of their line and the hatch of their area."""

    colour: str
    dash: str
    hatch: str


def styles(number: int) -> list[Style]:
    """Return so many styles, all different up to 24, from the start again beyond.

    >>> [(style.colour, style.hatch) for style in styles(7)][::6]
    [('#0072b2', ''), ('#0072b2', '//')]
    """
    turns = ((index % len(SERIES), index // len(SERIES) % len(DASHES)) for index in range(number))
    return [Style(colour=SERIES[place], dash=DASHES[turn], hatch=HATCHES[turn]) for place, turn in turns]


def ink_on(colour: str) -> str:
    """Return what is read best on an area of ``colour``, given as ``#rrggbb``: ink or paper.

    >>> ink_on(BLUE), ink_on(ORANGE)
    ('#ffffff', '#1a1a1a')
    """
    return max((INK, PAPER), key=lambda text: contrast(text, colour))


def contrast(one: str, other: str) -> float:
    """Return the ratio of contrast of two colours, from 1 to 21 (WCAG 2.2, https://www.w3.org/TR/WCAG22/)."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5))
    return sum(weight * _linear(part) for weight, part in ((0.2126, red), (0.7152, green), (0.0722, blue)))


def _linear(part: float) -> float:
    # The curve of sRGB (IEC 61966-2-1).
    return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4  # noqa: PLR2004
