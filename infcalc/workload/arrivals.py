"""When requests arrive: gaps of a law at a rate that may change, all at once, or as clients get their answers.

Written as ``poisson:12`` (12 per second), ``gamma:rate=12,burstiness=0.5``, ``weibull:rate=12,cv=2``, ``constant:12``,
``ramp:from=1,to=20,over=10min``, ``diurnal:rate=12,ratio=3,period=24h,peak=14h``, ``closed:clients=100,think=30s`` or
``once``.

``cv`` is the coefficient of variation of the gaps. Burstiness is that of vLLM's benchmark (``vllm bench serve
--burstiness``): gaps follow a Gamma law of this shape, so that cv = 1/sqrt(burstiness); 1 is Poisson, below 1 is
burstier. For Weibull gaps it means the same cv. ``exact=yes`` stretches the times as that benchmark does, so that
``n`` requests take ``n / rate`` seconds.
"""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TypeAlias, assert_never

from infcalc.frozen import frozen
from infcalc.units import parse_quantity
from infcalc.workload.written import name_and_values


class GapLaw(StrEnum):
    """How the time between two arrivals varies."""

    GAMMA = "gamma"
    WEIBULL = "weibull"


@frozen
class Gaps:
    """Gaps between arrivals: their law and their coefficient of variation; 0: all alike, 1: exponential (Poisson)."""

    law: GapLaw = GapLaw.GAMMA
    cv: float = 1.0


@frozen
class Steady:
    """The same rate all the time."""

    rate_per_s: float


@frozen
class Ramp:
    """A rate that goes from one value to another, then stays; ``exponential``: by the same factor each second."""

    from_per_s: float
    to_per_s: float
    over_s: float
    exponential: bool = False


@frozen
class Diurnal:
    """A rate that swings like a cosine around its mean; the highest is ``peak_ratio`` times the lowest."""

    mean_per_s: float
    peak_ratio: float
    period_s: float
    peak_s: float


Profile: TypeAlias = Steady | Ramp | Diurnal


@frozen
class OpenLoop:
    """Arrivals that do not wait for answers. ``exact``: stretched, so that the profile is met in total."""

    profile: Profile
    gaps: Gaps = Gaps()
    exact: bool = False


@frozen
class AtOnce:
    """Everything is there at the start, as in an offline batch or a benchmark with an infinite rate."""


@frozen
class ClosedLoop:
    """Clients that each send the next request a pause after they have their answer; all send their first at the start.

    The pause has the mean ``think_s`` and the coefficient of variation ``think_cv``. When requests arrive is known only
    to who serves them: this is a description for a simulator to carry out.
    """

    num_clients: int
    think_s: float = 0.0
    think_cv: float = 0.0


Arrivals: TypeAlias = OpenLoop | AtOnce | ClosedLoop

FORMS = (
    "poisson:12, gamma:rate=12,burstiness=0.5, weibull:rate=12,cv=2, constant:12, ramp:from=1,to=20,over=10min, "
    "diurnal:rate=12,ratio=3,period=24h,peak=14h, closed:clients=100,think=30s or once"
)
"""What arrivals are written like, for errors."""

MAX_CV = 20.0
MAX_PER_S = 1e6
_MAX_S = 1e9
_MAX_RATIO = 1e4
MAX_CLIENTS = 2**20
_DAY_S = 86_400.0
_GAPS = frozenset({"cv", "burstiness", "exact"})


def parse_arrivals(text: str) -> Arrivals:
    """Return the arrivals that ``text`` describes.

    Raises:
        ValueError: it describes none; the message says what was understood and what is missing.

    >>> parse_arrivals("poisson:12")
    OpenLoop(profile=Steady(rate_per_s=12.0), gaps=Gaps(law=<GapLaw.GAMMA: 'gamma'>, cv=1.0), exact=False)
    >>> parse_arrivals("gamma:rate=12,burstiness=0.25").gaps.cv
    2.0
    >>> parse_arrivals("closed:clients=100,think=30s")
    ClosedLoop(num_clients=100, think_s=30.0, think_cv=0.0)

    """
    name, values = name_and_values(text)
    match name:
        case "poisson":
            _only(values, name, {"", "rate", "exact"})
            found: Arrivals = _open(values, name, Gaps())
        case "constant":
            _only(values, name, {"", "rate", "exact"})
            found = _open(values, name, Gaps(cv=0.0))
        case "gamma":
            _only(values, name, {"", "rate", *_GAPS})
            found = _open(values, name, _gaps(values, name, GapLaw.GAMMA))
        case "weibull":
            _only(values, name, {"", "rate", "shape", *_GAPS})
            found = _open(values, name, _weibull(values))
        case "ramp":
            found = _ramp(values)
        case "diurnal":
            found = _diurnal(values)
        case "closed":
            found = _closed(values)
        case "once":
            _only(values, name, set())
            found = AtOnce()
        case _:
            raise ValueError(f"{name!r} is no kind of arrivals")
    return found


