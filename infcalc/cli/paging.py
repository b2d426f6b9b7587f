"""``infcalc paging``."""

from __future__ import annotations

from typing import Any

from infcalc.api.paging_waste import paging
from infcalc.cli.caches import paging_from
from infcalc.cli.given import ask_from
from infcalc.cli.options import CATALOG, DEPLOYMENT, LENGTHS, OUTPUT, PAGING, REQUESTS, SEED
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*REQUESTS, *LENGTHS, *PAGING, *SEED, *DEPLOYMENT, *CATALOG, *OUTPUT)
HELP = """Waste, rejected requests and concurrency of paged blocks, of a reservation of the longest or the exact length,
and of a buddy allocator, each under the same requests; then one prompt that many requests share, copied on write.

Example: infcalc paging --block-size 32 --input-tokens 1000 --output-tokens exponential:mean=300

Example: infcalc paging --pool-tokens 100k --load 0.8 --shared-prefix-tokens 1k"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = paging(ask_from(options), paging_from(options), explain=options["explain"])

    def view() -> View:
        from infcalc.report.views import paging as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.cache_plots import plot_paging  # noqa: PLC0415 - the plot extra

        plot_paging(answer, path)

    return render(answer, view, options, plot=plot)
