"""How long prompts and answers are: distributions of token counts, their moments and percentiles.

Written as a number (``512``, ``4k``) or as ``lognormal:mean=500,cv=1.2``, ``lognormal:p50=200,p90=900``,
``uniform:min=100,max=900``, ``exponential:mean=300``, ``pareto:min=64,max=2k,alpha=1.2``, ``constant:512``. Two
percentiles alone mean a lognormal through them, the shape that request lengths of chat services have. Lengths are
treated as continuous.
"""

from __future__ import annotations

import math
import re
from typing import TypeAlias, assert_never

from infcalc.frozen import frozen
from infcalc.units import KIB


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
    """Heavy-tailed between two bounds: the chance of more than x falls as x to the power ``-tail_index``.

    Without an upper bound not even the mean need exist; no engine gives answers without end.
    """

    min_tokens: float
    max_tokens: float
    tail_index: float


Lengths: TypeAlias = Constant | Uniform | Exponential | Lognormal | Pareto
Node: TypeAlias = tuple[float, float]
"""Weight and length: weights of a distribution sum to 1."""

_MAX_TOKENS = 2.0**40
_MAX_CV = 20.0
_TOKENS = re.compile(r"^([0-9]+(?:\.[0-9]+)?)([kKmM]?)$")
_PERCENTILE = re.compile(r"^p([0-9]{1,2}(?:\.[0-9]+)?)$")
_TWO = 2
FORMS = (
    "512, 4k, lognormal:mean=500,cv=1.2, lognormal:p50=200,p90=900, uniform:min=100,max=900, exponential:mean=300 or "
    "pareto:min=64,max=2k,alpha=1.2"
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
    values = _values(rest, name)
    match name:
        case "constant" | "fixed":
            return Constant(value_tokens=_only(values, name, "tokens"))
        case "uniform":
            low, high = _exactly(values, name, "min", "max")
            if low > high:
                raise ValueError(f"{text!r}: min is above max")
            return Constant(value_tokens=low) if low == high else Uniform(min_tokens=low, max_tokens=high)
        case "exponential":
            return Exponential(mean_tokens=_only(values, name, "mean"))
        case "lognormal":
            return _lognormal(values, text)
        case "pareto":
            low, high, tail = _exactly(values, name, "min", "max", "alpha")
            if low > high or not tail:
                raise ValueError(f"{text!r}: " + ("min is above max" if low > high else "alpha is above 0"))
            return (
                Constant(value_tokens=low) if low == high else Pareto(min_tokens=low, max_tokens=high, tail_index=tail)
            )
        case _:
            raise ValueError(f"{word!r} is no distribution")


def described(lengths: Lengths) -> str:
    """Return a distribution as it is written.

    >>> described(parse_lengths("p50=200,p90=900"))
    'lognormal:mean=398.23,cv=1.72183'
    """
    match lengths:
        case Constant():
            return f"{lengths.value_tokens:g}"
        case Uniform():
            return f"uniform:min={lengths.min_tokens:g},max={lengths.max_tokens:g}"
        case Exponential():
            return f"exponential:mean={lengths.mean_tokens:g}"
        case Lognormal():
            spread = math.sqrt(math.expm1(lengths.log_deviation**2))
            return f"lognormal:mean={moment(lengths, 1):g},cv={spread:g}"
        case Pareto():
            return f"pareto:min={lengths.min_tokens:g},max={lengths.max_tokens:g},alpha={lengths.tail_index:g}"
        case _:
            assert_never(lengths)


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
            low, high, tail = lengths.min_tokens, lengths.max_tokens, lengths.tail_index
            gap, ratio = order - tail, high / low
            # The integral of x to the power (gap - 1); its limit is a logarithm.
            area = math.log(ratio) if abs(gap) < _SAME_POWER else math.expm1(gap * math.log(ratio)) / gap
            return tail * low**order * area / -math.expm1(-tail * math.log(ratio))
        case _:
            assert_never(lengths)


def mean_tokens(lengths: Lengths) -> float:
    """Return the mean length."""
    return moment(lengths, 1)


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
            low, high, tail = lengths.min_tokens, lengths.max_tokens, lengths.tail_index
            kept = -math.expm1(tail * math.log(low / high))
            return low * math.exp(-math.log1p(-probability * kept) / tail)
        case _:
            assert_never(lengths)


def nodes(lengths: Lengths, *, by_length: bool = False) -> tuple[Node, ...]:
    """Return weights and lengths whose weighted sums are expectations, without chance.

    ``by_length`` weighs each length by itself: the law of the answer that a running request is giving, for long ones
    run longer. Moments up to the third come out to 1e-6 or better.
    """
    bias = 1 if by_length else 0
    match lengths:
        case Constant():
            return ((1.0, lengths.value_tokens),)
        case Uniform():
            found = _uniform_nodes(lengths, bias)
        case Exponential():
            # Trapezoids in the logarithm: the integrand is smooth and vanishes at both ends.
            steps = [step * _LOG_STEP for step in range(-_LOG_STEPS_BELOW, _LOG_STEPS_ABOVE)]
            found = [
                (math.exp((bias + 1) * step - math.exp(step)), lengths.mean_tokens * math.exp(step)) for step in steps
            ]
        case Lognormal():
            spread = lengths.log_deviation
            centre = math.log(lengths.median_tokens) + bias * spread**2
            # Third moments lie up to three deviations further out than the law itself.
            reach = _NORMAL_REACH + 3 * spread
            count = math.ceil(2 * reach / _NORMAL_STEP)
            steps = [-reach + step * _NORMAL_STEP for step in range(count + 1)]
            found = [(math.exp(-0.5 * step**2), math.exp(centre + spread * step)) for step in steps]
        case Pareto():
            found = _pareto_nodes(lengths, bias)
        case _:
            assert_never(lengths)
    total = math.fsum(weight for weight, _ in found)
    return tuple((weight / total, value) for weight, value in found)


_CELLS = 32
_GAUSS = 0.5 / math.sqrt(3)
_LOG_STEP = 0.2
_LOG_STEPS_BELOW = 90
_LOG_STEPS_ABOVE = 22
_NORMAL_REACH = 7.0
_NORMAL_STEP = 0.3
_SAME_POWER = 1e-9
_HIGHEST_POWER = 4
_LOG_CELL = 0.24


def _uniform_nodes(lengths: Uniform, bias: int) -> list[Node]:
    """Two Gauss points per cell: exact for cubic integrands."""
    width = (lengths.max_tokens - lengths.min_tokens) / _CELLS
    middles = [lengths.min_tokens + (cell + 0.5) * width for cell in range(_CELLS)]
    points = [middle + side * width for middle in middles for side in (-_GAUSS, _GAUSS)]
    return [(point**bias, point) for point in points]


def _pareto_nodes(lengths: Pareto, bias: int) -> list[Node]:
    """Two Gauss points per cell of the logarithm, small enough for the third moment and for the steepest fall."""
    span = math.log(lengths.max_tokens / lengths.min_tokens)
    number = math.ceil(span * max(_HIGHEST_POWER, lengths.tail_index) / _LOG_CELL)
    points = [(cell + 0.5 + side) * span / number for cell in range(number) for side in (-_GAUSS, _GAUSS)]
    return [(math.exp((bias - lengths.tail_index) * point), lengths.min_tokens * math.exp(point)) for point in points]


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
    found: dict[str, float] = {}
    for part in rest.split(","):
        key, equals, value = part.partition("=")
        if not equals:
            key, value = "", key
        word = key.strip().lower()
        if word in found:
            raise ValueError(f"{name}: {word or 'the value'} is given twice")
        plain = word in {"cv", "alpha"}
        found[word] = _plain(value.strip(), f"{name} {word}") if plain else _tokens(value.strip(), word or name)
    return found


def _plain(text: str, what: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{what}: {text!r} is not a number") from None
    if not 0 <= value <= _MAX_CV:
        raise ValueError(f"{what}: {text} is not between 0 and {_MAX_CV:g}")
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
