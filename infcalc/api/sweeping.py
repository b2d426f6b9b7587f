"""Curves: one quantity of a load (or TP) varied, and the knee of latency against throughput."""

from __future__ import annotations

import math
import re
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from infcalc.api.offer import Figure

_MOST_POINTS = 200
_RANGE = re.compile(r"^\s*(.+?)\s*\.\.\s*(.+?)\s*(?::\s*(\+?)\s*(.+?)\s*)?$")
_NUMBER = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([kKmM]?)$")


class Variable(StrEnum):
    """What can be varied."""

    BATCH = "batch"
    CONCURRENCY = "concurrency"
    RATE = "rate"
    USERS = "users"
    INPUT_TOKENS = "input-tokens"
    OUTPUT_TOKENS = "output-tokens"
    TP = "tp"


LOADS = (Variable.BATCH, Variable.CONCURRENCY, Variable.RATE, Variable.USERS)
"""Variables that are a load of their own: a knee is looked for along them, and along TP."""

_EXAMPLES = {
    Variable.BATCH: "batch=1..1024",
    Variable.RATE: "rate=0.5..8:10 (ten points)",
    Variable.CONCURRENCY: "concurrency=8..64:+8 (steps of 8)",
    Variable.TP: "tp=1,2,4,8",
}


@frozen
class Sweep:
    """A variable and the values that it takes."""

    variable: Variable
    values: tuple[float, ...]


@frozen
class SweepPoint:
    """One value of the variable, and how fast it is there; figures are None where the load is beyond saturation."""

    value: float
    batch: float
    ttft_s: Figure | None
    tpot_s: Figure | None
    e2e_s: Figure | None
    output_tokens_per_s: Figure
    output_tokens_per_s_per_user: Figure | None
    output_tokens_per_s_per_gpu: Figure
    requests_per_s: Figure
    usd_per_million_output_tokens: Figure | None
    stable: bool
    bound_by: str


@frozen
class Curve:
    """The points of a sweep. ``knee`` is the value of the variable with the most throughput per latency, if any."""

    variable: Variable
    points: tuple[SweepPoint, ...]
    knee: float | None
    knee_text: str
    skipped: tuple[str, ...]
    """Values that cannot be, with the reason."""


def parse_sweep(text: str, variables: Collection[Variable] = tuple(Variable)) -> Sweep:
    """Return the sweep that ``text`` describes: ``a..b`` doubles from a to b, ``a..b:n`` has n points at equal ratios.

    ``variables`` are those that the question knows: an error lists them.

    Raises:
        UsageError: an unknown variable, or values that are none.

    >>> parse_sweep("batch=1..6").values
    (1.0, 2.0, 4.0, 6.0)
    >>> parse_sweep("rate=1..4:3").values
    (1.0, 2.0, 4.0)
    >>> parse_sweep("concurrency=8..24:+8").values
    (8.0, 16.0, 24.0)

    """
    examples = ", ".join(example for variable, example in _EXAMPLES.items() if variable in variables)
    name, equals, rest = text.partition("=")
    word = name.strip().lower().replace("_", "-")
    if not equals or not rest.strip():
        raise UsageError(f"{text!r} is not a sweep", place="--sweep", hint=f"write {examples}")
    try:
        variable = Variable(word)
    except ValueError:
        raise UsageError(
            f"{name.strip()!r} cannot be swept", place="--sweep", hint=f"one of {', '.join(variables)}; {examples}"
        ) from None
    whole = variable is not Variable.RATE
    found: list[float] = []
    for part in rest.split(","):
        found += _values(part, whole=whole, examples=examples)
    values = tuple(sorted(dict.fromkeys(found)))
    if len(values) > _MOST_POINTS:
        raise UsageError(f"{len(values)} points", place="--sweep", hint=f"at most {_MOST_POINTS}")
    return Sweep(variable=variable, values=values)


