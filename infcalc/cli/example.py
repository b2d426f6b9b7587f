"""``infcalc example``: the examples of all commands, by question."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any

import typer

from infcalc.errors import UsageError
from infcalc.frozen import frozen

OPTIONS = ()
ARGUMENTS = (("command", Annotated[str | None, typer.Argument(help="Only those of this command. [all]")], None),)
HELP = """Lines to copy: the examples of every command's help, under the question that it answers.

Example: infcalc example simulate"""
_MARK = "Example: "


@frozen
class Examples:
    """What one command's help shows."""

    name: str
    question: str
    lines: tuple[str, ...]


def run(options: dict[str, Any]) -> int:
    """Print the examples and return the exit code.

    Raises:
        UsageError: there is no such command.

    """
    found = examples(options["command"])
    for count, one in enumerate(found):
        typer.echo(("\n" if count else "") + f"# {one.question}")
        typer.echo("\n".join(one.lines))
    return 0


def examples(name: str | None = None) -> tuple[Examples, ...]:
    """Return the examples of one command (None: of all that have any), in the order of the help.

    Raises:
        UsageError: there is no such command.

    """
    from infcalc.cli.app import COMMANDS, SECTIONS  # noqa: PLC0415 - which knows this command

    known = {command.name: command for command in COMMANDS}
    if name is not None and name not in known:
        from difflib import get_close_matches  # noqa: PLC0415 - only for a word that is wrong

        near = tuple(get_close_matches(name, known))
        raise UsageError(f"{name!r} is not a command", place="COMMAND", hint=f"one of {', '.join(near or known)}")
    names = [one for _, section in SECTIONS for one in section] if name is None else [name]
    return tuple(
        Examples(name=one, question=known[one].question, lines=lines)
        for one in names
        if (lines := _lines(import_module(known[one].module).HELP))
    )


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.removeprefix(_MARK) for line in text.splitlines() if line.startswith(_MARK))
