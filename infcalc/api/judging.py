"""A measured time or rate held against physics and against the estimate: is it possible, and what was lost?"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.units import format_seconds, parse_quantity

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from infcalc.api.offer import Figure

_TIMES = {"ttft": "ttft_s", "tpot": "tpot_s", "itl": "tpot_s", "tpot-inclusive": "tpot_inclusive_s", "e2e": "e2e_s"}
_RATES = {
    "output-tokens-per-s": "output_tokens_per_s",
    "output-tok-s": "output_tokens_per_s",
    "tokens-per-s": "output_tokens_per_s",
    "requests-per-s": "requests_per_s",
    "output-tokens-per-s-per-user": "output_tokens_per_s_per_user",
}
_EXAMPLES = "tpot=12ms, ttft=0.5s, e2e=10s, output-tokens-per-s=900 or requests-per-s=3"
_MOST_S = 1e9
_MOST_PER_S = 1e12
_SLIP = 1.001
"""A measurement is given in three digits or so: a tenth of a percent is no contradiction of physics."""


_ARRIVALS = 1.05
"""Arrivals of a finite measurement scatter about their rate."""


class Verdict(StrEnum):
    """What a measurement is, beside floor and estimate."""

    IMPOSSIBLE = "impossible"
    """Faster than the floor, or more than arrives."""
    FASTER = "faster than estimated"
    AS_ESTIMATED = "as estimated"
    """Within the band."""
    SLOWER = "slower than estimated"


@frozen
class Measurement:
    """A measured quantity, by its key in the result, in base units."""

    quantity: str
    value: float

    @property
    def is_rate(self) -> bool:
        """Whether more is better."""
        return self.quantity not in _TIMES.values()


@frozen
class Cause:
    """What may have been lost, with the fraction of the gap to the floor that it explains, and the mend."""

    cause: str
    gap_fraction: float | None
    """None where the model cannot tell how much."""
    why: str


@frozen
class Judgement:
    """One measurement. ``limit`` is the floor of a time and the ceiling of a rate.

    ``roofline_fraction`` is how much of what physics allows was reached, ``estimate_fraction`` how much of what was
    estimated: 1 is all of it, and more is faster.
    """

    quantity: str
    measured: float
    estimated: Figure
    limit: float
    roofline_fraction: float
    estimate_fraction: float
    possible: bool
    verdict: Verdict
    text: str
    causes: tuple[Cause, ...]


@frozen
class Suspect:
    """Something that may be otherwise than assumed, with the figure that the model then gives."""

    cause: str
    why: str
    value: float


def parse_measured(texts: Sequence[str], place: str = "--measured") -> tuple[Measurement, ...]:
    """Return the measurements that ``texts`` describe, each ``quantity=value``.

    Raises:
        UsageError: an unknown quantity, a time without a number, or the same quantity twice.

    >>> parse_measured(["tpot=12ms"])
    (Measurement(quantity='tpot_s', value=0.012),)

    """
    found: dict[str, Measurement] = {}
    for text in texts:
        one = _parse(text, place)
        if one.quantity in found:
            raise UsageError(f"{text!r}: {one.quantity} is given twice", place=place, hint="give each once")
        found[one.quantity] = one
    return tuple(found.values())


def _parse(text: str, place: str) -> Measurement:
    name, equals, value = text.partition("=")
    if not equals or not value.strip():
        raise UsageError(f"{text!r} is not quantity=value", place=place, hint=f"write {_EXAMPLES}")
    return measurement(name, value.strip(), given=text, place=place, examples=_EXAMPLES)


def measurement(name: str, value: str, *, given: str, place: str, examples: str) -> Measurement:
    """Return what a quantity's name and its value stand for; errors quote ``given`` and the ``examples``.

    Raises:
        UsageError: an unknown quantity, or a value that is none of it.

    """
    word = name.strip().lower().replace("_", "-")
    word = word.removesuffix("-s") if word.removesuffix("-s") in _TIMES else word
    if word in _TIMES:
        return Measurement(quantity=_TIMES[word], value=_time_s(value, given, place))
    if word in _RATES:
        return Measurement(quantity=_RATES[word], value=_rate(value, given, place))
    raise UsageError(f"{name.strip()!r} is not a quantity that is estimated", place=place, hint=f"write {examples}")


def _time_s(value: str, text: str, place: str) -> float:
    if value[-1].isdigit():
        # The example names their time, unless it is one that no limit can be.
        example = value if any(digit in "123456789" for digit in value) else "500"
        raise UsageError(f"{text!r}: a time without a unit", place=place, hint=f"write {example}ms or {example}s")
    try:
        found = parse_quantity(value, "seconds")
    except ValueError as wrong:
        raise UsageError(f"{text!r}: {wrong}", place=place, hint=f"write {_EXAMPLES}") from None
    if not 0 < found <= _MOST_S:
        raise UsageError(f"{text!r}: out of range", place=place, hint="a time above 0")
    return found


def _rate(value: str, text: str, place: str) -> float:
    try:
        found = float(value.replace(",", "").replace("_", ""))
    except ValueError:
        raise UsageError(f"{text!r}: not a number", place=place, hint=f"write {_EXAMPLES}") from None
    if not 0 < found <= _MOST_PER_S:
        raise UsageError(f"{text!r}: out of range", place=place, hint="a rate above 0")
    return found


def judge(
    measurement: Measurement,
    estimated: Figure,
    *,
    limit: float,
    hard_limit: float,
    offered: float | None = None,
    losses: Sequence[Cause],
    suspects: Callable[[], Sequence[Suspect]],
) -> Judgement:
    """Return what a measurement is, and the likely losses, ranked.

    ``limit`` is the floor (or ceiling) of the load as estimated, ``hard_limit`` that of any load: what is beyond the
    first alone may have had fewer sequences in a step, and the second is its limit. ``offered`` is how much of a rate
    arrives: nothing answers more, however fast it is. ``losses`` are those of the estimate itself, as fractions of the
    measured gap to the floor; ``suspects`` are asked only where it was slower than the band.
    """
    value, rate = measurement.value, measurement.is_rate
    reached = value / limit if rate else limit / value
    hard = value / hard_limit if rate else hard_limit / value
    of_estimate = value / estimated.value if rate else estimated.value / value
    unasked = rate and offered is not None and value > _ARRIVALS * offered
    possible = hard <= _SLIP and not unasked
    fewer = possible and reached > _SLIP
    if fewer:
        reached = hard
    if not possible:
        verdict = Verdict.IMPOSSIBLE
    elif estimated.low <= value <= estimated.high:
        verdict = Verdict.AS_ESTIMATED
    elif of_estimate > 1:
        verdict = Verdict.FASTER
    else:
        verdict = Verdict.SLOWER
    causes: list[Cause] = []
    if possible:
        causes += losses
        if verdict is Verdict.SLOWER:
            causes += [*_ranked(suspects(), value, estimated.value, limit, rate=rate), *_UNTOLD]
    return Judgement(
        quantity=measurement.quantity,
        measured=value,
        estimated=estimated,
        limit=hard_limit if fewer else limit,
        roofline_fraction=reached,
        estimate_fraction=of_estimate,
        possible=possible,
        verdict=verdict,
        text=_text(
            measurement,
            verdict,
            limit=limit,
            hard_limit=hard_limit,
            offered=offered if unasked and hard <= _SLIP else None,
            fewer=fewer,
            estimated=estimated,
        ),
        causes=tuple(causes),
    )


_UNTOLD = (
    Cause(
        cause="a slower machine",
        gap_fraction=None,
        why="power or clock limit, a busy host, a profiler (nvidia-smi -q -d CLOCK,PERFORMANCE)",
    ),
)
"""What the model has no figure for."""


def _ranked(suspects: Sequence[Suspect], measured: float, estimated: float, limit: float, *, rate: bool) -> list[Cause]:
    """Return the suspects by how much of the gap between estimate and measurement each explains, as causes."""
    # Losses are times: those of rates are of their reciprocals.
    measured, estimated, limit = (1 / one if rate else one for one in (measured, estimated, limit))
    gap = measured - limit
    rows = []
    for suspect in suspects:
        value = 1 / suspect.value if rate else suspect.value
        explained = (value - estimated) / (measured - estimated)
        if explained < _LEAST_EXPLAINED:
            continue
        over = "" if explained <= 1 else "; alone it would be more than is missing"
        cause = Cause(
            cause=suspect.cause,
            gap_fraction=min(value - estimated, measured - estimated) / gap,
            why=f"{suspect.why}{over}",
        )
        # What explains all of it and no more comes first.
        rows.append((abs(1 - explained) if explained <= 1 else 0.5 * (explained - 1), cause))
    return [cause for _, cause in sorted(rows, key=lambda row: row[0])]


_LEAST_EXPLAINED = 0.05


def shown(quantity: str, value: float) -> str:
    """Return a value of a quantity with its unit."""
    if quantity in _TIMES.values():
        return format_seconds(value)
    unit = "requests/s" if quantity == "requests_per_s" else "tokens/s"
    return f"{value:,.4g} {unit}" if value < _FOUR_DIGITS else f"{value:,.0f} {unit}"


_FOUR_DIGITS = 1000


def _text(
    measurement: Measurement,
    verdict: Verdict,
    *,
    limit: float,
    hard_limit: float,
    offered: float | None,
    fewer: bool,
    estimated: Figure,
) -> str:
    name = measurement.quantity
    named = {
        "ttft_s": "time to first token",
        "tpot_s": "time per token",
        "e2e_s": "whole request",
        "output_tokens_per_s": "throughput",
    }.get(name, name.replace("_per_s", "/s").replace("_", " "))
    head = f"{named} {shown(name, measurement.value)}"
    kind = "ceiling" if measurement.is_rate else "floor"
    if offered is not None:
        return (
            f"{head} is impossible under this load: {measurement.value / offered:.3g}x the {shown(name, offered)} that "
            "arrive. More requests, or longer answers than stated, would explain it"
        )
    if verdict is Verdict.IMPOSSIBLE:
        times = measurement.value / hard_limit if measurement.is_rate else hard_limit / measurement.value
        return (
            f"{head} is physically impossible: {times:.3g}x faster than the {kind} of {shown(name, hard_limit)}, at "
            "100 % of peak and bandwidth. Drafted tokens, a prompt from the prefix cache, another model, precision or "
            "number of GPUs, or a clock that did not wait for the GPU would explain it"
        )
    told = (
        f"{verdict}, which is {shown(name, estimated.value)} ({shown(name, estimated.low)} to "
        f"{shown(name, estimated.high)})"
    )
    if fewer:
        return (
            f"{head} is possible only with fewer sequences in a step than estimated, whose {kind} is "
            f"{shown(name, limit)}: {_percent(measurement, hard_limit)} of the roofline with one alone ({kind} "
            f"{shown(name, hard_limit)}); {told}"
        )
    return f"{head} is possible: {_percent(measurement, limit)} of the roofline ({kind} {shown(name, limit)}); {told}"


def _percent(measurement: Measurement, limit: float) -> str:
    reached = measurement.value / limit if measurement.is_rate else limit / measurement.value
    return f"{100 * reached:.0f} %"
