"""The line that says how far a long run is."""

from __future__ import annotations

import pytest

from infcalc.cli.progress import told_progress

Capture = pytest.CaptureFixture[str]


class Clock:
    """A clock that is set by hand."""

    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_long_run_says_how_long_the_rest_takes_and_takes_the_line_away(capsys: Capture) -> None:
    clock = Clock()
    tell = told_progress("batching", clock=clock, seen=True)
    tell(0.1)
    assert capsys.readouterr().err == ""
    clock.now_s = 4.0
    tell(0.25)
    tell(0.26)
    assert capsys.readouterr().err == "\r\x1b[Kbatching: 25%, about 12 s to go"
    tell(1.0)
    tell(1.0)
    assert capsys.readouterr().err == "\r\x1b[K"


def test_a_short_run_and_one_outside_a_terminal_write_nothing(capsys: Capture) -> None:
    clock = Clock()
    short, unseen = (told_progress("batching", clock=clock, seen=seen) for seen in (True, False))
    short(0.5)
    short(1.0)
    clock.now_s = 100.0
    unseen(0.5)
    assert capsys.readouterr().err == ""
