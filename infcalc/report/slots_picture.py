"""The picture of ``batching``: slots in use over time, a band for each policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import NothingToDraw
from infcalc.report.canvas import area, canvas, finish, name_bars
from infcalc.report.captions import joined, said, told_apart
from infcalc.report.palette import GRID, styles
from infcalc.report.views.batching import rate, used

if TYPE_CHECKING:
    from infcalc.api.answer import Answer
    from infcalc.api.batching_policies import BatchingResult

_FOOT, _BAND = 0.4, 0.65
"""Of the room of one band: where its foot is below its middle, and its height."""
_BAND_INCHES = 0.6


def plot_batching(answer: Answer[BatchingResult], path: str) -> None:
    """Draw the share of the slots in use over time for each policy, one above the other on one axis of time.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        NothingToDraw: no deployment fits.
        FileProblem: the file cannot be written.

    """
    shared, names = told_apart(answer.results)
    bands = [(result, name, one) for result, name in zip(answer.results, names, strict=True) for one in result.policies]
    if not bands:
        raise NothingToDraw("the model does not fit, and nothing is run")
    figure, (axes,) = canvas(path)
    policies = list(dict.fromkeys(one.policy for _, _, one in bands))
    of_policy = dict(zip(policies, styles(len(policies)), strict=True))
    for place, (result, _, one) in enumerate(bands):
        foot = place + _FOOT
        # Down to nothing after each stretch: between two of them there may be no step.
        times = [moment for stretch in one.curve for moment in (stretch.start_s,) * 2 + (stretch.end_s,) * 2]
        shares = [share for stretch in one.curve for share in (0.0, stretch.used_fraction, stretch.used_fraction, 0.0)]
        axes.fill_between([0, one.makespan_s], foot - _BAND, foot, color=GRID, linewidth=0, label="idle")
        looks = area(of_policy[one.policy]) | {"linewidth": 0}
        axes.fill_between(times, foot, [foot - _BAND * share for share in shares], label=one.policy, **looks)
        told = f"{rate(one.throughput_tokens_per_s)} tokens/{'step' if result.unit_steps else 's'}, {used(one)}"
        axes.annotate(told, (0, foot - _BAND), textcoords="offset points", xytext=(2, 2), fontsize=8)
    name_bars(axes, [joined(one.policy, name) for _, name, one in bands], _BAND_INCHES)
    axes.set_ylim(top=-1 + _FOOT)
    axes.set_xlim(left=0)
    first = answer.result
    axes.set_xlabel("time, steps" if first.unit_steps else "time, s")
    load = said(answer, "input_tokens", "output_tokens", "arrivals")
    title = f"Slots in use over time: a full band is all {first.num_slots:,}"
    finish(figure, path, title, joined(shared, said(answer, "requests"), load))
