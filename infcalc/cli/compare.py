"""``infcalc compare``."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from infcalc.api.comparing import compare
from infcalc.cli.given import ask_from
from infcalc.cli.loads import offer_from
from infcalc.cli.options import (
    ARRIVALS,
    BATCHES,
    BESIDES,
    CATALOG,
    DEPLOYMENT,
    LENGTHS,
    MEASURED,
    OUTPUT,
    SEED,
)
from infcalc.cli.progress import progress_bar
from infcalc.cli.render import check_way_out, render
from infcalc.report.table import View

_LOAD = tuple(option for option in (*LENGTHS, *BATCHES, *ARRIVALS) if option.name != "users")
OPTIONS = (*MEASURED, *_LOAD, *SEED, *DEPLOYMENT, *BESIDES, *CATALOG, *OUTPUT)
ARGUMENTS = (
    (
        "file",
        Annotated[
            list[str] | None, typer.Argument(metavar="FILE...", help="Logs, results, metrics; - reads standard input.")
        ],
        None,
    ),
)
HELP = """Reads start-up logs of vLLM, SGLang, TensorRT-LLM or llama.cpp, whole or in part, and predicts what they say.
Reads results of benchmarks (vllm bench, SGLang bench_serving, GuideLLM, AIPerf, genai-perf, inference-perf,
trtllm-bench, llama-bench), /metrics of vLLM and SGLang, and interval lines of their logs; predicts the same load on
the same deployment; says where each difference comes from, what is impossible, and whether it is normal.

Options fill in or overrule what the file says.

Example: infcalc compare vllm.log --gpu h100

Example: infcalc compare result.json --gpu h100 --tp 2

Example: infcalc compare c1.json c16.json c64.json --gpu h100 --simulate"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    check_way_out(options, "compare", has_plot=False)
    with progress_bar() as progress:
        answer = compare(
            options["file"] or (),
            ask_from(options),
            offer_from(options),
            form=options["benchmark_format"],
            simulated=options["simulate"],
            seed=options["seed"],
            explain=options["explain"],
            progress=progress,
        )

    def view() -> View:
        from infcalc.report.views import compare as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    return render(answer, view, options)
