"""``infcalc prefix-cache``."""

from __future__ import annotations

from typing import Any

from infcalc.api.prefix_hits import prefix_cache
from infcalc.cli.caches import prefixes_from
from infcalc.cli.given import ask_from
from infcalc.cli.loads import terms_from
from infcalc.cli.options import CATALOG, DEPLOYMENT, LENGTHS, OUTPUT, PREFIXES, PRICE, RATE, REQUESTS, SEED
from infcalc.cli.render import render
from infcalc.report.table import View

OPTIONS = (*REQUESTS, *PREFIXES, *LENGTHS, *RATE, *SEED, *PRICE, *DEPLOYMENT, *CATALOG, *OUTPUT)
HELP = """Hit rates by request and by token, evictions, and the prefill time, GPU-seconds and money that hits spare,
for a stream of requests of which some begin with a few prefixes. --input-tokens is the length of a request's own part.

Example: infcalc prefix-cache --engine sglang --prefix-tokens 4k --sharing 0.9 --rate 5

Example: infcalc prefix-cache --max-entries 20 --policy lfu

Example: infcalc prefix-cache --format plot --output hits.png"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    answer = prefix_cache(
        ask_from(options), prefixes_from(options), terms=terms_from(options), explain=options["explain"]
    )

    def view() -> View:
        from infcalc.report.views import prefix_cache as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.cache_plots import plot_prefix_cache  # noqa: PLC0415 - the plot extra

        plot_prefix_cache(answer, path)

    return render(answer, view, options, plot=plot)
