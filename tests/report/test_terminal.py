from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

from infcalc.report.table import Column, Table, View
from infcalc.report.terminal import show

if TYPE_CHECKING:
    import pytest

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


def drawn(monkeypatch: pytest.MonkeyPatch, columns: int = 140, **variables: str) -> str:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"TERM": "xterm-256color", "COLUMNS": str(columns)} | variables).items():
        monkeypatch.setenv(name, value)

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    show(VIEW, stream)
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
