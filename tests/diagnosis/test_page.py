"""The page of the rules is what the script makes of them."""

from __future__ import annotations

import runpy

from tests.shipped import ROOT


def test_the_page_of_the_rules_is_current() -> None:
    script = runpy.run_path(str(ROOT / "scripts" / "diagnosis_page.py"))
    assert (ROOT / "docs" / "diagnosis.md").read_text(encoding="utf-8") == script["page"]()
