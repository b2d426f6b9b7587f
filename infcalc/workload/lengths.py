"""How long prompts and answers are: distributions of token counts, their moments and percentiles.

Written as a number (``512``, ``4k``) or as ``lognormal:mean=500,cv=1.2``, ``lognormal:p50=200,p90=900``,
``uniform:min=100,max=900``, ``exponential:mean=300``, ``pareto:min=100,max=32k,alpha=1.2``, ``constant:512``,
``empirical:100,200*3,900``. Two percentiles alone mean a lognormal through them, the shape that request lengths of chat
services have. Lengths are treated as continuous.
"""

from __future__ import annotations

import math
import re
from functools import lru_cache
from itertools import groupby
from typing import TypeAlias, assert_never

from infcalc.frozen import frozen
from infcalc.units import KIB
from infcalc.workload.written import values_of


@frozen
class Constant:
    """Every length the same."""

    value_tokens: float


@frozen
class Uniform:
    """Every length between two bounds equally likely."""

    min_tokens: float
    max_tokens: float


@frozen
class Exponential:
    """Many short, few long: the coefficient of variation is 1."""

    mean_tokens: float


@frozen
class Lognormal:
    """The logarithm of the length is normal, around that of the median, with standard deviation ``log_deviation``."""

    median_tokens: float
    log_deviation: float


@frozen
class Pareto:
    """Many short, few very long: the share beyond a length falls with its power ``-tail_index``, up to a longest one.

    Bounded, for no request is longer than its model admits; hence every moment exists. Source: the truncated Pareto
    law, density ``a min**a x**(-a-1) / (1 - (min/max)**a)``.
    """

    min_tokens: float
    max_tokens: float
    tail_index: float


@frozen
class Empirical:
    """Lengths as they were observed, each as likely as the others; in rising order."""

    values_tokens: tuple[float, ...]


Lengths: TypeAlias = Constant | Uniform | Exponential | Lognormal | Pareto | Empirical

_MAX_TOKENS = 2.0**40
_MAX_CV = 20.0
_MAX_TAIL_INDEX = 20.0
_MAX_VALUES = 100_000
_TOKENS = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([kKmM]?)$")
_PERCENTILE = re.compile(r"^p([0-9]{1,2}(?:\.[0-9]+)?)$")
_TWO = 2
_SIX_DIGITS = 999_999.5
FORMS = (
    "512, 4k, lognormal:mean=500,cv=1.2, lognormal:p50=200,p90=900, uniform:min=100,max=900 exponential:mean=300, "
    "pareto:min=100,max=32k,alpha=1.2 or empirical:100,200*3,900"
)
"""What lengths are written like, for errors."""


def parse_lengths(text: str) -> Lengths:
    """Return the distribution that ``text`` describes.

    Raises:
        ValueError: it is none; the message says what was understood and what is missing.

    >>> parse_lengths("4k")
    Constant(value_tokens=4096.0)
    >>> parse_lengths("uniform:min=100,max=900")
    Uniform(min_tokens=100.0, max_tokens=900.0)
    >>> f"{mean_tokens(parse_lengths('lognormal:mean=500,cv=1.2')):.6f}"
    '500.000000'

    """
    word, colon, rest = text.strip().partition(":")
    name = word.strip().lower()
    if not colon:
        if "=" not in name:
            return Constant(value_tokens=_tokens(name, "a length"))
        name, rest = "lognormal", text
    if name == "empirical":
        return _listed(rest)
    values = _values(rest, name)
    match name:
        case "constant" | "fixed":
            found: Lengths = Constant(value_tokens=_only(values, name, "tokens"))
        case "uniform":
            found = _uniform(values, text)
        case "exponential":
            found = Exponential(mean_tokens=_only(values, name, "mean"))
        case "lognormal":
            found = _lognormal(values, text)
        case "pareto":
            found = _pareto(values, text)
        case _:
            raise ValueError(f"{word!r} is no distribution")
    return found


