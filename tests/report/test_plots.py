from __future__ import annotations

import struct
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from infcalc.api.sizing import kv
from infcalc.errors import FileProblem, UsageError
from infcalc.report import plots
from tests.report.pictures import PICTURES, answer_of


@pytest.mark.parametrize("name", PICTURES)
def test_a_png_is_whole(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "x.PNG"
    PICTURES[name][1](answer_of(name), str(path))
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = struct.unpack(">II", data[16:24])
    assert width == 1200
    assert 200 < height < 2000
    assert data.endswith(b"IEND\xaeB`\x82")


@pytest.mark.parametrize("name", ["kv", "memory", "batching", "sweep", "simulate"])
def test_an_svg_is_the_same_byte_for_byte(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    _, plot, *_ = PICTURES[name]
    answer = answer_of(name)
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
