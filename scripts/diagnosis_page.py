"""Write docs/diagnosis.md from the rules of the diagnosis, or check that it is current (``--check``)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from infcalc.diagnosis.rules import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.diagnosis.rule import Condition, Remedy, Rule

PAGE = Path(__file__).resolve().parent.parent / "docs" / "diagnosis.md"
_HEAD = """\
# Rules of the diagnosis

Written by `scripts/diagnosis_page.py` from `infcalc/diagnosis/rules.py`.
[`infcalc diagnose`](commands.md#infcalc-diagnose) holds these rules against metrics, logs and benchmarks. A rule fires
where all conditions of one of its cases hold, and none of the findings that it gives way to was made. A threshold that
nobody published says that it was set by hand.

Kinds: `measurement` (the figures cannot be relied on), `fault` (something mends it), `limit` (only other hardware,
precision or load changes it), `normal`.
"""
_ENGINES = ("vllm", "sglang", "tensorrt-llm", "llama.cpp")


def page() -> str:
    """Return the page."""
    rows = ["| finding | kind | what it says |", "|---|---|---|"]
    rows += [f"| [`{rule.symptom}`](#{rule.symptom}) | {rule.kind} | {_plain(rule.title)} |" for rule in RULES]
    return "\n".join([_HEAD, *rows, "", *(_section(rule) for rule in RULES)])


def _section(rule: Rule) -> str:
    lines = [f"## {rule.symptom}", "", f"{_plain(rule.title)}: {_plain(rule.cause) or 'as the case has it'}.", ""]
    lines += [f"- {' and '.join(_condition(one) for one in case)}" for case in rule.cases]
    if rule.unless:
        lines += ["", f"Gives way to {', '.join(f'`{one}`' for one in rule.unless)}."]
    lines += ["", "| do | option | priced as |", "|---|---|---|"]
    lines += [_remedy(one) for one in rule.remedies]
    return "\n".join([*lines, "", f"Source: {rule.source}.", ""])


def _condition(one: Condition) -> str:
    return f"`{one.signal}` {one.op.replace('<', '&lt;').replace('>', '&gt;')} {one.threshold:g} ({one.source})"


def _remedy(one: Remedy) -> str:
    options = []
    for engine in _ENGINES:
        turns = one.flags.get(engine, ())
        if turns:
            words = [f"{'without ' if turn.leave_out else ''}`{turn.name}`" for turn in turns]
            options.append(f"{engine}: {' '.join(words)}")
    text = _plain(one.text) or "what the case asks for"
    return f"| {text} | {'; '.join(options) or '-'} | {one.change or '-'} |"


def _plain(text: str) -> str:
    """Return a sentence without the facts that a case fills in."""
    kept = text
    while "{" in kept:
        head, _, rest = kept.partition("{")
        kept = head + ("..." if not head or head.endswith(" ") else "") + rest.partition("}")[2]
    return kept.replace("|", "/").strip().removesuffix("...").strip() if kept.strip() == "..." else kept.strip()


def main(arguments: Sequence[str]) -> int:
    """Write or check the page; return the exit code."""
    parser = argparse.ArgumentParser(description="Write docs/diagnosis.md from the rules.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 when the page is stale")
    fresh = page()
    if PAGE.exists() and PAGE.read_text(encoding="utf-8") == fresh:
        return 0
    if parser.parse_args(arguments).check:
        print(f"{PAGE.name} is stale: run `make docs`", file=sys.stderr)
        return 1
    PAGE.write_text(fresh, encoding="utf-8")
    print(f"wrote {PAGE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
