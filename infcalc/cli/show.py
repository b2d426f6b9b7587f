"""``infcalc show NAME``: one model or GPU."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.cli.listing import run_show
from infcalc.cli.options import CATALOG, OUTPUT

OPTIONS = (*CATALOG, *OUTPUT)
ARGUMENTS = (("name", Annotated[str, typer.Argument(help="A model or GPU, by name, alias, hub id or path.")], ...),)
HELP = """Everything the catalog says of one model or GPU, with the origin of each value.

Example: infcalc show deepseek-v3"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    return run_show(options["name"], options, ("models", "gpus"))
