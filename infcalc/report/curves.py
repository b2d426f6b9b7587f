"""Pictures of ``estimate``: the latency-throughput curve of a sweep, or what a step is made of."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from infcalc.errors import NothingToDraw
from infcalc.report.canvas import area, canvas, finish, line, name_bars, plain_ticks
from infcalc.report.captions import joined, said, told_apart
from infcalc.report.palette import GRID, INK, VERMILLION, Style, ink_on, styles
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.speed import SpeedResult
    from infcalc.api.sweeping import Curve, SweepPoint

_MS = 1e3
_FOUR_DIGITS = 1000
_MARGIN = 0.08
_LABELLED = 4.0
"""Per cent of a step: shorter pieces have no room for their number."""
_BAR_INCHES = 0.75
UNITS = {
    "batch": "sequences",
    "concurrency": "requests at once",
    "rate": "requests/s",
    "users": "users",
    "input-tokens": "tokens",
    "output-tokens": "tokens",
    "tp": "GPUs",
}
"""What each variable of a sweep counts."""
_NAMES = {"tp": "TP"}


def plot_estimate(answer: Answer[SpeedResult], path: str) -> None:
    """Draw the curve of each result's sweep with its band, its knee and its points; without a sweep the parts of steps.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        NothingToDraw: nothing fits.
        FileProblem: the file cannot be written.

    """
    shared, names = told_apart(answer.results)
    swept = [(one.sweep, name) for one, name in zip(answer.results, names, strict=True) if one.sweep is not None]
    drawn = [(curve, name, _timed(curve)) for curve, name in swept if _timed(curve)]
    if not drawn:
        _parts(answer, path)
        return
    figure, (axes,) = canvas(path, height_inches=4.5)
    variable = drawn[0][0].variable
    for (curve, name, points), style in zip(drawn, styles(len(drawn)), strict=True):
        _curve(axes, curve, points, style, name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    # Room for the label of the last point, below and right of it.
    axes.margins(x=_MARGIN, y=_MARGIN)
    for axis in (axes.xaxis, axes.yaxis):
        plain_ticks(axis)
    axes.set_xlabel("throughput of the replica, output tokens/s")
    axes.set_ylabel("time per output token, ms")
    labels = [(_shown(point.value), *_place(point)) for _, _, points in drawn for point in _ends_first(points)]
    given = ("input_tokens", "output_tokens", "batch", "concurrency", "rate_per_s", "users")
    title = f"Latency and throughput by {_NAMES.get(variable, variable)} (written beside the points: {UNITS[variable]})"
    finish(figure, path, title, joined(shared, said(answer, *given)), labels=[(axes, labels)])


def _timed(curve: Curve) -> list[SweepPoint]:
    return [point for point in curve.points if point.tpot_s is not None]


def _ends_first(points: list[SweepPoint]) -> list[SweepPoint]:
    # The ends of a curve say most.
    return [*points[:1], *points[:0:-1]]


def _shown(value: float) -> str:
    return f"{value:.3g}" if value < _FOUR_DIGITS else f"{value:g}"


def _place(point: SweepPoint) -> tuple[float, float]:
    return point.output_tokens_per_s.value, _ms(point, "value")


def _curve(axes: Any, curve: Curve, points: list[SweepPoint], style: Style, name: str) -> None:  # noqa: ANN401
    places = [_place(point) for point in points]
    axes.plot(
        *zip(*places, strict=True),
        marker="o",
        markersize=4,
        label=name or "time per token, and its band",
        **line(style),
    )
    # Where throughput falls again, a band would run back over itself.
    along = points if places[0][0] <= places[-1][0] else points[::-1]
    most = list(accumulate((point.output_tokens_per_s.value for point in along), max))
    rising = [point for point, so_far in zip(along, most, strict=True) if point.output_tokens_per_s.value >= so_far]
    axes.fill_between(
        [point.output_tokens_per_s.value for point in rising],
        [_ms(point, "low") for point in rising],
        [_ms(point, "high") for point in rising],
        color=style.colour,
        alpha=0.15,
        linewidth=0,
    )
    if len(points) == 1:
        # A band of one point is a line.
        (rate, time), low, high = places[0], _ms(points[0], "low"), _ms(points[0], "high")
        axes.errorbar([rate], [time], yerr=[[time - low], [high - time]], capsize=3, color=style.colour)
    for point in points:
        if point.value == curve.knee:
            told = joined(name, f"knee: {_NAMES.get(curve.variable, curve.variable)} {_shown(point.value)}")
            axes.scatter(*_place(point), s=130, facecolor="none", edgecolor=INK, linewidth=1.4, zorder=4, label=told)
    unstable = [_place(point) for point in points if not point.stable]
    if unstable:
        told = "unstable: the queue grows without end"
        axes.scatter(*zip(*unstable, strict=True), marker="x", s=60, color=VERMILLION, zorder=4, label=told)


def _ms(point: SweepPoint, end: str) -> float:
    found: float = getattr(point.tpot_s, end)
    return found * _MS


def _parts(answer: Answer[SpeedResult], path: str) -> None:
    """Draw each step as one bar, its parts one after the other; what is small is one part."""
    shared, told = told_apart(answer.results)
    steps = [
        (joined(step.phase, name), step)
        for result, name in zip(answer.results, told, strict=True)
        for step in (result.step, result.prefill_step)
        if step is not None
    ]
    if not steps:
        raise NothingToDraw("the model does not fit, and takes no step")
    figure, (axes,) = canvas(path)
    sizes: dict[str, float] = {}
    for _, step in steps:
        for part in step.parts:
            sizes[part.name] = max(sizes.get(part.name, 0.0), part.share_fraction)
    names = sorted(sizes, key=lambda name: -sizes[name])[:_MOST_PARTS]
    left = [0.0 for _ in steps]
    looks = [*styles(len(names)), Style(colour=GRID, dash="", hatch="")]
    for name, style in zip([*names, _OTHERS], looks, strict=True):
        shares = [
            100 * sum(part.share_fraction for part in step.parts if _named(part.name, names) == name)
            for _, step in steps
        ]
        drawn = axes.barh(range(len(steps)), shares, left=left, label=name, height=0.7, **area(style))
        shown = [f"{share:.0f}" if share > _LABELLED else "" for share in shares]
        axes.bar_label(drawn, labels=shown, label_type="center", color=ink_on(style.colour), fontsize=9)
        left = [start + share for start, share in zip(left, shares, strict=True)]
    name_bars(axes, [joined(name, format_seconds(step.time_s.value)) for name, step in steps], _BAR_INCHES)
    axes.set_xlim(0, 100)
    axes.set_xlabel("share of the step's time, %")
    given = ("input_tokens", "output_tokens", "batch", "concurrency", "rate_per_s", "users", "load")
    finish(figure, path, "What one step is made of", joined(shared, said(answer, *given)))


def _named(part: str, names: list[str]) -> str:
    return part if part in names else _OTHERS


_MOST_PARTS = 6
_OTHERS = "all others"
