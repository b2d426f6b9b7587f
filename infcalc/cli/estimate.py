"""``infcalc estimate``."""

from __future__ import annotations

from typing import Any

from infcalc.api.speed import estimate
from infcalc.cli.given import ask_from, contexts_from
from infcalc.cli.loads import measured_from, offer_from, profile_from, slo_from, sweep_from, terms_from
from infcalc.cli.options import (
    API_PRICE,
    ARRIVALS,
    BATCHES,
    CATALOG,
    CONTEXT,
    DEPLOYMENT,
    JUDGING,
    LENGTHS,
    OUTPUT,
    PROFILE,
    TERMS,
    THINKING,
)
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (
    *LENGTHS,
    *BATCHES,
    *ARRIVALS,
    *THINKING,
    *JUDGING,
    *TERMS,
    *API_PRICE,
    *PROFILE,
    *CONTEXT,
    *DEPLOYMENT,
    *CATALOG,
    *OUTPUT,
)
HELP = """Time to first token, time per token, throughput and cost per million tokens, each with its band. Without a
load: the maximum throughput that memory admits. --explain breaks a step into its ops and says what bounds each.

Example: infcalc estimate --concurrency 100 --input-tokens 1000 --output-tokens lognormal:mean=300,cv=1

Example: infcalc estimate --sweep batch=1..1024 --format plot --output curve.png

Example: infcalc estimate -m llama3-8b -g h100 -n 1 --batch 1 --measured tpot=12ms"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = estimate(
        ask_from(options),
        offer_from(options),
        contexts=contexts_from(options),
        terms=terms_from(options),
        profile=profile_from(options),
        sweep=sweep_from(options),
        measured=measured_from(options),
        slo=slo_from(options),
        explain=options["explain"],
    )

    def view() -> View:
        from infcalc.report.views import estimate as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.curves import plot_estimate  # noqa: PLC0415 - the plot extra

        plot_estimate(answer, path)

    return render(answer, view, options, plot=plot)