def described(arrivals: Arrivals) -> str:
    """Return arrivals as they are written.

    >>> described(parse_arrivals("weibull:rate=12,burstiness=0.25"))
    'weibull:rate=12,cv=2'
    >>> described(parse_arrivals("ramp:from=1,to=20,over=10min"))
    'ramp:from=1,to=20,over=600s'
    """
    match arrivals:
        case AtOnce():
            return "once"
        case ClosedLoop():
            parts = [f"clients={arrivals.num_clients}"]
            if arrivals.think_s:
                parts.append(f"think={arrivals.think_s:.12g}s")
            if arrivals.think_cv:
                parts.append(f"think-cv={arrivals.think_cv:.12g}")
            return f"closed:{','.join(parts)}"
        case OpenLoop():
            return _described_open(arrivals)
        case _:
            assert_never(arrivals)


def _described_open(arrivals: OpenLoop) -> str:
    gaps, profile = arrivals.gaps, arrivals.profile
    plain = gaps == Gaps()
    spread = [] if plain else [_spread(gaps.cv)]
    match profile:
        case Steady():
            parts = [f"rate={profile.rate_per_s:.12g}"]
            name = "poisson" if plain else "constant" if gaps.cv == 0 else str(gaps.law)
            spread = spread if gaps.cv else []
        case Ramp():
            name = "ramp"
            parts = [f"from={profile.from_per_s:.12g}", f"to={profile.to_per_s:.12g}", f"over={profile.over_s:.12g}s"]
            parts += ["curve=exponential"] if profile.exponential else []
        case Diurnal():
            name = "diurnal"
            parts = [f"rate={profile.mean_per_s:.12g}", f"ratio={profile.peak_ratio:.12g}"]
            parts += [f"period={profile.period_s:.12g}s", f"peak={profile.peak_s:.12g}s"]
        case _:
            assert_never(profile)
    parts += spread
    if arrivals.exact:
        parts.append("exact=yes")
    return f"{name}:{','.join(parts)}"


def _spread(cv: float) -> str:
    """Return the variation of gaps in the shorter of its two names."""
    texts = [f"cv={cv:.12g}", *([f"burstiness={cv**-2:.12g}"] if cv else [])]
    return min(texts, key=lambda text: len(text.partition("=")[2]))


def mean_rate_per_s(arrivals: Arrivals) -> float | None:
    """Return the rate that arrivals have in the long run; None where answers or nothing set it."""
    match arrivals:
        case OpenLoop(profile=Steady(rate_per_s=rate)) | OpenLoop(profile=Ramp(to_per_s=rate)):
            return rate
        case OpenLoop(profile=Diurnal(mean_per_s=rate)):
            return rate
        case _:
            return None


def weibull_shape(cv: float) -> float:
    """Return the shape of the Weibull law whose coefficient of variation is ``cv``, by bisection.

    With shape k: cv**2 = gamma(1 + 2/k) / gamma(1 + 1/k)**2 - 1. A Weibull law of shape 1 is the exponential one.

    >>> f"{weibull_shape(1.0):.6f}"
    '1.000000'
    """
    low, high = math.log(0.05), math.log(1000.0)
    for _ in range(100):
        middle = 0.5 * (low + high)
        inverse = math.exp(-middle)
        spread = math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse)
        if spread > math.log1p(cv**2):
            low = middle
        else:
            high = middle
    return math.exp(0.5 * (low + high))


def _only(values: dict[str, str], name: str, keys: set[str]) -> None:
    unknown = [key or "a value without a key" for key in values if key not in keys]
    if unknown:
        taken = ", ".join(sorted(key for key in keys if key)) or "nothing"
        raise ValueError(f"{name} takes {taken}; given {', '.join(unknown)}")


def _open(values: dict[str, str], name: str, gaps: Gaps) -> OpenLoop:
    if "" in values and "rate" in values:
        raise ValueError(f"{name}: the rate is given twice")
    rate = _rate(values.get("") or values.get("rate"), name, "rate")
    return OpenLoop(profile=Steady(rate_per_s=rate), gaps=gaps, exact=_exact(values, name))


def _gaps(values: dict[str, str], name: str, law: GapLaw) -> Gaps:
    """Return the gaps by cv or burstiness; both mean a coefficient of variation, which is 1 where neither is given."""
    if "cv" in values and "burstiness" in values:
        raise ValueError(f"{name}: cv and burstiness say the same; give one")
    cv = 1.0
    if "cv" in values:
        cv = _number(values["cv"], f"{name} cv", 0, MAX_CV)
    if "burstiness" in values:
        cv = _number(values["burstiness"], f"{name} burstiness", MAX_CV**-2, math.inf) ** -0.5
    return Gaps(law=law if cv not in {0.0, 1.0} else GapLaw.GAMMA, cv=cv)


