"""Every picture, looked at as drawn: axes with units, nothing covered or cut off, and the numbers of the answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from infcalc.api.answer import Answer
from infcalc.api.batching_policies import batching
from infcalc.api.deployment import Ask
from infcalc.api.filling import memory
from infcalc.api.paging_waste import paging
from infcalc.api.prefix_hits import prefix_cache
from infcalc.api.simulating import simulate
from infcalc.api.simulation_ask import SimulationAsk
from infcalc.api.speed import estimate
from infcalc.api.sweeping import parse_sweep
from infcalc.api.workload_ask import WorkloadAsk
from infcalc.errors import NothingToDraw
from infcalc.report import cache_plots, canvas, curves, plots
from infcalc.report.simulation_plots import plot_simulation
from infcalc.report.slots_picture import plot_batching
from infcalc.report.views.memory import parts
from infcalc.units import GIB
from tests.report.conftest import Draw
from tests.report.pictures import FEW, PICTURES, SEVERAL, TOO_LARGE, Plot, answer_of

_DRAWN: dict[str, Any] = {}
"""Each picture is drawn once: the tests only look at it."""


@pytest.fixture
def picture(draw: Draw) -> Callable[[str], Any]:
    def seen(name: str) -> Any:  # noqa: ANN401
        if name not in _DRAWN:
            _DRAWN[name] = draw(PICTURES[name][1], answer_of(name))
        return _DRAWN[name]

    return seen


def texts_of(figure: Any) -> list[Any]:  # noqa: ANN401
    """Return all that is written and seen: title, legend, axes and their ticks, labels."""
    found = [*figure.texts, *(text for legend in figure.legends for text in legend.get_texts())]
    for panel in figure.axes:
        found += [panel.xaxis.label, panel.yaxis.label, *panel.texts]
        for axis, ends in ((panel.xaxis, panel.get_xlim()), (panel.yaxis, panel.get_ylim())):
            low, high = sorted(ends)
            ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
            found += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high and tick.label1.get_visible()]
    return [text for text in found if text.get_text() and text.get_visible()]


@pytest.mark.parametrize("name", PICTURES)
def test_axes_say_what_they_count_and_in_which_unit(picture: Callable[[str], Any], name: str) -> None:
    panels = picture(name).axes
    _, _, up, right = PICTURES[name]
    assert tuple(panel.get_ylabel() for panel in panels) == up
    assert panels[-1].get_xlabel().startswith(right)
    if up == ("",):
        # Bars: the names stand for an axis, but for a single one, whose name is in the title.
        names = [label.get_text() for label in panels[0].get_yticklabels()]
        assert all(names) or len(names) == 1


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_that_is_written_is_cut_off(picture: Callable[[str], Any], name: str) -> None:
    figure = picture(name)
    whole = figure.bbox
    for text in texts_of(figure):
        box = text.get_window_extent()
        inside = whole.x0 <= box.x0 and box.x1 <= whole.x1 and whole.y0 <= box.y0 and box.y1 <= whole.y1
        assert inside, text.get_text()


@pytest.mark.parametrize("name", PICTURES)
def test_no_text_lies_on_another(picture: Callable[[str], Any], name: str) -> None:
    figure = picture(name)
    boxes = [(text.get_text(), text.get_window_extent()) for text in texts_of(figure)]
    # A point of a pixel is no overlap that is seen.
    shrunk = [(text, box.expanded(0.98, 0.9)) for text, box in boxes]
    for (one, box), (other, second) in combinations(shrunk, 2):
        assert not box.overlaps(second), (one, other)


@pytest.mark.parametrize("name", PICTURES)
def test_title_and_legend_lie_beside_what_is_drawn(picture: Callable[[str], Any], name: str) -> None:
    figure = picture(name)
    title, *_ = figure.texts
    assert title.get_fontweight() == "bold"
    for panel in figure.axes:
        frame = panel.get_window_extent()
        for written in (*figure.texts, *figure.legends):
            assert not written.get_window_extent().overlaps(frame)
        assert panel.get_legend() is None


@pytest.mark.parametrize(
    "name", [name for name in PICTURES if name not in {"workload", "workload without times", "lab"}]
)
def test_title_or_legend_name_every_model_and_gpu(picture: Callable[[str], Any], name: str) -> None:
    written = " ".join(text.get_text() for text in texts_of(picture(name))).replace("\n", " ")
    answer = answer_of(name)
    results = [answer.result] if name == "prefix-cache" else answer.results
    if name.startswith("roofline"):
        results = answer.result.points
    for one in results:
        assert one.model in written
        assert name == "plan" or one.gpu in written


def test_the_roofline_is_that_of_the_answer(picture: Callable[[str], Any]) -> None:
    figure, result = picture("roofline of one"), answer_of("roofline of one").result
    (axes,) = figure.axes
    roof = next(one for one in result.gpus if one.precision == "bf16")
    line = axes.lines[0]
    assert line.get_xdata()[1] == roof.crossover_flop_per_byte
    assert list(line.get_ydata()[1:]) == [roof.peak_flop_per_s / 1e12] * 2
    assert line.get_ydata()[0] == roof.bandwidth_bytes_per_s * line.get_xdata()[0] / 1e12
    flash = [point for point in result.points if point.attention_io == "flash"]
    drawn = [[tuple(place) for place in dots.get_offsets()] for dots in axes.collections]
    for phase, places in zip(("decode", "prefill"), drawn, strict=True):
        mine = [point for point in flash if point.phase == phase]
        assert places == [(point.flop_per_byte, point.flop_per_s / 1e12) for point in mine]
    assert {f"b{point.batch}" for point in flash if point.phase == "decode"} >= {text.get_text() for text in axes.texts}
    assert {"b1", "b8"} <= {text.get_text() for text in axes.texts}


@pytest.mark.parametrize("name", ["memory", "memory of one", "memory lacking"])
def test_the_memory_bar_is_that_of_the_answer(picture: Callable[[str], Any], name: str) -> None:
    (axes,) = picture(name).axes
    for place, result in enumerate(answer_of(name).results):
        pieces = {
            bars.get_label().rsplit(" ", 2)[0] if name != "memory" else bars.get_label(): bars.patches[place]
            for bars in axes.containers
        }
        sizes = {kind: size for _, kind, size in parts(result)}
        assert sum(piece.get_width() for piece in pieces.values()) == pytest.approx(sum(sizes.values()) / GIB)
        for kind, piece in pieces.items():
            assert piece.get_width() == pytest.approx(sizes.get(kind, 0) / GIB)
        assert list(axes.lines[place].get_xdata()) == [result.total_bytes / GIB] * 2


def test_the_use_of_slots_is_that_of_the_answer(picture: Callable[[str], Any]) -> None:
    (axes,) = picture("batching").axes
    runs = [one for result in answer_of("batching").results for one in result.policies]
    idle, used = axes.collections[::2], axes.collections[1::2]
    assert len(used) == len(runs) == 8
    for one, whole, part in zip(runs, idle, used, strict=True):
        frame, area = (band.get_paths()[0] for band in (whole, part))
        height = frame.get_extents().height
        assert frame.get_extents().x1 == pytest.approx(one.makespan_s)
        x, y = area.vertices[:, 0], area.vertices[:, 1]
        drawn_s = abs(np.sum(x[:-1] * y[1:] - x[1:] * y[:-1])) / 2 / height
        assert drawn_s == pytest.approx(sum(one.used_fraction * (one.end_s - one.start_s) for one in one.curve))


def test_the_knee_is_that_of_the_answer(picture: Callable[[str], Any]) -> None:
    (axes,) = picture("sweep").axes
    for result, line in zip(answer_of("sweep").results, axes.lines, strict=True):
        points = [point for point in result.sweep.points if point.tpot_s is not None]
        assert list(line.get_xdata()) == [point.output_tokens_per_s.value for point in points]
        assert list(line.get_ydata()) == [1000 * point.tpot_s.value for point in points]
    knees = {(result.model, result.gpu): result.sweep.knee for result in answer_of("sweep").results}
    assert any(knees.values())
    told = axes.get_legend_handles_labels()[1]
    for (model, gpu), knee in knees.items():
        assert (f"{model}, 2 x {gpu}, knee: batch {knee:g}" in told) == (knee is not None)


def test_a_simulated_sweep_is_that_of_the_answer(picture: Callable[[str], Any]) -> None:
    first, per_token, throughput = picture("simulated sweep").axes
    points = answer_of("simulated sweep").result.sweep.points
    for panel, key in ((first, "ttft_s"), (per_token, "tpot_s")):
        for line, statistic in zip(panel.lines, ("mean", "p99"), strict=False):
            assert list(line.get_xdata()) == [point.value for point in points]
            assert list(line.get_ydata()) == [1000 * getattr(getattr(point, key), statistic) for point in points]
    assert list(throughput.lines[0].get_ydata()) == [point.output_tokens_per_s for point in points]


def test_a_simulation_over_time_is_that_of_the_answer(picture: Callable[[str], Any]) -> None:
    panels = picture("simulate").axes
    runs = [run for result in answer_of("simulate").results for run in result.compare]
    for panel, key, scale in zip(
        panels,
        ("kv_usage_fraction", "slot_utilization_fraction", "num_waiting", "output_tokens_per_s"),
        (100, 100, 1, 1),
        strict=True,
    ):
        for run, steps in zip(runs, panel.patches, strict=True):
            assert list(steps.get_data().values) == [scale * getattr(moment, key) for moment in run.over_time]


def test_the_front_is_that_of_the_answer(picture: Callable[[str], Any]) -> None:
    (axes,) = picture("plan").axes
    fronts = [line for line in axes.lines if line.get_drawstyle() == "steps-post"]
    for result, line in zip(answer_of("plan").results, fronts, strict=True):
        assert len(result.front) > 1
        assert list(line.get_xdata()) == [point.usd_per_month for point in result.front]
        assert list(line.get_ydata()) == [point.e2e_s for point in result.front]
    ends = [result.front[0] for result in answer_of("plan").results]
    assert {f"{point.total_gpus} x {point.gpu}" for point in ends} <= {text.get_text() for text in axes.texts}


@pytest.mark.parametrize(
    ("ask", "plot"),
    [
        (lambda: estimate(TOO_LARGE), curves.plot_estimate),
        (lambda: estimate(TOO_LARGE, sweep=parse_sweep("batch=1..8")), curves.plot_estimate),
        (lambda: batching(TOO_LARGE, FEW), plot_batching),
        (lambda: simulate(TOO_LARGE, SimulationAsk(load=WorkloadAsk(num_requests=2))), plot_simulation),
        (lambda: paging(Ask(models=("mamba-2.8b",), num_gpus=1)), cache_plots.plot_paging),
        (lambda: prefix_cache(Ask(models=("mamba-2.8b",), num_gpus=1)), cache_plots.plot_prefix_cache),
    ],
)
def test_an_empty_picture_is_not_drawn(ask: Callable[[], Answer[Any]], plot: Plot, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    with pytest.raises(NothingToDraw, match="nothing to draw: "):
        plot(ask(), str(path))
    assert not path.exists()


def test_long_names_are_wrapped(draw: Draw) -> None:
    long = "an-organisation-with-a-long-name-Instruct-v2.5-finetuned-2026-AWQ-experimental-of-the-second-kind"
    answer = memory(SEVERAL)
    results = tuple(replace(one, model=f"{long}-{place}") for place, one in enumerate(answer.results))
    figure = draw(plots.plot_memory, replace(answer, results=results))
    labels = figure.axes[0].get_yticklabels()
    assert all(label.get_window_extent().x0 >= 0 for label in labels)
    boxes = [label.get_window_extent() for label in labels]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_ticks_of_a_logarithmic_axis_are_plain_numbers(picture: Callable[[str], Any]) -> None:
    for name in ("roofline", "sweep", "plan", "prefix-cache", "simulated sweep"):
        for text in texts_of(picture(name)):
            assert "mathdefault" not in text.get_text()
            assert "e+" not in text.get_text()


def test_the_width_is_that_of_every_picture(picture: Callable[[str], Any]) -> None:
    assert {picture(name).get_figwidth() for name in ("kv", "batching", "simulate")} == {canvas.WIDTH_INCHES}
