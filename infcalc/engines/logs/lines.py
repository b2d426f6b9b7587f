"""Lines of a log as the engine wrote them: without colour and JSON wrapping, each with the rank that wrote it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_LINE_CHARACTERS = 100_000
"""A line with all arguments of an engine has some ten thousand."""
_COLOUR = re.compile(r"(?:\x1b|\^\[|#033|\\x1b|\\033|\\u001b|\N{SYMBOL FOR ESCAPE})\[[0-9;]{0,20}m|\[[0-9;]{1,20}m")
_ESCAPE = re.compile(r"\x1b(?:\[[0-9;?]{0,20}[A-Za-z]|\][^\x07\x1b]{0,200}(?:\x07|\x1b\\)?)")
_MESSAGE_KEYS = ("message", "msg", "log", "text", "line", "MESSAGE", "Message", "textPayload", "body", "event")
_NESTED_KEYS = ("jsonPayload", "fields", "record", "data", "attributes")
_PREFIX_CHARACTERS = 160
_LABELS = re.compile(r"(?<![A-Za-z0-9])(?:DP|PP|TP|EP|PCP|DCP)\d{1,5}(?![A-Za-z0-9])")
_RANK = re.compile(r"\[RANK (\d{1,5})\]|\brank=(\d{1,5})\b|\[1,(\d{1,5})\]<std")
_WORKER = re.compile(r"\((?:VllmWorker(?:Process)?|RayWorker\w*|WorkerProc|Worker)[^()]{0,60}?pid=(\d{1,10})")


@frozen
class Line:
    """One line: its number in the file (from 1), its text, and the rank it names."""

    number: int
    text: str
    rank: str


def lines_of(text: str) -> Iterator[Line]:
    """Yield the lines of a log that hold anything, cleaned."""
    for number, raw in enumerate(text.split("\n"), start=1):
        stripped = raw.strip()
        if stripped:
            clean = _clean(_unwrapped(stripped[:MAX_LINE_CHARACTERS]))
            yield Line(number=number, text=clean, rank=_rank(clean[:_PREFIX_CHARACTERS]))


def _unwrapped(text: str) -> str:
    """Return the message of a line that is a JSON object (a prefix before it is dropped), else the line itself."""
    start = text.find("{")
    if start < 0 or not text.endswith("}") or '"' not in text:
        return text
    try:
        found = json.loads(text[start:])
    except (ValueError, RecursionError):
        return text
    return _message(found) or text


def _message(found: object) -> str | None:
    if not isinstance(found, dict):
        return None
    for key in _MESSAGE_KEYS:
        value = found.get(key)
        if isinstance(value, str) and value.strip():
            # A collector may have wrapped the engine's own JSON line once more.
            return _unwrapped(value.strip()) if value.lstrip().startswith("{") else value
    return next((text for key in _NESTED_KEYS if (text := _message(found.get(key)))), None)


def _clean(text: str) -> str:
    return _ESCAPE.sub("", _COLOUR.sub("", text)) if "[" in text or "\x1b" in text else text


def _rank(prefix: str) -> str:
    """Return the rank that the head of a line names.

    >>> _rank("(Worker_PP0_TP1 pid=77) INFO 08-05 12:00:00"), _rank("[2026-01-01 00:00:00 DP0 TP3] Load weight begin.")
    ('PP0 TP1', 'DP0 TP3')
    >>> _rank("(VllmWorkerProcess pid=240) INFO"), _rank("(EngineCore_0 pid=9) INFO")
    ('pid 240', '')
    """
    labels = _LABELS.findall(prefix)
    if labels:
        return " ".join(dict.fromkeys(labels))
    found = _RANK.search(prefix)
    if found is not None:
        return f"rank {next(number for number in found.groups() if number is not None)}"
    worker = _WORKER.search(prefix)
    return f"pid {worker[1]}" if worker else ""
