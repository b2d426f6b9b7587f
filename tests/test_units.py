from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.units import format_bytes, format_seconds, format_si, parse_quantity, parse_tokens


@pytest.mark.parametrize(
    ("text", "dimension", "value"),
    [
        ("80 GiB", "bytes", 80 * 2**30),
        ("80GB", "bytes", 80e9),
        ("81,559 MiB", "bytes", 81559 * 2**20),
        ("1_000 B", "bytes", 1000),
        ("2.039 TB/s", "bytes_per_s", 2.039e12),
        ("624 TOPS", "flop_per_s", 624e12),
        ("312 TFLOP/s", "flop_per_s", 312e12),
        ("9 PFLOPS", "flop_per_s", 9e15),
        ("0.7 kW", "watt", 700),
        ("500 ms", "seconds", 0.5),
        ("1.89 USD/h", "usd_per_hour", 1.89),
        ("1e3 GB", "bytes", 1e12),
    ],
)
def test_quantities_come_out_in_base_units(text: str, dimension: str, value: float) -> None:
    assert parse_quantity(text, dimension) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "text",
    [
        None,
        True,
        80,
        80.0,
        "",
        "80",
        "GiB",
        "-1 GiB",
        "nan GiB",
        "inf GiB",
        "1e999 GiB",
        "80 gib",
        "80 GiB/s",
        "8 0 GiB",
        ["1 B"],
    ],
)
def test_what_is_no_quantity_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match=r"80 GiB|not finite"):
        parse_quantity(text, "bytes")


@given(st.text(max_size=200))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    try:
        value = parse_quantity(text, "bytes")
    except ValueError as refusal:
        assert len(str(refusal)) < 400  # noqa: PT017
        return
    assert 0 <= value < float("inf")


@pytest.mark.parametrize(
    ("text", "tokens"), [("4096", 4096), ("4k", 4096), ("128K", 131072), ("1M", 2**20), ("0.5k", 512)]
)
def test_token_counts_use_powers_of_1024(text: str, tokens: int) -> None:
    assert parse_tokens(text) == tokens


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5", "k", "1g", "nan", "1e3"])
def test_what_is_no_token_count_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"tokens|token count"):
        parse_tokens(text)


def test_printed_numbers_carry_their_unit() -> None:
    assert format_bytes(40 * 2**30) == "40 GiB"
    assert format_bytes(1_342_177_280) == "1.25 GiB"
    assert format_seconds(0.0005) == "500 us"
    assert format_si(2.039e12, "B/s") == "2.04 TB/s"
