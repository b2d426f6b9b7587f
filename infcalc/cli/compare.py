"""``infcalc compare``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.api.comparing import compare
from infcalc.cli.given import ask_from
from infcalc.cli.options import BESIDES, CATALOG, DEPLOYMENT, OUTPUT
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*DEPLOYMENT, *BESIDES, *CATALOG, *OUTPUT)
ARGUMENTS = (("file", Annotated[str, typer.Argument(metavar="FILE", help="The log; - reads standard input.")], ...),)
HELP = """Reads the log of vLLM, SGLang, TensorRT-LLM or llama.cpp, whole or in part, predicts what it prints from the
settings it states, and says where each difference comes from. Options fill in or overrule what the log says.

Example: infcalc compare vllm.log --gpu h100"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = compare(options["file"], ask_from(options), explain=options["explain"])

    def view() -> View:
        from infcalc.report.views import compare as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    return render(answer, view, options)
