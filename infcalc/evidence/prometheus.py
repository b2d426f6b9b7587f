"""Prometheus text: samples with labels, scrape by scrape. Source: the exposition format, 0.0.4.

A series that comes again begins the next scrape, so that scrapes may lie one behind the other in one file.
"""

from __future__ import annotations

import math
import re

from infcalc.evidence.lines import whole_lines
from infcalc.evidence.nouns import Sample

_SAMPLE = re.compile(
    r"(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)\s*(?:\{(?P<labels>.*)\})?\s+(?P<value>[^\s{}]+)(?:\s+-?[0-9]+)?\s*"
)
_LABEL = re.compile(r'\s*(?P<name>[A-Za-z_][A-Za-z0-9_]*)\s*=\s*"(?P<value>(?:[^"\\]|\\.)*)"\s*(?:,|$)')
_VALUE = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|inf|nan)", re.IGNORECASE)


def scrapes(text: str, faults: list[str]) -> tuple[tuple[tuple[Sample, ...], ...], str]:
    """Return the samples of each scrape, and what is to be said of a last line that is cut; ``faults`` are added."""
    lines, cut = whole_lines(text)
    found: list[tuple[Sample, ...]] = []
    current: list[Sample] = []
    seen: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for number, line in enumerate(lines, start=1):
        plain = line.strip()
        if not plain or plain.startswith("#"):
            continue
        sample = _sample(plain)
        if sample is None:
            faults.append(f'line {number}: {plain[:60]!r} is no sample: name{{label="value"}} number')
            continue
        series = (sample.name, sample.labels)
        if series in seen:
            found.append(tuple(current))
            current, seen = [], set()
        seen.add(series)
        current.append(sample)
    if current:
        found.append(tuple(current))
    return tuple(found), cut


def _sample(line: str) -> Sample | None:
    match = _SAMPLE.fullmatch(line)
    if match is None or not _VALUE.fullmatch(match["value"]):
        return None
    labels = _labels(match["labels"] or "")
    return None if labels is None else Sample(name=match["name"], labels=labels, value=float(match["value"]))


def _labels(text: str) -> tuple[tuple[str, str], ...] | None:
    found, position = [], 0
    while position < len(text.rstrip(", ")):
        match = _LABEL.match(text, position)
        if match is None:
            return None
        found.append((match["name"], match["value"].replace('\\"', '"').replace("\\n", "\n").replace("\\\\", "\\")))
        position = match.end()
    return tuple(sorted(found))


def quantile(buckets: dict[float, float], share: float) -> float | None:
    """Return a quantile of a histogram's cumulative ``buckets`` (upper bound to count), linear within a bucket.

    None where there is nothing, or where it lies beyond the last bound. As PromQL's ``histogram_quantile`` does.

    >>> quantile({1.0: 2.0, 2.0: 4.0, math.inf: 4.0}, 0.75)
    1.5
    """
    bounds = sorted(buckets)
    total = buckets[bounds[-1]] if bounds else 0.0
    if total <= 0:
        return None
    wanted, low, before = share * total, 0.0, 0.0
    for bound in bounds:
        count = buckets[bound]
        if count >= wanted:
            if math.isinf(bound):
                return None
            return low + (bound - low) * ((wanted - before) / (count - before) if count > before else 1.0)
        low, before = bound, count
    return None
