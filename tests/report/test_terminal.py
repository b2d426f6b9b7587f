from __future__ import annotations

import io
import re
from collections.abc import Callable

import pytest

from infcalc.api.bounds import roofline
from infcalc.api.deployment import Ask
from infcalc.api.filling import memory
from infcalc.api.fitting import concurrency
from infcalc.api.offer import Offer
from infcalc.api.speed import estimate
from infcalc.api.sweeping import parse_sweep
from infcalc.report.table import Column, Table, View, cells, narrowed
from infcalc.report.terminal import show
from infcalc.report.views import concurrency as of_concurrency
from infcalc.report.views import estimate as of_estimate
from infcalc.report.views import memory as of_memory
from infcalc.report.views import roofline as of_roofline

SEVERAL = Ask(models=("llama3-70b", "qwen3-32b"), gpus=("a100", "h100"), kv_dtypes=("bf16", "fp8"))
VIEW = View(
    lead="assumed: [bold]nothing[/bold]",
    findings=("it is [red]so[/red]",),
    tables=(
        Table(
            title="[title]",
            columns=(
                Column(key="name", heading="[name]", left=True),
                Column(key="size", heading="size"),
                Column(key="far", heading="far", aside=True),
            ),
            rows=({"name": "[x]", "size": 1234, "far": "away"},),
        ),
        Table(title="empty", columns=(Column(key="k", heading="k"),), rows=()),
    ),
    drawing="[/] |\\",
    notes=("a [note]",),
    explanations=("x = [y]",),
)


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int = 140, view: View = VIEW, **variables: str) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm-256color", "COLUMNS": str(columns)} | variables).items():
        monkeypatch.setenv(name, value)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    show(view, stream)
    return stream.getvalue()


def test_texts_are_not_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    text = re.sub(r"\x1b\[[0-9;]*m", "", drawn(monkeypatch))
    for part in ("[bold]nothing[/bold]", "[red]so[/red]", "[title]", "[name]", "[x]", "[/] |\\", "a [note]", "x = [y]"):
        assert part in text
    assert "empty" not in text


def test_a_narrow_terminal_leaves_out_what_stands_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "away" in drawn(monkeypatch, columns=140)
    narrow = drawn(monkeypatch, columns=80)
    assert "away" not in narrow
    assert "1234" in narrow
    assert "not shown at this width: far; --json has all" in narrow
    assert "not shown" not in drawn(monkeypatch, columns=140)


def test_no_color_means_no_escape_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[" in drawn(monkeypatch)
    assert "\x1b" not in drawn(monkeypatch, NO_COLOR="1")


@pytest.mark.parametrize("columns", [50, 60, 80, 100, 140])
@pytest.mark.parametrize(
    "view",
    [
        lambda: of_memory.view(memory(SEVERAL)),
        lambda: of_concurrency.view(concurrency(SEVERAL)),
        lambda: of_roofline.view(roofline(Ask(gpus=("a100", "h100")))),
        lambda: of_estimate.view(estimate(Ask(models=("mixtral-8x7b",), num_gpus=4), Offer(batch=16), explain=True)),
        lambda: of_estimate.view(estimate(Ask(), sweep=parse_sweep("rate=0.1..0.84:6"))),
    ],
    ids=["memory", "concurrency", "roofline", "estimate", "sweep"],
)
def test_no_number_is_broken_over_lines(
    monkeypatch: pytest.MonkeyPatch, view: Callable[[], View], columns: int
) -> None:
    made = view()
    lines = drawn(monkeypatch, columns=columns, view=made, NO_COLOR="1").splitlines()
    for table in map(narrowed, made.tables):
        for row in cells(table):
            for column, text in zip(table.columns, row, strict=True):
                assert column.left or any(re.search(rf"(?<!\S){re.escape(text)}(?!\S)", line) for line in lines), text
    assert max(map(len, lines)) <= columns


def test_pieces_of_a_table_tell_the_rows_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = ("kind", "number", "first size", "second size", "third size")
    columns = tuple(Column(key=key, heading=key, left=key == "kind") for key in keys)
    rows = tuple(dict.fromkeys(keys, "1" * 8) | {"kind": "a", "number": number} for number in range(3))
    table = Table(title="many", columns=columns, rows=rows)
    text = drawn(monkeypatch, columns=40, view=View(lead="", tables=(table,)), NO_COLOR="1")
    heads = [line.split("  ") for line in text.splitlines() if "kind" in line]
    assert len(heads) > 1
    assert all("number" in " ".join(head) for head in heads)
    assert [key for key in keys if key in text] == list(keys)


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_the_bar_fits_a_narrow_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    made = of_memory.view(memory(Ask(models=("qwen3-32b",))))
    lines = drawn(monkeypatch, columns=columns, view=made, NO_COLOR="1").splitlines()
    (bar,) = (line for line in lines if line.startswith("[W"))
    assert bar.endswith("-]")
    assert len(bar) == min(columns, 66)
    assert "left alone 6.33" in " ".join(lines)
