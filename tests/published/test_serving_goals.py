from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc.api.validating_serving import ServingCase, validated_serving
from infcalc.engines.pace import FACTORS, paces
from infcalc.files import load_catalog
from tests import measured

serving_page = measured.script("serving_page")
SHARED = measured.ROOT.parent / "shared" / "validation" / "serving_measured.yaml"


def bounds() -> list[Any]:
    """Return each bound; what is known to be missed must be missed."""
    found = []
    for goal in measured.targets()["goals"]:
        for key in ("median_fraction", "p90_fraction"):
            if key in goal:
                why = goal.get("missed", {}).get(key)
                marks = [pytest.mark.xfail(strict=True, reason=why)] if why else []
                name = f"{goal['quantity']}, {goal['class']}, {key}"
                found.append(pytest.param(goal, key, marks=marks, id=name))
    return found


@pytest.mark.parametrize(("goal", "key"), bounds())
def test_errors_are_within_their_goals(goal: dict[str, Any], key: str) -> None:
    other = {"median_fraction", "p90_fraction"} - {key}
    alone = {name: value for name, value in goal.items() if name not in other}
    (one,) = serving_page.goals(measured.cases(), {"goals": [alone]})
    assert one.met, f"{one.text} is {one.reached_fraction:.1%}, goal {one.most_fraction:.0%}"


def test_nearly_all_runs_are_scored() -> None:
    assert (
        serving_page.scored_fraction(measured.runs(), measured.cases()) >= measured.targets()["least_scored_fraction"]
    )


def test_every_run_has_its_source_and_cluster() -> None:
    for run in measured.runs():
        assert {"url", "where", "date"} <= set(run["source"])
        assert run["cluster"].startswith(f"{run['group']}|")
        assert run["quality"] == "full"


def test_every_cause_explains_a_run() -> None:
    known = {run["id"]: run for run in measured.runs()}
    causes = measured.targets()["causes"]
    used = {serving_page.why(case, known[case.id], causes) for case in measured.cases() if _far_off(case)}
    assert {cause["why"].strip() for cause in causes} <= used


def _far_off(case: ServingCase) -> bool:
    return bool(serving_page.factor(case) > 1.5)


def left_out() -> list[Any]:
    """Return the rows of the table; what is known to be missed must be missed."""
    found = []
    for row in serving_page.left_out()["classes"]:
        why = serving_page.missed_left_out(row, measured.targets())
        marks = [pytest.mark.xfail(strict=True, reason=why)] if why else []
        found.append(pytest.param(row, marks=marks, id=f"{row['quantity']}, {row['class']}"))
    return found


@pytest.mark.parametrize("row", left_out())
def test_errors_with_a_source_left_out_are_near_those_with_it(row: dict[str, Any]) -> None:
    assert row["left_out"] <= measured.targets()["most_left_out_over_in_sample"] * row["in_sample"]


def test_the_table_of_left_out_sources_is_of_this_model() -> None:
    found = serving_page.left_out()["classes"]
    for row in found:
        (errors,) = [
            one
            for one in validated_summary()
            if (one.quantity, one.group) == (row["quantity"], f"class {row['class']}")
        ]
        assert row["figures"] == errors.cases
        assert row["shipped"] == pytest.approx(errors.median_abs_error_fraction, abs=0.005), (
            "stale: run `python scripts/serving_left_out.py`, then `make docs`"
        )


def validated_summary() -> tuple[Any, ...]:
    return validated_serving(measured.runs(), load_catalog()).summary


def page() -> str:
    found: str = serving_page.PAGE.read_text(encoding="utf-8")
    return found


def test_every_class_outside_its_band_is_listed() -> None:
    low, high = measured.targets()["band_coverage_fraction"]
    rows = [line.split(" | ") for line in page().partition("## By class")[2].partition("\n\n##")[0].splitlines()]
    shares = [(row[0].strip("| "), row[1], int(row[7].rstrip("%")) / 100) for row in rows if row[7:8] and "%" in row[7]]
    assert len(shares) > 15
    outside = page().partition("Outside, ")[2].partition("##")[0]
    for quantity, name, share in shares:
        assert (f"- as shipped: {quantity} of {name} {share:.0%} of " in outside) is not (low <= share <= high)


def test_one_error_has_one_value_on_the_page() -> None:
    by_class, of_sources = (page().partition(f"## {title}")[2] for title in ("By class", "Sources left out"))
    for row in serving_page.left_out()["classes"]:
        start = f"| {serving_page._NAMES[row['quantity']]} | {row['class']} | {row['figures']} | "  # noqa: SLF001
        first, second = (text.partition(start)[2].partition(" |")[0] for text in (by_class, of_sources))
        assert first == second != ""


def test_the_page_names_every_value_that_rests_on_one_source_or_none() -> None:
    text = page().partition("## What overheads rest on")[2]
    for engine, steps in paces().items():
        for step in steps:
            assert f"| {engine} " in text
            if len(step.value.steps.sources) == 1:
                assert f"1: {step.value.steps.sources[0]} (" in text
    assert all(factor.footing.text in text for factor in FACTORS)


def test_the_page_is_current() -> None:
    done = subprocess.run(
        [sys.executable, str(measured.ROOT / "scripts" / "serving_page.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(not Path(SHARED).is_file(), reason="the collection that the runs were taken from is not here")
def test_the_runs_are_those_of_the_collection() -> None:
    every = yaml.load(SHARED.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    whole = validated_serving([run for run in every if run["quality"] == "full"], load_catalog()).cases
    assert whole == measured.cases()
