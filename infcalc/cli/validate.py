"""``infcalc validate memory FILE``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.api.validating import validate_memory
from infcalc.cli.given import split
from infcalc.cli.options import CATALOG, OUTPUT
from infcalc.cli.render import render
from infcalc.errors import UsageError
from infcalc.report.table import View

OPTIONS = (*CATALOG, *OUTPUT)
ARGUMENTS = (
    ("what", Annotated[str, typer.Argument(metavar="memory", help="What to validate.")], ...),
    ("file", Annotated[str, typer.Argument(metavar="FILE", help="Recorded figures (YAML).")], ...),
)
HELP = """`validate memory FILE` predicts weights, KV pool, token line and concurrency of every recorded start-up log in
FILE from its settings alone, and prints the errors: by log, over all, and by engine, version, attention and TP.

Example: infcalc validate memory memory_logs.yaml"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    if options["what"] != "memory":
        raise UsageError(f"cannot validate {options['what']!r}", hint="validate memory FILE")
    answer = validate_memory(options["file"], catalogs=split(options.get("catalog")))

    def view() -> View:
        from infcalc.report.views import validate as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    return render(answer, view, options)
