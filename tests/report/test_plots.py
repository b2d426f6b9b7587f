from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from infcalc.api.answer import Answer
from infcalc.api.batching_policies import batching
from infcalc.api.batching_requests import BatchingAsk
from infcalc.api.bounds import roofline
from infcalc.api.deployment import Ask
from infcalc.api.drafting import speculate
from infcalc.api.filling import memory
from infcalc.api.fitting import concurrency
from infcalc.api.paging_waste import PagingAsk, paging
from infcalc.api.prefix_hits import prefix_cache
from infcalc.api.prefix_stream import PrefixAsk
from infcalc.api.sizing import kv
from infcalc.errors import FileProblem, UsageError
from infcalc.report import cache_plots, plots
from infcalc.report.slots_picture import plot_batching

SEVERAL = Ask(models=("llama3-8b", "llama3-70b"), gpus=("h100", "h200"), num_gpus=2)
FEW = BatchingAsk(num_requests=6, policies=("static", "vllm"))
Plot = Callable[[Answer[Any], str], None]
PLOTS: dict[str, tuple[Callable[[], Answer[Any]], Plot]] = {
    "kv": (lambda: kv(SEVERAL), plots.plot_kv),
    "concurrency": (lambda: concurrency(SEVERAL), plots.plot_concurrency),
    "memory": (lambda: memory(SEVERAL), plots.plot_memory),
    "roofline": (lambda: roofline(SEVERAL), plots.plot_roofline),
    "speculate": (lambda: speculate(SEVERAL), plots.plot_speculate),
    "batching": (
        lambda: batching(Ask(models=SEVERAL.models, gpus=SEVERAL.gpus, num_gpus=2, weights="fp8"), FEW),
        plot_batching,
    ),
    "paging": (lambda: paging(SEVERAL, PagingAsk(num_requests=100, pool_tokens=9000)), cache_plots.plot_paging),
    "prefix-cache": (lambda: prefix_cache(SEVERAL, PrefixAsk(num_requests=50)), cache_plots.plot_prefix_cache),
}


@pytest.mark.parametrize("name", PLOTS)
def test_a_png_is_whole(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ask, plot = PLOTS[name]
    path = tmp_path / "x.PNG"
    plot(ask(), str(path))
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (1200, 750)
    assert data.endswith(b"IEND\xaeB`\x82")


@pytest.mark.parametrize("name", PLOTS)
def test_an_svg_is_the_same_byte_for_byte(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    ask, plot = PLOTS[name]
    answer = ask()
    first, second = tmp_path / "a.svg", tmp_path / "b.svg"
    plot(answer, str(first))
    plot(answer, str(second))
    assert first.read_bytes() == second.read_bytes()
    root = ET.fromstring(first.read_text(encoding="utf-8"))  # noqa: S314 - written here
    assert root.tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("path", ["x.txt", "x", "x.svg.bak"])
def test_other_endings_are_refused(path: str) -> None:
    with pytest.raises(UsageError) as refused:
        plots.plot_kv(kv(), path)
    assert (refused.value.place, refused.value.hint) == ("--output", "name it x.png or x.svg")


def test_a_folder_that_is_not_there_is_a_file_problem(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    with pytest.raises(FileProblem, match="cannot be written"):
        plots.plot_kv(kv(), str(tmp_path / "none" / "x.svg"))


def test_no_figure_is_kept() -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    assert pyplot.get_fignums() == []


def test_without_the_extra_the_mend_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(UsageError) as refused:
        plots.plot_kv(kv(), "x.svg")
    assert "infcalc[plot]" in (refused.value.hint or "")
