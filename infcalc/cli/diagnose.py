"""``infcalc diagnose FILE...``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.cli.given import ask_from
from infcalc.cli.loads import offer_from
from infcalc.cli.options import ARRIVALS, BATCHES, BESIDES, CATALOG, DEPLOYMENT, LENGTHS, MEASURED, OUTPUT
from infcalc.cli.progress import progress_bar
from infcalc.cli.render import check_way_out, render
from infcalc.report.table import View

_LOAD = tuple(option for option in (*LENGTHS, *BATCHES, *ARRIVALS) if option.name != "users")
_FORM = tuple(option for option in MEASURED if option.name == "benchmark_format")
OPTIONS = (*_FORM, *_LOAD, *DEPLOYMENT, *BESIDES, *CATALOG, *OUTPUT)
ARGUMENTS = (
    (
        "file",
        Annotated[
            list[str], typer.Argument(metavar="FILE...", help="Metrics, logs, benchmarks; - reads standard input.")
        ],
        ...,
    ),
)
HELP = """Reads /metrics of vLLM or SGLang, their logs, and results of benchmarks, alone or together, and says what is
wrong: KV cache full, queue, prefix cache of no use, drafting that loses, front end or host too slow, TP over PCIe, no
CUDA graphs, wrong budget of tokens, figures that cannot be - or that it is normal. Each finding comes with the lines
that say so, what to do, the option of your engine, and what it would gain by the model.

Options fill in or overrule what the files say. Exit code 0 whatever is found: --require 'num_findings<=0' is the gate.

Example: infcalc diagnose metrics.txt --gpu h100

Example: infcalc diagnose before.txt after.txt vllm.log --gpu h100 --tp 2

Example: infcalc diagnose result.json --gpu h100"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    from infcalc.api.diagnosing import diagnose  # noqa: PLC0415 - help needs no api

    check_way_out(options, "diagnose", has_plot=False)
    with progress_bar("runs") as progress:
        answer = diagnose(
            options["file"],
            ask_from(options),
            offer_from(options),
            form=options["benchmark_format"],
            progress=progress,
        )

    def view() -> View:
        from infcalc.report.views import diagnose as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    return render(answer, view, options)
