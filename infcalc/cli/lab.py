"""``infcalc lab``: run, ``measure``."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infcalc.cli.given import contexts_from, single, split, tokens, whole_numbers
from infcalc.cli.options import BATCHES, BENCH, CATALOG, CONTEXT, OUTPUT, SEED
from infcalc.cli.progress import progress_bar
from infcalc.cli.render import check_way_out, render, write
from infcalc.errors import UsageError
from infcalc.report.table import View

if TYPE_CHECKING:
    from infcalc.api.lab_timing import Instruments

OPTIONS = (*BENCH, *BATCHES, *CONTEXT, *SEED, *CATALOG, *OUTPUT)
ARGUMENTS = (
    ("action", Annotated[str | None, typer.Argument(metavar="[run|measure]", help="What to do. [run]")], None),
)
HELP = """Runs a small transformer in numpy, with and without a KV cache, paged or contiguous, batched, with prefix
cache on and off, and sets its times beside what the roofline of this very CPU predicts. `lab measure` times the
kernels alone and prints an overlay file: with --catalog FILE --gpu this-cpu other commands know this computer.

With --device cuda or cpu, `lab measure` times torch's kernels there (copies, products by size and precision,
attention, all-reduces), says what they reach of the peaks that the catalog states, and writes that as an overlay.

Example: infcalc lab measure --output this-cpu.yaml

Example: infcalc lab measure --device cuda --output my-gpu.yaml"""

_BUDGET_S = 3.0
_ENDS_S = 60.0
"""After that many seconds what is left is run once: a busy computer, or a large model."""
_THREADS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    action = options["action"] or "run"
    if action not in {"run", "measure"}:
        raise UsageError(f"cannot {action!r} a laboratory", hint="lab, or lab measure")
    # Nobody measures for a minute only to read that the answer has nowhere to go.
    check_way_out(options, "lab")
    if options["device"] is not None and action != "measure":
        raise UsageError(
            "a device is measured, not run", place="--device", hint="infcalc lab measure --device cuda (or cpu)"
        )
    threads = options["threads"]
    if threads is None and action == "run" and not options["gpu"]:
        # Several threads wait for each other, and each for any other program: one holds on a busy computer too.
        threads = 1
    instruments = _instruments(threads)
    if action == "run":
        return _run(options, instruments)
    return _measure(options, instruments) if options["device"] is None else _device(options, instruments)


def _run(options: dict[str, Any], instruments: Instruments) -> int:
    from infcalc.api.lab import LabAsk, lab  # noqa: PLC0415 - numpy obeys --threads only before it is loaded

    ask = LabAsk(
        size=options["size"],
        hidden_size=options["hidden"],
        num_layers=options["layers"],
        count_tokens=None if options["tokens"] is None else tokens(options["tokens"], "--tokens"),
        context_tokens=single(contexts_from(options), "--context"),
        batches=whole_numbers(options["batch"], "--batch"),
        repeat=options["repeat"],
        seed=options["seed"],
        quick=options["quick"],
        gpu=options["gpu"],
        catalogs=split(options["catalog"]),
    )
    answer = lab(ask, instruments, explain=options["explain"])

    def view() -> View:
        from infcalc.report.views import lab as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    def plot(path: str) -> None:
        from infcalc.report.lab_plot import plot_lab  # noqa: PLC0415 - the plot extra

        plot_lab(answer, path)

    return render(answer, view, options, plot=plot)


def _measure(options: dict[str, Any], instruments: Instruments) -> int:
    from infcalc.api.lab_measure import measure  # noqa: PLC0415 - as above

    answer = measure(instruments, name=options["name"], repeat=options["repeat"], quick=options["quick"])

    def view() -> View:
        from infcalc.report.views import lab as views  # noqa: PLC0415 - JSON needs no view

        return views.measure_view(answer)

    if options["format"] or options["json"]:
        return render(answer, view, options)
    return _overlay(answer.result.overlay, answer.warnings, options["output"])


def _device(options: dict[str, Any], instruments: Instruments) -> int:
    from infcalc.api.lab_device import DeviceAsk, measure_device  # noqa: PLC0415 - as above

    ask = DeviceAsk(
        device=options["device"],
        gpu=options["gpu"],
        name=options["name"],
        repeat=options["repeat"],
        quick=options["quick"],
        catalogs=split(options["catalog"]),
    )
    with progress_bar("kernels") as progress:
        answer = measure_device(ask, instruments, progress=progress)

    def view() -> View:
        from infcalc.report.views import lab_device as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    if options["output"] is None or options["json"] or options["format"] is not None:
        return render(answer, view, options)
    code = render(answer, view, options | {"output": None})
    return code or _overlay(answer.result.overlay, (), options["output"])


def _overlay(text: str, warnings: tuple[str, ...], output: str | None) -> int:
    write(text, output)
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
    return 0


def _tell(text: str) -> None:
    sys.stderr.write(f"{text} ...\n")
    sys.stderr.flush()


def _instruments(threads: int | None) -> Instruments:
    """Return the clock of the measurement, after the number of threads is set for numpy to find.

    One thread is timed by the CPU time of this process: other programs do not lengthen it, as they do wall time.
    """
    from infcalc.api.lab_timing import Instruments  # noqa: PLC0415 - help needs no api

    if threads is not None:
        from infcalc.api.lab_cores import num_cores  # noqa: PLC0415 - as above, and without numpy

        cores = num_cores()
        if not 1 <= threads <= cores:
            raise UsageError(
                f"{threads} threads, and {cores} cores that this process may use",
                place="--threads",
                hint=f"a whole number from 1 to {cores}: more threads than cores wait for each other",
            )
        os.environ.update(dict.fromkeys(_THREADS, str(threads)))
    alone = threads == 1
    return Instruments(
        clock=time.process_time if alone else time.perf_counter,
        clock_name="cpu" if alone else "wall",
        wall_s=time.perf_counter,
        ends_s=time.perf_counter() + _ENDS_S,
        today=time.strftime("%Y-%m-%d"),
        progress=_tell,
        budget_s=_BUDGET_S,
    )
