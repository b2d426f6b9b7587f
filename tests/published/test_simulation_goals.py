"""Recorded runs beside their simulation: the page is current, the goals are kept, and the figures come out again."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from tests import measured
from tests.shipped import ROOT

errors = measured.script("simulation_errors")
page = measured.script("simulation_page")
DATA = ROOT.parent / "shared" / "data"


def runs() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.load(errors.FIGURES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)["runs"]
    return found


def test_the_page_is_current() -> None:
    written = (ROOT / "docs" / "simulation_accuracy.md").read_text(encoding="utf-8")
    assert written == page.page(), "stale: run `make docs`"
    assert "(missed)" not in written


@pytest.mark.parametrize("group", ["a log line per request", "grid of models, TP and rates"])
@pytest.mark.parametrize("quantity", errors.QUANTITIES)
def test_the_median_error_keeps_its_goal(group: str, quantity: str) -> None:
    mine = [run for run in runs() if run["group"] == group and quantity in run["measured"]]
    if not mine:
        assert (group, quantity) == ("grid of models, TP and rates", "kv_usage_fraction")
        return
    assert median(abs(errors.error(run, quantity)) for run in mine) <= page.GOALS[quantity]


def test_requests_are_preempted_where_they_were() -> None:
    known = [run for run in runs() if "preempted" in run["measured"]]
    assert {run["measured"]["preempted"] for run in known} == {True, False}
    assert all(run["measured"]["preempted"] == run["simulated"]["preempted"] for run in known)


def _recorded(folder: str) -> Path:
    found = DATA / folder
    if not found.is_dir():
        pytest.skip("the recorded runs are not here")
    return found


def test_logged_runs_come_out_as_they_are_written() -> None:
    again = list(errors.engine_runs(_recorded("engine_traces")))
    assert again == [run for run in runs() if run["group"] == "a log line per request"]


def test_measured_figures_of_the_grid_are_those_of_its_results() -> None:
    lines = (_recorded("bench_vllm") / "iog_vllm085_all.jsonl").read_text(encoding="utf-8").splitlines()
    grid = [run for run in runs() if run["group"] == "grid of models, TP and rates"]
    assert len(grid) == len(lines)
    stated = [yaml.load(line, Loader=yaml.CSafeLoader)["result"] for line in lines]
    for run, one in zip(grid, stated, strict=True):
        assert run["measured"]["tpot_s"] == pytest.approx(one["mean_tpot_ms"] / 1000, rel=1e-4), run["id"]
        assert run["measured"]["ttft_s"] == pytest.approx(one["mean_ttft_ms"] / 1000, rel=1e-4), run["id"]