def _weibull(values: dict[str, str]) -> Gaps:
    if "shape" not in values:
        return _gaps(values, "weibull", GapLaw.WEIBULL)
    if {"cv", "burstiness"} & set(values):
        raise ValueError("weibull: shape, cv and burstiness say the same; give one")
    inverse = 1 / _number(values["shape"], "weibull shape", 0.2, 1000)
    spread = math.exp(math.lgamma(1 + 2 * inverse) - 2 * math.lgamma(1 + inverse))
    return Gaps(law=GapLaw.WEIBULL, cv=math.sqrt(spread - 1))


def _ramp(values: dict[str, str]) -> OpenLoop:
    _only(values, "ramp", {"from", "to", "over", "curve", *_GAPS})
    curve = values.get("curve", "linear")
    if curve not in {"linear", "exponential"}:
        raise ValueError(f"ramp curve: {curve!r} is neither linear nor exponential")
    profile = Ramp(
        from_per_s=_rate(values.get("from"), "ramp", "from"),
        to_per_s=_rate(values.get("to"), "ramp", "to"),
        over_s=_seconds(values.get("over"), "ramp", "over"),
        exponential=curve == "exponential",
    )
    if not profile.over_s:
        raise ValueError("ramp over: 0 seconds; without a ramp write poisson:12")
    return OpenLoop(profile=profile, gaps=_gaps(values, "ramp", GapLaw.GAMMA), exact=_exact(values, "ramp"))


def _diurnal(values: dict[str, str]) -> OpenLoop:
    _only(values, "diurnal", {"rate", "ratio", "period", "peak", *_GAPS})
    period_s = _seconds(values["period"], "diurnal", "period") if "period" in values else _DAY_S
    if not period_s:
        raise ValueError("diurnal period: 0 seconds; a day is 24h")
    profile = Diurnal(
        mean_per_s=_rate(values.get("rate"), "diurnal", "rate"),
        peak_ratio=_number(values.get("ratio", ""), "diurnal ratio (highest to lowest rate)", 1, _MAX_RATIO),
        period_s=period_s,
        peak_s=_seconds(values["peak"], "diurnal", "peak") if "peak" in values else period_s / 2,
    )
    return OpenLoop(profile=profile, gaps=_gaps(values, "diurnal", GapLaw.GAMMA), exact=_exact(values, "diurnal"))


def _closed(values: dict[str, str]) -> ClosedLoop:
    _only(values, "closed", {"", "clients", "think", "think-cv"})
    if "" in values and "clients" in values:
        raise ValueError("closed: the clients are given twice")
    text = values.get("") or values.get("clients") or ""
    number = _number(text, "closed clients", 1, MAX_CLIENTS)
    if number != int(number):
        raise ValueError(f"closed clients: {text} is not a whole number")
    return ClosedLoop(
        num_clients=int(number),
        think_s=_seconds(values["think"], "closed", "think") if "think" in values else 0.0,
        think_cv=_number(values["think-cv"], "closed think-cv", 0, MAX_CV) if "think-cv" in values else 0.0,
    )


def _exact(values: dict[str, str], name: str) -> bool:
    word = values.get("exact", "no").lower()
    if word not in {"yes", "no"}:
        raise ValueError(f"{name} exact: {word!r} is neither yes nor no")
    return word == "yes"


def _rate(text: str | None, name: str, key: str) -> float:
    if not text:
        raise ValueError(f"{name} needs {key}=REQUESTS_PER_SECOND")
    value = _number(text, f"{name} {key}", 0, MAX_PER_S)
    if value == 0:
        raise ValueError(f"{name} {key}: {text} requests per second never come; a rate is above 0")
    return value


def _number(text: str, what: str, least: float, most: float) -> float:
    try:
        value = float(text)
    except ValueError:
        raise ValueError(f"{what}: {text!r} is not a number") from None
    if not least <= value <= most:
        end = f"between {least:g} and {most:,.10g}" if most < math.inf else f"at least {least:g}"
        raise ValueError(f"{what}: {text} is not {end}")
    return value


def _seconds(text: str | None, name: str, key: str) -> float:
    if not text:
        raise ValueError(f"{name} needs {key}=TIME, such as 10min")
    try:
        value = parse_quantity(text if not text[-1].isdigit() else f"{text} s", "seconds")
    except ValueError as wrong:
        raise ValueError(f"{name} {key}: {wrong}") from None
    if value > _MAX_S:
        raise ValueError(f"{name} {key}: {text} is more than {_MAX_S:g} s")
    return value
