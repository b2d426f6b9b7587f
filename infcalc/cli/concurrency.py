"""``infcalc concurrency``."""

from __future__ import annotations

from typing import Any

from infcalc.api.fitting import concurrency
from infcalc.cli.given import ask_from, contexts_from, load_from
from infcalc.cli.options import BESIDES, CATALOG, CONTEXT, DEPLOYMENT, LOAD, MTP, OUTPUT
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*CONTEXT, *LOAD, *MTP, *DEPLOYMENT, *BESIDES, *CATALOG, *OUTPUT)
HELP = """FP16, FP8 and INT4 KV side by side, with everything that was counted on the GPU.

With the lengths of requests also how many run at once, and how many users that is; with --users whether they fit.

Example: infcalc concurrency --quant int4 --context 8k

Example: infcalc concurrency --input-tokens lognormal:mean=500,cv=1.2 --output-tokens 250 --think-time 30s"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = concurrency(
        ask_from(options), contexts=contexts_from(options), requests=load_from(options), explain=options["explain"]
    )

    def view() -> View:
        from infcalc.report.views import concurrency as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.plots import plot_concurrency  # noqa: PLC0415 - the plot extra

        plot_concurrency(answer, path)

    return render(answer, view, options, plot=plot)
