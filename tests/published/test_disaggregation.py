"""Recorded runs of prefill and decode apart beside their simulation."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from typing import Any

import pytest
import yaml

from tests import measured
from tests.shipped import ROOT

errors = measured.script("disaggregation_errors")
page = measured.script("simulation_page")
DATA = ROOT.parent / "shared" / "data" / "bench_disagg"


def runs() -> list[dict[str, Any]]:
    held = yaml.load(errors.FIGURES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    found: list[dict[str, Any]] = held["runs"]
    return found


@pytest.mark.parametrize("lengths", ["128 to 2048", "2048 to 128", "2048 to 2048"])
def test_the_layouts_come_out_in_the_order_that_was_measured(lengths: str) -> None:
    mine = [run for run in runs() if run["lengths"] == lengths and run["concurrency"] == 128]
    assert len(mine) == 3

    def order(kind: str) -> list[str]:
        ranked = sorted(mine, key=lambda run: run[kind]["output_tokens_per_s"], reverse=True)
        return [f"{run['prefill']}P{run['decode']}D" for run in ranked]

    assert order("simulated") == order("measured")


def test_the_median_error_of_the_time_per_token_keeps_its_goal() -> None:
    assert median(abs(errors.error(run, "tpot_s")) for run in runs()) <= page.GOALS["tpot_s"]


def test_the_pool_that_is_short_is_the_busy_one() -> None:
    for run in runs():
        if run["concurrency"] == 128 and run["lengths"] == "2048 to 128" and run["prefill"] == 1:
            assert run["simulated"]["prefill_busy_fraction"] > 0.9
        if run["decode"] == 1:
            assert run["simulated"]["decode_busy_fraction"] > 0.9


def _recorded() -> Path:
    if not DATA.is_dir():
        pytest.skip("the recorded runs are not here")
    return DATA


def test_measured_figures_are_those_of_the_results() -> None:
    stated = list(errors.recorded(_recorded()))
    assert [{key: value for key, value in run.items() if key != "simulated"} for run in runs()] == stated


def test_a_run_comes_out_as_it_is_written() -> None:
    one = "3p1d, 2048 to 128, 32 at once"
    assert list(errors.simulated(_recorded(), (one,))) == [run for run in runs() if run["id"] == one]
