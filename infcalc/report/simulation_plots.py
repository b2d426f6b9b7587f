"""The picture of ``simulate``: cache, slots, queue and tokens over time; of a sweep latency against load."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.report.palette import GRID, colours
from infcalc.report.plots import canvas, finish
from infcalc.units import format_span

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.answer import Answer
    from infcalc.api.simulation_nouns import LoadCurve, Moment, RunResult, SimulationResult


def plot_simulation(answer: Answer[SimulationResult], path: str) -> None:
    """Draw each run over time, one colour each: policies or deployments side by side; a sweep as a curve over the load.

    Raises:
        UsageError: matplotlib is missing or the ending is not one of PNG, SVG, PDF.
        FileProblem: the file cannot be written.

    """
    figure, axes = canvas(path)
    axes.remove()
    swept = [(result, result.sweep) for result in answer.results if result.sweep is not None]
    if swept:
        _sweep(figure, swept, path)
    else:
        _over_time(figure, _runs(answer), path, _title(answer))


def _title(answer: Answer[SimulationResult]) -> str:
    first = answer.result
    title = f"{first.requests:,} requests"
    if len(answer.results) > 1:
        return title
    replicas = f"{first.num_replicas} x " if first.num_replicas > 1 else ""
    told, scaled = first.disaggregation, first.scaling
    if told is not None:
        prefill, decode = (f"{one.num_replicas} x {one.num_gpus}" for one in (told.prefill, told.decode))
        return f"{title} on {first.model}, {prefill} (prefill) + {decode} (decode) x {first.gpu}"
    if scaled is not None:
        replicas = f"{scaled.num_least} to {scaled.num_most} x "
    return f"{title} on {first.model}, {replicas}{first.num_gpus} x {first.gpu}"


def _runs(answer: Answer[SimulationResult]) -> list[tuple[str, RunResult]]:
    found: list[tuple[str, RunResult]] = []
    for result in answer.results:
        name = f"{result.model}, {result.num_gpus} x {result.gpu}" if len(answer.results) > 1 else ""
        for run in result.compare or (result,):
            policy = str(run.policy)
            if any(one.method is not None for one in result.compare):
                policy += ", no drafts" if run.method is None else f", {run.method}"
            found.append((f"{policy}, {name}" if name and result.compare else name or policy, run))
    return [(name, run) for name, run in found if run.over_time]


def _over_time(figure: Any, runs: list[tuple[str, RunResult]], path: str, title: str) -> None:  # noqa: ANN401
    scaled = any(run.scaling is not None for _, run in runs)
    figure.set_size_inches(9, 10 if scaled else 8)
    panels = figure.subplots(5 if scaled else 4, 1, sharex=True)
    shown: tuple[tuple[str, Callable[[Moment], float]], ...] = (
        ("KV cache in use, %", lambda moment: 100 * moment.kv_usage_fraction),
        ("slots in use, %", lambda moment: 100 * moment.slot_utilization_fraction),
        ("requests waiting", lambda moment: moment.num_waiting),
        ("answer tokens per s", lambda moment: moment.output_tokens_per_s),
        *((("replicas", lambda moment: moment.num_replicas or 0.0),) if scaled else ()),
    )
    for panel, (label, value) in zip(panels, shown, strict=True):
        for (name, run), colour in zip(runs, colours(len(runs)), strict=True):
            edges = [moment.start_s for moment in run.over_time] + [run.over_time[-1].end_s]
            panel.stairs([value(moment) for moment in run.over_time], edges, color=colour, linewidth=1.6, label=name)
        panel.set_ylabel(label)
        panel.set_ylim(bottom=0)
        _plain(panel)
    if len(runs) > 1:
        panels[1].legend(frameon=False)
    longest = max((run.duration_s for _, run in runs), default=0.0)
    panels[-1].set_xlabel(f"time, s (the run lasts {format_span(longest)})")
    finish(figure, panels[0], path, title)


def _sweep(figure: Any, swept: list[tuple[SimulationResult, LoadCurve]], path: str) -> None:  # noqa: ANN401
    figure.set_size_inches(9, 7)
    above, below = figure.subplots(2, 1, sharex=True)
    for (result, curve), colour in zip(swept, colours(len(swept)), strict=True):
        name = f"{result.model}, {result.num_gpus} x {result.gpu}"
        points = [point for point in curve.points if point.ttft_s is not None and point.tpot_s is not None]
        values = [point.value for point in points]
        for statistic, style in (("mean", "-"), ("p99", ":")):
            times = [1000 * getattr(point.ttft_s, statistic) for point in points]
            above.plot(values, times, style, marker="o", color=colour, label=f"{name}: TTFT {statistic}")
        below.plot(values, [point.output_tokens_per_s for point in points], marker="o", color=colour, label=name)
        if curve.knee is not None:
            for panel in (above, below):
                panel.axvline(curve.knee, color=colour, linewidth=0.8, linestyle="--")
    above.set_yscale("log")
    above.set_ylabel("time to first token, ms")
    below.set_ylabel("answer tokens per s")
    below.set_ylim(bottom=0)
    below.set_xlabel(f"{swept[0][1].variable} (dashed: the knee)")
    for panel in (above, below):
        _plain(panel)
    above.legend(frameon=False)
    finish(figure, above, path, "Latency and throughput along the load")


def _plain(panel: Any) -> None:  # noqa: ANN401
    panel.grid(visible=True, color=GRID, linewidth=0.6)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
