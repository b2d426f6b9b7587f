"""Pictures as they are drawn, before they go into a file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from infcalc.api.answer import Answer
from infcalc.report import canvas

Draw = Callable[[Callable[[Answer[Any], str], None], Answer[Any]], Any]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Draw:
    """Return what draws an answer and returns the figure, laid out as it would be saved."""
    pyplot = pytest.importorskip("matplotlib.pyplot")
    held: list[Any] = []
    monkeypatch.setattr(canvas, "save", lambda figure, _path: held.append(figure))

    def drawn(plot: Callable[[Answer[Any], str], None], answer: Answer[Any]) -> Any:  # noqa: ANN401
        plot(answer, "x.png")
        pyplot.close(held[-1])
        return held[-1]

    return drawn
