"""``infcalc validate memory FILE`` and ``infcalc validate serving FILE``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.cli.given import split
from infcalc.cli.options import CATALOG, OUTPUT
from infcalc.cli.render import render
from infcalc.errors import UsageError
from infcalc.report.table import View

OPTIONS = (*CATALOG, *OUTPUT)
ARGUMENTS = (
    ("what", Annotated[str, typer.Argument(metavar="memory|serving", help="What to validate.")], ...),
    ("file", Annotated[str, typer.Argument(metavar="FILE", help="Recorded figures (YAML).")], ...),
)
HELP = """`validate memory FILE` predicts weights, KV pool, token line and concurrency of every recorded start-up log in
FILE from its settings alone, and prints the errors: by log, over all, and by engine, version, attention and TP.
`validate serving FILE` predicts throughput and latencies of every measured run in FILE.

Example: infcalc validate memory memory_logs.yaml"""


def _answer(what: str, path: str, catalogs: tuple[str, ...]) -> Any:  # noqa: ANN401 - an answer of either kind
    match what:
        case "memory":
            from infcalc.api.validating import validate_memory  # noqa: PLC0415 - only the asked one is loaded

            return validate_memory(path, catalogs=catalogs)
        case "serving":
            from infcalc.api.validating_serving import validate_serving  # noqa: PLC0415

            return validate_serving(path, catalogs=catalogs)
        case _:
            raise UsageError(f"cannot validate {what!r}", hint="validate memory FILE, or validate serving FILE")


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = _answer(options["what"], options["file"], split(options.get("catalog")))

    def view() -> View:
        from infcalc.report.views import validate as views  # noqa: PLC0415 - JSON needs no view

        if options["what"] == "serving":
            groups = "class, source, engine, GPU, precision, TP and batch"
            return views.view(answer, entry="run", groups=groups)
        return views.view(answer)

    return render(answer, view, options)
