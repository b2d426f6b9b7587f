"""Write the table of errors in README.md and its translation from the pages that measure them, or ``--check`` it.

It lies between ``<!-- accuracy -->`` and ``<!-- end of accuracy -->``. Nothing is computed here: each row is a row of a
page, so that a figure has one place where it is made.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
_BETWEEN = re.compile(r"(<!-- accuracy -->\n).*?(<!-- end of accuracy -->)", re.DOTALL)


class Source(NamedTuple):
    """A row of the table: its names by language, and where its figures stand."""

    names: dict[str, str]
    page: str
    section: str
    row: tuple[str, ...]
    """The first cells of the row that is meant."""
    columns: tuple[str, str, str, str]
    """Headings of: how many figures, median, p90, worst; ``-`` where the page has none."""


_LEDGER = ("logs", "median", "p90", "worst")
_TIMES = ("figures", "median", "p90", "worst")
_RUNS = ("number", "median error", "90 % within", "-")
_DRAFTS = ("cases", "median", "p90", "worst")
_CLASSES = {
    "NVIDIA dense": {"en": "NVIDIA, dense", "zh": "NVIDIA 稠密模型"},
    "NVIDIA MoE": {"en": "NVIDIA, MoE", "zh": "NVIDIA MoE"},
    "AMD and others": {"en": "AMD and others", "zh": "AMD 及其他"},
}
_QUANTITIES = {
    "output tokens/s": {"en": "output tokens/s", "zh": "输出 tokens/s"},
    "TPOT": {"en": "time per token", "zh": "每 token 时间"},
    "TTFT": {"en": "time to first token", "zh": "首 token 时间"},
}
SOURCES = (
    Source(
        {"en": "weights per GPU", "zh": "每 GPU 权重"},
        "accuracy.md",
        "How right the memory ledger is",
        ("weights per GPU",),
        _LEDGER,
    ),
    Source({"en": "KV pool", "zh": "KV 池"}, "accuracy.md", "How right the memory ledger is", ("KV pool",), _LEDGER),
    *(
        Source(
            {one: f"{quantity[one]}, {kind[one]}" for one in quantity},
            "serving_accuracy.md",
            "By class",
            (key, name),
            _TIMES,
        )
        for key, quantity in _QUANTITIES.items()
        for name, kind in _CLASSES.items()
    ),
    Source(
        {"en": "simulated mean TTFT", "zh": "模拟的平均首 token 时间"},
        "simulation_accuracy.md",
        "Errors",
        ("all", "mean TTFT"),
        _RUNS,
    ),
    Source(
        {"en": "simulated throughput", "zh": "模拟的吞吐"},
        "simulation_accuracy.md",
        "Errors",
        ("all", "throughput"),
        _RUNS,
    ),
    Source(
        {"en": "speedup of drafting, tokens per round stated", "zh": "投机解码加速比 (给定每轮 token 数)"},
        "speculation.md",
        "Errors",
        ("tokens per round stated",),
        _DRAFTS,
    ),
    Source(
        {"en": "speedup of drafting, published acceptance", "zh": "投机解码加速比 (公开接受率)"},
        "speculation.md",
        "Errors",
        ("tokens per round published",),
        _DRAFTS,
    ),
)
HEADS = {
    "en": ("what is predicted", "measured figures", "median error", "p90", "worst"),
    "zh": ("预测量", "实测数", "误差中位数", "p90", "最差"),
}
PAGES = {"en": (ROOT / "README.md", "docs/"), "zh": (ROOT / "docs" / "zh" / "README.md", "../")}


def figures(source: Source, folder: Path = ROOT / "docs") -> tuple[str, ...]:
    """Return the four figures of a row as its page prints them.

    Raises:
        LookupError: the page has no such section, row or column.

    """
    text = (folder / source.page).read_text(encoding="utf-8")
    found = re.search(rf"^#+ {re.escape(source.section)}\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise LookupError(f"{source.page} has no section {source.section!r}")
    rows = [_cells(line) for line in found[1].splitlines() if line.startswith("|")]
    heads = rows[0]
    for row in rows[2:]:
        if tuple(row[: len(source.row)]) == source.row:
            return tuple(row[heads.index(column)] if column != "-" else "-" for column in source.columns)
    raise LookupError(f"{source.page}, {source.section}: no row {source.row}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def table(language: str) -> str:
    """Return the table as Markdown."""
    _, up = PAGES[language]
    lines = ["| " + " | ".join(HEADS[language]) + " |", "|---|---:|---:|---:|---:|"]
    for source in SOURCES:
        name = f"[{source.names[language]}]({up}{source.page})"
        lines.append("| " + " | ".join((name, *figures(source))) + " |")
    return "\n".join(lines) + "\n"


def written(text: str, language: str) -> str:
    """Return a page with its table as it is now.

    Raises:
        LookupError: the page has no place for it.

    """
    if not _BETWEEN.search(text):
        raise LookupError("no <!-- accuracy --> ... <!-- end of accuracy -->")
    return _BETWEEN.sub(lambda match: f"{match[1]}\n{table(language)}\n{match[2]}", text)


def main() -> int:
    """Write both tables, or check them."""
    stale = 0
    for language, (path, _) in PAGES.items():
        text = path.read_text(encoding="utf-8")
        fresh = written(text, language)
        if fresh == text:
            continue
        stale = 1
        if "--check" in sys.argv[1:]:
            print(f"{path.relative_to(ROOT)} is stale: run python scripts/accuracy_tables.py")
        else:
            path.write_text(fresh, encoding="utf-8")
    return stale if "--check" in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
