"""What a release must be: one version everywhere, terms that go along, types that others can check against."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from infcalc import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
VERSION_TAG = re.compile(r"v\d+\.\d+\.\d+\S*")


def tags_at_head(root: Path) -> list[str]:
    """Return the tags of versions on the commit that is checked out."""
    ran = subprocess.run(["git", "tag", "--points-at", "HEAD"], cwd=root, check=True, capture_output=True, text=True)
    return [tag for tag in ran.stdout.split() if VERSION_TAG.fullmatch(tag)]


def faults(tags: list[str], version: str, changelog: str) -> list[str]:
    """Return what keeps these tags from being a release of this version."""
    found = [f"tag {tag} on version {version}" for tag in tags if tag != f"v{version}"]
    section = re.search(rf"^## \[{re.escape(version)}\] - (.+)$", changelog, re.MULTILINE)
    if section is None:
        found.append(f"CHANGELOG.md has no section for {version}")
    elif tags and not re.fullmatch(r"\d{4}-\d{2}-\d{2}", section[1]):
        found.append(f"CHANGELOG.md gives no day for {version}")
    return found


def test_tag_version_and_changelog_agree() -> None:
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: there are no tags to compare with")
    assert faults(tags_at_head(ROOT), __version__, CHANGELOG) == []


def test_the_changelog_has_a_section_for_the_version() -> None:
    assert faults([], __version__, CHANGELOG) == []


@pytest.mark.parametrize(
    ("tags", "section", "fault"),
    [
        (["v1.2.3"], "## [1.2.3] - 2026-01-02", None),
        ([], "## [1.2.3] - unreleased", None),
        (["v1.2.4"], "## [1.2.3] - 2026-01-02", "tag v1.2.4 on version 1.2.3"),
        (["v1.2.3"], "## [1.2.3] - unreleased", "CHANGELOG.md gives no day for 1.2.3"),
        ([], "## [1.2.30] - 2026-01-02", "CHANGELOG.md has no section for 1.2.3"),
    ],
)
def test_what_is_no_release_would_be_found(tags: list[str], section: str, fault: str | None) -> None:
    assert faults(tags, "1.2.3", f"# Changelog\n\n{section}\n") == ([fault] if fault else [])


def test_tags_are_read_from_git(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", "-c", "tag.gpgsign=false")
    for words in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"], ["tag", "v9.9.9"], ["tag", "other"]):
        subprocess.run(["git", *identity, *words], cwd=tmp_path, check=True)
    assert tags_at_head(tmp_path) == ["v9.9.9"]


# Terms


def test_licence_and_notice_go_along() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["license"] == "Apache-2.0"
    assert project["license-files"] == ["LICENSE", "NOTICE"]
    assert "Version 2.0, January 2004" in (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert "docs/reference/third-party.md" in (ROOT / "NOTICE").read_text(encoding="utf-8")


SHIPPED = ("gpus.yaml", "models.yaml", "efficiency.yaml")
REPOSITORY = re.compile(
    r"github\.com/([A-Za-z0-9][\w-]*/[\w.-]+?)(?=[\s:/@,#);]|\.git\b|$)"
    r"|(?:^|; |\()(?:NVIDIA )?([A-Za-z0-9][A-Za-z0-9-]*/[A-Za-z0-9_.-]+?)(?=[\s:@,]|$)"
)
# User cases are single issues, each with its address.
PUBLISHED = set((ROOT / "tests" / "published").glob("*_*.yaml"))
NO_REPOSITORY = {"p5/p5en": "kinds of machines", "gamebastion/wccftech": "two sites", "Ars/patti.tech": "two sites"}


def sources(node: object) -> Iterator[str]:
    """Yield all texts under ``source``, ``sources`` and ``url``."""
    if isinstance(node, dict):
        for key, value in node.items():
            if key in {"source", "sources", "url"} and isinstance(value, str):
                yield value
            else:
                yield from sources(value)
    elif isinstance(node, list):
        for item in node:
            yield from sources(item)


def repositories(path: Path) -> set[str]:
    """Return the repositories that the sources of a data file name."""
    document = yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    found = {first or second for text in sources(document) for first, second in REPOSITORY.findall(text)}
    return found - set(NO_REPOSITORY)


@pytest.mark.parametrize(
    "path",
    [*(ROOT / name for name in SHIPPED), *sorted(PUBLISHED - set((ROOT / "tests" / "published").glob("user_cases*")))],
    ids=lambda path: path.name,
)
def test_every_repository_that_data_name_is_in_the_notice(path: Path) -> None:
    page = (ROOT / "docs" / "reference" / "third-party.md").read_text(encoding="utf-8")
    named = repositories(path)

    assert path.name not in SHIPPED or named
    assert not sorted(name for name in named if not re.search(rf"(?<![\w/]){re.escape(name)}(?![\w/-])", page))


# Types

DOWNSTREAM = """\
from infcalc.api import Ask, kv

result = kv(Ask(models=("llama3-70b",), num_gpus=4), contexts=(4096,)).result
count: int = result.rows[0].sequences
"""


def test_a_program_that_uses_it_is_type_checked(tmp_path: Path) -> None:
    for name, text in (("right.py", DOWNSTREAM), ("wrong.py", DOWNSTREAM.replace("count: int", "count: str"))):
        (tmp_path / name).write_text(text, encoding="utf-8")
    checked = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "right.py", "wrong.py"]
    ran = subprocess.run(checked, cwd=tmp_path, check=False, capture_output=True, text=True)

    assert (ROOT / "infcalc" / "py.typed").exists()
    assert re.fullmatch(r"wrong\.py:4: error: Incompatible types in assignment .*\[assignment\]\n", ran.stdout), (
        ran.stdout
    )
