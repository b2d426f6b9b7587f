"""Values of a mapping by key, checked: a wrong one is a fault, all faults of a file are said at once."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from infcalc.errors import FileProblem

MOST_S: Final = 1e8
MOST_PER_S: Final = 1e10
MOST_COUNT: Final = 2.0**45
_MOST_LISTED = 1_000_000
_MOST_FAULTS = 20
_SHOWN = 40
_NUMBER = re.compile(r"[+-]?[0-9][0-9,]*(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_WORDLESS = frozenset({"", "n/a", "na", "none", "null", "-", "nan"})


class Fields:
    """A mapping of a file. ``faults`` and ``nothing`` (keys without a number) are shared with its parts.

    Keys are taken without stray blanks and colons, as ``"request_goodput:"``, which old releases of vLLM write.
    """

    __slots__ = ("_values", "_where", "faults", "nothing")

    def __init__(
        self,
        values: Mapping[str, Any],
        where: str = "",
        faults: list[str] | None = None,
        nothing: list[str] | None = None,
    ) -> None:
        plain = {key: value for key, value in values.items() if isinstance(key, str)}
        tidy = {key.strip().rstrip(": "): value for key, value in plain.items()}
        self._values = {**tidy, **{key: value for key, value in plain.items() if key in tidy}}
        self._where = where
        self.faults = [] if faults is None else faults
        self.nothing = [] if nothing is None else nothing

    def __contains__(self, key: str) -> bool:
        """Return whether there is a value."""
        return self._values.get(key) is not None

    def names(self) -> Iterator[str]:
        """Return all keys."""
        yield from self._values

    def raw(self, key: str) -> Any:  # noqa: ANN401 - any JSON value
        """Return a value as it is."""
        return self._values.get(key)

    def named(self, key: str) -> str:
        """Return how errors call a key."""
        return f"{self._where}{key}"

    def fault(self, key: str, what: str) -> None:
        """Note that a value is not ``what`` it must be."""
        self.faults.append(f"{self.named(key)} is {shown(self._values.get(key))}, not {what}")

    def amount(self, key: str, *, most: float = MOST_COUNT, scale: float = 1.0) -> float | None:
        """Return a number from 0 up, times ``scale``; None where there is none, or where it is NaN."""
        value = self._values.get(key)
        if value is None:
            return None
        if isinstance(value, float) and math.isnan(value):
            self.nothing.append(f"{self.named(key)} (NaN)")
            return None
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fault(key, "a number")
            return None
        if not 0 <= value <= most / scale:
            self.fault(key, f"a number from 0 to {most / scale:g}")
            return None
        return float(value) * scale

    def time_s(self, key: str, unit_s: float) -> float | None:
        """Return a time in seconds; None where there is none: 0 means that it was not measured."""
        value = self.amount(key, most=MOST_S, scale=unit_s)
        if value == 0:
            self.nothing.append(f"{self.named(key)} (0)")
            return None
        return value

    def per_s(self, key: str) -> float | None:
        """Return a rate; None where there is none, or where nothing was done."""
        value = self.amount(key, most=MOST_PER_S)
        if value == 0:
            self.nothing.append(f"{self.named(key)} (0)")
            return None
        return value

    def whole(self, key: str, *, least: int = 0) -> int | None:
        """Return a whole number from ``least`` up, which may be written as text."""
        value = self._values.get(key)
        if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value.strip()):
            value = int(value)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            self.fault(key, "a whole number")
            return None
        if value != int(value) or not least <= value <= MOST_COUNT:
            self.fault(key, f"a whole number from {least} up")
            return None
        return int(value)

    def fraction(self, key: str) -> float | None:
        """Return a share from 0 to 1."""
        return self.amount(key, most=1.0)

    def text(self, key: str) -> str:
        """Return a text; empty where there is none. A number is one too: versions are often written so."""
        value = self._values.get(key)
        if value is None:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.fault(key, "a text")
            return ""
        return str(value).strip()

    def part(self, key: str) -> Fields:
        """Return a mapping inside; an empty one where there is none."""
        value = self._values.get(key)
        if value is not None and not isinstance(value, dict):
            self.fault(key, "an object")
        found = value if isinstance(value, dict) else {}
        return Fields(found, f"{self._where}{key}.", self.faults, self.nothing)

    def parts(self, key: str) -> tuple[Fields, ...]:
        """Return the mappings of a list inside."""
        value = self._values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.fault(key, "a list of objects")
            return ()
        return tuple(
            Fields(one, f"{self._where}{key}[{place}].", self.faults, self.nothing) for place, one in enumerate(value)
        )

    def amounts(self, key: str) -> tuple[float, ...]:
        """Return a list of numbers from 0 up."""
        value = self._values.get(key)
        if value is None:
            return ()
        if not isinstance(value, list) or len(value) > _MOST_LISTED:
            self.fault(key, "a list of numbers")
            return ()
        if not all(type(one) in {int, float} and 0 <= one <= MOST_COUNT for one in value):
            self.faults.append(f"{self.named(key)} holds what is no number from 0 up")
            return ()
        return tuple(float(one) for one in value)


def number_in(text: str) -> float | None:
    """Return the number that a text is, with commas or without; None where it is none.

    >>> number_in("1,234.50"), number_in("12ms"), number_in("inf")
    (1234.5, None, inf)
    """
    plain = text.strip()
    if plain.lower() in {"inf", "+inf", "infinity", "+infinity"}:
        return math.inf
    if not _NUMBER.fullmatch(plain):
        return None
    return float(plain.replace(",", ""))


def is_blank(text: str) -> bool:
    """Return whether a cell says that there is no value."""
    return text.strip().lower() in _WORDLESS


def refuse(faults: Sequence[str], place: str) -> None:
    """Refuse a text with faults, all of them at once.

    Raises:
        FileProblem: there are faults.

    """
    if not faults:
        return
    lines = [f"  {fault}" for fault in faults[:_MOST_FAULTS]]
    if len(faults) > _MOST_FAULTS:
        lines.append(f"  and {len(faults) - _MOST_FAULTS:,} more")
    raise FileProblem(
        f"{len(faults):,} fault{'' if len(faults) == 1 else 's'}:\n" + "\n".join(lines),
        place=place,
        hint="correct them there, or take out what is not of this run",
    )


def shown(value: object) -> str:
    """Return a value as an error shows it."""
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
