"""``infcalc simulate [FILE]``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.api.simulating import simulate
from infcalc.cli.given import ask_from
from infcalc.cli.loads import executor_from, simulation_from, terms_from
from infcalc.cli.options import (
    ARRIVAL_TIMES,
    ARRIVALS,
    CATALOG,
    COUNTERS,
    DEPLOYMENT,
    DRAFTING,
    EXECUTION,
    JUDGING,
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
_DRAFTING = tuple(option for option in DRAFTING if option.name != "simulate")
_LIMITS = tuple(option for option in JUDGING if option.name in {"sweep", "slo"})
OPTIONS = (
    *SIMULATION,
    *_LIMITS,
    *EXECUTION,
    *ARRIVAL_TIMES,
    *_SENT,
    *THINKING,
    *LENGTHS,
    *REPEATED,
    *_DRAFTING,
    *COUNTERS,
    *SEED,
    *TRACE,
    *TERMS,
    *DEPLOYMENT,
    *CATALOG,
    *OUTPUT,
)
ARGUMENTS = (
    ("file", Annotated[str | None, typer.Argument(metavar="FILE", help="A trace, or - for standard input.")], None),
)
HELP = """The requests of a trace, or of one that is made as in workload, on the scheduler and the cache of an engine:
waits and percentiles, goodput, preemptions, use of cache and slots over time, cost.

Example: infcalc simulate trace.jsonl --slo ttft=500ms,tpot=50ms --save-requests requests.csv

Example: infcalc simulate --sweep rate=1..16

Example: infcalc simulate --compare static,continuous,vllm,sglang --rate 4

Example: infcalc simulate --method eagle3 --num-draft-tokens 5 --acceptance 0.8 --sweep rate=1..16"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    check_way_out(options, "simulate")
    with progress_bar() as progress:
        answer = simulate(
            ask_from(options),
            simulation_from(options),
            terms=terms_from(options),
            explain=options["explain"],
            progress=progress,
            executor=executor_from(options),
        )

    def view() -> View:
        from infcalc.report.views import simulate as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.simulation_plots import plot_simulation  # noqa: PLC0415 - the plot extra

        plot_simulation(answer, path)

    return render(answer, view, options, plot=plot)
