"""Pictures of ``estimate``: the latency-throughput curve of a sweep, or what a step is made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.report.plots import canvas, colours, finish
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.answer import Answer
    from infcalc.api.speed import SpeedResult
    from infcalc.api.sweeping import Curve, SweepPoint

_INK = "#333333"
_MS = 1e3
_LABEL_ROOM = 0.045


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
    plain = _plain_ticks()
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(plain)
        axis.set_minor_formatter(plain)
    axes.tick_params(which="both", labelsize=9)
    axes.set_xlabel("output tokens/s of the replica")
    axes.set_ylabel("time per token, ms")
    finish(figure, axes, path, f"Latency and throughput by {variable}")


def _curve(axes: Any, curve: Curve, colour: str, label: str) -> None:  # noqa: ANN401 - matplotlib is optional
    points = [point for point in curve.points if point.tpot_s is not None]
    rates = [point.output_tokens_per_s.value for point in points]
    axes.plot(rates, [_ms(point, "value") for point in points], color=colour, marker="o", markersize=4, label=label)
    # Where throughput falls again, a band would run back over itself.
    rising = [point for place, point in enumerate(points) if rates[place] >= max(rates[: place + 1])]
    axes.fill_between(
        [point.output_tokens_per_s.value for point in rising],
        [_ms(point, "low") for point in rising],
        [_ms(point, "high") for point in rising],
        color=colour,
        alpha=0.15,
        linewidth=0,
    )
    _labels(axes, points)
    for point in points:
        if point.value == curve.knee:
            spot = ([point.output_tokens_per_s.value], [_ms(point, "value")])
            axes.scatter(*spot, s=130, facecolor="none", edgecolor=_INK, linewidth=1.4, zorder=4, label=_knee(curve))
    unstable = [point for point in points if not point.stable]
    if unstable:
        axes.scatter(
            [point.output_tokens_per_s.value for point in unstable],
            [_ms(point, "value") for point in unstable],
            marker="x",
            color="#e34948",
            zorder=4,
            label="unstable",
        )


def _knee(curve: Curve) -> str:
    return f"knee: {curve.variable} {curve.knee:g}"


def _labels(axes: Any, points: Sequence[SweepPoint]) -> None:  # noqa: ANN401 - matplotlib is optional
    """Write the variable beside the points that are far enough from the last one written."""
    last: tuple[float, float] | None = None
    for point in points:
        rate, time = point.output_tokens_per_s.value, _ms(point, "value")
        near = last is not None and abs(rate / last[0] - 1) < _LABEL_ROOM and abs(time / last[1] - 1) < _LABEL_ROOM
        if not near:
            last = rate, time
            axes.annotate(
                f"{point.value:g}", (rate, time), textcoords="offset points", xytext=(5, -10), fontsize=8, color=_INK
            )


def _ms(point: SweepPoint, end: str) -> float:
    found: float = getattr(point.tpot_s, end)
    return found * _MS


def _plain_ticks() -> Any:  # noqa: ANN401 - matplotlib is optional
    from matplotlib.ticker import FuncFormatter  # noqa: PLC0415 - an optional extra

    def shown(value: float, _position: object = None) -> str:
        digit = f"{value:.0e}"[0]
        return f"{value:,.6g}" if digit in "125" else ""

    return FuncFormatter(shown)


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
    for name, colour in zip([*names, _OTHERS], [*colours(len(names)), _GREY], strict=True):
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
_GREY = "#bbbbbb"
