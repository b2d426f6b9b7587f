"""The picture of ``plan``: all plans by cost and latency, and the front of those that none beats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.palette import colours
from infcalc.report.plots import canvas, finish

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.plan_nouns import PlanResult


def plot_plan(answer: Answer[PlanResult], path: str) -> None:
    """Draw the front of each result, and its plans with the bands of cost and time.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    for result, colour in zip(answer.results, colours(len(answer.results)), strict=True):
        front = result.front
        axes.plot(
            [point.usd_per_month for point in front],
            [point.e2e_s for point in front],
            color=colour,
            marker="o",
            drawstyle="steps-post",
            label=f"{result.model}: no plan is cheaper and quicker",
        )
        for point in front:
            axes.annotate(
                f"{point.total_gpus} x {point.gpu}",
                (point.usd_per_month, point.e2e_s),
                textcoords="offset points",
                xytext=(6, 6),
                fontsize=8,
            )
        drawn = [one for one in result.plans if one.usd_per_month is not None and one.e2e_s is not None]
        for one in drawn:
            if one.usd_per_month is None or one.e2e_s is None:
                continue
            axes.errorbar(
                [one.usd_per_month.value],
                [one.e2e_s.value],
                yerr=[[one.e2e_s.value - one.e2e_s.low], [one.e2e_s.high - one.e2e_s.value]],
                xerr=[
                    [one.usd_per_month.value - one.usd_per_month.low],
                    [one.usd_per_month.high - one.usd_per_month.value],
                ],
                color=colour,
                marker="x",
                alpha=0.45,
                linestyle="none",
                capsize=2,
            )
    axes.set_yscale("log")
    axes.margins(x=0.15, y=0.1)
    axes.set_xlabel("USD a month")
    axes.set_ylabel("time of a request, s")
    finish(figure, axes, path, "Latency against cost")
