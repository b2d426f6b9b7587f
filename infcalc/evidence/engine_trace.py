"""Requests as an engine saw them, a JSON line each: when they were queued, first answered, and done.

Source: the recorder of LLMServingSim around vLLM (bench/examples, 2026). Times to the first token count from the
engine's queue: what the client and the front end add is not in them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from infcalc.errors import FileProblem
from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import Gathering
from infcalc.evidence.nouns import MEAN, MEDIAN, BenchmarkRun, Format, Quantity, StatedLoad

if TYPE_CHECKING:
    from collections.abc import Sequence

_KEYS = ("input_toks", "output_toks", "arrival_time", "queued_ts", "first_token_ts", "last_token_ts")


def is_engine_trace(record: dict[str, Any]) -> bool:
    """Return whether an object is a request of such a record."""
    return all(key in record for key in _KEYS)


def read_engine_trace(records: Sequence[tuple[int, dict[str, Any]]], place: str) -> BenchmarkRun:
    """Return all requests as one run.

    Raises:
        FileProblem: values that are none, all of them; a request that ends before it begins.

    """
    run = Gathering(Format.ENGINE_TRACE, place)
    faults: list[str] = []
    rows = [row for line, record in records if (row := _row(line, record, faults)) is not None]
    refuse(faults, place)
    if not rows:
        raise FileProblem("no request got an answer", place=place, hint="record a run whose requests are answered")
    first = [row["first_token_ts"] - row["queued_ts"] for row in rows]
    whole = [row["last_token_ts"] - row["queued_ts"] for row in rows]
    each = [
        (row["last_token_ts"] - row["first_token_ts"]) / (row["output_toks"] - 1)
        for row in rows
        if row["output_toks"] > 1
    ]
    for quantity, values in ((Quantity.TTFT, first), (Quantity.E2E, whole), (Quantity.TPOT, each)):
        for statistic, value in _summary(values).items():
            run.add(quantity, statistic, value, "of all lines", "from the times of each request")
    start, end = min(row["arrival_time"] for row in rows), max(row["arrival_time"] for row in rows)
    begin, done = min(row["queued_ts"] for row in rows), max(row["last_token_ts"] for row in rows)
    tokens = sum(row["output_toks"] for row in rows)
    if done > begin:
        run.add(Quantity.OUTPUT_PER_S, MEAN, tokens / (done - begin), "of all lines", "tokens / (last - first)")
        run.add(Quantity.REQUESTS_PER_S, MEAN, len(rows) / (done - begin), "of all lines", "requests / (last - first)")
    run.convert("times begin at the engine's queue: the front end is not in ttft_s and e2e_s")
    rate = (len(rows) - 1) / (end - start) if end > start and len(rows) > 1 else None
    load = StatedLoad(
        num_requests=len(rows),
        requests_per_s=rate,
        input_tokens=sum(row["input_toks"] for row in rows) / len(rows),
        output_tokens=tokens / len(rows),
        inputs_tokens=tuple(row["input_toks"] for row in rows),
        outputs_tokens=tuple(row["output_toks"] for row in rows),
        trace=True,
    )
    return run.run(load, Fields({}), num_completed=len(rows), duration_s=done - begin if done > begin else None)


def _row(line: int, record: dict[str, Any], faults: list[str]) -> dict[str, float] | None:
    fields = Fields(record, f"line {line}: ", faults)
    values = {key: fields.amount(key) for key in _KEYS}
    if any(value is None for value in values.values()):
        missing = [key for key, value in values.items() if value is None]
        if all(key not in fields for key in missing):
            faults.append(f"line {line}: without {', '.join(missing)}")
        return None
    row = {key: value for key, value in values.items() if value is not None}
    if not row["output_toks"]:
        return None
    if not row["queued_ts"] <= row["first_token_ts"] <= row["last_token_ts"]:
        faults.append(f"line {line}: its times are not in order")
        return None
    return row


def _summary(values: list[float]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    points = {MEDIAN: 0.5, "p90": 0.9, "p99": 0.99}
    return {MEAN: sum(values) / len(values), **{name: _point(ordered, share) for name, share in points.items()}}


def _point(ordered: list[float], share: float) -> float:
    """Return a percentile, linear between neighbours, as numpy does."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
