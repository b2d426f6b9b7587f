"""Pictures of sweeps, looked at as drawn: what is written on them can be read."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import pytest

from infcalc.api.deployment import Ask
from infcalc.api.offer import Offer
from infcalc.api.speed import estimate
from infcalc.api.sweeping import parse_sweep
from infcalc.report import curves
from tests.report.conftest import Draw

pytest.importorskip("matplotlib")


@pytest.fixture
def drawn(draw: Draw) -> Callable[..., Any]:
    """Return a function that draws a sweep and returns figure and axes, laid out."""

    def swept(sweep: str, *models: str) -> Any:  # noqa: ANN401
        ask = Ask(models=models or ("llama3-8b",), gpus=("h100-sxm5-80gb",), tp=1)
        figure = draw(curves.plot_estimate, estimate(ask, Offer(output_tokens=200), sweep=parse_sweep(sweep)))
        return figure, figure.axes[0]

    return swept


SWEEPS = ["rate=0.117078..30:24", "batch=1..1024", "concurrency=1..512:+16", "rate=1..3:40", "input-tokens=100..8000:9"]


@pytest.mark.parametrize("sweep", SWEEPS)
def test_labels_of_points_meet_no_other_and_stay_inside(drawn: Any, sweep: str) -> None:  # noqa: ANN401
    _, axes = drawn(sweep)
    boxes = [text.get_window_extent() for text in axes.texts]
    assert len(boxes) >= 3
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))
    frame = axes.get_window_extent()
    for box in boxes:
        assert frame.x0 <= box.x0
        assert box.x1 <= frame.x1 + 1
        assert frame.y0 <= box.y0
        assert box.y1 <= frame.y1
    for text in axes.texts:
        assert len(text.get_text().replace(".", "").lstrip("0")) <= 4


def test_labels_of_two_curves_meet_nowhere(drawn: Any) -> None:  # noqa: ANN401
    _, axes = drawn("rate=0.5..40:30", "llama3-8b", "gpt-oss-20b")
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


@pytest.mark.parametrize("sweep", SWEEPS)
def test_each_axis_has_three_numbers_at_least(drawn: Any, sweep: str) -> None:  # noqa: ANN401
    _, axes = drawn(sweep)
    for axis, (low, high) in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
        ticks = [*axis.get_major_ticks(), *axis.get_minor_ticks()]
        told = [tick for tick in ticks if low <= tick.get_loc() <= high and tick.label1.get_text()]
        assert len(told) >= 3


def test_the_band_follows_the_curve_where_more_means_less(drawn: Any) -> None:  # noqa: ANN401
    _, axes = drawn("input-tokens=100..8000:9")
    (line,), (band,) = axes.lines, axes.collections
    reach = band.get_paths()[0].get_extents()
    assert (reach.x0, reach.x1) == pytest.approx((min(line.get_xdata()), max(line.get_xdata())))
