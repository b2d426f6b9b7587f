"""Documents on their way out: as a page, as Markdown or as JSON, by the ending of the file where nothing is said."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Any

from infcalc.cli.render import gated, read_gates, warn, write
from infcalc.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.api.answer import Answer
    from infcalc.report.document import Document


class Paper(StrEnum):
    """How a document is written."""

    HTML = "html"
    MARKDOWN = "markdown"
    JSON = "json"


_ENDINGS = {
    ".html": Paper.HTML,
    ".htm": Paper.HTML,
    ".md": Paper.MARKDOWN,
    ".markdown": Paper.MARKDOWN,
    ".json": Paper.JSON,
}


def hand_out(answer: Answer[Any], document: Callable[[], Document], options: Mapping[str, Any]) -> int:
    """Write an answer as its options ask and return the exit code; ``document`` is made only where it is shown.

    Raises:
        UsageError: as :func:`chosen_paper`.
        ObjectiveNotMet, DoesNotFit: a ``--require`` gate does not hold (after the document was written).

    """
    paper, output = chosen_paper(options), options.get("output")
    match paper:
        case Paper.JSON:
            from infcalc.report.as_json import as_json  # noqa: PLC0415 - only what is asked for

            write(as_json(answer), output)
        case Paper.HTML:
            from infcalc.report.page import page  # noqa: PLC0415

            write(page(document()), output)
        case Paper.MARKDOWN:
            from infcalc.report.as_markdown import as_markdown  # noqa: PLC0415

            write(as_markdown(document()), output)
    if paper is not Paper.JSON:
        warn(answer.warnings)
    return gated(answer, options)


def check_way_out(options: Mapping[str, Any]) -> None:
    """Refuse a document that could not be written, before the work for it.

    Raises:
        UsageError: as :func:`chosen_paper`, or a gate that cannot be read.
        FileProblem: the folder of ``--output`` does not exist, or it is a folder itself.

    """
    output = options.get("output")
    if output is not None:
        from infcalc.files import check_target  # noqa: PLC0415 - only with --output

        check_target(output)
    chosen_paper(options)
    read_gates(options)


def chosen_paper(options: Mapping[str, Any]) -> Paper:
    """Return the format of ``--format`` and ``--json``, else that of the ending of ``--output``.

    Raises:
        UsageError: no such format, two that contradict each other, or an ending that names none.

    """
    word, output = options.get("format"), options.get("output")
    if options.get("json"):
        if word not in {None, Paper.JSON}:
            raise UsageError(f"--json and --format {word}", place="--format", hint="give one of them")
        return Paper.JSON
    if word is not None:
        try:
            return Paper(word)
        except ValueError:
            hint = f"one of {', '.join(Paper)}"
            raise UsageError(f"{word!r} is not a format of a report", place="--format", hint=hint) from None
    if output is None:
        return Paper.MARKDOWN
    paper = next((paper for ending, paper in _ENDINGS.items() if output.lower().endswith(ending)), None)
    if paper is None:
        raise UsageError(
            f"the ending of {output!r} names no format",
            place="--output",
            hint="let it end in .html, .md or .json, or add --format html",
        )
    return paper
