from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from infcalc.api.answer import Answer
from infcalc.cli.render import Format, chosen_format, render
from infcalc.errors import DoesNotFit, FileProblem, NothingToDraw, ObjectiveNotMet, UsageError
from infcalc.frozen import frozen
from infcalc.report.table import Column, Table, View

Capture = pytest.CaptureFixture[str]


@frozen
class Result:
    """What a gate looks at."""

    sequences: int


ANSWER = Answer(command="kv", results=(Result(sequences=7),), inputs=(), warnings=("careful",), exit_code=3)


def view() -> View:
    table = Table(title="t", columns=(Column(key="sequences", heading="s"),), rows=({"sequences": 7},))
    return View(lead="assumed: x", tables=(table,), warnings=ANSWER.warnings)


def unseen() -> View:
    pytest.fail("a view was built that nobody sees")


@pytest.mark.parametrize(
    ("options", "form"),
    [
        ({}, Format.TABLE),
        ({"json": True}, Format.JSON),
        ({"json": True, "format": "json"}, Format.JSON),
        *(({"format": form.value}, form) for form in Format),
    ],
)
def test_the_format_asked_for(options: dict[str, Any], form: Format) -> None:
    assert chosen_format(options) is form


@pytest.mark.parametrize("options", [{"format": "xml"}, {"format": "JSON"}, {"json": True, "format": "csv"}])
def test_formats_that_cannot_be(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        chosen_format(options)
    assert refused.value.place == "--format"
    assert refused.value.hint


def test_json_needs_no_view_and_keeps_stderr_quiet(capsys: Capture) -> None:
    assert render(ANSWER, unseen, {"json": True}) == 3
    out, err = capsys.readouterr()
    assert json.loads(out)["result"] == {"sequences": 7}
    assert json.loads(out)["warnings"] == ["careful"]
    assert err == ""


@pytest.mark.parametrize(
    ("form", "out"),
    [
        ("table", "assumed: x\n\nt\ns\n-\n7\n"),
        ("csv", "sequences\n7\n"),
        ("markdown", "assumed: x\n\n**t**\n\n| s |\n|---:|\n| 7 |\n"),
    ],
)
def test_tables_go_to_stdout_and_warnings_to_stderr(capsys: Capture, form: str, out: str) -> None:
    assert render(ANSWER, view, {"format": form}) == 3
    assert capsys.readouterr() == (out, "warning: careful\n")


def test_a_file_takes_the_data_and_never_colour(
    capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.txt"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert render(ANSWER, view, {"output": str(path)}) == 3
    assert path.read_text(encoding="utf-8") == "assumed: x\n\nt\ns\n-\n7\n"
    assert capsys.readouterr() == ("", f"wrote {path}\nwarning: careful\n")
    with pytest.raises(FileProblem):
        render(ANSWER, view, {"output": str(tmp_path / "none" / "x.txt")})


def test_a_terminal_gets_a_drawn_table(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    stream = Terminal()
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", "1")
    assert render(ANSWER, view, {}) == 3
    assert "─" in stream.getvalue()
    stream.seek(0)
    stream.truncate()
    monkeypatch.setenv("TERM", "dumb")
    render(ANSWER, view, {})
    assert stream.getvalue() == "assumed: x\n\nt\ns\n-\n7\n"


def test_a_plot_is_drawn_to_its_file(capsys: Capture) -> None:
    drawn: list[str] = []
    assert render(ANSWER, unseen, {"format": "plot", "output": "x.svg"}, plot=drawn.append) == 3
    assert drawn == ["x.svg"]
    assert capsys.readouterr() == ("", "wrote x.svg\nwarning: careful\n")


def test_an_answer_whose_picture_cannot_be_written_is_shown_as_a_table(capsys: Capture) -> None:
    def full(path: str) -> None:
        raise FileProblem("cannot be written: No space left on device", place=path)

    with pytest.raises(FileProblem, match="No space left"):
        render(ANSWER, view, {"format": "plot", "output": "x.svg"}, plot=full)
    assert capsys.readouterr() == ("assumed: x\n\nt\ns\n-\n7\n", "")


def test_a_plot_of_nothing_is_an_error_only_where_that_is_not_the_answer(capsys: Capture) -> None:
    def nothing(_path: str) -> None:
        raise NothingToDraw("nothing fits")

    options = {"format": "plot", "output": "x.svg"}
    assert render(ANSWER, view, options, plot=nothing) == 3
    assert capsys.readouterr() == ("", "nothing to draw: nothing fits\nwarning: careful\n")
    with pytest.raises(NothingToDraw):
        render(replace(ANSWER, exit_code=0), view, options, plot=nothing)


def test_what_could_not_be_saved_is_told_after_the_answer(capsys: Capture) -> None:
    lost = replace(ANSWER, unsaved=(FileProblem("cannot be written", place="requests.csv"),))
    with pytest.raises(FileProblem, match="cannot be written"):
        render(lost, view, {"require": ["sequences>=8"]})
    assert capsys.readouterr().out == "assumed: x\n\nt\ns\n-\n7\n"


def test_a_plot_needs_a_file_and_something_to_draw() -> None:
    with pytest.raises(UsageError, match="needs a file"):
        render(ANSWER, view, {"format": "plot"}, plot=lambda _: None)
    with pytest.raises(UsageError, match="kv has no plot"):
        render(ANSWER, view, {"format": "plot", "output": "x.svg"})


def test_gates_are_checked_after_the_answer_was_written(capsys: Capture) -> None:
    fitting = replace(ANSWER, exit_code=0)
    with pytest.raises(ObjectiveNotMet) as missed:
        render(fitting, unseen, {"json": True, "require": ["sequences>=8"]})
    assert missed.value.exit_code == 4
    assert json.loads(capsys.readouterr().out)["result"] == {"sequences": 7}
    assert render(fitting, unseen, {"json": True, "require": ["sequences>=7"]}) == 0
    assert render(ANSWER, unseen, {"json": True, "require": ["sequences>=7"]}) == 3


def test_that_it_does_not_fit_wins_over_a_gate(capsys: Capture) -> None:
    with pytest.raises(DoesNotFit, match="sequences>=8") as missed:
        render(ANSWER, unseen, {"json": True, "require": ["sequences>=8"]})
    assert missed.value.exit_code == 3
    assert json.loads(capsys.readouterr().out)["result"] == {"sequences": 7}
