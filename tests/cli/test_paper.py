from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from infcalc.cli.paper import Paper, check_way_out, chosen_paper
from infcalc.errors import FileProblem, UsageError


@pytest.mark.parametrize(
    ("options", "paper"),
    [
        ({}, Paper.MARKDOWN),
        ({"output": "a.html"}, Paper.HTML),
        ({"output": "A.HTM"}, Paper.HTML),
        ({"output": "a.b.md"}, Paper.MARKDOWN),
        ({"output": "a.markdown"}, Paper.MARKDOWN),
        ({"output": "a.json"}, Paper.JSON),
        ({"output": "a.md", "format": "html"}, Paper.HTML),
        ({"output": "a.html", "json": True}, Paper.JSON),
        ({"format": "json", "json": True}, Paper.JSON),
        ({"output": "/dev/stdout", "format": "html"}, Paper.HTML),
    ],
)
def test_the_ending_says_the_format_where_nothing_else_does(options: dict[str, Any], paper: Paper) -> None:
    assert chosen_paper(options) is paper


@pytest.mark.parametrize(
    ("options", "place"),
    [
        ({"format": "pdf"}, "--format"),
        ({"format": "table"}, "--format"),
        ({"format": "html", "json": True}, "--format"),
        ({"output": "a.txt"}, "--output"),
        ({"output": "html"}, "--output"),
    ],
)
def test_what_is_no_format_is_refused_with_the_mend(options: dict[str, Any], place: str) -> None:
    with pytest.raises(UsageError) as refused:
        chosen_paper(options)
    assert refused.value.place == place
    assert refused.value.hint


def test_the_way_out_is_looked_at_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(FileProblem, match="does not exist"):
        check_way_out({"output": str(tmp_path / "none" / "a.html")})
    with pytest.raises(FileProblem, match="directory"):
        check_way_out({"output": str(tmp_path)})
    with pytest.raises(UsageError, match="gate"):
        check_way_out({"output": str(tmp_path / "a.html"), "require": ["fits"]})
    check_way_out({"output": str(tmp_path / "a.html"), "require": ["memory.sequences>=1"]})
    assert not list(tmp_path.iterdir())
