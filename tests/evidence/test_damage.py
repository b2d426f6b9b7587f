"""Whatever is cut off or altered, there is no traceback and no silently wrong number."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from infcalc.errors import InfcalcError
from infcalc.evidence.nouns import BenchmarkRun, Evidence, IntervalLog, MetricsSnapshot
from infcalc.evidence.reading import read_evidence
from tests.evidence import shapes

Figures = dict[tuple[str, str], float]
STRANGE: tuple[object, ...] = (
    None,
    "x",
    "12",
    True,
    -1,
    -0.5,
    math.nan,
    math.inf,
    -math.inf,
    1e300,
    10**40,
    [],
    {},
    [None],
    {"a": 1},
)
SUMMED_UP = {"engine trace"}
"""What is read of these is of all lines together: fewer of them are another run."""


def figures(found: Evidence) -> Figures:
    """Return each figure by quantity and statistic, those of interval lines by line and field."""
    match found:
        case BenchmarkRun() | MetricsSnapshot():
            return {(str(one.quantity), one.statistic): one.value for one in found.measured}
        case IntervalLog():
            return {
                (str(line.line), name): value
                for line in found.lines
                for name in (field.name for field in fields(line))
                if isinstance(value := getattr(line, name), float)
            }


def read(text: str) -> list[Figures] | None:
    try:
        return [figures(one) for one in read_evidence(text, "file")]
    except InfcalcError as problem:
        if not str(problem):
            pytest.fail("an error that says nothing")
        return None


def places(text: str) -> list[int]:
    """Return where to cut: everywhere in short texts, else at places drawn at random and around line ends."""
    if len(text) <= 2500:
        return list(range(len(text)))
    drawn = np.random.default_rng(7)
    ends = [place for place, letter in enumerate(text) if letter == "\n"]
    near = [place + shift for place in ends for shift in (-1, 0, 1, 2)]
    return sorted({*near, *drawn.integers(len(text), size=500).tolist()} & set(range(len(text))))


@pytest.mark.parametrize("name", shapes.TEXTS)
def test_a_text_cut_anywhere_gives_an_error_or_true_figures(name: str) -> None:
    text = shapes.TEXTS[name][1]
    whole = read(text)
    assert whole is not None
    for place in places(text):
        found = read(text[:place])
        if found is None:
            continue
        assert len(found) <= len(whole)
        for one, true in zip(found, whole, strict=False):
            values = {key: value for key, value in one.items() if name not in SUMMED_UP}
            assert values.items() <= true.items(), f"cut at {place}"


def leaves(value: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield (*path, key)
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield (*path, place)
            yield from leaves(inner, (*path, place))


def altered(value: object, path: tuple[Any, ...], strange: object) -> object:
    made = copy.deepcopy(value)
    inner: Any = made
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = strange
    return made


@pytest.mark.parametrize("name", shapes.OBJECTS)
def test_a_value_of_another_kind_gives_an_error_or_changes_no_other_figure(name: str) -> None:
    value = shapes.OBJECTS[name][1]
    (whole,) = read_evidence(json.dumps(value), "file")
    assert isinstance(whole, BenchmarkRun)
    derived = {(one.quantity, one.statistic) for one in whole.measured if one.said}
    true = figures(whole)
    for path in leaves(value):
        for strange in STRANGE:
            try:
                (found,) = read_evidence(json.dumps(altered(value, path, strange)), "file")
            except InfcalcError:
                continue
            assert isinstance(found, BenchmarkRun)
            for one in found.measured:
                where = f"{path} = {strange!r}: {one.quantity} {one.statistic}"
                assert math.isfinite(one.value), where
                assert one.value >= 0, where
                key = (str(one.quantity), one.statistic)
                if one.said or (one.quantity, one.statistic) in derived or one.key.endswith(str(path[-1])):
                    continue
                # Where figures were withdrawn, others of the same kind may stand in for them, and say so.
                assert one.value == true.get(key, one.value), where


@pytest.mark.parametrize("name", [name for name, (_, text) in shapes.TEXTS.items() if not text.startswith(("{", "["))])
def test_letters_of_a_text_may_be_any(name: str) -> None:
    text = shapes.TEXTS[name][1]
    drawn = np.random.default_rng(11)
    letters = "0123456789.,-+eE:|\"'#{}[] \n\tnaif%\u00b1\u2603"
    read_at_all = 0
    for _ in range(300):
        made = list(text)
        for place in drawn.integers(len(made), size=drawn.integers(1, 4)).tolist():
            made[place] = letters[drawn.integers(len(letters))]
        found = read("".join(made))
        if found is None:
            continue
        read_at_all += 1
        for one in found:
            assert all(math.isfinite(value) and value >= 0 for value in one.values())
    assert read_at_all


@pytest.mark.parametrize("name", shapes.TEXTS)
def test_a_negative_or_endless_number_is_never_taken(name: str) -> None:
    text = shapes.TEXTS[name][1]
    numbers = sorted({word.strip('",') for word in text.split() if word.strip('",').replace(".", "").isdigit()})
    assert numbers or name in {
        "vllm log",
        "sglang log",
        "guidellm csv 0.3",
        "guidellm csv 0.5",
        "llama-bench csv",
        "aiperf csv",
    }
    for number in numbers[:40]:
        for strange in ("-7", "1e999", "nan", "-inf"):
            for one in read(text.replace(number, strange)) or []:
                assert all(math.isfinite(value) and value >= 0 for value in one.values()), (number, strange)


@pytest.mark.parametrize(
    "text",
    [
        "\x00" * 10,
        "{" * 5000,
        "[" * 100_000,
        '{"a":' * 3000 + "1" + "}" * 3000,
        '{"num_prompts": 1' + "0" * 6000 + "}",
        '"\\ud800"',
        "vllm:" * 1000,
        "============ Serving Benchmark Result ============",
        "Metric,avg,min,max,\n" + '"' * 999,
        "| test | t/s |\n" * 3,
        "\ufeff",
    ],
)
def test_what_is_hostile_is_refused(text: str) -> None:
    assert read(text) is None
