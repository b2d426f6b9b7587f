"""``infcalc report``."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc.api.reporting import report
from infcalc.cli.given import ask_from
from infcalc.cli.loads import plan_from, profile_from, sweep_from, terms_from
from infcalc.cli.options import (
    API_PRICE,
    ARRIVALS,
    CATALOG,
    COUNTERS,
    DEPLOYMENT,
    DOCUMENT,
    DRAFTING,
    JUDGING,
    LENGTHS,
    PLANNING,
    PROFILE,
    SEED,
    TERMS,
    THINKING,
)
from infcalc.cli.paper import check_way_out, hand_out
from infcalc.cli.progress import progress_bar

if TYPE_CHECKING:
    from infcalc.report.document import Document

_LOAD = tuple(option for option in ARRIVALS if option.name in {"rate", "users", "prefix_hit"})
_DRAFTING = tuple(option for option in DRAFTING if option.name != "simulate")
_LIMITS = tuple(option for option in JUDGING if option.name in {"slo", "sweep"})
OPTIONS = (
    *_LIMITS,
    *_LOAD,
    *THINKING,
    *LENGTHS,
    *PLANNING,
    *_DRAFTING,
    *COUNTERS,
    *SEED,
    *TERMS,
    *API_PRICE,
    *PROFILE,
    *DEPLOYMENT,
    *CATALOG,
    *DOCUMENT,
)
HELP = """One document of one deployment under one load, for a capacity review: verdict, inputs, memory, roofline,
latency against throughput, plans and prices, bands, sources, and the commands that give each part again. An HTML page
needs nothing but itself: no network, no script. Drafting (--method) is a choice of the plans on offer. Exit 3 where it
does not fit, 4 where limits are not kept.

Example: infcalc report --output capacity.html

Example: infcalc report --users 500 --think-time 20s --slo ttft-p95=2s,tpot-p95=60ms --allow fp8 -o capacity.html

Example: infcalc report -m llama3.1-8b -g h100 -n 1 --rate 8 --gpus-from h100,l40s --output capacity.md"""


def run(options: dict[str, Any]) -> int:
    """Write the document and return the exit code."""
    check_way_out(options)
    with progress_bar("setups") as progress:
        answer = report(
            ask_from(options),
            plan_from(options),
            terms=terms_from(options),
            profile=profile_from(options),
            sweep=sweep_from(options),
            progress=progress,
        )
    from infcalc.cli.rerun import reruns  # noqa: PLC0415 - other commands' options, once there is an answer

    answer = replace(answer, results=(replace(answer.result, reruns=reruns(options, answer.result)),))

    def document() -> Document:
        from infcalc.report.review import review  # noqa: PLC0415 - JSON needs no document

        return review(answer)

    return hand_out(answer, document, options)
