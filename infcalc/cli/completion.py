"""Completion in a shell: its script, and what it asks this program for each time Tab is pressed.

The protocol is click's: the script that ``infcalc completion SHELL`` prints runs ``infcalc`` with the words so far in
the environment.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

VARIABLE = "_INFCALC_COMPLETE"
"""Of the environment: what a shell asks for."""


class Shell(StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


OPTIONS = ()
ARGUMENTS = (("shell", Annotated[str, typer.Argument(help="bash, zsh or fish.")], "bash"),)
HELP = """A script for the shell to read at its start: commands, options, models, GPUs and engines complete with Tab.

Example: infcalc completion bash >> ~/.bashrc

Example: infcalc completion fish > ~/.config/fish/completions/infcalc.fish"""


def run(options: dict[str, Any]) -> int:
    """Print the script and return the exit code.

    Raises:
        UsageError: no script is known for that shell.

    """
    from click.shell_completion import get_completion_class  # noqa: PLC0415 - only here

    from infcalc.cli.app import application  # noqa: PLC0415 - which knows this command
    from infcalc.errors import UsageError  # noqa: PLC0415

    name = options["shell"].strip().lower()
    if name not in set(Shell):
        raise UsageError(f"{options['shell']!r} is no shell that completes", place="SHELL", hint="bash, zsh or fish")
    found = get_completion_class(name)
    if found is None:
        raise AssertionError(f"click knows {name}")
    # The text only: click's own way of printing it asks the shell for its version, and needs it installed.
    script = found(application(), {}, "infcalc", VARIABLE)
    typer.echo(script.source_template % script.source_vars())
    return 0


def complete(instruction: str) -> int:
    """Answer a shell that asks with ``instruction``, such as ``bash_complete``, and return the exit code."""
    from click.shell_completion import shell_complete  # noqa: PLC0415 - only here

    from infcalc.cli.app import application  # noqa: PLC0415

    return shell_complete(application(), {}, "infcalc", VARIABLE, instruction)


def among(kind: str) -> Callable[[str], list[str]]:
    """Return a completer of the names of a kind: ``models``, ``gpus``, ``engines``, ``formats`` or ``papers``."""

    # typer hands over what the parameter's name asks for.
    def names(incomplete: str) -> list[str]:
        return [name for name in _names(kind) if name.startswith(incomplete)]

    return names


def _names(kind: str) -> Sequence[str]:
    if kind == "formats":
        from infcalc.cli.render import Format  # noqa: PLC0415

        return tuple(Format)
    if kind == "papers":
        from infcalc.cli.paper import Paper  # noqa: PLC0415

        return tuple(Paper)
    from infcalc.api.listing import names_of  # noqa: PLC0415 - only where names are asked for

    return names_of(kind)
