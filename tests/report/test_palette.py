"""The colours of pictures, as people see them who lack one kind of cone."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from infcalc.report import palette

# Machado, Oliveira and Fernandes, A Physiologically-based Model for Simulation of Color Vision Deficiency (2009),
# table 1 at severity 1.0; on linear RGB.
SEEN = {
    "all cones": np.eye(3),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
# sRGB, IEC 61966-2-1.
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
CLEARLY_APART = 15.0
"""In CIELAB; 2.3 is what is just noticed side by side (Mahy, Van Eycken and Oosterlinck, 1994)."""


def lab(colour: str, seen: np.ndarray) -> np.ndarray:
    """Return a colour as it is seen, in CIELAB under the white of sRGB."""
    parts = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
    linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
    xyz = TO_XYZ @ np.clip(seen @ linear, 0, 1) / (TO_XYZ @ np.ones(3))
    x, y, z = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", SEEN)
def test_all_series_ink_and_paper_are_told_apart(kind: str) -> None:
    seen = {colour: lab(colour, SEEN[kind]) for colour in (*palette.SERIES, palette.INK, palette.PAPER)}
    for one, other in combinations(seen, 2):
        assert np.linalg.norm(seen[one] - seen[other]) > CLEARLY_APART, (one, other)


def test_the_distance_sees_what_is_not_apart() -> None:
    """A red and a green that are one brown without the cones for green."""
    distances = {kind: np.linalg.norm(lab("#b06060", seen) - lab("#808060", seen)) for kind, seen in SEEN.items()}
    assert distances["all cones"] > CLEARLY_APART > distances["deuteranopia"]


def test_text_is_read_on_every_area() -> None:
    """4.5 is what WCAG 2.2 asks of text (success criterion 1.4.3, level AA)."""
    for colour in (*palette.SERIES, palette.PAPER, palette.GRID):
        assert palette.contrast(palette.ink_on(colour), colour) >= 4.5, colour


def test_contrast_runs_from_1_to_21() -> None:
    assert palette.contrast("#ffffff", "#ffffff") == 1
    assert palette.contrast("#000000", "#ffffff") == pytest.approx(21)


def test_styles_differ_as_long_as_they_can() -> None:
    styles = palette.styles(30)
    assert len(set(styles)) == len(palette.SERIES) * len(palette.DASHES) == 24
    assert styles[24:] == styles[:6]
    assert len({(style.colour, style.hatch) for style in styles}) == 24
    assert styles[0].dash == ""
