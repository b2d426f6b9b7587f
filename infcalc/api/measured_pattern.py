"""Which one cause, otherwise than assumed, would explain the misses of several runs of one deployment?

One run does not tell bandwidth from overhead. Of several at different loads, each cause makes its own pattern: what a
step takes for bytes hardly grows with the batch, what it takes for arithmetic does, and overhead stays.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.evidence.nouns import MEAN, Quantity
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from infcalc.api.measured_causes import Loss
    from infcalc.api.measured_comparing import Compared
    from infcalc.api.measured_nouns import RunComparison

_LEAST_RUNS = 3
_LEAST_SPREAD = 1.5
"""Between the fewest and the most sequences in a step, for loads to be told apart."""
_HALVED = 0.6
_CLEAR = 1.25
"""How much worse the next cause explains them, for the first to be named alone."""
_CLOSE = 0.02
"""Misses as small as the scatter of runs need no cause."""


@frozen
class Pattern:
    """A cause that explains misses: how many times what is assumed of it, and the root mean square of errors."""

    cause: Loss
    factor_fraction: float
    before_fraction: float
    after_fraction: float


def pattern_notes(made: Sequence[Compared]) -> list[str]:
    """Return what the misses of one file's runs point to."""
    from infcalc.api.measured_nouns import RunComparison  # noqa: PLC0415 - only here

    return pattern_of([one.result for one in made if isinstance(one.result, RunComparison)])


def pattern_of(results: Iterable[RunComparison]) -> list[str]:
    """Return in words, for each deployment of several runs, which cause explains its misses in time per token."""
    groups: dict[tuple[object, ...], list[RunComparison]] = {}
    for one in results:
        key = (one.model, one.gpu, one.num_gpus, one.engine, one.engine_version, one.weights, one.kv_dtype)
        groups.setdefault(key, []).append(one)
    found = []
    for (model, gpu, number, *_), members in groups.items():
        rows = [row for one in members if (row := _row(one)) is not None]
        text = _told(rows)
        if text:
            found.append(f"over the {len(rows)} runs of {model} on {number} x {gpu}: {text}")
    return found


_Row = tuple[float, float, dict["Loss", float], float]
"""Measured and predicted time per token, the causes of the latter in seconds, and sequences in a step."""


def _row(one: RunComparison) -> _Row | None:
    line = next((line for line in one.lines if line.quantity == Quantity.TPOT and line.statistic == MEAN), None)
    if line is None or line.predicted is None or not one.token_shares or line.roofline_fraction is None:
        return None
    if line.roofline_fraction > 1 or not one.batch:
        return None
    return line.measured, line.predicted, {share.cause: share.time_s for share in one.token_shares}, one.batch


def _told(rows: Sequence[_Row]) -> str:
    if len(rows) < _LEAST_RUNS:
        return ""
    sizes = [size for *_, size in rows]
    before = _rms([measured - predicted for measured, predicted, *_ in rows], rows)
    if before <= _CLOSE:
        return f"time per token is predicted within {max(before, 0.001):.1%} (root mean square)"
    if max(sizes) < _LEAST_SPREAD * min(sizes):
        return "their loads are too much alike to tell bandwidth from overhead: run other concurrencies"
    ranked = patterns(rows)
    if not ranked:
        return ""
    first = ranked[0]
    if first.after_fraction > _HALVED * first.before_fraction:
        return f"no single cause explains their misses in time per token ({first.before_fraction:.0%} root mean square)"
    rivals = [one for one in ranked[1:] if one.after_fraction < _CLEAR * first.after_fraction]
    names = " or ".join(f"{one.cause} at {one.factor_fraction:.2f} times what is assumed" for one in (first, *rivals))
    return (
        f"{names} would explain their misses in time per token: {first.before_fraction:.0%} to "
        f"{first.after_fraction:.0%} (root mean square)"
    )


def patterns(rows: Sequence[_Row]) -> list[Pattern]:
    """Return for each cause the factor on its time that explains the misses best (least squares), the best first.

    Misses are relative to what was measured. A factor below 0 is no time, and is taken as 0.
    """
    before = _rms([measured - predicted for measured, predicted, *_ in rows], rows)
    found = []
    for cause in sorted({cause for _, _, causes, _ in rows for cause in causes}):
        parts = [causes.get(cause, 0.0) / measured for measured, _, causes, _ in rows]
        misses = [(measured - predicted) / measured for measured, predicted, *_ in rows]
        weight = sum(part * part for part in parts)
        if not weight:
            continue
        more = max(-1.0, sum(part * miss for part, miss in zip(parts, misses, strict=True)) / weight)
        left = [miss - more * part for part, miss in zip(parts, misses, strict=True)]
        after = math.sqrt(sum(one * one for one in left) / len(left))
        found.append(Pattern(cause=cause, factor_fraction=1 + more, before_fraction=before, after_fraction=after))
    return sorted(found, key=lambda one: one.after_fraction)


def _rms(misses: Sequence[float], rows: Sequence[_Row]) -> float:
    return math.sqrt(sum((miss / row[0]) ** 2 for miss, row in zip(misses, rows, strict=True)) / len(rows))
