"""``infcalc memory``."""

from __future__ import annotations

from typing import Any

from infcalc.api.filling import memory
from infcalc.cli.given import ask_from, contexts_from, load_from
from infcalc.cli.options import BESIDES, CATALOG, CONTEXT, DEPLOYMENT, LOAD, OUTPUT
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*CONTEXT, *LOAD, *DEPLOYMENT, *BESIDES, *CATALOG, *OUTPUT)
HELP = """The ledger of the GPU that governs: weights, activation, buffers, CUDA graphs, KV pool; blocks, tokens and
concurrency as the engine prints them; and how many sequences truly fit, of one length or of the lengths that requests
have. Exit code 3 when it does not fit, with the nearest changes that would.

Example: infcalc memory -m qwen3-32b -g h100 -n 2 --max-model-len 32k

Example: infcalc memory --input-tokens lognormal:mean=500,cv=1.2 --output-tokens 250 --users 200 --think-time 30s"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = memory(
        ask_from(options), contexts=contexts_from(options), requests=load_from(options), explain=options["explain"]
    )

    def view() -> View:
        from infcalc.report.views import memory as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.plots import plot_memory  # noqa: PLC0415 - the plot extra

        plot_memory(answer, path)

    return render(answer, view, options, plot=plot)
