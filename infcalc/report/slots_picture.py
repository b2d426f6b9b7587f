"""The picture of ``batching``: slots in use over time, a band for each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.report.palette import INK, colours
from infcalc.report.plots import canvas, finish
from infcalc.report.views.batching import rate, used

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.batching_policies import BatchingResult

_GAP = 0.5
_GREY = "#eeeeee"


def plot_batching(answer: Answer[BatchingResult], path: str) -> None:
    """Draw the share of the slots in use over time for each policy, one above the other on one axis of time.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    bands = [(result, one) for result in answer.results for one in result.policies]
    several = len(answer.results) > 1
    places = [(len(bands) - 1 - place) * (1 + _GAP) for place in range(len(bands))]
    for (result, one), base, colour in zip(bands, places, colours(len(bands)), strict=True):
        # Down to nothing after each stretch: between two of them there may be no step.
        times = [moment for stretch in one.curve for moment in (stretch.start_s,) * 2 + (stretch.end_s,) * 2]
        shares = [
            base + share for stretch in one.curve for share in (0.0, stretch.used_fraction, stretch.used_fraction, 0.0)
        ]
        axes.fill_between([0, one.makespan_s], base, base + 1, color=_GREY, linewidth=0)
        axes.fill_between(times, base, shares, color=colour, linewidth=0)
        told = f"{rate(one.throughput_tokens_per_s)} tokens/{'step' if result.unit_steps else 's'}, {used(one)}"
        axes.annotate(told, (0, base + 1), textcoords="offset points", xytext=(2, 2), fontsize=8, color=INK)
    axes.set_yticks(
        [base + 0.5 for base in places],
        [f"{one.policy}\n{result.model}, {result.gpu}" if several else one.policy for result, one in bands],
    )
    axes.set_xlim(left=0)
    axes.set_ylim(-0.1, (len(bands) - 1) * (1 + _GAP) + 1 + _GAP)
    first = answer.result
    axes.set_xlabel("steps" if first.unit_steps else "time, s")
    title = f"Slots in use: {first.num_requests:,} requests on {first.num_slots:,} slots"
    finish(figure, axes, path, title if several else f"{title}, {first.model} on {first.num_gpus} x {first.gpu}")
