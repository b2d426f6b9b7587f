"""``infcalc kv``."""

from __future__ import annotations

from typing import Any

from infcalc.api.sizing import kv
from infcalc.cli.given import ask_from, contexts_from
from infcalc.cli.options import BESIDES, CATALOG, CONTEXT, DEPLOYMENT, MTP, OUTPUT
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*CONTEXT, *MTP, *DEPLOYMENT, *BESIDES, *CATALOG, *OUTPUT)
HELP = """Bytes per token, what saturates, what is constant per request, and sequences by memory alone.

Example: infcalc kv --model llama3-70b --gpus 4"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = kv(ask_from(options), contexts=contexts_from(options), explain=options["explain"])

    def view() -> View:
        from infcalc.report.views import kv as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.plots import plot_kv  # noqa: PLC0415 - the plot extra

        plot_kv(answer, path)

    return render(answer, view, options, plot=plot)
