"""The CSV of AIPerf and of genai-perf: a table of metrics by statistic, a blank line, a table of single values.

Source: aiperf 0.13.0, genai-perf 0.0.16. Units stand behind the names: ``Time To First Token (ms)``.
"""

from __future__ import annotations

import re

from infcalc.errors import FileProblem
from infcalc.evidence.aiperf import ITL_SAID, RATES, TIMES, UNITS_S
from infcalc.evidence.fields import MOST_PER_S, MOST_S, Fields, is_blank, number_in, refuse
from infcalc.evidence.gathering import Gathering, is_statistic, statistic_of
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity, StatedLoad
from infcalc.evidence.tables import csv_rows, keyed

_NAME = re.compile(r"(?P<name>[^()]+?)\s*(?:\((?P<unit>[^()]*)\))?")
_LENGTHS = {"input_sequence_length": "input", "output_sequence_length": "output"}
_COUNTS = {"request_count": "completed", "error_request_count": "failed", "benchmark_duration": "duration_s"}


def is_aiperf_csv(text: str) -> bool:
    """Return whether a text is such a table."""
    head = text.lstrip("\ufeff \r\n").lower()
    return head.startswith("metric,avg,min,max,")


def read_aiperf_csv(text: str, place: str) -> BenchmarkRun:
    """Return the run of a table.

    Raises:
        FileProblem: values that are none, all of them; rows with more cells or fewer than columns.

    """
    rows, cut = csv_rows(text, place)
    run = Gathering(Format.AIPERF_CSV, place)
    faults: list[str] = []
    counts: dict[str, float] = {}
    header: tuple[str, ...] = ()
    for line, row in rows:
        if not any(row):
            header = ()
            continue
        if row[0].lower() == "metric":
            header = tuple(cell.lower() for cell in row)
            continue
        if header:
            _row(run, keyed(header, row, line, place), line, counts, faults)
    refuse(faults, place)
    if cut:
        run.warnings.append(cut)
    if not counts and run.value(Quantity.E2E) is None:
        raise FileProblem("no row of the table is whole", place=place, hint="save the file again")
    run.convert(ITL_SAID)
    run.missing.append("rate or concurrency that was asked for: the JSON beside this file states it")
    completed, failed = (int(counts[name]) if name in counts else None for name in ("completed", "failed"))
    load = StatedLoad(
        num_requests=None if completed is None else completed + (failed or 0),
        input_tokens=counts.get("input") or None,
        output_tokens=counts.get("output") or None,
    )
    return run.run(
        load,
        Fields({}),
        num_completed=completed,
        num_failed=failed,
        duration_s=counts.get("duration_s") or None,
    )


def _row(run: Gathering, row: dict[str, str], line: int, counts: dict[str, float], faults: list[str]) -> None:
    match = _NAME.fullmatch(row["metric"])
    if match is None:
        return
    name, unit = match["name"].strip().lower().replace(" ", "_"), (match["unit"] or "").lower()
    if not (name in TIMES or name in RATES or name in _LENGTHS or name in _COUNTS):
        return
    numbers = _numbers(row, line, faults)
    mean = numbers.get("avg", numbers.get("value"))
    if name in TIMES:
        _times(run, TIMES[name], numbers, UNITS_S.get(unit), row["metric"], line=line, faults=faults)
    elif name in RATES and mean:
        run.add(RATES[name], MEAN, mean, f"line {line}")
    elif name in _LENGTHS and mean is not None:
        counts[_LENGTHS[name]] = mean
    elif name in _COUNTS and mean is not None:
        counts[_COUNTS[name]] = mean * (UNITS_S.get(unit, 1.0) if name == "benchmark_duration" else 1.0)


def _numbers(row: dict[str, str], line: int, faults: list[str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, cell in row.items():
        if key == "metric" or is_blank(cell):
            continue
        value = number_in(cell)
        if value is None or not 0 <= value <= MOST_PER_S:
            faults.append(f"line {line}: {key} of {row['metric']} is {cell!r}, not a number from 0 up")
        else:
            found[key] = value
    return found


def _times(
    run: Gathering,
    quantity: Quantity,
    numbers: dict[str, float],
    unit_s: float | None,
    metric: str,
    *,
    line: int,
    faults: list[str],
) -> None:
    if unit_s is None:
        faults.append(f"line {line}: {metric} has no unit that is known (ms, s, us, ns)")
        return
    for key, value in numbers.items():
        seconds = value * unit_s
        if is_statistic(key) and 0 < seconds <= MOST_S:
            run.add(quantity, statistic_of(key), seconds, f"line {line}, {key}")
