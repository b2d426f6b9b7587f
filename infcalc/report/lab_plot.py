"""The picture of ``lab``: time by tokens, without a cache and with one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.canvas import canvas, finish, line
from infcalc.report.captions import joined, said
from infcalc.report.palette import styles

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.lab_report import LabResult


def plot_lab(answer: Answer[LabResult], path: str) -> None:
    """Draw what producing N tokens has taken, without a cache and with one.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, (axes,) = canvas(path)
    points = answer.result.projections
    caches = list(dict.fromkeys(point.cache for point in points))
    for cache, style in zip(caches, styles(len(caches)), strict=True):
        shown = [point for point in points if point.cache == cache]
        last = shown[-1]
        label = f"{cache}: {last.total_projections:,} projections, the first token {last.first_token_projections:,}"
        places = [point.tokens for point in shown]
        axes.plot(places, [point.elapsed_s for point in shown], marker="o", markersize=4, label=label, **line(style))
    axes.set_xlabel("tokens produced")
    axes.set_ylabel("time so far, s")
    axes.set_ylim(bottom=0)
    told = joined(answer.result.model, said(answer, "hidden_size", "layers", "num_threads"))
    finish(figure, path, "What a KV cache saves, measured on this computer", told)
