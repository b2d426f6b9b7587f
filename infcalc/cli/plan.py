"""``infcalc plan [FILE]``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.api.planning import plan
from infcalc.cli.given import ask_from
from infcalc.cli.loads import plan_from, terms_from
from infcalc.cli.options import (
    ARRIVALS,
    CATALOG,
    COUNTERS,
    DEPLOYMENT,
    DRAFTING,
    JUDGING,
    LENGTHS,
    OUTPUT,
    PLANNING,
    SEED,
    TERMS,
    THINKING,
)
from infcalc.cli.progress import progress_bar
from infcalc.cli.render import check_way_out, render
from infcalc.report.table import View

_LOAD = tuple(option for option in ARRIVALS if option.name in {"rate", "users", "prefix_hit"})
_LIMITS = tuple(option for option in JUDGING if option.name == "slo")
_DRAFTING = tuple(option for option in DRAFTING if option.name != "simulate")
OPTIONS = (
    *PLANNING,
    *_DRAFTING,
    *COUNTERS,
    *_LIMITS,
    *_LOAD,
    *THINKING,
    *LENGTHS,
    *SEED,
    *TERMS,
    *DEPLOYMENT,
    *CATALOG,
    *OUTPUT,
)
ARGUMENTS = (
    ("file", Annotated[str | None, typer.Argument(metavar="FILE", help="A trace: its lengths, and its rate.")], None),
)
HELP = """Every GPU with a price, every split, precision and number of replicas on offer is weighed; the best are
confirmed by the simulator; what was rejected is named with by how much it missed. Exit 4 where nothing will do.

Example: infcalc plan --users 200 --think-time 20s --slo ttft-p95=500ms,tpot-p95=50ms --allow fp8

Example: infcalc plan -m llama3-8b --rate 20 --input-tokens 1000 --output-tokens 200 --budget 5000/month --spare N+1

Example: infcalc plan --users 4 --slo tpot-p95=20ms --method eagle3,ngram

Example: infcalc plan --from-naive --allow fp8 --prefix-hit 0.5"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    check_way_out(options, "plan")
    with progress_bar("setups") as progress:
        answer = plan(
            ask_from(options),
            plan_from(options),
            terms=terms_from(options),
            explain=options["explain"],
            progress=progress,
        )

    def view() -> View:
        from infcalc.report.views import plan as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.plan_plot import plot_plan  # noqa: PLC0415 - the plot extra

        plot_plan(answer, path)

    return render(answer, view, options, plot=plot)
