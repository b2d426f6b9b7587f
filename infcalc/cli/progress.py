"""How far a long run is, on a line of stderr that is wiped at the end; nothing where stderr is no terminal."""

from __future__ import annotations

import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_AFTER_S = 1.0
_EVERY_S = 0.2
_WIDTH = 40
_WIPE = "\r\033[K"


@contextmanager
def progress_bar(unit: str = "requests") -> Iterator[Callable[[int, int], None] | None]:
    """Give what takes in how many of how many ``unit`` are done; None where nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    shown_at_s = time.monotonic() + _AFTER_S - _EVERY_S
    shown = False

    def show(done: int, total: int) -> None:
        nonlocal shown_at_s, shown
        now_s = time.monotonic()
        if now_s - shown_at_s < _EVERY_S:
            return
        shown_at_s, shown = now_s, True
        sys.stderr.write(f"{_WIPE}{bar(done, total, unit)}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        if shown:
            sys.stderr.write(_WIPE)
            sys.stderr.flush()


def bar(done: int, total: int, unit: str = "requests") -> str:
    """Return the line.

    >>> bar(250, 1000)
    '[##########------------------------------] 250 of 1,000 requests'
    """
    filled = _WIDTH * done // total if total else _WIDTH
    return f"[{'#' * filled}{'-' * (_WIDTH - filled)}] {done:,} of {total:,} {unit}"
