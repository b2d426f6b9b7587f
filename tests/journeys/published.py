"""Published cases of a file, and one test parameter for each of their checks."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.shipped import FACTS

VALIDATION = FACTS.parent / "validation" / "user_cases.yaml"
_OURS = {"miss", "reason"}
"""What a file of this project adds to a check."""


@cache
def cases_of(path: Path) -> tuple[dict[str, Any], ...]:
    """Return the cases of a file; not to be changed."""
    return tuple(yaml.safe_load(path.read_text(encoding="utf-8"))["cases"])


def checks_of(path: Path) -> list[Any]:
    """Return a parameter (case, check) for each check; one that is known to miss is a strict xfail with its reason."""
    found = []
    for case in cases_of(path):
        for check in case.get("checks", ()):
            marks = [pytest.mark.xfail(reason=check["miss"], strict=True)] if "miss" in check else []
            found.append(pytest.param(case["id"], check, id=f"{case['id']}-{check['key']}", marks=marks))
    return found


def assert_holds(check: dict[str, Any], got: float | bool | str) -> None:
    """Hold an answer against a check, within its tolerance: 0 is exact, but for the last bit of a float."""
    value = check["value"]
    match check["op"]:
        case "~=":
            assert isinstance(got, int | float)
            assert abs(got - value) <= max(check["rel_tol"], 1e-9) * abs(value), f"{got} instead of {value}"
        case "==":
            assert got == value
        case ">=":
            assert isinstance(got, int | float)
            assert got >= value
        case "contains":
            assert isinstance(got, str)
            assert [word for word in value if word not in got.split()] == [], got
        case other:
            pytest.fail(f"unknown comparison {other!r}")


def assert_unchanged(path: Path, features: Iterable[str] | None = None, others: Iterable[Path] = ()) -> None:
    """Hold the cases of a file against those they were taken from: numbers, tolerances, source and date.

    With ``features`` none of those that ask for one of them may be missing, but for those that ``others`` hold.
    """
    if not VALIDATION.is_file():
        pytest.skip("the shared validation cases are not here")
    shared = {case["id"]: case for case in cases_of(VALIDATION)}
    mine = {case["id"]: case for case in cases_of(path)}
    if features is not None:
        wanted, elsewhere = set(features), {case["id"] for other in others for case in cases_of(other)}
        assert set(mine) == {
            name for name, case in shared.items() if wanted & set(case["feature"]) and name not in elsewhere
        }
    for name, case in mine.items():
        stated = (*case.get("checks", ()), *case.get("later", ()))
        plain = {check["key"]: {key: part for key, part in check.items() if key not in _OURS} for check in stated}
        assert plain == {check["key"]: check for check in shared[name]["check"]}, name
        assert case["source"] == shared[name]["source"]["url"], name
        assert case["date"] == str(shared[name]["source"]["date"]), name
