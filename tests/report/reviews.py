"""Capacity reviews that several tests look at, each made once."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from infcalc.api.costing import Terms
from infcalc.api.deployment import Ask
from infcalc.api.objectives import parse_slo
from infcalc.api.plan_ask import PlanAsk
from infcalc.api.reporting import report
from infcalc.api.reporting_nouns import ReportResult, Rerun
from infcalc.report.svg.element import Element

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.api.answer import Answer

_FEW = ("h100", "h200")
CASES: dict[str, tuple[Ask, PlanAsk]] = {
    "users": (Ask(), PlanAsk(num_users=500, think_time_s=20.0, gpus_from=_FEW, num_confirmed=2)),
    "rate": (
        Ask(models=("llama3-8b",), gpus=("h100",), num_gpus=1),
        PlanAsk(
            requests_per_s=8.0,
            input_tokens="lognormal:mean=500,cv=1",
            output_tokens="200",
            slo=parse_slo(("ttft-p95=1s", "e2e=20s")),
            gpus_from=_FEW,
            num_confirmed=0,
        ),
    ),
    "too large": (Ask(num_gpus=1), PlanAsk(gpus_from=_FEW, num_confirmed=0)),
    "too slow": (
        Ask(models=("llama3-8b",), gpus=("l4",), num_gpus=1),
        PlanAsk(num_users=5, slo=parse_slo(("tpot-p95=5ms",)), gpus_from=("l4",), num_confirmed=0),
    ),
    "unmeasured": (Ask(models=("llama3-8b",), gpus=("mi300x",), num_gpus=1), PlanAsk(gpus_from=_FEW, num_confirmed=0)),
}
"""By users, by rate, of what does not fit, of what no number of replicas is quick enough for, of an unmeasured GPU."""


@cache
def review_of(name: str) -> Answer[ReportResult]:
    """Return the answer of one case, with a command as the command line adds it."""
    ask, asked = CASES[name]
    answer = report(ask, asked, terms=Terms(today="2026-11-30"))
    lines = (Rerun(part="the whole report", command="infcalc report --output 'a b.html'"),)
    return replace(answer, results=(replace(answer.result, reruns=lines),))


def inside(node: Element, name: str) -> Iterator[Element]:
    """Yield the elements of that name in a drawing or page, in their order."""
    for child in node.children:
        if isinstance(child, Element):
            if child.name == name:
                yield child
            yield from inside(child, name)


def attributes(node: Element) -> dict[str, str]:
    """Return the attributes of an element by name."""
    return dict(node.attributes)


class Read(HTMLParser):
    """A page as a browser takes it apart: tags with attributes, texts by the tag that they stand in, cells."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: dict[str, list[str]] = {}
        self._open: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._open.append(tag)
        self.texts.setdefault(tag, []).append("")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        for tag in set(self._open):
            self.texts[tag][-1] += data

    @property
    def whole(self) -> bool:
        """Whether every element was closed."""
        return not self._open
