"""The map of the house: a reader finds every room on it, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "infcalc"


def text() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


def rooms() -> dict[str, str]:
    """Return what the map says of each room."""
    rows = [line.strip("|").split("|", 1) for line in text().splitlines() if line.startswith("| `")]
    return {name.rstrip("/"): rest for cell, rest in rows for name in re.findall(r"`([^`]+)`", cell)}


def names(room: Path) -> set[str]:
    return {path.stem for path in room.rglob("*.py")} | {path.name for path in room.rglob("*") if path.is_dir()}


def test_every_room_is_on_the_map() -> None:
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    files = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}

    assert set(rooms()) == folders | files


@pytest.mark.parametrize(
    ("question", "room", "module", "says"),
    [
        ("KV bytes of MLA", "lowering", "cache", "def latent_entry_bytes"),
        ("vLLM's default batched tokens", "engines", "vllm", "max_num_batched_tokens=2048"),
        ("which dated price of a GPU stands", "planning", "prices", "price"),
        ("which request is preempted", "scheduling", "vllm", "preempted"),
        ("how a rejected draft is resampled", "speculation", "exact", "def residual"),
        ("exit code 3", "errors", "DoesNotFit", "exit_code: ClassVar[int] = 3"),
    ],
)
def test_where_it_is_answered(question: str, room: str, module: str, says: str) -> None:
    file = PACKAGE / f"{room}.py"
    file = file if file.exists() else PACKAGE / room / f"{module}.py"

    assert re.search(rf"\b{module}\b", rooms()[room]), question
    assert says in file.read_text(encoding="utf-8"), question


def test_references_lead_to_modules() -> None:
    tops = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    found = re.findall(r"`(\w+)[./]([a-z]\w*)", text())
    missing = [f"{room}.{name}" for room, name in found if room in tops and name not in names(PACKAGE / room)]

    assert not missing


def test_it_is_short() -> None:
    assert len(text().splitlines()) <= 80
