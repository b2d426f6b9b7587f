"""``infcalc calibrate``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from infcalc.cli.day import today
from infcalc.cli.given import ask_from
from infcalc.cli.loads import offer_from
from infcalc.cli.options import ARRIVALS, BATCHES, CATALOG, DEPLOYMENT, LENGTHS, MEASURED, OUTPUT
from infcalc.cli.progress import progress_bar
from infcalc.cli.render import Format, check_way_out, chosen_format, render, write
from infcalc.report.table import View

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.calibrating import CalibrateResult

_LOAD = tuple(option for option in (*LENGTHS, *BATCHES, *ARRIVALS) if option.name != "users")
_FORM = tuple(option for option in MEASURED if option.name == "benchmark_format")
OPTIONS = (*_FORM, *_LOAD, *DEPLOYMENT, *CATALOG, *OUTPUT)
ARGUMENTS = (
    (
        "file",
        Annotated[list[str], typer.Argument(metavar="FILES...", help="Results of benchmarks; - reads standard input.")],
        ...,
    ),
)
HELP = """Fits what your own measurements can determine: how much of the bandwidth, of the compute rate and of the link
is attained, what a message, a step and the front end take; says which of them it cannot determine, and why. Errors
before and after are of runs that the fit has not seen; where it is no better there, nothing is changed.

--output FILE saves the factors as a catalog overlay: with --catalog FILE every command uses them. With --format or
--json, --output saves the answer instead.

Example: infcalc calibrate c*.json --gpu h100 --tp 2 --output overlay.yaml

Example: infcalc estimate --gpu h100 --tp 2 --catalog overlay.yaml"""


def run(options: dict[str, Any]) -> int:
    """Answer the question and return the exit code."""
    from infcalc.api.calibrating import calibrate  # noqa: PLC0415 - help needs no api

    # Nobody fits for a minute only to read that the answer has nowhere to go.
    check_way_out(options, "calibrate", has_plot=False)
    with progress_bar("predictions") as progress:
        answer = calibrate(
            options["file"],
            ask_from(options),
            offer_from(options),
            form=options["benchmark_format"],
            today=today(),
            progress=progress,
        )

    def view() -> View:
        from infcalc.report.views import calibrate as views  # noqa: PLC0415 - JSON needs no view

        return views.view(answer)

    if options["output"] is None or chosen_format(options) is not Format.TABLE or options["format"] is not None:
        return render(answer, view, options)
    code = render(answer, view, options | {"output": None})
    _save(answer, options["output"])
    return code


def _save(answer: Answer[CalibrateResult], output: str) -> None:
    from infcalc.api.calibrating import overlay_of  # noqa: PLC0415 - as above
    from infcalc.files import yaml_text  # noqa: PLC0415 - only with --output

    lines = "".join(f"# {result.verdict}\n" for result in answer.results)
    write(f"{lines}{yaml_text(overlay_of(answer))}", output)
