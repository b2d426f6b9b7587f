"""JSON of benchmark files: one document, a line for each run, or several documents one after the other."""

from __future__ import annotations

import json
from typing import Any

from infcalc.errors import FileProblem

_MAX_DEPTH = 64
_SPACE = " \t\r\n"
_SHOWN = 40


def documents(text: str, place: str) -> tuple[tuple[int, Any], ...]:
    """Return each JSON document of a text with its line, from 1.

    Raises:
        FileProblem: no JSON, or a document that is cut off: none of it is taken.

    >>> documents('{"a": 1}{"a": 2}', "x.json")
    ((1, {'a': 1}), (1, {'a': 2}))

    """
    text = text.removeprefix("\ufeff")
    decoder = json.JSONDecoder()
    found: list[tuple[int, Any]] = []
    position, line = _skip(text, 0, ""), 1
    line += text.count("\n", 0, position)
    while position < len(text):
        try:
            value, end = decoder.raw_decode(text, position)
        except json.JSONDecodeError as problem:
            raise _not_json(problem, text, place, len(found)) from problem
        except RecursionError as problem:
            raise _too_deep(place) from problem
        except ValueError as problem:
            raise FileProblem(
                f"line {line}: not usable as JSON: {_short(problem)}", place=place, hint="correct the file there"
            ) from problem
        _check_depth(value, place)
        found.append((line, value))
        after = _skip(text, end, ",")
        line += text.count("\n", position, after)
        position = after
    if not found:
        raise FileProblem("the file is empty", place=place, hint="name a file that a benchmark wrote")
    return tuple(found)


def records(text: str, place: str) -> tuple[tuple[int, dict[str, Any]], ...]:
    """Return each JSON object of a text with its line: documents, or the elements of a list.

    Raises:
        FileProblem: as :func:`documents`, or something that is no object.

    """
    found: list[tuple[int, dict[str, Any]]] = []
    for line, value in documents(text, place):
        for one in value if isinstance(value, list) else [value]:
            if not isinstance(one, dict):
                raise FileProblem(
                    f"line {line}: {_short(one)} is no JSON object", place=place, hint="a run is written as an object"
                )
            found.append((line, one))
    if not found:
        raise FileProblem("an empty list", place=place, hint="name a file that a benchmark wrote")
    return tuple(found)


def _skip(text: str, position: int, also: str) -> int:
    skipped = _SPACE + also
    while position < len(text) and text[position] in skipped:
        position += 1
    return position


def _not_json(problem: json.JSONDecodeError, text: str, place: str, done: int) -> FileProblem:
    where = f"line {problem.lineno}, column {problem.colno}"
    cut = problem.pos >= len(text.rstrip()) or "Unterminated" in problem.msg
    what = "the JSON is cut off" if cut else f"not JSON: {problem.msg.lower()}"
    after = f" (after {done} whole run{'' if done == 1 else 's'})" if done else ""
    return FileProblem(
        f"{what} at {where}{after}",
        place=place,
        hint="save the file again; a run that is not whole is not taken in part" if cut else "correct the file there",
    )


def _check_depth(value: object, place: str) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner += [part for part in item.values() if isinstance(part, (dict, list))]
            elif isinstance(item, list):
                inner += [part for part in item if isinstance(part, (dict, list))]
        if not inner:
            return
        level = inner
    raise _too_deep(place)


def _too_deep(place: str) -> FileProblem:
    return FileProblem("JSON nested too deeply", place=place, hint=f"at most {_MAX_DEPTH} levels are read")


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
