"""``infcalc what-if [FILE]``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.api.what_if import what_if
from infcalc.cli.given import ask_from, listed
from infcalc.cli.loads import simulation_from, terms_from
from infcalc.cli.options import (
    ARRIVAL_TIMES,
    ARRIVALS,
    CATALOG,
    DEPLOYMENT,
    FEATURES,
    LENGTHS,
    OUTPUT,
    REPEATED,
    SEED,
    SIMULATION,
    TERMS,
    THINKING,
    TRACE,
)
from infcalc.cli.progress import progress_bar
from infcalc.cli.render import check_way_out, render
from infcalc.report.table import View

_SENT = tuple(option for option in ARRIVALS if option.name in {"rate", "concurrency", "users"})
_SERVERS = tuple(option for option in SIMULATION if option.name in {"replicas", "router", "slots"})
OPTIONS = (
    *FEATURES,
    *_SENT,
    *THINKING,
    *ARRIVAL_TIMES,
    *LENGTHS,
    *REPEATED,
    *_SERVERS,
    *SEED,
    *TRACE,
    *TERMS,
    *DEPLOYMENT,
    *CATALOG,
    *OUTPUT,
)
ARGUMENTS = (("file", Annotated[str | None, typer.Argument(metavar="FILE", help="A trace, as in workload.")], None),)
HELP = """The same requests on the same GPUs with each feature and without it: tokens per second, times, cost, and
whether it pays here, with the reason; "no" and "cannot" are answers.

Example: infcalc what-if --users 100 --shared-prefix tokens=1000 --feature fp8-kv,prefix-cache,speculation

Example: infcalc what-if -m qwen3-30b-a3b -g h100 -n 2 --rate 8"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    check_way_out(options, "what-if", has_plot=False)
    with progress_bar("features") as progress:
        answer = what_if(
            ask_from(options),
            simulation_from(options),
            features=listed(options["feature"], "--feature"),
            terms=terms_from(options),
            progress=progress,
        )

    def view() -> View:
        from infcalc.report.views import what_if as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    return render(answer, view, options)
