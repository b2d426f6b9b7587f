"""The picture of ``plan``: all plans by cost and latency, and the front of those that none beats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import NothingToDraw
from infcalc.report.canvas import canvas, finish, line, plain_ticks
from infcalc.report.captions import joined, said
from infcalc.report.palette import styles

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.plan_nouns import PlanResult


def plot_plan(answer: Answer[PlanResult], path: str) -> None:
    """Draw the front of each result, and its plans with the bands of cost and time.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        NothingToDraw: there is no plan.
        FileProblem: the file cannot be written.

    """
    if not any(result.front or result.plans for result in answer.results):
        raise NothingToDraw("no plan meets what was asked")
    figure, (axes,) = canvas(path, height_inches=4.5)
    labels = []
    several = len(answer.results) > 1
    for result, style in zip(answer.results, styles(len(answer.results)), strict=True):
        name = result.model if several else ""
        for one in result.plans:
            cost, time = one.usd_per_month, one.e2e_s
            if cost is None or time is None:
                continue
            axes.errorbar(
                [cost.value],
                [time.value],
                yerr=[[time.value - time.low], [time.high - time.value]],
                xerr=[[cost.value - cost.low], [cost.high - cost.value]],
                color=style.colour,
                marker="x",
                alpha=0.5,
                linestyle="none",
                capsize=2,
                label=joined(name, "a plan of the list, with its band"),
            )
        front = [(point.usd_per_month, point.e2e_s) for point in result.front]
        if front:
            label = joined(name, "the front: no plan is both cheaper and quicker")
            axes.plot(*zip(*front, strict=True), marker="o", drawstyle="steps-post", label=label, **line(style))
        told = [f"{one.total_gpus} x {one.gpu}" + (f" {one.method}" if one.method else "") for one in result.front]
        labels += [(text, *place) for text, place in zip(told, front, strict=True)]
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.margins(x=0.1, y=0.1)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
    axes.set_xlabel("cost, USD a month")
    axes.set_ylabel("time of a whole request, s")
    models = joined(*dict.fromkeys(result.model for result in answer.results))
    given = ("users", "rate_per_s", "concurrency", "input_tokens", "output_tokens", "slo")
    finish(figure, path, "Cost and latency of plans", joined(models, said(answer, *given)), labels=[(axes, labels)])
