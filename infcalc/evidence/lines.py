"""Lines of a text that may have been cut anywhere: the last one counts only where it surely is whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_ESCAPES = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def whole_lines(text: str, ends: Sequence[str] = ()) -> tuple[tuple[str, ...], str]:
    r"""Return the lines of a text, and what is to be said of one left out.

    A last line without its end may be cut in the middle of a number; it counts where it ends in one of ``ends``.

    >>> whole_lines("a 1\nb 2")
    (('a 1',), "line 2 ('b 2') has no end and may be cut off: left out")
    >>> whole_lines("a 1\nb 2 |", ends=("|",))
    (('a 1', 'b 2 |'), '')
    """
    plain = _ESCAPES.sub("", text.removeprefix("\ufeff")).replace("\r\n", "\n").replace("\r", "\n")
    lines = plain.split("\n")
    last = lines.pop()
    if not last.strip():
        return tuple(lines), ""
    if any(last.rstrip().endswith(end) for end in ends):
        return (*lines, last), ""
    shown = last if len(last) <= 40 else f"{last[:40]}..."  # noqa: PLR2004 - as much as tells which
    return tuple(lines), f"line {len(lines) + 1} ({shown!r}) has no end and may be cut off: left out"
