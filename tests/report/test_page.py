"""A page that needs nothing but itself, whatever stands in it, and that people can read."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from infcalc.report.as_markdown import as_markdown
from infcalc.report.page import page
from infcalc.report.page_style import DARK, LIGHT
from infcalc.report.palette import SERIES
from infcalc.report.review import review
from infcalc.spec.explain import Input
from tests.report.reviews import CASES, Read, review_of

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.reporting_nouns import ReportResult

EVIL = "<script>alert(1)</script>\"'&|`<img src=x onerror=alert(1)>"
LARGEST_BYTES = 250_000
LOADING = {"script", "iframe", "img", "object", "embed", "base", "form", "image", "use", "video", "audio", "source"}
"""Elements that bring something in."""
_SVG = "{http://www.w3.org/2000/svg}"


def page_of(name: str) -> str:
    return page(review(review_of(name)))


def with_evil(answer: Answer[ReportResult]) -> Answer[ReportResult]:
    """Return the answer with the same nasty text wherever a user can put one."""
    result = answer.result
    return replace(
        answer,
        results=(
            replace(
                result,
                load=EVIL,
                verdict=(EVIL, EVIL),
                memory=replace(result.memory, model=EVIL, gpu=EVIL),
                estimate=replace(result.estimate, model=EVIL, gpu=EVIL),
                plan=replace(
                    result.plan,
                    front=tuple(replace(one, gpu=EVIL) for one in result.plan.front),
                    plans=tuple(replace(one, gpu=EVIL, price_source=EVIL) for one in result.plan.plans),
                    text=EVIL,
                ),
                reruns=tuple(replace(one, command=f"infcalc report -m {EVIL}") for one in result.reruns),
            ),
        ),
        inputs=(*answer.inputs, Input(name="model", value=EVIL, origin=EVIL, source=EVIL)),
        assumptions=(*answer.assumptions, EVIL),
        warnings=(EVIL,),
    )


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_well_formed_as_html_and_as_xml(name: str) -> None:
    text = page_of(name)
    assert text.startswith("<!doctype html>\n")
    assert Read(text).whole
    tree = ET.fromstring(text.removeprefix("<!doctype html>"))  # noqa: S314 - our own page
    ids = [node.attrib["id"] for node in tree.iter() if "id" in node.attrib]
    assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", CASES)
def test_a_page_loads_nothing(name: str) -> None:
    text = page_of(name)
    read = Read(text)
    assert not LOADING & {tag for tag, _ in read.tags}
    for tag, attributes in read.tags:
        assert not [key for key in attributes if key.startswith("on") or key in {"src", "srcset", "xlink:href"}]
        target = attributes.get("href") or ""
        assert tag in {"a", "link"} or not target
        assert tag != "link" or target == "data:,"
        assert tag != "a" or target.startswith(("#", "https://", "http://"))
    (style,) = read.texts["style"]
    assert "@import" not in style
    assert "url(" not in style
    (policy,) = (attributes for tag, attributes in read.tags if tag == "meta" and "http-equiv" in attributes)
    assert policy == {
        "http-equiv": "Content-Security-Policy",
        "content": "default-src 'none'; style-src 'unsafe-inline'; img-src data:",
    }


def test_links_lead_to_sources_as_they_stand() -> None:
    source = "see https://example.org/a?b=1&c=2, and javascript:alert(1)"
    answer = review_of("users")
    answer = replace(answer, inputs=(Input(name="model", value="m", origin="given", source=source),))
    links = [attributes["href"] for tag, attributes in Read(page(review(answer))).tags if tag == "a"]
    assert "https://example.org/a?b=1&c=2" in links
    assert not [link for link in links if "javascript" in (link or "")]


def test_no_text_of_a_user_becomes_markup() -> None:
    document = review(with_evil(review_of("users")))
    plain = {tag for tag, _ in Read(page_of("users")).tags}
    text = page(document)
    read = Read(text)
    assert {tag for tag, _ in read.tags} <= plain
    assert read.texts["h1"] == [f"Capacity review: {EVIL} on 4 x {EVIL}"]
    assert read.texts["code"][-1] == f"infcalc report -m {EVIL}"
    assert any(EVIL in cell for cell in read.texts["td"])
    assert any(EVIL in label for label in read.texts["text"])
    assert any(EVIL in label for label in read.texts["desc"])
    ET.fromstring(text.removeprefix("<!doctype html>"))  # noqa: S314 - our own page
    outside = re.sub(r"^(`{3,})[^\n]*\n.*?^\1$", "", as_markdown(document), flags=re.MULTILINE | re.DOTALL)
    assert "&lt;script>" in outside
    found = re.search(r".{60}<(?=[A-Za-z/!?])", outside)
    assert found is None, found


def test_a_command_cannot_leave_its_block_in_markdown() -> None:
    answer = review_of("users")
    lines = tuple(replace(one, command="infcalc\n```\n# out") for one in answer.result.reruns)
    text = as_markdown(review(replace(answer, results=(replace(answer.result, reruns=lines),))))
    assert "````sh\n" in text
    assert text.count("````") == 2


def test_control_characters_do_not_break_a_page() -> None:
    answer = replace(review_of("users"), warnings=("a\0b\x1b[31mc\ud800d",))
    text = page(review(answer))
    ET.fromstring(text.removeprefix("<!doctype html>"))  # noqa: S314 - our own page
    assert "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}[31mc\N{REPLACEMENT CHARACTER}d" in text


def test_the_same_answer_gives_the_same_page() -> None:
    answer = review_of("users")
    assert page(review(answer)) == page_of("users")
    later = replace(answer, results=(replace(answer.result, date="2027-01-02"),))
    assert page(review(later)) == page_of("users").replace("2026-11-30", "2027-01-02")


@pytest.mark.parametrize("name", CASES)
def test_a_page_is_small(name: str) -> None:
    assert len(page_of(name).encode()) < LARGEST_BYTES


@pytest.mark.parametrize("name", CASES)
def test_who_cannot_see_it_is_told(name: str) -> None:
    tree = ET.fromstring(page_of(name).removeprefix("<!doctype html>"))  # noqa: S314 - our own page
    by_id = {node.attrib["id"]: node for node in tree.iter() if "id" in node.attrib}
    assert tree.attrib["lang"] == "en"
    for node in tree.iter("a"):
        if node.attrib["href"].startswith("#"):
            assert node.attrib["href"][1:] in by_id
    drawings = list(tree.iter(f"{_SVG}svg"))
    assert len(drawings) >= 4
    for drawing in drawings:
        assert drawing.attrib["role"] == "img"
        told = [by_id[one].text or "" for one in drawing.attrib["aria-labelledby"].split()]
        assert len(told) == 2
        assert all(told)
    for node in tree.iter():
        if node.attrib.get("role") == "region":
            assert node.attrib["aria-label"]
            assert node.attrib["tabindex"] == "0"
    assert all(head.attrib["scope"] == "col" for head in tree.iter("th"))
    levels = [int(node.tag[1]) for node in tree.iter() if re.fullmatch(r"h[1-6]", node.tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))


def test_long_cells_may_be_broken_and_short_ones_are_not() -> None:
    tree = ET.fromstring(page_of("users").removeprefix("<!doctype html>"))  # noqa: S314 - our own page
    looks: dict[str, set[int]] = {"": set(), "some": set(), "long": set()}
    for cell in tree.iter("td"):
        (look,) = {*(cell.attrib.get("class") or "").split()} & looks.keys() or {""}
        looks[look].add(len("".join(cell.itertext())))
    assert max(looks[""]) <= 24 < min(looks["some"]) <= max(looks["some"]) <= 42 < min(looks["long"])


def test_every_colour_of_the_page_has_a_name_and_every_class_of_a_drawing_a_look() -> None:
    text = page_of("too slow") + page_of("users")
    (sheet,) = re.findall(r"<style>(.*?)</style>", page_of("users"), re.DOTALL)
    for name in re.findall(r"var\(--([\w-]+)\)", sheet):
        assert f"--{name}:" in sheet
    for names in re.findall(r'class="([^"]+)"', text):
        for name in names.split():
            assert re.search(rf"\.{name}\b", sheet) or name in {"table", "page"}, name


# Contrast and colours -------------------------------------------------------------------------------------------------


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def contrast(one: str, other: str) -> float:
    """Return the contrast of WCAG 2.2."""
    weights = (0.2126, 0.7152, 0.0722)
    first, second = sorted(
        (sum(weight * part for weight, part in zip(weights, linear(colour), strict=True)) for colour in (one, other)),
        reverse=True,
    )
    return (first + 0.05) / (second + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_text_stands_out_from_its_ground(colours: dict[str, str]) -> None:
    for ground in ("page", "panel"):
        for text in ("text", "soft", "link"):
            assert contrast(colours[text], colours[ground]) >= 4.5
    for mood in ("good", "bad"):
        assert contrast(colours[mood], colours[f"{mood}-ground"]) >= 4.5


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_lines_and_outlines_stand_out_from_the_page(colours: dict[str, str]) -> None:
    """Pale pieces have an outline in the colour of text; the line of a curve is the first of the series."""
    for line in (colours["text"], colours["soft"], colours["alert"], SERIES[0]):
        assert contrast(line, colours["page"]) >= 3
