"""The line that says how far a long run is: in a terminal alone, and not for a short one."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

import pytest

from infcalc.cli import progress
from infcalc.cli.app import COMMANDS, run
from infcalc.cli.progress import progress_bar

Capture = pytest.CaptureFixture[str]


def test_a_long_run_in_a_terminal_says_how_far_it_is_and_wipes_the_line(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_AFTER_S", 0.0)
    monkeypatch.setattr(progress, "_EVERY_S", 0.0)
    with progress_bar("turns") as show:
        assert show is not None
        show(250, 1000)
    assert capsys.readouterr().err == "\r\033[K[##########------------------------------] 250 of 1,000 turns\r\033[K"


def test_a_short_run_and_one_outside_a_terminal_write_nothing(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    with progress_bar() as show:
        assert show is None
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with progress_bar() as show:
        assert show is not None
        show(1, 2)
    assert capsys.readouterr().err == ""


LONG = {one.module: one.name for one in COMMANDS if hasattr(import_module(one.module), "progress_bar")}


def test_the_commands_that_may_run_for_long_are_known() -> None:
    assert {"infcalc.cli.simulate", "infcalc.cli.compare", "infcalc.cli.plan", "infcalc.cli.batching"} <= set(LONG)


@pytest.mark.parametrize("module", LONG)
def test_a_long_run_begins_only_where_its_answer_can_be_written(
    module: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def begun(*_: object) -> None:
        raise AssertionError("the run began")

    monkeypatch.setattr(f"{module}.progress_bar", begun)
    needed = ["FILE" for _, _, default in getattr(import_module(module), "ARGUMENTS", ()) if default is ...]
    assert run([LONG[module], *needed, "--output", str(tmp_path / "none" / "a.txt")]) == 2
    assert "does not exist" in capsys.readouterr().err