def described(lengths: Lengths) -> str:
    """Return a distribution as it is written.

    >>> described(parse_lengths("p50=200,p90=900"))
    'lognormal:mean=398.23,cv=1.72183'
    """
    match lengths:
        case Constant():
            return _short(lengths.value_tokens)
        case Uniform():
            return f"uniform:min={_short(lengths.min_tokens)},max={_short(lengths.max_tokens)}"
        case Exponential():
            return f"exponential:mean={_short(lengths.mean_tokens)}"
        case Lognormal():
            spread = math.sqrt(math.expm1(lengths.log_deviation**2))
            return f"lognormal:mean={_short(moment(lengths, 1))},cv={spread:g}"
        case Pareto():
            low, high = lengths.min_tokens, lengths.max_tokens
            return f"pareto:min={_short(low)},max={_short(high)},alpha={lengths.tail_index:g}"
        case Empirical():
            runs = [(value, len(list(run))) for value, run in groupby(lengths.values_tokens)]
            return "empirical:" + ",".join(
                f"{_short(value)}" + (f"*{times}" if times > 1 else "") for value, times in runs
            )
        case _:
            assert_never(lengths)


def _short(tokens: float) -> str:
    """Return a length to six digits, and without the exponent that would not be read again."""
    return f"{tokens:g}" if tokens < _SIX_DIGITS else f"{tokens:.0f}"


def moment(lengths: Lengths, order: int) -> float:
    """Return the expectation of the length to the power ``order``, in closed form."""
    match lengths:
        case Constant():
            return lengths.value_tokens**order
        case Uniform():
            low, high, power = lengths.min_tokens, lengths.max_tokens, order + 1
            return (high**power - low**power) / (power * (high - low))
        case Exponential():
            return math.factorial(order) * lengths.mean_tokens**order
        case Lognormal():
            return lengths.median_tokens**order * math.exp(0.5 * (order * lengths.log_deviation) ** 2)
        case Pareto():
            return _pareto_moment(lengths, order)
        case Empirical():
            return math.fsum(value**order for value in lengths.values_tokens) / len(lengths.values_tokens)
        case _:
            assert_never(lengths)


def mean_tokens(lengths: Lengths) -> float:
    """Return the mean length."""
    return moment(lengths, 1)


def scatter_of(lengths: Lengths) -> float:
    """Return the squared coefficient of variation.

    >>> scatter_of(parse_lengths("exponential:mean=300")), scatter_of(parse_lengths("512"))
    (1.0, 0.0)
    """
    return max(0.0, moment(lengths, 2) / mean_tokens(lengths) ** 2 - 1)


def quantile_tokens(lengths: Lengths, probability: float) -> float:
    """Return the length that a share ``probability`` of all lengths does not exceed."""
    match lengths:
        case Constant():
            return lengths.value_tokens
        case Uniform():
            return lengths.min_tokens + probability * (lengths.max_tokens - lengths.min_tokens)
        case Exponential():
            return -lengths.mean_tokens * math.log1p(-probability)
        case Lognormal():
            return lengths.median_tokens * math.exp(lengths.log_deviation * normal_quantile(probability))
        case Pareto():
            left = 1 - probability * (1 - (lengths.min_tokens / lengths.max_tokens) ** lengths.tail_index)
            return float(lengths.min_tokens * left ** (-1 / lengths.tail_index))
        case Empirical():
            number = len(lengths.values_tokens)
            return lengths.values_tokens[min(number - 1, max(0, math.ceil(probability * number) - 1))]
        case _:
            assert_never(lengths)


def _pareto_moment(lengths: Pareto, order: int) -> float:
    """Return the integral of ``x**order`` over the density; where order and index meet it is a logarithm."""
    ratio, power = math.log(lengths.max_tokens / lengths.min_tokens), order - lengths.tail_index
    whole = -math.expm1(-lengths.tail_index * ratio)
    # The integral of exp(power * u) for u from 0 to ratio.
    integral = ratio if abs(power * ratio) < _SAME_POWER else math.expm1(power * ratio) / power
    return lengths.min_tokens**order * lengths.tail_index * integral / whole


_SAME_POWER = 1e-9


@lru_cache(maxsize=256)
def normal_quantile(probability: float) -> float:
    """Return the standard normal quantile, by bisection on the error function.

    >>> f"{normal_quantile(0.95):.4f}"
    '1.6449'
    """
    low, high = -40.0, 40.0
    for _ in range(80):
        middle = 0.5 * (low + high)
        if 0.5 * math.erfc(-middle / math.sqrt(2)) < probability:
            low = middle
        else:
            high = middle
    return 0.5 * (low + high)


def _values(rest: str, name: str) -> dict[str, float]:
    return {word: _number(text, word, name) for word, text in values_of(rest, name).items()}


