"""The line that says how far a long run is: in a terminal alone, and not for a short one."""

from __future__ import annotations

import sys

import pytest

from infcalc.cli import progress
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
