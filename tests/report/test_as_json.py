from __future__ import annotations

import json
from enum import StrEnum

import pytest

from infcalc.api.answer import Answer
from infcalc.frozen import frozen
from infcalc.report.as_json import as_json, document, value_of
from infcalc.spec.explain import Explanation, Input


class Kind(StrEnum):
    """A closed choice."""

    FULL = "full"


@frozen
class Row:
    """A result."""

    kind: Kind
    size_bytes: int
    ratio: float
    nothing: str | None = None


ROW = Row(kind=Kind.FULL, size_bytes=2**60 + 1, ratio=2.0)
ANSWER = Answer(
    command="kv",
    results=(ROW,),
    inputs=(
        Input(name="tp", value=4, origin="given"),
        Input(name="contexts", value=(1, 2), origin="default", source="somewhere"),
    ),
    assumptions=("a",),
    warnings=("w",),
)


def test_values_become_what_json_holds() -> None:
    assert value_of(ROW) == {"kind": "full", "size_bytes": 2**60 + 1, "ratio": 2.0, "nothing": None}
    assert type(value_of(Kind.FULL)) is str
    assert value_of((1, [2.5, True], {"k": None, 3: "x"})) == [1, [2.5, True], {"k": None, "3": "x"}]
    assert value_of(True) is True
    assert value_of(frozenset()) == "frozenset()"


def test_the_document_is_that_of_the_contract() -> None:
    assert document(ANSWER) == {
        "schema": "infcalc.kv/1",
        "inputs": {
            "tp": {"value": 4, "origin": "given"},
            "contexts": {"value": [1, 2], "origin": "default", "source": "somewhere"},
        },
        "result": {"kind": "full", "size_bytes": 2**60 + 1, "ratio": 2.0, "nothing": None},
        "assumptions": ["a"],
        "warnings": ["w"],
    }


def test_several_results_stand_side_by_side() -> None:
    several = Answer(command="kv", results=(ROW, ROW), inputs=())
    assert document(several)["result"] == {"side_by_side": [value_of(ROW), value_of(ROW)]}


def test_explanations_are_there_only_when_asked() -> None:
    assert "explanations" not in document(ANSWER)
    text = Explanation(quantity="q", formula="a + b", substituted="1 + 2 = 3", inputs=ANSWER.inputs[:1])
    explained = document(Answer(command="kv", results=(ROW,), inputs=(), explanations=(text,)))
    assert explained["explanations"] == [
        {
            "quantity": "q",
            "formula": "a + b",
            "substituted": "1 + 2 = 3",
            "inputs": [{"name": "tp", "value": 4, "origin": "given", "source": ""}],
            "source": "",
        }
    ]


def test_the_text_is_json_that_any_reader_takes() -> None:
    text = as_json(ANSWER)
    assert text.endswith("}\n")
    assert json.loads(text, parse_constant=pytest.fail) == document(ANSWER)
    # Whole floats stay floats and large whole numbers keep every digit.
    assert '"ratio": 2.0' in text
    assert str(2**60 + 1) in text


def test_a_number_that_json_cannot_hold_is_a_bug_and_not_written() -> None:
    broken = Answer(command="kv", results=(Row(kind=Kind.FULL, size_bytes=1, ratio=float("nan")),), inputs=())
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_json(broken)