def _number(text: str, word: str, name: str) -> float:
    match word:
        case "cv":
            return _plain(text, f"{name} {word}", 0, _MAX_CV)
        case "alpha":
            return _plain(text, f"{name} {word}", 0.01, _MAX_TAIL_INDEX)
        case _:
            return _tokens(text, word or name)


def _plain(text: str, what: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{what}: {text!r} is not a number") from None
    if not least <= value <= most:
        raise ValueError(f"{what}: {text} is not between {least:g} and {most:g}")
    return value


def _tokens(text: str, what: str) -> float:
    match = _TOKENS.match(text)
    if match is None:
        raise ValueError(f"{what}: {text!r} is not a number of tokens")
    number, suffix = match.groups()
    value = float(number) * {"": 1, "k": KIB, "m": KIB**2}[suffix.lower()]
    if not 1 <= value <= _MAX_TOKENS:
        raise ValueError(f"{what}: {text} tokens is out of range (1 to 2**40)")
    return value


def _uniform(values: dict[str, float], text: str) -> Lengths:
    low, high = _exactly(values, "uniform", "min", "max")
    if low > high:
        raise ValueError(f"{text!r}: min is above max")
    return Constant(value_tokens=low) if low == high else Uniform(min_tokens=low, max_tokens=high)


def _pareto(values: dict[str, float], text: str) -> Lengths:
    low, high, tail = _exactly(values, "pareto", "min", "max", "alpha")
    if low > high:
        raise ValueError(f"{text!r}: min is above max")
    return Constant(value_tokens=low) if low == high else Pareto(min_tokens=low, max_tokens=high, tail_index=tail)


def _listed(rest: str) -> Lengths:
    """Return the law of listed lengths; ``200*3`` is three of them."""
    found: list[float] = []
    for part in rest.split(","):
        value, star, times = part.strip().partition("*")
        if star and not times.strip().isdecimal():
            raise ValueError(f"empirical: {part.strip()!r}: after * stands how often, such as 200*3")
        number = int(times[:_MAX_DIGITS]) if star else 1
        if not 1 <= number <= _MAX_VALUES - len(found):
            raise ValueError(f"empirical: {part.strip()!r}: 1 to {_MAX_VALUES:,} lengths in all")
        found += [_tokens(value.strip(), "empirical")] * number
    return empirical(tuple(found))


_MAX_DIGITS = 9


def empirical(values_tokens: tuple[float, ...]) -> Lengths:
    """Return the law of observed lengths; a constant where all are the same."""
    ordered = tuple(sorted(values_tokens))
    return Constant(value_tokens=ordered[0]) if ordered[0] == ordered[-1] else Empirical(values_tokens=ordered)


def _only(values: dict[str, float], name: str, key: str) -> float:
    if len(values) == 1 and set(values) <= {"", key, "value"}:
        return next(iter(values.values()))
    raise ValueError(f"{name} takes {key}=TOKENS")


def _exactly(values: dict[str, float], name: str, *keys: str) -> tuple[float, ...]:
    if set(values) != set(keys):
        raise ValueError(f"{name} takes {' and '.join(keys)}")
    return tuple(values[key] for key in keys)


def _lognormal(values: dict[str, float], text: str) -> Lengths:
    if set(values) == {"mean", "cv"}:
        if values["cv"] == 0:
            return Constant(value_tokens=values["mean"])
        spread = math.sqrt(math.log1p(values["cv"] ** 2))
        return Lognormal(median_tokens=values["mean"] * math.exp(-0.5 * spread**2), log_deviation=spread)
    points = [(float(match[1]) / 100, value) for key, value in values.items() if (match := _PERCENTILE.match(key))]
    if len(points) != _TWO or len(values) != _TWO or not all(0 < share < 1 for share, _ in points):
        raise ValueError(f"{text!r}: a lognormal takes mean and cv, or two percentiles")
    (first, low), (second, high) = sorted(points)
    if first == second or low > high:
        raise ValueError(f"{text!r}: the higher percentile must be the longer")
    if low == high:
        return Constant(value_tokens=low)
    below, above = normal_quantile(first), normal_quantile(second)
    spread = math.log(high / low) / (above - below)
    return Lognormal(median_tokens=low * math.exp(-spread * below), log_deviation=spread)
