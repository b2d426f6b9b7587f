"""Pictures of ``estimate``: the latency-throughput curve of a sweep, or what a step is made of."""

from __future__ import annotations

import math
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from infcalc.report.palette import ALERT, GREY, INK, colours
from infcalc.report.plots import canvas, finish
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.speed import SpeedResult
    from infcalc.api.sweeping import Curve, SweepPoint

_MS = 1e3
_FOUR_DIGITS = 1000
_MARGIN = 0.08


def plot_estimate(answer: Answer[SpeedResult], path: str) -> None:
    """Draw the curve of each result's sweep with its band, its knee and its points; without a sweep the parts of steps.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    drawn = [(result, result.sweep) for result in answer.results if result.sweep is not None and result.sweep.points]
    if not drawn:
        _parts(axes, answer)
        finish(figure, axes, path, "What one step is made of", legend_columns=3)
        return
    variable = drawn[0][1].variable
    for (result, curve), colour in zip(drawn, colours(len(drawn)), strict=True):
        _curve(axes, curve, colour, f"{result.model} on {result.num_gpus} x {result.gpu}")
    axes.set_xscale("log")
    axes.set_yscale("log")
    # Room for the label of the last point, below and right of it.
    axes.margins(x=_MARGIN, y=_MARGIN)
    for axis in (axes.xaxis, axes.yaxis):
        _plain_ticks(axis)
    axes.tick_params(which="both", labelsize=9)
    axes.set_xlabel("output tokens/s of the replica")
    axes.set_ylabel("time per token, ms")
    for _, curve in drawn:
        _labels(figure, axes, curve)
    finish(figure, axes, path, f"Latency and throughput by {variable}")


def _curve(axes: Any, curve: Curve, colour: str, label: str) -> None:  # noqa: ANN401 - matplotlib is optional
    points = [point for point in curve.points if point.tpot_s is not None]
    rates = [point.output_tokens_per_s.value for point in points]
    axes.plot(rates, [_ms(point, "value") for point in points], color=colour, marker="o", markersize=4, label=label)
    # Where throughput falls again, a band would run back over itself.
    along = points if not rates or rates[0] <= rates[-1] else points[::-1]
    most = list(accumulate((point.output_tokens_per_s.value for point in along), max))
    rising = [point for point, so_far in zip(along, most, strict=True) if point.output_tokens_per_s.value >= so_far]
    axes.fill_between(
        [point.output_tokens_per_s.value for point in rising],
        [_ms(point, "low") for point in rising],
        [_ms(point, "high") for point in rising],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    for point in points:
        if point.value == curve.knee:
            spot = ([point.output_tokens_per_s.value], [_ms(point, "value")])
            axes.scatter(*spot, s=130, facecolor="none", edgecolor=INK, linewidth=1.4, zorder=4, label=_knee(curve))
    unstable = [point for point in points if not point.stable]
    if unstable:
        axes.scatter(
            [point.output_tokens_per_s.value for point in unstable],
            [_ms(point, "value") for point in unstable],
            marker="x",
            color=ALERT,
            zorder=4,
            label="unstable",
        )


def _knee(curve: Curve) -> str:
    return f"knee: {curve.variable} {curve.knee:.4g}"


def _labels(figure: Any, axes: Any, curve: Curve) -> None:  # noqa: ANN401 - matplotlib is optional
    """Write the variable beside the points whose label meets no other one."""
    figure.draw_without_rendering()
    taken = [text.get_window_extent() for text in axes.texts]
    points = [point for point in curve.points if point.tpot_s is not None]
    # The ends of a curve say most: they come first.
    for point in dict.fromkeys([*points[:1], *points[-1:], *points]):
        place = (point.output_tokens_per_s.value, _ms(point, "value"))
        text = axes.annotate(
            f"{point.value:.3g}" if point.value < _FOUR_DIGITS else f"{point.value:g}",
            place,
            textcoords="offset points",
            xytext=(5, -10),
            fontsize=8,
            color=INK,
        )
        box = text.get_window_extent()
        if any(box.overlaps(other) for other in taken):
            text.remove()
        else:
            taken.append(box)


def _ms(point: SweepPoint, end: str) -> float:
    found: float = getattr(point.tpot_s, end)
    return found * _MS


def _plain_ticks(axis: Any) -> None:  # noqa: ANN401 - matplotlib is optional
    """Write plain numbers at an axis: of every leading digit where it spans little, else of a few."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator  # noqa: PLC0415 - an optional extra

    low, high = axis.get_view_interval()
    digits = next(digits for ratio, digits in _DIGITS if high <= ratio * low)

    def shown(value: float, _position: object = None) -> str:
        return f"{value:,.6g}" if not digits or f"{value:.0e}"[0] in digits else ""

    if not digits:
        axis.set_major_locator(MaxNLocator(nbins=6))
        axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(shown))
    axis.set_minor_formatter(FuncFormatter(shown))


_DIGITS = ((3, ""), (7, "123456789"), (20, "12357"), (math.inf, "125"))
"""Up to which ratio of the ends of an axis which leading digits are written; none: even steps, as on a linear axis."""


def _parts(axes: Any, answer: Answer[SpeedResult]) -> None:  # noqa: ANN401 - matplotlib is optional
    """Draw each step as one bar, its parts one after the other; what is small is one part."""
    steps = [
        (f"{step.phase}, {result.model}\non {result.num_gpus} x {result.gpu}", step)
        for result in reversed(answer.results)
        for step in (result.prefill_step, result.step)
        if step is not None
    ]
    sizes: dict[str, float] = {}
    for _, step in steps:
        for part in step.parts:
            sizes[part.name] = max(sizes.get(part.name, 0.0), part.share_fraction)
    names = sorted(sizes, key=lambda name: -sizes[name])[:_MOST_PARTS]
    left = [0.0 for _ in steps]
    for name, colour in zip([*names, _OTHERS], [*colours(len(names)), GREY], strict=True):
        shares = [
            100 * sum(part.share_fraction for part in step.parts if _named(part.name, names) == name)
            for _, step in steps
        ]
        axes.barh(range(len(steps)), shares, left=left, color=colour, label=name, height=0.6)
        left = [start + share for start, share in zip(left, shares, strict=True)]
    axes.set_yticks(range(len(steps)), [f"{name}\n{format_seconds(step.time_s.value)}" for name, step in steps])
    axes.set_xlim(0, 100)
    axes.set_ylim(-0.6, len(steps) + 0.6)
    axes.set_xlabel("share of the step's time, %")


def _named(part: str, names: list[str]) -> str:
    return part if part in names else _OTHERS


_MOST_PARTS = 6
_OTHERS = "all others"
