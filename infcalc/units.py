"""Base units, and the only place that reads or writes a quantity with its unit.

Inside infcalc every number is in a base unit (bytes, bits, seconds, tokens, FLOP, FLOP/s, bytes/s, USD/h).
GiB is 2**30 bytes and GB is 10**9 bytes; both are accepted, neither is ever meant by the other.
"""

from __future__ import annotations

import math
import re

KIB = 2**10
MIB = 2**20
GIB = 2**30
GB = 10**9
HOURS_PER_MONTH = 730
"""Hours of a month as clouds bill it: 365 * 24 / 12."""

_DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}

_UNITS: dict[str, dict[str, float]] = {
    "bytes": {f"{prefix}B": factor for prefix, factor in (_DECIMAL | _BINARY).items()},
    "bytes_per_s": {f"{prefix}B/s": factor for prefix, factor in (_DECIMAL | _BINARY).items()},
    "flop_per_s": {
        f"{prefix}{name}": factor for prefix, factor in _DECIMAL.items() for name in ("FLOPS", "FLOP/s", "OPS", "OP/s")
    },
    "watt": {"W": 1, "kW": 1e3},
    "seconds": {"s": 1, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "min": 60, "h": 3600},
    "usd_per_hour": {"USD/h": 1},
}
_EXAMPLES = {
    "bytes": "80 GiB",
    "bytes_per_s": "2039 GB/s",
    "flop_per_s": "312 TFLOPS",
    "watt": "400 W",
    "seconds": "500 ms",
    "usd_per_hour": "1.89 USD/h",
}
_MAX_QUANTITY_TEXT = 60
_THREE_DIGITS = 100
_SEVEN_DIGITS = 10**6
_QUANTITY = re.compile(r"^\s*([0-9][0-9_,]*(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)\s*([^\s0-9].*?)\s*$")
_MAX_TOKENS = 2**63
_TOKENS = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([kKmM]?)\s*$")


def parse_quantity(text: object, dimension: str) -> float:
    """Return the value of ``text`` (such as ``"80 GiB"``) in the base unit of ``dimension``.

    ``dimension`` is one of ``bytes``, ``bytes_per_s``, ``flop_per_s``, ``watt``, ``seconds``, ``usd_per_hour``.

    Raises:
        ValueError: the text is not a finite non-negative number followed by a unit of that dimension.

    >>> parse_quantity("80 GiB", "bytes")
    85899345920.0
    >>> parse_quantity("312 TFLOPS", "flop_per_s")
    312000000000000.0

    """
    units = _UNITS[dimension]
    example = f"such as {_EXAMPLES[dimension]}"
    if not isinstance(text, str):
        raise ValueError(f"{text!r} has no unit; write a number with one, {example}")  # noqa: TRY004  bad value, not type
    match = _QUANTITY.match(text) if len(text) <= _MAX_QUANTITY_TEXT else None
    if match is None:
        raise ValueError(f"{text[:_MAX_QUANTITY_TEXT]!r} is not a number with a unit, {example}")
    number, unit = match.groups()
    if unit not in units:
        raise ValueError(f"unknown unit {unit!r}, {example} (units: {', '.join(units)})")
    value = float(number.replace("_", "").replace(",", "")) * units[unit]
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not finite")
    return value


def parse_tokens(text: str) -> int:
    """Return a token count; the suffix ``k`` is 1024 and ``M`` 1024**2, as context lengths are written.

    Raises:
        ValueError: not a positive whole number of tokens.

    >>> parse_tokens("128k")
    131072

    """
    match = _TOKENS.match(text)
    if match is None:
        raise ValueError(f"{text!r} is not a token count such as 4096, 4k or 1M")
    number, suffix = match.groups()
    value = float(number) * {"": 1, "k": KIB, "m": MIB}[suffix.lower()]
    if not 1 <= value < _MAX_TOKENS or value != int(value):
        raise ValueError(f"{text!r} is not a whole positive number of tokens")
    return int(value)


def format_bytes(num_bytes: float) -> str:
    """Return bytes as people read memory: binary units, labelled.

    >>> format_bytes(1_342_177_280), format_bytes(40_960), format_bytes(0)
    ('1.25 GiB', '40 KiB', '0 B')
    """
    for unit, size in (("TiB", 2**40), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(num_bytes) >= size:
            return f"{_short(num_bytes / size)} {unit}"
    return f"{_short(num_bytes)} B"


def format_memory(num_bytes: float) -> str:
    """Return bytes as engines print memory, to two decimals of a GiB; small ones as :func:`format_bytes`.

    >>> format_memory(16_060_522_496), format_memory(10_485_760), format_memory(-536_870_912)
    ('14.96 GiB', '10 MiB', '-0.50 GiB')
    """
    if abs(num_bytes) >= GIB // 10:
        return f"{num_bytes / GIB:,.2f} GiB"
    return format_bytes(num_bytes)


def format_seconds(seconds: float) -> str:
    """Return a duration in the unit that reads best.

    >>> format_seconds(0.0692), format_seconds(1.87), format_seconds(2.5e-5)
    ('69.2 ms', '1.87 s', '25 us')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= size:
            return f"{_short(seconds / size)} {unit}"
    return f"{_short(seconds * 1e6)} us"


def format_span(seconds: float) -> str:
    """Return a stretch of time as people say it: minutes, hours and days where there are some.

    >>> format_span(3501.7), format_span(0.25), format_span(90), format_span(5_270_400)
    ('58.4 min', '250 ms', '90 s', '61 days')
    """
    for unit, size, least in (("days", 86_400, 2.0), ("h", 3600, 2.0), ("min", 60, 2.0)):
        if seconds >= least * size:
            return f"{_short(seconds / size)} {unit}"
    return format_seconds(seconds) if seconds else "0 s"


def format_si(value: float, unit: str) -> str:
    """Return a rate or count with a decimal prefix.

    >>> format_si(312e12, "FLOP/s"), format_si(2.039e12, "B/s")
    ('312 TFLOP/s', '2.04 TB/s')
    """
    for prefix, size in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{_short(value / size)} {prefix}{unit}"
    return f"{_short(value)} {unit}"


def _short(value: float) -> str:
    """Return three significant digits, all digits of a whole number, no trailing zeros."""
    if value == int(value) and abs(value) < _SEVEN_DIGITS:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= _THREE_DIGITS else f"{value:.3g}"
