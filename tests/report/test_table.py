from __future__ import annotations

from dataclasses import replace

import pytest

from infcalc.report.table import Column, Table, cells, count, lead_line, narrowed, shown
from infcalc.spec.explain import Input

TABLE = Table(
    title="numbers",
    columns=(
        Column(key="name", heading="name", left=True),
        Column(key="size", heading="size", show=count),
        Column(key="note", heading="note", left=True, aside=True),
    ),
    rows=({"name": "a", "size": 1234, "note": "x"}, {"name": "b"}),
)


def test_cells_are_printed_by_their_column_and_what_is_missing_is_a_dash() -> None:
    assert cells(TABLE) == [["a", "1,234", "x"], ["b", "-", "-"]]
    assert shown(None, TABLE.columns[1]) == "-"
    assert shown(0, TABLE.columns[1]) == "0"


def test_a_narrow_table_leaves_out_what_stands_aside() -> None:
    assert cells(narrowed(TABLE)) == [["a", "1,234"], ["b", "-"]]
    assert narrowed(TABLE).rows == TABLE.rows


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1_234_567, "1,234,567"),
        (2.0, "2"),
        (5709.25, "5,709.2"),
        (153.016, "153"),
        (9.5635, "9.56"),
        (0.004321, "0.00432"),
        ("given", "given"),
    ],
)
def test_counts_read_like_numbers(value: object, text: str) -> None:
    assert count(value) == text


def test_the_lead_tells_assumed_from_given() -> None:
    inputs = (
        Input(name="model", value="llama3-70b", origin="reference scenario"),
        Input(name="tp", value=4, origin="given"),
        Input(name="pp", value=1, origin="default"),
        Input(name="contexts", value=(4096, 131_072), origin="default"),
        Input(name="weights", value="fp8", origin="given (auto)"),
    )
    assert lead_line(inputs) == "assumed: model llama3-70b, contexts 4,096 131,072; given: tp 4, weights fp8"
    assert lead_line(inputs[:1]) == "assumed: model llama3-70b"
    assert lead_line((inputs[1], replace(inputs[2], value=2))) == "assumed: pp 2; given: tp 4"
    assert lead_line(()) == ""


def test_a_text_that_does_not_exist_is_a_dash() -> None:
    column = Column(key="a", heading="a", text_key="shown")
    assert cells(Table(title="", columns=(column,), rows=({"a": None, "shown": None}, {"a": 1, "shown": "one"}))) == [
        ["-"],
        ["one"],
    ]


def test_durations_and_rates_are_shown_in_their_unit() -> None:
    inputs = tuple(
        Input(name=name, value=value, origin="given")
        for name, value in (("think_time_s", 30.0), ("service_time_s", 0.25), ("offload_bytes", 2**30), ("users", 1000))
    )
    assert lead_line(inputs) == "given: think time 30 s, service time 250 ms, offload 1 GiB, users 1,000"


@pytest.mark.parametrize(("value", "text"), [(20000.0, "20,000"), (2.7, "2.7"), (1234.56, "1,234.56"), (1e-7, "1e-07")])
def test_what_was_given_reads_like_a_number(value: float, text: str) -> None:
    assert lead_line((Input(name="budget_usd_per_month", value=value, origin="given"),)).endswith(f"month {text}")
