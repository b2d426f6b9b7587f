"""The document of a capacity review: the numbers of the answer, in both formats, and none besides."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from infcalc.report.as_json import document
from infcalc.report.as_markdown import as_markdown
from infcalc.report.document import Picture, Points
from infcalc.report.page import page
from infcalc.report.review import review
from infcalc.report.table import Table, cells, count
from infcalc.report.views.spending import show_usd
from infcalc.units import format_bytes, format_seconds
from tests.report.reviews import CASES, Read, review_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.report.document import Document, Section


def sections(name: str) -> dict[str, Section]:
    return {section.anchor: section for section in review(review_of(name)).sections}


def tables(found: Document) -> list[Table]:
    return [block for section in found.sections for block in section.blocks if isinstance(block, Table) and block.rows]


def numbers(value: object) -> Iterator[float]:
    if isinstance(value, dict):
        for item in value.values():
            yield from numbers(item)
    elif isinstance(value, list):
        for item in value:
            yield from numbers(item)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield value


COUNTED = {"rank", "number"}
"""Positions in a table."""
DERIVED = {"reached"}
"""What the view of ``estimate`` makes of two figures beside each other: how much of a limit is reached."""


@pytest.mark.parametrize("name", CASES)
def test_every_number_of_a_table_is_one_of_the_answer(name: str) -> None:
    answer = review_of(name)
    known = set(numbers(document(answer)))
    rounded = {round(number) for number in known}
    written = {
        form(number)
        for number in known
        for form in (format_seconds, format_bytes, count, show_usd, "{:,.3g}".format, "{:,.0f}".format)
    }
    compared = 0
    for table in tables(review(answer)):
        for row in table.rows:
            for column in table.columns:
                value = row.get(column.key)
                if column.key in COUNTED | DERIVED or isinstance(value, bool):
                    continue
                if isinstance(value, int | float):
                    assert value in known or value in rounded, (table.title, column.key, value)
                    compared += 1
                elif isinstance(value, str) and not column.left and re.search(r"\d", value):
                    text = value.removeprefix(">= ").removeprefix("<= ")
                    assert text in written, (table.title, column.key, value)
                    compared += 1
    assert compared > 100


@pytest.mark.parametrize("name", CASES)
def test_both_formats_have_the_same_headings_and_cells(name: str) -> None:
    found = review(review_of(name))
    read, markdown = Read(page(found)), as_markdown(found)
    assert read.texts["h2"] == re.findall(r"^## (.*)$", markdown, re.MULTILINE)
    of_page = [text for table in tables(found) for row in cells(table) for text in row]
    assert [" ".join(text.split()) for text in read.texts["td"]] == [" ".join(text.split()) for text in of_page]
    rows = [line for line in markdown.splitlines() if line.startswith("| ")]
    of_markdown = [
        cell.replace("\\|", "|").replace("&lt;", "<")
        for line in rows
        for cell in re.split(r" (?<!\\)\| ", line.removeprefix("| ").removesuffix(" |"))
    ]
    heads = [column.heading for table in tables(found) for column in table.columns]
    assert sorted(" ".join(text.split()) for text in of_markdown) == sorted(
        " ".join(text.split()) for text in [*of_page, *heads]
    )


@pytest.mark.parametrize("name", CASES)
def test_both_formats_have_the_same_words(name: str) -> None:
    found = review(review_of(name))
    text, markdown = " ".join(Read(page(found)).texts["body"]), as_markdown(found).replace("&lt;", "<")
    told = [fact for _, fact in found.facts if fact] + [status.text for status in found.statuses]
    for section in found.sections:
        for block in section.blocks:
            if isinstance(block, Points):
                told += block.texts
            if isinstance(block, Picture):
                told.append(block.title)
    for words in (*told, *review_of(name).result.verdict, *review_of(name).warnings):
        assert words in text
        assert words in markdown


def test_a_picture_is_letters_in_markdown_or_says_where_it_is() -> None:
    markdown = as_markdown(review(review_of("users")))
    assert "[WWWW" in markdown
    assert "^ crossover" in markdown
    assert markdown.count("drawn in the HTML form") == 2


def test_the_sections_stand_in_the_order_of_a_review() -> None:
    assert list(sections("users")) == [
        *("verdict", "warnings", "inputs", "memory", "roofline", "speed", "plans", "bands", "reproduce", "sources"),
        "formulas",
    ]


def test_the_verdict_is_two_sentences() -> None:
    first, second = review_of("users").result.verdict
    number = review_of("users").result.as_deployed.plans[0].replicas
    assert first.startswith(
        f"llama3-70b in bf16 on 4 x a100-sxm4-80gb serves 500 users within the limits with {number} such replicas "
        f"({4 * number} GPUs): first token after "
    )
    assert "USD a month" in first
    assert first.endswith("confirmed by simulation.")
    assert second.startswith("Best by cost of all on offer: rent ")
    assert review_of("too large").result.verdict[0] == (
        "llama3-70b in bf16 on 1 x a100-sxm4-80gb does not fit: 62 GiB per GPU are missing."
    )
    assert "no number of such replicas keeps the limits" in review_of("too slow").result.verdict[0]


def test_what_is_good_and_what_is_not_stands_first() -> None:
    def statuses(name: str) -> list[tuple[str, bool]]:
        return [(one.text, one.good) for one in review(review_of(name)).statuses]

    number = review_of("users").result.as_deployed.plans[0].replicas
    assert statuses("users") == [("fits", True), (f"limits kept with {number} replicas", True)]
    assert statuses("too large") == [("does not fit", False)]
    assert statuses("too slow") == [("fits", True), ("limits not kept", False), ("no plan on offer", False)]


def test_only_a_ranking_is_called_one_of_replicas() -> None:
    ranked = "As deployed, with as many replicas as the load takes"
    titles = {name: [table.title for table in tables(review(review_of(name)))] for name in ("users", "too large")}
    assert ranked in titles["users"]
    assert ranked not in titles["too large"]
    assert "As deployed: rejected, by reason, with the nearest of each" in titles["too large"]


def test_times_of_the_verdict_have_the_bands_of_the_figures_below_it() -> None:
    for name in ("users", "rate"):
        speed = review_of(name).result.estimate
        for figure in (speed.ttft_s, speed.tpot_s):
            assert figure is not None
            band = f"{format_seconds(figure.value)} ({format_seconds(figure.low)} to {format_seconds(figure.high)})"
            assert band in review_of(name).result.verdict[0]


def test_plans_that_only_the_good_end_of_the_band_keeps_are_named() -> None:
    answer = review_of("users")
    plans = tuple(replace(one, only_optimistic=True) for one in answer.result.plan.plans[:1])
    result = replace(answer.result, plan=replace(answer.result.plan, plans=plans))
    said = "plan 1: all limits are kept only at the good end of the band"
    assert said in as_markdown(review(replace(answer, results=(result,))))


def test_bands_name_their_basis() -> None:
    (_, measured), (_, foreign) = (sections(name)["bands"].blocks for name in ("users", "unmeasured"))
    assert isinstance(measured, Table)
    assert isinstance(foreign, Table)
    assert {row["basis"] for row in measured.rows} == {"calibrated"}
    assert measured.rows[0]["drawn_from"] == "NVIDIA dense, calibrated"
    assert foreign.rows[-1]["drawn_from"] == "AMD and others, uncalibrated, current engine"


def test_every_source_is_there_once() -> None:
    (table,) = sections("users")["sources"].blocks
    assert isinstance(table, Table)
    sources = [row["source"] for row in table.rows]
    assert len(sources) == len(set(sources))
    told = " ".join(str(row["facts"]) for row in table.rows)
    for fact in ("model llama3-70b", "gpu a100-sxm4-80gb", "memory fraction 0.92", "ledger: activation", "price of"):
        assert fact in told
    assert {item.source for item in review_of("users").inputs if item.source} <= set(sources)


def test_formulas_stand_under_the_keys_of_the_result() -> None:
    (table,) = sections("users")["formulas"].blocks
    assert isinstance(table, Table)
    quantities = {str(row["quantity"]) for row in table.rows}
    assert {
        "memory.kv_pool_bytes",
        "estimate.tpot_s",
        "roofline.flop_per_byte",
        "as_deployed.usd_per_month",
    } <= quantities


def test_a_long_front_is_cut_and_says_so() -> None:
    answer = review_of("users")
    front = answer.result.plan.front[:1] * 35
    result = replace(answer.result, plan=replace(answer.result.plan, front=front))
    (table,) = (one for one in tables(review(replace(answer, results=(result,)))) if one.title.startswith("The front"))
    assert table.title == "The front: no plan is cheaper and quicker (the first 30 of 35; JSON has all)"
    assert [row["number"] for row in table.rows] == list(range(1, 31))


def test_no_commands_no_section_of_them() -> None:
    answer = review_of("users")
    bare = replace(answer, results=(replace(answer.result, reruns=()),))
    assert "reproduce" not in {section.anchor for section in review(bare).sections}
