"""Whole numbers of an ask, held within their ranges: one sentence for all options of all questions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable


def check_range(option: str, number: int | None, *, least: int = 1, most: int) -> None:
    """Refuse a number outside of its range; None, what was not given, is right.

    Raises:
        UsageError: it is out of range.

    """
    if number is not None and not least <= number <= most:
        raise UsageError(f"{number} is out of range", place=option, hint=f"a whole number from {least:,} to {most:,}")


def check_ranges(numbers: Iterable[tuple[str, int | None, int, int]]) -> None:
    """Refuse the first of several numbers that is out of its range: option, number, least and most.

    Raises:
        UsageError: one is out of range.

    """
    for option, number, least, most in numbers:
        check_range(option, number, least=least, most=most)
