"""The picture of ``simulate``: cache, slots, queue and tokens over time; of a sweep latency against load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import NothingToDraw
from infcalc.report.canvas import canvas, finish, line, plain_ticks
from infcalc.report.captions import joined, said, told_apart
from infcalc.report.curves import UNITS
from infcalc.report.palette import styles
from infcalc.units import format_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.answer import Answer
    from infcalc.api.simulation_nouns import LoadCurve, Moment, RunResult, SimulationResult

_PANEL_INCHES = 1.7
_THICKEST, _THINNER, _THINNEST = 2.6, 0.4, 1.0
"""Lines that lie on each other are all seen: the first is the thickest."""
_LOG_RATIO = 10.0


def plot_simulation(answer: Answer[SimulationResult], path: str) -> None:
    """Draw each run over time, one colour each: policies or deployments side by side; a sweep as a curve over the load.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    swept = [(result, result.sweep) for result in answer.results if result.sweep is not None]
    if swept:
        _sweep(answer, swept, path)
    else:
        _over_time(answer, _runs(answer), path)


def _where(answer: Answer[SimulationResult]) -> str:
    """Return on what all runs are made, its replicas and the load."""
    shared, _ = told_apart(answer.results)
    first = answer.result
    replicas = f"{first.num_replicas} replicas" if first.num_replicas > 1 else ""
    told, scaled = first.disaggregation, first.scaling
    if told is not None:
        prefill, decode = (f"{one.num_replicas} x {one.num_gpus}" for one in (told.prefill, told.decode))
        replicas = f"{prefill} GPUs for prefill and {decode} for decode"
    if scaled is not None:
        replicas = f"{scaled.num_least} to {scaled.num_most} replicas"
    given = ("arrivals", "rate_per_s", "concurrency", "users", "input_tokens", "output_tokens", "slo")
    return joined(shared, replicas, said(answer, *given))


def _runs(answer: Answer[SimulationResult]) -> list[tuple[str, RunResult]]:
    found: list[tuple[str, RunResult]] = []
    for result, name in zip(answer.results, told_apart(answer.results)[1], strict=True):
        for run in result.compare or (result,):
            policy = str(run.policy)
            if any(one.method is not None for one in result.compare):
                policy += ", no drafts" if run.method is None else f", {run.method}"
            found.append((joined(policy if result.compare or not name else "", name), run))
    return [(name, run) for name, run in found if run.over_time]


def _over_time(answer: Answer[SimulationResult], runs: list[tuple[str, RunResult]], path: str) -> None:
    if not runs:
        raise NothingToDraw("no run has begun")
    scaled = any(run.scaling is not None for _, run in runs)
    shown: tuple[tuple[str, Callable[[Moment], float]], ...] = (
        ("KV cache\nin use, %", lambda moment: 100 * moment.kv_usage_fraction),
        ("slots\nin use, %", lambda moment: 100 * moment.slot_utilization_fraction),
        ("requests\nwaiting", lambda moment: moment.num_waiting),
        ("answers,\ntokens/s", lambda moment: moment.output_tokens_per_s),
        *((("replicas", lambda moment: moment.num_replicas or 0.0),) if scaled else ()),
    )
    figure, panels = canvas(path, height_inches=_PANEL_INCHES * len(shown), panels=len(shown))
    for panel, (label, value) in zip(panels, shown, strict=True):
        for place, ((name, run), style) in enumerate(zip(runs, styles(len(runs)), strict=True)):
            edges = [moment.start_s for moment in run.over_time] + [run.over_time[-1].end_s]
            panel.stairs(
                [value(moment) for moment in run.over_time],
                edges,
                baseline=None,
                linewidth=max(_THINNEST, _THICKEST - _THINNER * place) if len(runs) > 1 else 1.6,
                label=name if len(runs) > 1 else "",
                **line(style),
            )
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        panel.yaxis.set_major_formatter(lambda number, _position: f"{number:,.4g}")
    figure.align_ylabels(panels)
    longest = max(run.duration_s for _, run in runs)
    panels[-1].set_xlabel(f"time, s (the run lasts {format_span(longest)})")
    policy = runs[0][0] if len(runs) == 1 else ""
    title = "Cache, slots, queue and answers over time" + (f" under {policy}" if policy else "")
    finish(figure, path, title, joined(_where(answer), f"requests {answer.result.requests:,}"))


def _sweep(answer: Answer[SimulationResult], swept: list[tuple[SimulationResult, LoadCurve]], path: str) -> None:
    names = told_apart([result for result, _ in swept])[1]
    variable = swept[0][1].variable
    figure, (above, middle, below) = canvas(path, height_inches=2.2 * 3, panels=3)
    all_values: list[float] = []
    for (_, curve), name, style in zip(swept, names, styles(len(swept)), strict=True):
        points = [point for point in curve.points if point.ttft_s is not None and point.tpot_s is not None]
        values = [point.value for point in points]
        all_values += values
        for statistic, dash, marker in (("mean", "-", "o"), ("p99", ":", "^")):
            label = joined(name, statistic)
            for panel, key in ((above, "ttft_s"), (middle, "tpot_s")):
                times = [1000 * getattr(getattr(point, key), statistic) for point in points]
                panel.plot(values, times, dash, marker=marker, markersize=5, color=style.colour, label=label)
        rates = [point.output_tokens_per_s for point in points]
        below.plot(values, rates, marker="o", markersize=5, color=style.colour)
        if curve.knee is not None:
            told = joined(name, f"knee: {variable} {curve.knee:g}")
            for panel in (above, middle, below):
                panel.axvline(curve.knee, color=style.colour, linewidth=1, linestyle="--", label=told)
    if not all_values:
        raise NothingToDraw("no run of the sweep has times")
    for panel in (above, middle):
        panel.set_yscale("log")
        plain_ticks(panel.yaxis)
    if max(all_values) > _LOG_RATIO * min(all_values):
        below.set_xscale("log")
        plain_ticks(below.xaxis)
    above.set_ylabel("time to first\ntoken, ms")
    middle.set_ylabel("time per output\ntoken, ms")
    below.set_ylabel("throughput,\noutput tokens/s")
    below.set_ylim(bottom=0)
    below.yaxis.set_major_formatter(lambda number, _position: f"{number:,.4g}")
    figure.align_ylabels([above, middle, below])
    below.set_xlabel(f"{variable}, {UNITS[variable]}")
    finish(figure, path, f"Latency and throughput by {variable}, simulated", _where(answer))
