"""One way out for every command: the asked format, to the screen or a file, then the gates."""

from __future__ import annotations

import os
import sys
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from infcalc.errors import DoesNotFit, FileProblem, NothingToDraw, ObjectiveNotMet, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.api.answer import Answer
    from infcalc.report.table import View


class Format(StrEnum):
    """How a result is written."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    MARKDOWN = "markdown"
    PLOT = "plot"


def render(
    answer: Answer[Any],
    view: Callable[[], View],
    options: Mapping[str, Any],
    *,
    plot: Callable[[str], None] | None = None,
) -> int:
    """Write an answer as its options ask and return the exit code.

    ``view`` builds the tables only when they are shown; ``plot`` draws to a file.

    Raises:
        UsageError: an unknown format, or a plot without a file.
        ObjectiveNotMet: a ``--require`` gate does not hold (after the answer was written).
        DoesNotFit: the same, where the answer is that the deployment does not fit.
        FileProblem: a file could not be written, that of ``--output`` among them (after the answer was shown).

    """
    form = chosen_format(options)
    read_gates(options)
    output = options.get("output")
    if form is Format.PLOT:
        _plot(plot, output, answer, view)
        warn(answer.warnings)
    elif form is Format.JSON:
        from infcalc.report.as_json import as_json  # noqa: PLC0415 - start-up

        write(as_json(answer), output)
    else:
        _show(view(), form, output)
        warn(answer.warnings)
    if answer.unsaved:
        raise answer.unsaved[0]
    return gated(answer, options)


def gated(answer: Answer[Any], options: Mapping[str, Any]) -> int:
    """Return the exit code of an answer that was written, where all gates of ``--require`` hold.

    Raises:
        ObjectiveNotMet: one does not hold.
        DoesNotFit: the same, where the answer is that the deployment does not fit.

    """
    if options.get("require"):
        from infcalc.cli.require import check  # noqa: PLC0415 - start-up
        from infcalc.report.as_json import document  # noqa: PLC0415

        try:
            check(options["require"], document(answer)["result"])
        except ObjectiveNotMet as missed:
            if answer.exit_code != DoesNotFit.exit_code:
                raise
            # Where the deployment does not fit, that is why the gate is missed.
            raise DoesNotFit(f"does not fit, and {missed.message}", place=missed.place, hint=missed.hint) from None
    return answer.exit_code


def check_way_out(options: Mapping[str, Any], command: str, *, has_plot: bool = True) -> None:
    """Refuse an answer that could not be written, before a long run for it; ``has_plot``: whether it can be drawn.

    Raises:
        UsageError: an unknown format, a gate that cannot be read, or a plot without a file or of what has none.
        FileProblem: the folder of ``--output`` does not exist, or it is a folder itself.

    """
    form, output = chosen_format(options), options.get("output")
    read_gates(options)
    if form is Format.PLOT:
        if not has_plot:
            raise _no_plot(command)
        _plot_file(output, command)
    if output is not None:
        from infcalc.files import check_target  # noqa: PLC0415 - only with --output

        check_target(output)


def read_gates(options: Mapping[str, Any]) -> None:
    """Tell of a gate that cannot be read before anything is written.

    Raises:
        UsageError: there is one.

    """
    if options.get("require"):
        from infcalc.cli.require import read_gate  # noqa: PLC0415 - start-up

        for gate in options["require"]:
            read_gate(gate)


def chosen_format(options: Mapping[str, Any]) -> Format:
    """Return the format of ``--format`` and ``--json``.

    Raises:
        UsageError: no such format, or two that contradict each other.

    """
    word = options.get("format")
    if options.get("json"):
        if word not in {None, Format.JSON}:
            raise UsageError(f"--json and --format {word}", place="--format", hint="give one of them")
        return Format.JSON
    if word is None:
        return Format.TABLE
    try:
        return Format(word)
    except ValueError:
        raise UsageError(f"{word!r} is not a format", place="--format", hint=f"one of {', '.join(Format)}") from None


def _show(view: View, form: Format, output: str | None) -> None:
    from infcalc.report import text  # noqa: PLC0415 - start-up

    match form:
        case Format.CSV:
            write(text.as_csv(view), output)
        case Format.MARKDOWN:
            write(text.markdown(view), output)
        case _ if output is None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
            from infcalc.report.terminal import show  # noqa: PLC0415 - start-up: rich only for a terminal

            show(view, sys.stdout)
        case _:
            write(text.plain(view), output)


def _plot(
    plot: Callable[[str], None] | None, output: str | None, answer: Answer[Any], view: Callable[[], View]
) -> None:
    command = answer.command
    if plot is None:
        raise _no_plot(command)
    file = _plot_file(output, command)
    from infcalc.files import check_target  # noqa: PLC0415 - start-up

    check_target(file)
    try:
        plot(file)
    except NothingToDraw as empty:
        if not answer.exit_code:
            raise
        # Where nothing fits, that is the answer, and the exit code says so.
        sys.stderr.write(f"{empty.message}\n")
    except FileProblem:
        _show(view(), Format.TABLE, None)
        raise
    else:
        sys.stderr.write(f"wrote {output}\n")


def _no_plot(command: str) -> UsageError:
    return UsageError(f"infcalc {command} has no plot", place="--format", hint="use table, json, csv or markdown")


def _plot_file(output: str | None, command: str) -> str:
    if output is None:
        raise UsageError("a plot needs a file", place="--output", hint=f"add --output {command}.png (or .svg)")
    return output


def write(text: str, output: str | None) -> None:
    """Write a text to a file, else to stdout; where the file does not take it, to stdout before the error is raised.

    Raises:
        FileProblem: the file cannot be written: the disk is full, say.

    """
    if output is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    from infcalc.files import check_target, write_text  # noqa: PLC0415 - start-up

    check_target(output)
    try:
        write_text(output, text)
    except FileProblem:
        # What may have taken minutes is not lost for that.
        sys.stdout.write(text)
        sys.stdout.flush()
        raise
    sys.stderr.write(f"wrote {output}\n")


def warn(warnings: tuple[str, ...]) -> None:
    """Say what could mislead, apart from the answer."""
    for warning in warnings:
        sys.stderr.write(f"warning: {warning}\n")
