"""Write the output blocks of README.md and docs/**/*.md anew, or check that none is stale (``--check``).

Four kinds of blocks are known; everything else is left as it is.

- A ``console`` fence: each line ``$ infcalc ...`` is followed by what that command prints on stdout. What it says on
  stderr is shown only when it fails. ``| head -N``, ``| grep TEXT``, ``| sed -n '/TEXT/,/^$/p'`` (one paragraph) and,
  last, ``; echo $?`` work as in a shell. Blank lines at the end are not shown.
- A ``python`` fence: is run on its own; what it prints stands in the fence ``text output`` after it.
- ``<!-- output of: infcalc ... -->`` up to ``<!-- end of output -->``: the output as Markdown, outside a fence.
- A fence with a file name after its language (``yaml team.yaml``): the file lies in the working directory of the
  blocks after it.

Commands run in this process, in an empty folder with an empty home, without colour and 100 columns wide: the outputs
depend on the sources alone.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from infcalc.cli.app import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
_BLOCK = re.compile(
    r"^```(?P<language>\w+)(?: (?P<word>\S+))?\n(?P<body>.*?)^```$"
    r"|^<!-- output of: (?P<command>.+?) -->\n.*?^<!-- end of output -->$",
    re.MULTILINE | re.DOTALL,
)
_PROMPT = "$ "
_ECHO = re.compile(r"\s*;\s*echo \$\?\s*$")
_FILTER = re.compile(r"head -(?P<lines>\d+)|grep (?P<word>[\w/]+)|sed -n '/(?P<first>[\w ]+)/,/\^\$/p'")
_FORGOTTEN = ("INFCALC_DEBUG", "FORCE_COLOR", "PYTHONWARNINGS")


class UnrunnableError(Exception):
    """A block that cannot be run as it is written."""


def pages() -> tuple[Path, ...]:
    """Return the files whose blocks are generated."""
    return (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))


@contextlib.contextmanager
def bare_surroundings() -> Iterator[None]:
    """Run what is inside in an empty working directory, with an empty home, no colour and a fixed width."""
    before, place = dict(os.environ), Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        bare = {
            "HOME": folder,
            "XDG_CONFIG_HOME": f"{folder}/config",
            "XDG_CACHE_HOME": f"{folder}/cache",
            "NO_COLOR": "1",
            "TERM": "dumb",
            "COLUMNS": "100",
            "LINES": "50",
            "LC_ALL": "C.UTF-8",
            "HF_HUB_OFFLINE": "1",
            # The day that prices are held against: outputs must not change because time goes by.
            "SOURCE_DATE_EPOCH": "1795996800",
        }
        for name in _FORGOTTEN:
            os.environ.pop(name, None)
        os.environ.update(bare)
        work = Path(folder, "work")
        work.mkdir()
        os.chdir(work)
        try:
            yield
        finally:
            os.chdir(place)
            os.environ.clear()
            os.environ.update(before)


def output_of(command: str) -> str:
    """Return what a shell would show of ``infcalc ...``, with the filters of the module docstring.

    Raises:
        UnrunnableError: not an infcalc command, or a filter that is not known.

    """
    text = _ECHO.sub("", command)
    words, *filters = (part.strip() for part in text.split(" | "))
    program, *arguments = shlex.split(words)
    if program != "infcalc":
        raise UnrunnableError(f"only infcalc runs in a console block, not {program!r}: use another fence")
    out, talk = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(talk):
        code = run(arguments)
    lines = out.getvalue().splitlines()
    for written in filters:
        lines = _filtered(lines, written)
    while lines and not lines[-1]:
        lines.pop()
    if code:
        lines += talk.getvalue().splitlines()
    if text != command:
        lines.append(str(code))
    return "".join(f"{line.rstrip()}\n" for line in lines)


def _filtered(lines: list[str], written: str) -> list[str]:
    match = _FILTER.fullmatch(written)
    if match is None:
        raise UnrunnableError(f"unknown filter {written!r}: use head -N, grep TEXT or sed -n '/TEXT/,/^$/p'")
    if match["lines"]:
        return lines[: int(match["lines"])]
    if match["word"]:
        return [line for line in lines if match["word"] in line]
    kept: list[str] = []
    inside = False
    for line in lines:
        inside = bool(line) if inside else match["first"] in line
        if inside:
            kept.append(line)
    return kept


class Page:
    """The blocks of one page, run from top to bottom; ``replaced`` is called with each match in turn."""

    def __init__(self) -> None:
        self._printed = ""

    def replaced(self, match: re.Match[str]) -> str:
        """Return the block with its output as it is now."""
        if match["command"]:
            output = output_of(match["command"])
            return f"<!-- output of: {match['command']} -->\n\n{output.strip()}\n\n<!-- end of output -->"
        language, word, body = match["language"], match["word"], match["body"]
        if word == "output":
            printed, self._printed = self._printed, ""
            return _fence(f"{language} output", printed)
        self.finish()
        if word is not None:
            Path(word).write_text(body, encoding="utf-8")
        elif language == "console":
            commands = [line for line in body.splitlines() if line.startswith(_PROMPT)]
            return _fence("console", "".join(f"{line}\n{output_of(line[2:])}" for line in commands))
        elif language == "python":
            self._printed = _printed_by(body)
        return match[0]

    def finish(self) -> None:
        """Refuse output of Python that no block shows."""
        if self._printed:
            raise UnrunnableError(f"a python block prints {self._printed[:40]!r}..., and no ```text output follows it")


def _fence(info: str, body: str) -> str:
    if "```" in body:
        raise UnrunnableError("the output holds a fence of its own: use --format table")
    return f"```{info}\n{body}```"


def _printed_by(source: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        # The documentation of this repository, run to see that it is right.
        exec(compile(source, "<documentation>", "exec"), {"__name__": "__main__"})  # noqa: S102
    return "".join(f"{line.rstrip()}\n" for line in out.getvalue().splitlines())


def rendered(text: str) -> str:
    """Return the text of a page with all its output blocks as they are now.

    Raises:
        UnrunnableError: a block cannot be run as it is written.

    """
    with bare_surroundings():
        page = Page()
        fresh = _BLOCK.sub(page.replaced, text)
        page.finish()
    return fresh


def main(arguments: Sequence[str]) -> int:
    """Render the pages, or compare them with what they would be; return the exit code."""
    parser = argparse.ArgumentParser(description="Write the output blocks of README.md and docs/**/*.md anew.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 with a diff when a block is stale")
    parser.add_argument("pages", nargs="*", type=Path, help="[README.md and docs/**/*.md]")
    asked = parser.parse_args(arguments)
    stale = 0
    for path in asked.pages or pages():
        text = path.read_text(encoding="utf-8")
        try:
            fresh = rendered(text)
        except UnrunnableError as problem:
            print(f"{path}: {problem}", file=sys.stderr)
            return 2
        if fresh == text:
            continue
        stale += 1
        if asked.check:
            lines = difflib.unified_diff(
                text.splitlines(), fresh.splitlines(), f"{path} (as it is)", f"{path} (as it runs)", lineterm=""
            )
            print("\n".join(lines))
        else:
            path.write_text(fresh, encoding="utf-8")
            print(f"wrote {path}")
    if stale and asked.check:
        print(f"{stale} stale page(s): run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
