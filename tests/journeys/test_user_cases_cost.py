"""Numbers that users asked about in public on cost, each with its source."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infcalc.planning.money import usd_per_million
from infcalc.planning.spread import exact
from tests.journeys.published import assert_holds, assert_unchanged, cases_of, checks_of

PUBLISHED = Path(__file__).parents[1] / "published" / "user_cases_cost.yaml"
OTHERS = tuple(
    PUBLISHED.with_name(name) for name in ("user_cases.yaml", "user_cases_memory.yaml", "user_cases_speed.yaml")
)


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
    assert_holds(check, ANSWERS[case]()[check["key"]])


def test_no_case_of_cost_is_left_out_and_none_was_changed() -> None:
    assert {case["id"] for case in cases_of(PUBLISHED)} == set(ANSWERS)
    assert_unchanged(PUBLISHED, {"cost"}, OTHERS)
