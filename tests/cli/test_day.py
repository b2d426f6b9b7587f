from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infcalc.cli.day import today

if TYPE_CHECKING:
    import pytest


def test_the_day_of_the_environment_goes_before_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1795996800")
    assert today() == "2026-11-30"
    for none in ("", "soon", "9" * 40):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", none)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", today())
