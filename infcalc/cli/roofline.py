"""``infcalc roofline``."""

from __future__ import annotations

from typing import Any

from infcalc.api.bounds import roofline
from infcalc.cli.given import ask_from, contexts_from, whole_numbers
from infcalc.cli.options import BATCHES, CATALOG, CONTEXT, DEPLOYMENT, OUTPUT
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*CONTEXT, *BATCHES, *DEPLOYMENT, *CATALOG, *OUTPUT)
HELP = """Crossover of each GPU and precision, and where prefill and decode stand at several batches.

Example: infcalc roofline --gpu h100 --gpu a100-80gb --model llama3-8b --gpus 1"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = roofline(
        ask_from(options),
        contexts=contexts_from(options),
        batches=whole_numbers(options["batch"], "--batch"),
        explain=options["explain"],
    )

    def view() -> View:
        from infcalc.report.views import roofline as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.plots import plot_roofline  # noqa: PLC0415 - the plot extra

        plot_roofline(answer, path)

    return render(answer, view, options, plot=plot)
