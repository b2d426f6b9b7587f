"""``infcalc gpus``: list, ``show NAME``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.api.listing import gpus
from infcalc.cli.day import today
from infcalc.cli.given import ask_from
from infcalc.cli.listing import run_show
from infcalc.cli.options import CATALOG, OUTPUT
from infcalc.cli.render import render
from infcalc.errors import UsageError
from infcalc.report.table import View

OPTIONS = (*CATALOG, *OUTPUT)
ARGUMENTS = (
    ("action", Annotated[str | None, typer.Argument(metavar="[list|show]", help="What to do. [list]")], None),
    ("name", Annotated[str | None, typer.Argument(help="Text to look for, or a GPU.")], None),
)
HELP = """`gpus list hopper` lists what holds "hopper"; `gpus show NAME` shows one entry with the origin of each value.

Example: infcalc gpus show h100"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    action, name = options["action"] or "list", options["name"]
    match action:
        case "list":
            return _list(name or "", options)
        case "show":
            return run_show(name, options, ("gpus",))
        case _:
            raise UsageError(f"cannot {action!r} GPUs", hint="list [TEXT] or show NAME")


def _list(text: str, options: dict[str, Any]) -> int:
    answer = gpus(ask_from(options), text=text, today=today())

    def view() -> View:
        from infcalc.report.views import listing as views  # noqa: PLC0415 - JSON needs no view

        return views.gpus_view(answer)

    return render(answer, view, options)
