"""What ``infcalc models``, ``infcalc gpus`` and ``infcalc show`` share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.api.listing import ShowResult, show
from infcalc.cli.given import ask_from
from infcalc.cli.render import render
from infcalc.errors import UsageError

if TYPE_CHECKING:
    from infcalc.report.table import View


def run_show(name: str | None, options: dict[str, Any], sections: tuple[str, ...]) -> int:
    """Show one entry.

    Raises:
        UsageError: no name was given.

    """
    if name is None:
        raise UsageError("show what?", hint="name a model or GPU: infcalc show llama3-70b")
    answer = show(name, ask_from(options), sections=sections)

    def view() -> View:
        from infcalc.report.views import listing as views  # noqa: PLC0415 - JSON needs no view

        return views.show_view(answer)

    return render(answer, view, options)


def overlay_of(result: ShowResult) -> str:
    """Return an entry as the YAML of an overlay file."""
    from infcalc.files import yaml_text  # noqa: PLC0415 - only here is YAML written

    return yaml_text({result.section: {result.name: result.entry}})
