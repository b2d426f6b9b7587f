"""``--autoscale``: how replicas come and go, as it is written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.errors import UsageError
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.scaling import Gauge, ScalingRule
from infcalc.units import parse_quantity
from infcalc.workload.written import values_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from infcalc.api.simulation_ask import SimulationAsk

PLACE = "--autoscale"
FORMS = "write min=1,max=8,queue=4,start=60s or max=8,kv=0.8,below=0.3,window=30s,every=5s,pause=60s"
_KEYS = ("min", "max", "queue", "kv", "below", "start", "window", "every", "pause")
_EVERY = "5 s"
"""The load interval of Dynamo's planner."""
_WINDOW = "30 s"
_START = "60 s"
_BELOW = 0.5
"""Of the threshold."""
_MOST_REPLICAS = 1024
_MOST_QUEUE = 1e6
_MOST_S = 1e6


def parse_autoscale(text: str) -> ScalingRule:
    """Return the rule that a text describes.

    ``max`` and one of ``queue`` (requests that wait, per replica) and ``kv`` (share of the cache) must be there. Else:
    ``min=1``, ``below`` half the threshold, ``start=60s``, ``window=30s``, ``every=5s`` (the load interval of Dynamo's
    planner), ``pause`` a window.

    Raises:
        UsageError: it describes none.

    >>> rule = parse_autoscale("max=8,queue=4")
    >>> rule.num_least, rule.num_most, rule.gauge, rule.above, rule.below
    (1, 8, <Gauge.QUEUE: 'queue'>, 4.0, 2.0)

    """
    try:
        return _rule(values_of(text, "autoscaling"))
    except ValueError as wrong:
        raise UsageError(str(wrong), place=PLACE, hint=FORMS) from None


def _rule(values: Mapping[str, str]) -> ScalingRule:
    unknown = [key for key in values if key not in _KEYS]
    if unknown:
        raise ValueError(f"{unknown[0] or values['']!r} is no key: one of {', '.join(_KEYS)}")
    gauges = [one for one in Gauge if one in values]
    if len(gauges) != 1:
        raise ValueError("either queue or kv says when replicas are added" + (", not both" if gauges else ""))
    gauge = gauges[0]
    if "max" not in values:
        raise ValueError("max is missing: how many replicas there may be")
    above = _number(values, gauge.value, _MOST_QUEUE if gauge is Gauge.QUEUE else 1.0)
    window_ps = _time(values, "window", _WINDOW)
    every_ps = _time(values, "every", _EVERY)
    least, most = _whole(values, "min", 1), _whole(values, "max", 1)
    if least > most:
        raise ValueError(f"min={least} is above max={most}")
    below = _number(values, "below", above) if "below" in values else _BELOW * above
    if below >= above:
        raise ValueError(f"below={below:g} must be under {gauge}={above:g}, or replicas come and go")
    if every_ps < 1:
        raise ValueError("every must be above 0")
    if window_ps < every_ps or window_ps % every_ps:
        raise ValueError("the window must be a whole number of looks: once, twice or more of every")
    return ScalingRule(
        num_least=least,
        num_most=most,
        gauge=gauge,
        above=above,
        below=below,
        start_ps=_time(values, "start", _START),
        window_ps=window_ps,
        every_ps=every_ps,
        pause_ps=_time(values, "pause", "0 s"),
    )


def _whole(values: Mapping[str, str], key: str, default: int) -> int:
    text = values.get(key, str(default))
    if not text.isdecimal() or not 1 <= int(text) <= _MOST_REPLICAS:
        raise ValueError(f"{key}={text}: a whole number from 1 to {_MOST_REPLICAS:,}")
    return int(text)


def _number(values: Mapping[str, str], key: str, most: float) -> float:
    try:
        value = float(values[key])
    except ValueError:
        raise ValueError(f"{key}={values[key]}: not a number") from None
    low = "0" if key == "below" else "above 0"
    if not 0 <= value <= most or (key != "below" and not value):
        raise ValueError(f"{key}={values[key]}: {low} and at most {most:g}")
    return value


def _time(values: Mapping[str, str], key: str, default: str) -> int:
    text = values.get(key, default)
    seconds = float(parse_quantity(text if not text[-1:].isdigit() else f"{text} s", "seconds"))
    if not 0 <= seconds <= _MOST_S:
        raise ValueError(f"{key}={text}: from 0 to {_MOST_S:g} s")
    return round(seconds * PS_PER_S)


def check_scaling(asked: SimulationAsk) -> None:
    """Refuse what contradicts autoscaling.

    Raises:
        UsageError: it does.

    """
    if asked.num_replicas is not None:
        raise UsageError(
            "a fixed number of replicas beside autoscaling",
            place="--replicas",
            hint="--autoscale min=...,max=... says how many there are: drop --replicas",
        )
