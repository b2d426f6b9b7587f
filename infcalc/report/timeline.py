"""What goes on over time: columns of characters for a terminal, and as a picture with the ``plot`` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.units import format_span

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.answer import Answer
    from infcalc.api.workloads import WorkloadResult

_HEIGHT = 8
_WIDTH = 78
_LABEL = 10
_LEAST = 10
_WHOLE, _HALF = 0.75, 0.25
_PANEL_INCHES = 2.3


def columns_drawn(heights: Sequence[float], unit: str, end: str, *, width: int = _WIDTH) -> str:
    """Return heights as columns from 0 up: ``#`` for a whole row, ``.`` for about half a one.

    >>> print(columns_drawn([1, 2, 4, 0.5], "per s", "8 s", width=30))
             4 |      ###
         per s |      ###
               |      ###
               |      ###
               |   ######
               |   ######
               |#########
             0 |############
               +------------
                0 s      8 s
    """
    room = max(_LEAST, width - _LABEL - _LABEL // 2)
    # Too many for the width: neighbours together, by their mean.
    together = -(-len(heights) // room)
    groups = [heights[start : start + together] for start in range(0, len(heights), together)]
    heights = [sum(group) / len(group) for group in groups]
    top = max(heights)
    repeat = room // len(heights)
    lines = []
    for row in range(_HEIGHT):
        filled = [height / top * _HEIGHT - (_HEIGHT - 1 - row) for height in heights]
        cells = "".join(("#" if part >= _WHOLE else "." if part >= _HALF else " ") * repeat for part in filled)
        label = {0: f"{top:.3g}", 1: unit, _HEIGHT - 1: "0"}.get(row, "")
        lines.append(f"{label:>{_LABEL}} |{cells}".rstrip())
    wide = repeat * len(heights)
    lines.append(f"{'':>{_LABEL}} +{'-' * wide}")
    lines.append(f"{'':>{_LABEL}}  0 s{end:>{max(len(end) + 1, wide - len('0 s'))}}")
    return "\n".join(lines)


def plot_workload(answer: Answer[WorkloadResult], path: str) -> None:
    """Draw requests and tokens per second over time; without times how many requests are how long.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    # The screen needs no picture.
    from infcalc.report.canvas import area, canvas, finish, line  # noqa: PLC0415
    from infcalc.report.captions import joined, said  # noqa: PLC0415
    from infcalc.report.palette import INK, styles  # noqa: PLC0415

    result = answer.result
    first, second, third = styles(3)
    load = said(answer, "arrivals", "rate_per_s", "concurrency", "users", "input_tokens", "output_tokens")
    if not result.over_time:
        figure, (axes,) = canvas(path)
        percents = ("p50", "p90", "p99", "max")
        for start, summary, style, label in (
            (0.0, result.input_tokens, first, "input"),
            (0.4, result.output_tokens, second, "output"),
        ):
            places = [place + start for place in range(len(percents))]
            drawn = axes.bar(places, [getattr(summary, name) for name in percents], 0.38, label=label, **area(style))
            axes.bar_label(drawn, fmt="{:,.0f}", fontsize=8)
        axes.set_xticks([place + 0.2 for place in range(len(percents))], percents)
        axes.yaxis.set_major_formatter(lambda tokens, _position: f"{tokens:,.0f}")
        axes.set_xlabel("percentile of the requests")
        axes.set_ylabel("length, tokens")
        finish(figure, path, "Lengths of requests", joined(f"requests {result.requests:,}", load))
        return
    figure, (above, below) = canvas(path, height_inches=2 * _PANEL_INCHES, panels=2)
    unit, size = _unit(result.duration_s)
    step_s = result.over_time[1].start_s if len(result.over_time) > 1 else result.duration_s
    edges = [interval.start_s / size for interval in result.over_time]
    edges.append(edges[-1] + step_s / size)
    requests = [interval.requests_per_s for interval in result.over_time]
    above.stairs(requests, edges, fill=True, color=first.colour, label="requests")
    if result.rate_per_s is not None:
        above.axhline(result.rate_per_s, color=INK, linewidth=1, label=f"mean {result.rate_per_s:.3g} requests/s")
    above.set_ylabel("requests/s")
    for label, values, style in (
        ("input tokens", [interval.input_tokens_per_s for interval in result.over_time], second),
        ("output tokens", [interval.output_tokens_per_s for interval in result.over_time], third),
    ):
        below.stairs(values, edges, baseline=None, linewidth=1.8, label=label, **line(style))
    below.set_ylabel("tokens/s")
    below.set_ylim(bottom=0)
    below.yaxis.set_major_formatter(lambda tokens, _position: f"{tokens:,.0f}")
    below.set_xlabel(f"time, {unit} (stretches of {format_span(step_s)})")
    figure.align_ylabels([above, below])
    finish(
        figure,
        path,
        "Requests and tokens over time",
        joined(f"requests {result.requests:,} in {format_span(result.duration_s)}", load),
    )


def _unit(duration_s: float) -> tuple[str, float]:
    """Return the unit in which an axis of time reads well, and its seconds."""
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if duration_s >= 2 * size:
            return unit, size
    return "s", 1.0
