"""Numbers that users asked about in public on cost, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infcalc.planning.money import usd_per_million
from infcalc.planning.spread import exact
from tests.journeys.published import cases_of, checks_of
from tests.shipped import FACTS

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases_cost.yaml"
OTHERS = tuple(
    PUBLISHED.with_name(name) for name in ("user_cases.yaml", "user_cases_memory.yaml", "user_cases_speed.yaml")
)
VALIDATION = FACTS.parent / "validation" / "user_cases.yaml"


def usd(hour: float, tokens_per_s: float, used: float = 1.0) -> float:
    """Return USD per million tokens of an instance at ``hour`` USD/h."""
    return usd_per_million(exact(hour), exact(tokens_per_s), utilization_fraction=used).value


def _at_two_utilisations() -> dict[str, float]:
    return {"usd_per_m_100": usd(2.5, 700), "usd_per_m_10": usd(2.5, 700, 0.1)}


def _one_bill_by_two_denominators() -> dict[str, float]:
    # The reported 0.79 USD per million were at 85 USD/h: so many tokens of all kinds a second were counted.
    counted_per_s = 173 * usd(85, 173) / 0.79
    return {"usd_per_m_output_63": usd(63.296, 173), "usd_per_m_blended_63": usd(63.296, counted_per_s)}


def _from_a_benchmark() -> dict[str, float]:
    return {"usd_per_m": usd(98.32, 12_000)}


ANSWERS: dict[str, Callable[[], dict[str, float]]] = {
    "UC-063": _at_two_utilisations,
    "UC-129": _one_bill_by_two_denominators,
    "UC-132": _from_a_benchmark,
}


@pytest.mark.parametrize(("case", "check"), checks_of(PUBLISHED))
def test_a_published_number_comes_out(case: str, check: dict[str, Any]) -> None:
    got, value = ANSWERS[case]()[check["key"]], check["value"]
    assert check["op"] == "~="
    assert abs(got - value) <= check["rel_tol"] * value, f"{got} instead of {value}"


def test_no_case_of_cost_is_left_out_and_none_was_changed() -> None:
    if not VALIDATION.is_file():
        pytest.skip("the shared validation cases are not here")
    elsewhere = {case["id"] for path in OTHERS for case in cases_of(path)}
    shared = {
        case["id"]: case
        for case in yaml.safe_load(VALIDATION.read_text(encoding="utf-8"))["cases"]
        if "cost" in case["feature"] and case["id"] not in elsewhere
    }
    mine = {case["id"]: case for case in cases_of(PUBLISHED)}
    assert set(mine) == set(shared) == set(ANSWERS)
    for name, case in mine.items():
        assert {check["key"]: check for check in case["checks"]} == {
            check["key"]: check for check in shared[name]["check"]
        }
        assert case["source"] == shared[name]["source"]["url"], name
        assert case["date"] == str(shared[name]["source"]["date"]), name
