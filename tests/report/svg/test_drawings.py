"""The drawings of a review: every figure stands where its number says, within what is drawn, at every width."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from infcalc.report.document import Picture
from infcalc.report.review import review
from infcalc.report.svg.element import Element, element, escaped, to_text
from infcalc.report.svg.frame import Sheet
from infcalc.report.svg.memory_bar import memory_bar
from infcalc.units import GIB
from tests.report.reviews import CASES, attributes, inside, review_of

WIDTHS = (344.0, 760.0)


def pictures(name: str) -> dict[str, Picture]:
    return {
        block.name: block
        for section in review(review_of(name)).sections
        for block in section.blocks
        if isinstance(block, Picture)
    }


def drawn(name: str, picture: str, width: float = 760.0) -> Element:
    one = pictures(name)[picture]
    return one.draw(Sheet(width=width, title=one.title, description=one.description, name=picture))


def of_class(node: Element, tag: str, name: str) -> list[Element]:
    return [one for one in inside(node, tag) if name in attributes(one).get("class", "").split()]


def points(line: Element) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"([\d.]+) ([\d.]+)", attributes(line)["d"])]


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", CASES)
def test_drawings_are_well_formed_and_stay_within_their_edges(name: str, width: float) -> None:
    for picture in pictures(name):
        drawing = drawn(name, picture, width)
        tree = ET.fromstring(to_text(drawing))  # noqa: S314 - our own drawing
        assert tree.tag == "{http://www.w3.org/2000/svg}svg"
        _, _, right, bottom = map(float, attributes(drawing)["viewBox"].split())
        assert right == width
        for shape in ("text", "circle", "rect", "line"):
            for one in inside(drawing, shape):
                found = {key: float(at) for key, at in attributes(one).items() if re.fullmatch(r"c?[xy][12]?", key)}
                assert all(-8 <= at <= (right if "x" in key else bottom) for key, at in found.items()), (shape, found)


@pytest.mark.parametrize("name", [name for name in CASES if name != "too large"])
def test_axes_have_a_name_with_a_unit_and_ticks(name: str) -> None:
    for picture in pictures(name):
        for width in WIDTHS:
            drawing = drawn(name, picture, width)
            names = [str(text.children[0]) for text in of_class(drawing, "text", "name")]
            assert names
            assert all(re.search(r"GiB|FLOP/B|FLOP/s|tokens/s|USD|time", one) for one in names)
            assert len(of_class(drawing, "text", "tick")) >= (3 if picture == "memory" else 6)


def test_pieces_of_the_bar_are_as_long_as_they_are_large_and_leave_no_gap() -> None:
    bar = memory_bar(
        (("weights", 30 * GIB), ("KV pool", 40 * GIB), ("nothing", 0), ("left alone", 10 * GIB)),
        80 * GIB,
        Sheet(width=832, title="t", description="d", name="n"),
    )
    pieces = [attributes(one) for one in inside(bar, "rect") if attributes(one)["height"] == "46"]
    assert [float(one["width"]) for one in pieces] == pytest.approx([300, 400, 100], abs=0.1)
    ends = [float(one["x"]) + float(one["width"]) for one in pieces]
    assert [float(one["x"]) for one in pieces[1:]] == pytest.approx(ends[:-1], abs=0.02)
    assert [one["class"] for one in pieces] == ["s0 piece", "s1 piece", "rest piece"]


def test_what_does_not_fit_reaches_beyond_the_mark_of_the_gpu() -> None:
    drawing = drawn("too large", "memory")
    (mark,) = (one for one in of_class(drawing, "line", "axis") if attributes(one)["y1"] == "22")
    pieces = [attributes(one) for one in inside(drawing, "rect") if attributes(one)["height"] == "46"]
    assert max(float(one["x"]) + float(one["width"]) for one in pieces) > float(attributes(mark)["x1"]) + 50


def test_points_of_the_roofline_stand_on_the_roof() -> None:
    drawing = drawn("users", "roofline")
    (roof,) = (one for one in of_class(drawing, "path", "roof"))
    start, corner, end = points(roof)
    assert corner[1] == end[1]
    for dot in of_class(drawing, "circle", "mark"):
        x, y = (float(attributes(dot)[key]) for key in ("cx", "cy"))
        if "transform" in attributes(dot) or x < start[0]:
            continue
        slope = (corner[1] - start[1]) / (corner[0] - start[0])
        expected = corner[1] if x >= corner[0] else start[1] + slope * (x - start[0])
        assert y == pytest.approx(expected, abs=6)


def test_the_batch_of_the_load_is_marked_on_the_roofline() -> None:
    result = review_of("users").result
    drawing = drawn("users", "roofline")
    label = next(
        str(text.children[0]) for text in of_class(drawing, "text", "strong") if str(text.children[0])[0] == "b"
    )
    assert label == f"b{round(result.estimate.batch)}"


@pytest.mark.parametrize("name", ["users", "rate", "too slow"])
@pytest.mark.parametrize(("picture", "quantity"), [("curve-tpot", "tpot_s"), ("curve-ttft", "ttft_s")])
def test_a_curve_goes_through_its_points(name: str, picture: str, quantity: str) -> None:
    curve = review_of(name).result.curve
    assert curve is not None
    drawing = drawn(name, picture)
    line = points(of_class(drawing, "path", "l0")[0])
    shown = [point for point in curve.points if getattr(point, quantity) is not None]
    assert len(line) == len(shown)
    for (before, after), (first, second) in zip(pairwise(shown), pairwise(line), strict=True):
        slower = getattr(after, quantity).value - getattr(before, quantity).value
        assert (second[1] - first[1]) * slower <= 0, "slower is higher"
        assert (second[0] - first[0]) * (after.output_tokens_per_s.value - before.output_tokens_per_s.value) >= 0


def test_limits_are_lines_with_their_names() -> None:
    drawing = drawn("users", "curve-ttft")
    (line,) = (one for one in of_class(drawing, "line", "limit") if float(attributes(one)["x2"]) > 100)
    words = [str(text.children[0]) for text in inside(drawing, "text")]
    assert "limit: ttft-p95 3 s" in words
    level = float(attributes(line)["y1"])
    curve = review_of("users").result.curve
    assert curve is not None
    line_points = points(of_class(drawing, "path", "l0")[0])
    times = [point.ttft_s.value for point in curve.points if point.ttft_s is not None]
    for (_, y), time in zip(line_points, times, strict=True):
        assert (y < level) == (time > 3.0)


def test_the_load_and_the_knee_are_marked() -> None:
    result = review_of("users").result
    words = [str(text.children[0]) for text in inside(drawn("users", "curve-tpot"), "text")]
    assert result.curve is not None
    assert f"knee, users {result.curve.knee:,.4g}" in words
    assert f"this load, users {result.share_per_replica:,.4g}" in words


def test_the_front_falls_and_every_plan_has_its_number() -> None:
    result = review_of("users").result
    for width in WIDTHS:
        drawing = drawn("users", "front", width)
        stairs = points(of_class(drawing, "path", "l0")[0])
        assert all(after[0] >= before[0] and after[1] >= before[1] for before, after in pairwise(stairs))
        labels = {str(text.children[0]).partition(":")[0] for text in of_class(drawing, "text", "label")}
        assert {str(number) for number in range(1, len(result.plan.front) + 1)} <= labels


def test_text_and_attributes_are_escaped() -> None:
    node = element("text", "a < b & 'c'", title='"<>&')
    assert to_text(node) == '<text title="&quot;&lt;&gt;&amp;">a &lt; b &amp; &#39;c&#39;</text>'
    assert escaped("\x00\ud800\x85") == "\N{REPLACEMENT CHARACTER}" * 3
