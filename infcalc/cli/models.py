"""``infcalc models``: list, ``show NAME``, ``add PATH``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from infcalc.api.listing import models, show
from infcalc.cli.given import ask_from
from infcalc.cli.listing import overlay_of, run_show
from infcalc.cli.options import CATALOG, OUTPUT
from infcalc.cli.render import render, write
from infcalc.errors import UsageError
from infcalc.report.table import View

OPTIONS = (*CATALOG, *OUTPUT)
ARGUMENTS = (
    ("action", Annotated[str | None, typer.Argument(metavar="[list|show|add]", help="What to do. [list]")], None),
    ("name", Annotated[str | None, typer.Argument(help="Text to look for, a model, or a path to add.")], None),
)
HELP = """`models list qwen` lists what holds "qwen"; `models show NAME` shows one entry with the origin of each
value; `models add PATH` reads a config.json, a checkpoint folder or a .gguf and prints an overlay file for --catalog.

Example: infcalc models add ./config.json > my-model.yaml"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    action, name = options["action"] or "list", options["name"]
    match action:
        case "list":
            return _list(name or "", options)
        case "show":
            return run_show(name, options, ("models",))
        case "add":
            return _add(name, options)
        case _:
            raise UsageError(f"cannot {action!r} models", hint="list [TEXT], show NAME or add PATH")


def _list(text: str, options: dict[str, Any]) -> int:
    answer = models(ask_from(options), text=text)

    def view() -> View:
        from infcalc.report.views import listing as views  # noqa: PLC0415 - JSON needs no view

        return views.models_view(answer)

    return render(answer, view, options)


def _add(path: str | None, options: dict[str, Any]) -> int:
    if path is None:
        raise UsageError("add what?", hint="name a config.json, a checkpoint folder or a .gguf file")
    answer = show(path, ask_from(options), sections=("models",))
    text = overlay_of(answer.result)
    write(text, options["output"])
    for warning in answer.warnings:
        sys.stderr.write(f"warning: {warning}\n")
    return answer.exit_code
