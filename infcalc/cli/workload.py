"""``infcalc workload [FILE]``."""

from __future__ import annotations

import sys
from typing import Annotated, Any

import typer

from infcalc.api.workloads import workload
from infcalc.cli.loads import trace_from
from infcalc.cli.options import (
    ARRIVAL_TIMES,
    ARRIVALS,
    CATALOG,
    LENGTHS,
    OUTPUT,
    REPEATED,
    SEED,
    THINKING,
    TRACE,
)
from infcalc.cli.render import render
from infcalc.report.table import View

_SENT = tuple(option for option in ARRIVALS if option.name in {"rate", "concurrency", "users"})
OPTIONS = (*ARRIVAL_TIMES, *_SENT, *THINKING, *LENGTHS, *REPEATED, *SEED, *TRACE, *CATALOG, *OUTPUT)
ARGUMENTS = (
    ("file", Annotated[str | None, typer.Argument(metavar="FILE", help="A trace, or - for standard input.")], None),
)
HELP = """Rates, burstiness, lengths and what prompts share: of a trace (Azure, BurstGPT, Mooncake, Bailian, ShareGPT,
CSV, JSON lines), or of one that is made from arrivals, lengths, shared prefixes and sessions.

Example: infcalc workload trace.jsonl

Example: infcalc workload --arrivals gamma:rate=12,burstiness=0.5 --requests 1000 --save-trace trace.jsonl"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = workload(trace_from(options), explain=options["explain"])
    if options["save_trace"] and not answer.unsaved:
        sys.stderr.write(f"wrote {options['save_trace']}\n")

    def view() -> View:
        from infcalc.report.views import workload as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.timeline import plot_workload  # noqa: PLC0415 - the plot extra

        plot_workload(answer, path)

    return render(answer, view, options, plot=plot)
