"""JSON as model repositories write it: ``Infinity`` and ``NaN``, byte-order marks, any size, and any damage."""

from __future__ import annotations

import json

from infcalc.errors import FileProblem

MAX_JSON_BYTES = 128 * 2**20
"""Above any real config, index or safetensors header (whose format allows 100 MB)."""
MAX_DEPTH = 64
"""Nesting beyond this is damage or malice: real configs stay below 12."""


def parse_json(text: str | bytes, *, place: str) -> object:
    """Return the value that ``text`` spells. ``place`` names its origin in errors.

    ``Infinity``, ``-Infinity`` and ``NaN`` are numbers, as Python writes them; of duplicate keys the last counts.

    Raises:
        FileProblem: not JSON text, too large, or nested deeper than :data:`MAX_DEPTH`.

    """
    if len(text) > MAX_JSON_BYTES:
        raise FileProblem(
            f"{len(text):,} bytes of JSON, more than {MAX_JSON_BYTES:,}",
            place=place,
            hint="this is no config.json, index or safetensors header",
        )
    content = _decoded(text, place)
    if not content.strip():
        raise FileProblem("the file is empty", place=place, hint="an interrupted download? fetch it again")
    try:
        value: object = json.loads(content)
    except json.JSONDecodeError as error:
        raise FileProblem(
            f"not JSON: {error.msg.lower()} at line {error.lineno}, column {error.colno}",
            place=place,
            hint=_hint(content, error.pos),
        ) from error
    except RecursionError as error:
        raise FileProblem("JSON nested too deeply", place=place, hint=f"at most {MAX_DEPTH} levels are read") from error
    except ValueError as error:  # an integer of thousands of digits
        raise FileProblem(f"not usable as JSON: {error}", place=place, hint="look for an overlong number") from error
    _check_depth(value, place)
    _check_printable(content, value, place)
    return value


def parse_json_object(text: str | bytes, *, place: str) -> dict[str, object]:
    """Return the JSON object that ``text`` spells.

    Raises:
        FileProblem: as :func:`parse_json`, or the value is no object.

    """
    value = parse_json(text, place=place)
    if not isinstance(value, dict):
        raise FileProblem(
            f"holds {_kind(value)}, not an object",
            place=place,
            hint="a config.json is a mapping of keys such as model_type and num_hidden_layers",
        )
    return value


def _decoded(text: str | bytes, place: str) -> str:
    """Return ``text`` as a string without byte-order mark."""
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return bytes(text).decode(json.detect_encoding(bytes(text))).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise FileProblem(
            f"not text: {error.reason} at byte {error.start}",
            place=place,
            hint="this looks like a binary file; name a config.json, a checkpoint folder or a .gguf file",
        ) from error


def _hint(content: str, position: int) -> str:
    """Return what most likely went wrong at ``position``."""
    head = content.lstrip()[:200]
    if head.startswith("<"):
        return "this is an HTML page: the download was answered with a web page, perhaps a login"
    if head.startswith("version https://git-lfs"):
        return "this is a Git LFS pointer: run `git lfs pull`"
    before = content[:position].rstrip()
    if content[position : position + 1] in {"}", "]"} or before.endswith(","):
        return "remove the comma before the closing bracket"
    if content[position : position + 1] in {"/", "#"}:
        return "JSON has no comments: remove them"
    if position >= len(content.rstrip()):
        return "the file ends too early: an interrupted download?"
    return "correct the file there"


def _check_depth(value: object, place: str) -> None:
    """Refuse nesting that would exhaust the stack of whoever walks the value."""
    level: list[object] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[object] = []
        for item in level:
            if isinstance(item, dict):
                inner.extend(part for part in item.values() if isinstance(part, (dict, list)))
            elif isinstance(item, list):
                inner.extend(part for part in item if isinstance(part, (dict, list)))
        if not inner:
            return
        level = inner
    raise FileProblem("JSON nested too deeply", place=place, hint=f"at most {MAX_DEPTH} levels are read")


def _check_printable(content: str, value: object, place: str) -> None:
    """Refuse lone surrogates: any message that quotes them could not be written to a terminal."""
    lowered = content if "\\u" not in content else content.lower()
    try:
        if "\\ud" in lowered:
            json.dumps(value, ensure_ascii=False).encode()
        else:
            content.encode()
    except UnicodeEncodeError as error:
        raise FileProblem(
            "a string holds half of a surrogate pair", place=place, hint="remove the stray \\ud8.. escape"
        ) from error


def _kind(value: object) -> str:
    """Return what a JSON value is, in JSON's words."""
    if value is None:
        return "null"
    words: dict[type, str] = {dict: "an object", list: "an array", str: "a string", bool: "a boolean"}
    return words.get(type(value), "a number")
