from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.catalog import lenient_json
from infcalc.catalog.lenient_json import parse_json, parse_json_object
from infcalc.errors import FileProblem

PLACE = "config.json"


def test_infinity_and_nan_are_numbers() -> None:
    value = parse_json_object('{"time_step_limit": [0.0, Infinity], "low": -Infinity, "odd": NaN}', place=PLACE)
    assert value["time_step_limit"] == [0.0, math.inf]
    assert value["low"] == -math.inf
    assert math.isnan(value["odd"])  # type: ignore[arg-type]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_byte_order_marks_are_passed_over(encoding: str) -> None:
    assert parse_json('{"a": "ü"}'.encode(encoding), place=PLACE) == {"a": "ü"}


def test_the_last_of_duplicate_keys_counts() -> None:
    assert parse_json('{"a": 1, "a": 2}', place=PLACE) == {"a": 2}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("", "empty", "download"),
        ("  \n", "empty", "download"),
        ('{\n  "a": 1,\n}', "line 3, column 1", "comma"),
        ('{"a": 1 // width\n}', "column 9", "comments"),
        ('{"a": [1, 2', "line 1", "too early"),
        ("<!doctype html>", "column 1", "HTML"),
        ("version https://git-lfs.github.com/spec/v1\n", "column 1", "git lfs pull"),
        ("[" * 100 + "]" * 100, "too deeply", "levels"),
        ("[" * 200_000, "", ""),
        ('{"a": ' + "9" * 5000 + "}", "", "overlong number"),
        (r'{"a": "\ud800"}', "surrogate", "stray"),
    ],
)
def test_damage_is_named_with_its_place(text: str, message: str, hint: str) -> None:
    with pytest.raises(FileProblem) as caught:
        parse_json(text, place=PLACE)
    assert caught.value.place == PLACE
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


def test_a_binary_file_is_no_text() -> None:
    with pytest.raises(FileProblem, match="not text"):
        parse_json(b"\x80\x02}q\x00(X\x05", place=PLACE)


def test_paired_surrogates_are_a_character() -> None:
    assert parse_json(r'"\ud83d\ude00"', place=PLACE) == "😀"


def test_nesting_up_to_the_limit_is_read() -> None:
    depth = lenient_json.MAX_DEPTH - 1
    assert parse_json("[" * depth + "]" * depth, place=PLACE)


def test_size_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lenient_json, "MAX_JSON_BYTES", 10)
    with pytest.raises(FileProblem, match="11 bytes"):
        parse_json("[1,2,3,4,5]", place=PLACE)


@pytest.mark.parametrize(("text", "kind"), [("[]", "an array"), ("null", "null"), ("1", "a number"), ('"a"', "string")])
def test_an_object_is_asked_for(text: str, kind: str) -> None:
    with pytest.raises(FileProblem, match=kind):
        parse_json_object(text, place=PLACE)


@given(st.one_of(st.binary(max_size=200), st.text(max_size=200)))
def test_only_file_problems_escape(content: bytes | str) -> None:
    try:
        parse_json(content, place=PLACE)
    except FileProblem as error:
        str(error).encode()
