"""What happened between scrapes of one server: counters and histograms less what they stood at, gauges as a mean."""

from __future__ import annotations

from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Final

from infcalc.evidence.metrics import SHARES, snapshot_of
from infcalc.evidence.nouns import MetricsSnapshot, Quantity, Sample

if TYPE_CHECKING:
    from collections.abc import Sequence

    _Series = tuple[str, tuple[tuple[str, str], ...]]

_COUNTED: Final = ("_total", "_count", "_sum", "_bucket")
_COUNTED_NAMES: Final = frozenset({"num_preemptions"})
"""Counters of early releases, without their ending."""
_USAGES: Final = frozenset(
    name for table in SHARES.values() for quantity, names in table if quantity is Quantity.KV_USAGE for name in names
)


def between(scrapes: Sequence[MetricsSnapshot]) -> MetricsSnapshot | None:
    """Return what happened between the first and the last of several scrapes, in order.

    Counts and histograms are those of the time between; gauges are means over the scrapes, of the use of the cache the
    greatest. None where there is one scrape alone, or where a count fell: the engine was started anew.
    """
    if len(scrapes) < 2:  # noqa: PLR2004 - a difference needs two
        return None
    first, last = _series(scrapes[0]), _series(scrapes[-1])
    values = [_series(one) for one in scrapes]
    samples = []
    for series, now in last.items():
        name, labels = series
        if is_counter(name):
            value = now - first.get(series, 0.0)
            if value < 0:
                return None
        else:
            told = [one[series] for one in values if series in one]
            value = max(told) if name in _USAGES else fmean(told)
        samples.append(Sample(name=name, labels=labels, value=value))
    faults: list[str] = []
    found = snapshot_of(scrapes[-1].engine, scrapes[-1].model, samples, scrapes[-1].place, faults)
    return None if faults else replace(found, warnings=scrapes[-1].warnings)


def is_counter(name: str) -> bool:
    """Return whether a metric counts from the start of the engine.

    >>> is_counter("prompt_tokens_total"), is_counter("num_requests_running")
    (True, False)
    """
    return name.endswith(_COUNTED) or name in _COUNTED_NAMES


def _series(snapshot: MetricsSnapshot) -> dict[_Series, float]:
    return {(one.name, one.labels): one.value for one in snapshot.samples}
