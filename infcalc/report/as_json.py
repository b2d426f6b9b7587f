"""Answers as JSON: the same numbers as the screen, keys in base units."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from infcalc.api.answer import Answer

_SCHEMA_VERSION = 1


def as_json(answer: Answer[object]) -> str:
    """Return the JSON document of the contract for one answer, in ASCII, ending in a newline."""
    return json.dumps(document(answer), indent=2, allow_nan=False) + "\n"


def document(answer: Answer[object]) -> dict[str, object]:
    """Return the document as plain values: schema, inputs with origins, result, assumptions, warnings."""
    results = [value_of(result) for result in answer.results]
    body: dict[str, object] = {
        "schema": f"infcalc.{answer.command}/{_SCHEMA_VERSION}",
        "inputs": {
            item.name: {"value": value_of(item.value), "origin": item.origin}
            | ({"source": item.source} if item.source else {})
            for item in answer.inputs
        },
        "result": results[0] if len(results) == 1 else {"side_by_side": results},
        "assumptions": list(answer.assumptions),
        "warnings": list(answer.warnings),
    }
    if answer.explanations:
        body["explanations"] = [value_of(text) for text in answer.explanations]
    return body


def value_of(value: object) -> object:
    """Return a value as JSON holds it: frozen results become objects, whole floats stay floats."""
    if isinstance(value, str):
        # A StrEnum member is a str too; JSON holds its value.
        return str(value)
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, dict):
        return {str(key): value_of(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [value_of(item) for item in value]
    fields = getattr(value, "__dataclass_fields__", None)
    if fields is None:
        return str(value)
    return {name: value_of(getattr(value, name)) for name in fields}
