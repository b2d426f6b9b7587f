"""What goes on over time: columns of characters for a terminal, and as a picture with the ``plot`` extra."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.palette import GRID, INK, colours
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
    from infcalc.report.plots import canvas, finish  # noqa: PLC0415 - the screen needs no picture

    figure, axes = canvas(path)
    result = answer.result
    first, second, third = colours(3)
    if not result.over_time:
        percents = ("p50", "p90", "p99", "max")
        for summary, colour, label in ((result.input_tokens, first, "input"), (result.output_tokens, second, "output")):
            places = [place + (0.4 if label == "output" else 0) for place in range(len(percents))]
            drawn = axes.bar(places, [getattr(summary, name) for name in percents], 0.38, color=colour, label=label)
            axes.bar_label(drawn, fmt="{:,.0f}", fontsize=8)
        axes.set_xticks([place + 0.2 for place in range(len(percents))], percents)
        axes.set_ylabel("tokens")
        finish(figure, axes, path, f"Lengths of {result.requests:,} requests")
        return
    axes.remove()
    above, below = figure.subplots(2, 1, sharex=True)
    unit, size = _unit(result.duration_s)
    step_s = result.over_time[1].start_s if len(result.over_time) > 1 else result.duration_s
    edges = [interval.start_s / size for interval in result.over_time]
    edges.append(edges[-1] + step_s / size)
    above.stairs([interval.requests_per_s for interval in result.over_time], edges, fill=True, color=first)
    if result.rate_per_s is not None:
        above.axhline(result.rate_per_s, color=INK, linewidth=1, label=f"mean {result.rate_per_s:.3g} per s")
    above.set_ylabel("requests per s")
    for label, values, colour in (
        ("input", [interval.input_tokens_per_s for interval in result.over_time], second),
        ("output", [interval.output_tokens_per_s for interval in result.over_time], third),
    ):
        below.stairs(values, edges, color=colour, linewidth=1.8, label=label)
    below.set_ylabel("tokens per s")
    below.set_ylim(bottom=0)
    below.yaxis.set_major_formatter(lambda tokens, _position: f"{tokens:,.0f}")
    below.set_xlabel(f"time, {unit} (stretches of {format_span(step_s)})")
    below.grid(visible=True, color=GRID, linewidth=0.6)
    below.set_axisbelow(True)
    below.legend(frameon=False)
    for side in ("top", "right"):
        below.spines[side].set_visible(False)
    finish(figure, above, path, f"{result.requests:,} requests over {format_span(result.duration_s)}")


def _unit(duration_s: float) -> tuple[str, float]:
    """Return the unit in which an axis of time reads well, and its seconds."""
    for unit, size in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if duration_s >= 2 * size:
            return unit, size
    return "s", 1.0
