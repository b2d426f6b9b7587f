from __future__ import annotations

import csv
import io
import re

from infcalc.report.table import Column, Table, View, count
from infcalc.report.text import as_csv, markdown, plain

HARD = 'a, "quoted" | piped\nand broken'
VIEW = View(
    lead="assumed: nothing",
    findings=("it is so",),
    tables=(
        Table(
            title="main",
            columns=(
                Column(key="name", heading="name", left=True),
                Column(key="size_bytes", heading="a | b", show=count),
                Column(key="missing", heading="none"),
            ),
            rows=({"name": "x|y", "size_bytes": 1234.5}, {"name": "longer name", "size_bytes": 7}),
        ),
        Table(title="second", columns=(Column(key="k", heading="k"),), rows=({"k": "v"},)),
        Table(title="empty", columns=(Column(key="k", heading="k"),), rows=()),
    ),
    drawing="  /--\n /",
    notes=("a note",),
    warnings=("a warning",),
    explanations=("x = y",),
)


def test_plain_text_is_aligned() -> None:
    text = plain(VIEW)
    block = next(part for part in text.split("\n\n") if part.startswith("main\n")).splitlines()
    assert block[1:] == [
        "name           a | b  none",
        "-----------  -------  ----",
        "x|y          1,234.5     -",
        "longer name        7     -",
    ]
    assert text.startswith("assumed: nothing\nit is so\n\n")
    assert text.endswith("notes:\n  - a note\n")
    assert "explanation:\n  - x = y\n" in text
    assert VIEW.drawing in text
    assert "empty" not in text


def test_a_long_text_moves_no_column_to_its_right() -> None:
    long = " ".join(["word"] * 30)
    columns = (
        Column(key="name", heading="name", left=True),
        Column(key="what", heading="what", left=True),
        Column(key="cost", heading="cost", show=count),
        Column(key="why", heading="why", left=True),
    )
    rows: tuple[dict[str, object], ...] = (
        {"name": "a", "what": "short", "cost": 1, "why": long},
        {"name": "b", "what": long, "cost": 2345, "why": "so"},
        {"name": "c", "what": long, "why": "/x" * 40},
    )
    _, head, rule, first, *rest = plain(
        View(lead="", tables=(Table(title="t", columns=columns, rows=rows),))
    ).splitlines()
    assert first.endswith(long), "what ends its row runs over"
    cost, why = head.index("cost"), head.index("why")
    assert rule[cost - 1 :].startswith("-----  ---")
    second = next(line for line in rest if line.startswith("b"))
    assert second[why:] == "so"
    assert second[why - 7 : why - 2] == "2,345"
    assert all(len(line) <= len(rule) or line.startswith("c") for line in rest)
    assert sum(line.split().count("word") for line in (first, *rest)) == 90, "no word is lost"


def test_warnings_are_no_data() -> None:
    for text in (plain(VIEW), markdown(VIEW), as_csv(VIEW)):
        assert "a warning" not in text


def test_no_line_ends_in_blanks() -> None:
    assert not re.search(r"[ \t]+$", plain(VIEW), re.MULTILINE)


def test_long_notes_are_wrapped_and_lose_no_word() -> None:
    note = "word " * 60 + "/a/path/that-must-not-be-broken" * 5
    text = plain(View(lead="", notes=(note,)))
    assert " ".join(text.replace("notes:\n  - ", "").split()) == note
    assert len(text.splitlines()) > 3


def test_markdown_escapes_pipes_and_keeps_the_shape_of_the_table() -> None:
    text = markdown(VIEW)
    block = next(part for part in text.split("\n\n") if part.startswith("| name"))
    assert block.splitlines() == [
        "| name | a \\| b | none |",
        "|---|---:|---:|",
        "| x\\|y | 1,234.5 | - |",
        "| longer name | 7 | - |",
    ]
    assert "**second**" in text
    assert "**empty**" not in text
    assert "```\n  /--\n /\n```" in text
    assert "- x = y" in text


def test_csv_holds_raw_values_of_the_main_table_under_their_keys() -> None:
    assert as_csv(VIEW) == "name,size_bytes,missing\nx|y,1234.5,\nlonger name,7,\n"


def test_csv_keeps_hard_texts_whole() -> None:
    table = Table(
        title="t", columns=(Column(key="a", heading="a"), Column(key="b", heading="b")), rows=({"a": HARD, "b": 1},)
    )
    assert list(csv.reader(io.StringIO(as_csv(View(lead="", tables=(table,)))))) == [["a", "b"], [HARD, "1"]]
