"""``infcalc batching``."""

from __future__ import annotations

from typing import Any

from infcalc.api.batching_policies import batching
from infcalc.cli.given import ask_from
from infcalc.cli.loads import batching_from, terms_from
from infcalc.cli.options import CATALOG, DEPLOYMENT, LENGTHS, OUTPUT, RATE, SCHEDULING, SEED, TERMS
from infcalc.cli.progress import progress_bar
from infcalc.cli.render import check_way_out, render
from infcalc.report.table import View

OPTIONS = (*SCHEDULING, *LENGTHS, *RATE, *SEED, *TERMS, *DEPLOYMENT, *CATALOG, *OUTPUT)
HELP = """Latency, throughput, use of the slots and cost of the same requests under static batching, continuous batching
and the schedulers of engines, step by step. They differ in their rules alone: slots, cache and step times are the same.

Example: infcalc batching --requests 500 --slots 32 --policy static,continuous,vllm

Example: infcalc batching --require 'policies[policy=vllm].slot_utilization_fraction>=0.8'

Example: infcalc batching --output-tokens 200 --format plot --output slots.png"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    check_way_out(options, "batching")
    with progress_bar("turns") as progress:
        answer = batching(
            ask_from(options),
            batching_from(options),
            terms=terms_from(options),
            explain=options["explain"],
            progress=progress,
        )

    def view() -> View:
        from infcalc.report.views import batching as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.slots_picture import plot_batching  # noqa: PLC0415 - the plot extra

        plot_batching(answer, path)

    return render(answer, view, options, plot=plot)