def sweep_text(sweep: Sweep) -> str:
    """Return a sweep as :func:`parse_sweep` reads it, with each of its values.

    >>> sweep_text(parse_sweep("rate=0.5..2"))
    'rate=0.5,1,2'
    """
    texts = (f"{value:.0f}" if value == int(value) else f"{value:.9f}".rstrip("0") for value in sweep.values)
    return f"{sweep.variable}={','.join(texts)}"


def _values(part: str, *, whole: bool, examples: str) -> list[float]:
    match = _RANGE.match(part)
    if match is None:
        return [_number(part, whole=whole, examples=examples)]
    low, high = (_number(end, whole=whole, examples=examples) for end in match.group(1, 2))
    if low > high:
        raise UsageError(f"{part.strip()!r}: the range falls", place="--sweep", hint=f"write {match[2]}..{match[1]}")
    if match[4] is None:
        number = max(1, math.ceil(math.log2(high / low))) + 1
        found = [min(low * 2**step, high) for step in range(number)]
    elif match[3]:
        step = _number(match[4], whole=whole, examples=examples)
        if (high - low) / step >= _MOST_POINTS:
            raise UsageError(f"{part.strip()!r}: too many points", place="--sweep", hint=f"at most {_MOST_POINTS}")
        found = [low + index * step for index in range(int((high - low) / step + 1e-9) + 1)]
    else:
        count = int(_number(match[4], whole=True, examples=examples))
        if count > _MOST_POINTS:
            raise UsageError(f"{count} points", place="--sweep", hint=f"at most {_MOST_POINTS}")
        inner = [float(f"{low * (high / low) ** (index / (count - 1)):.4g}") for index in range(1, count - 1)]
        found = [low, *inner, high] if count > 1 else [low]
    return [float(round(value)) if whole else float(f"{value:.6g}") for value in found]


def _number(text: str, *, whole: bool, examples: str) -> float:
    match = _NUMBER.match(text.strip())
    value = 0.0 if match is None else float(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()]
    if value <= 0 or not math.isfinite(value) or (whole and value != int(value)):
        kind = "a whole number from 1" if whole else "a number above 0"
        raise UsageError(f"{text.strip()!r} is not {kind}", place="--sweep", hint=f"write {examples}")
    return value


def knee_of(variable: Variable, points: Sequence[SweepPoint]) -> tuple[float | None, str]:
    """Return the knee, and what is to be said of it.

    The knee is where throughput per latency is greatest: up to there a per cent more throughput costs less than a per
    cent more latency, beyond it more. Source: Kleinrock 1979, Power and deterministic rules of thumb; latency is the
    time of a whole request, queueing included. Over TP it is the throughput of one GPU.
    """
    if variable not in LOADS and variable is not Variable.TP:
        return None, f"no knee: {variable} is not a load that trades latency for throughput"
    stable = [point for point in points if point.stable and point.e2e_s is not None]
    if len(stable) < _FEWEST:
        return None, "no knee: it takes three values at which the load is stable"
    powers = [_power(variable, point) for point in stable]
    best = max(range(len(stable)), key=lambda index: powers[index])
    point = stable[best]
    per = "throughput of a GPU per latency" if variable is Variable.TP else "throughput per latency"
    where = f"{variable} {point.value:g}"
    if best == len(stable) - 1 and points[-1].stable:
        return None, f"no knee up to {where}: {per} still rises there"
    if best == 0:
        return point.value, f"knee at or below {where}: {per} only falls from there"
    if variable is Variable.TP:
        return point.value, (
            f"knee at {where}, where {per} is greatest: up to there more GPUs shorten a request by more than each of "
            "them loses in throughput, beyond it by less"
        )
    return point.value, (
        f"knee at {where}, where {per} is greatest: up to there throughput grows faster than the time of a request, "
        "beyond it the time of a request grows faster"
    )


_FEWEST = 3


def _power(variable: Variable, point: SweepPoint) -> float:
    rate = point.output_tokens_per_s_per_gpu if variable is Variable.TP else point.output_tokens_per_s
    return 0.0 if point.e2e_s is None else rate.value / point.e2e_s.value
