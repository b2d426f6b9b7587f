"""``--slo``: what a load must keep to, as far as a model of means can tell."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from infcalc.api.judging import measurement, shown
from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.api.offer import Figure

_NAME = re.compile(r"^\s*([a-z0-9_-]+?)(?:[-_](p[0-9]{1,2}(?:\.[0-9]+)?|mean|median))?\s*=\s*(.*)$", re.IGNORECASE)
_MEAN, _MEDIAN = "mean", "p50"
_EXAMPLES = "ttft=500ms, tpot-p95=50ms (p1 to p99.9), e2e=10s, output-tokens-per-s=900 or requests-per-s=3"


@frozen
class Objective:
    """A limit on a time, of the mean or of a percentile over the requests; of a rate, its least."""

    quantity: str
    statistic: str
    limit: float


@frozen
class Outcome:
    """An objective with what is estimated; ``met`` by the value, ``certain`` by the whole band."""

    quantity: str
    statistic: str
    limit: float
    value: float | None
    """None where the load is beyond saturation."""
    met: bool
    certain: bool
    """Whether the whole band lies on the same side of the limit."""
    text: str


def parse_slo(texts: tuple[str, ...]) -> tuple[Objective, ...]:
    """Return the objectives of ``--slo``.

    Raises:
        UsageError: one is none.

    >>> parse_slo(("ttft=500ms",))
    (Objective(quantity='ttft_s', statistic='mean', limit=0.5),)

    """
    found = []
    for text in texts:
        match = _NAME.match(text)
        if match is None:
            raise UsageError(f"{text!r} is not an objective", place="--slo", hint="write ttft=500ms,tpot=50ms")
        statistic = (match[2] or _MEAN).lower()
        if not match[3].strip():
            raise UsageError(f"{text!r} is an objective without a limit", place="--slo", hint=f"write {_EXAMPLES}")
        limit = measurement(match[1], match[3].strip(), given=text, place="--slo", examples=_EXAMPLES)
        found.append(
            Objective(
                quantity=limit.quantity, statistic=_MEDIAN if statistic == "median" else statistic, limit=limit.value
            )
        )
    return tuple(found)


def check_statistics(objectives: tuple[Objective, ...], *, finite: bool, alike: bool) -> None:
    """Refuse percentiles that a model of means cannot give.

    ``finite``: a run whose requests are followed, so that it has a median. ``alike``: every request has the same times.

    Raises:
        UsageError: a percentile is asked that takes a simulation.

    """
    for objective in objectives:
        known = alike or objective.statistic == _MEAN or (finite and objective.statistic == _MEDIAN)
        if not known:
            name = objective.quantity.removesuffix("_s")
            raise UsageError(
                f"{name}-{objective.statistic}: this load has means only, a percentile over its requests takes a "
                "simulation of them",
                place="--slo",
                hint=f"write {name}=... for the mean; in a --batch of fixed lengths all requests are alike",
            )


def outcome(objective: Objective, figure: Figure | None) -> Outcome:
    """Return whether an objective is met."""
    limit, rate = objective.limit, not objective.quantity.endswith("_s") or objective.quantity.endswith("_per_s")
    name = f"{objective.statistic} {objective.quantity.removesuffix('_s').replace('_', ' ')}"
    if figure is None:
        text = f"{name}: not met, requests arrive faster than they are answered"
        return Outcome(
            quantity=objective.quantity,
            statistic=objective.statistic,
            limit=limit,
            value=None,
            met=False,
            certain=True,
            text=text,
        )
    met = figure.value >= limit if rate else figure.value <= limit
    worst = figure.low >= limit if rate else figure.high <= limit
    best = figure.high >= limit if rate else figure.low <= limit
    sign = ">=" if rate else "<="
    text = (
        f"{name} {sign} {shown(objective.quantity, limit)}: {'met' if met else 'not met'} with "
        f"{shown(objective.quantity, figure.value)} ({shown(objective.quantity, figure.low)} to "
        f"{shown(objective.quantity, figure.high)})"
    )
    return Outcome(
        quantity=objective.quantity,
        statistic=objective.statistic,
        limit=limit,
        value=figure.value,
        met=met,
        certain=worst == best,
        text=text,
    )
