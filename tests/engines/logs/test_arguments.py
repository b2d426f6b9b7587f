from __future__ import annotations

import pytest

from infcalc.engines.logs.arguments import bare, flags, pairs


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a': 1, 'b': {'a': 2}, 'c': 'x, y'}, 'd': 4", {"a": "1", "b": "{'a': 2}", "c": "x, y"}),
        ("a=1, b=C(a=2, d=[1, 2]), c=None) tail d=5", {"a": "1", "b": "C(a=2, d=[1, 2])", "c": "None"}),
        ("a=1, a=2", {"a": "1"}),
        ("a='cut at the end of the li", {"a": "'cut at the end of the li"}),
        ("name='it\\'s', b=2", {"name": "it\\'s", "b": "2"}),
        ("", {}),
        (")", {}),
    ],
)
def test_pairs_of_the_outermost_level(text: str, expected: dict[str, str]) -> None:
    assert pairs(text) == expected


def test_flags_of_a_command_line() -> None:
    found = flags("-m /models/a.gguf -c 8192 --cache-type-k q8_0 --no-mmap --name 'two words' --ratio=0.5")
    assert found == {
        "m": "/models/a.gguf",
        "c": "8192",
        "cache_type_k": "q8_0",
        "no_mmap": "True",
        "name": "two words",
        "ratio": "0.5",
    }


def test_quotes_come_off_in_pairs_only() -> None:
    assert [bare(text) for text in ("'a'", '"a",', "'a", "'")] == ["a", "a", "'a", "'"]
