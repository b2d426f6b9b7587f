"""Published cases of a file, and one test parameter for each of their checks."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml


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
