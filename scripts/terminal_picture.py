"""Draw docs/terminal.svg: a command of the README as it looks in a terminal, from a real run.

``--check`` fails where the picture differs from what it would be.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

from render_docs import bare_surroundings
from rich.console import Console
from rich.text import Text

from infcalc.cli.app import run

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "terminal.svg"
COMMAND = "infcalc concurrency -m llama3-70b -g h100 -n 4 --context 8k"
WIDTH = 112
SHOWN_LINES = 25
"""Notes below the tables are left out: the picture ends with them, and says so."""


class _Terminal(io.StringIO):
    """A stream that says it is a terminal, so that colours and tables are those that people see."""

    def isatty(self) -> bool:
        return True


def main() -> int:
    """Draw the picture, or check it."""
    fresh = picture()
    if "--check" in sys.argv[1:]:
        if not PICTURE.exists() or PICTURE.read_text(encoding="utf-8") != fresh:
            print("docs/terminal.svg is stale: run python scripts/terminal_picture.py")
            return 1
        return 0
    PICTURE.write_text(fresh, encoding="utf-8")
    return 0


def picture() -> str:
    """Return the picture as SVG."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.assemble(("$ ", "green"), (COMMAND, "bold")))
    lines = _printed().rstrip().splitlines()
    console.print(Text.from_ansi("\n".join(lines[:SHOWN_LINES])), no_wrap=True, overflow="crop")
    if len(lines) > SHOWN_LINES:
        left = len(lines) - SHOWN_LINES
        console.print(f"({left} more lines: what each figure rests on)", style="dim", highlight=False)
    name = "terminal-" + hashlib.sha256(COMMAND.encode()).hexdigest()[:8]
    svg = console.export_svg(title="infcalc", unique_id=name)
    # The picture must not ask a network for its letters.
    return (
        "\n".join(line.rstrip() for line in re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL).splitlines()) + "\n"
    )


def _printed() -> str:
    """Return what the command prints in a terminal, with its colours."""
    out = _Terminal()
    with bare_surroundings(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        os.environ.pop("NO_COLOR")
        os.environ.update(TERM="xterm-256color", COLORTERM="truecolor", COLUMNS=str(WIDTH))
        run(shlex.split(COMMAND)[1:])
    return out.getvalue()


if __name__ == "__main__":
    sys.exit(main())
