"""The CSV of GuideLLM: a row for each benchmark, under one line of names (0.3) or three (from 0.4 on).

Source: guidellm 0.3.1 benchmark/output.py and 0.5.4 benchmark/outputs/csv.py. Percentiles stand in one cell, as
``[min, 0.1, 1, 5, 10, 25, 75, 90, 95, 99, max]``. What is called time per output token changed with 0.5.
"""

from __future__ import annotations

import json
import re

from infcalc.errors import FileProblem
from infcalc.evidence.fields import MOST_COUNT, Fields, is_blank, number_in, refuse
from infcalc.evidence.gathering import MS, Gathering
from infcalc.evidence.guidellm import inclusive
from infcalc.evidence.nouns import MEAN, MEDIAN, BenchmarkRun, Format, Quantity, StatedLoad
from infcalc.evidence.tables import csv_rows, keyed

_OLD = "Successful Time to first token ms mean"
_NEW = ("Run Info", "Benchmark", "Timings")
_POINTS = ("min", "p0.1", "p1", "p5", "p10", "p25", "p75", "p90", "p95", "p99", "max")
_OLD_NAMES = {
    "request latency": ("Request Latency", "Sec"),
    "time to first token ms": ("Time to First Token", "ms"),
    "time per output token ms": ("Time per Output Token", "ms"),
    "inter token latency ms": ("Inter Token Latency", "ms"),
    "requests per second": ("Server Throughput", "Requests/Sec"),
    "request concurrency": ("Server Throughput", "Concurrency"),
    "prompt token count": ("Token Metrics", "Input Tokens"),
    "output token count": ("Token Metrics", "Output Tokens"),
    "prompt tokens per second": ("Token Throughput", "Input Tokens/Sec"),
    "output tokens per second": ("Token Throughput", "Output Tokens/Sec"),
    "tokens per second": ("Token Throughput", "Total Tokens/Sec"),
}
_TIMES = (
    (Quantity.TTFT, "Time to First Token", "ms", MS),
    (Quantity.TPOT, "Inter Token Latency", "ms", MS),
    (Quantity.E2E, "Request Latency", "Sec", 1.0),
)
_RATES = (
    (Quantity.REQUESTS_PER_S, "Server Throughput", "Requests/Sec"),
    (Quantity.CONCURRENT, "Server Throughput", "Concurrency"),
    (Quantity.INPUT_PER_S, "Token Throughput", "Input Tokens/Sec"),
    (Quantity.OUTPUT_PER_S, "Token Throughput", "Output Tokens/Sec"),
    (Quantity.TOTAL_PER_S, "Token Throughput", "Total Tokens/Sec"),
)
_STRATEGY = re.compile(r"(?P<kind>[a-z]+)(?:@(?P<value>[0-9.]+))?")


def is_guidellm_csv(text: str) -> bool:
    """Return whether a text is such a table."""
    head = text.lstrip("\ufeff \r\n").partition("\n")[0]
    return _OLD in head or (head.startswith(_NEW[0]) and all(word in head for word in _NEW))


def read_guidellm_csv(text: str, place: str) -> tuple[BenchmarkRun, ...]:
    """Return the run of each row.

    Raises:
        FileProblem: values that are none, all of them; rows with more cells or fewer than columns; no row.

    """
    rows, cut = csv_rows(text, place)
    named = [(line, row) for line, row in rows if any(row)]
    old = bool(named) and "Type" in named[0][1]
    heads = 1 if old else 3
    if len(named) <= heads:
        raise FileProblem("no row of the table is whole", place=place, hint="save the file again")
    columns = [_old_name(name) for name in named[0][1]] if old else _new_names([row for _, row in named[:heads]], place)
    faults: list[str] = []
    runs = []
    for line, row in named[heads:]:
        cells = keyed(columns, row, line, place)
        run = Gathering(Format.GUIDELLM_CSV, f"{place}, line {line}")
        if cut:
            run.warnings.append(cut)
        runs.append(_row(run, _Cells(cells, line, faults), old=old))
    refuse(faults, place)
    return tuple(runs)


def _old_name(name: str) -> str:
    match = re.fullmatch(r"Successful (?P<metric>.+?) (?P<statistic>mean|median|std dev|\[min.*\])", name)
    if match is None:
        return {"Successful Requests": "Request Counts|Successful|"}.get(name, name)
    group = _OLD_NAMES.get(match["metric"].lower())
    word = "Percentiles" if match["statistic"].startswith("[") else match["statistic"].title()
    return name if group is None else f"{group[0]}|Successful {group[1]}|{word}"


def _new_names(heads: list[tuple[str, ...]], place: str) -> list[str]:
    if len({len(row) for row in heads}) != 1:
        raise FileProblem("the three lines of names have not the same length", place=place, hint="save the file again")
    return ["|".join(parts) for parts in zip(*heads, strict=True)]


class _Cells:
    """The cells of a row by group, name and statistic."""

    __slots__ = ("_cells", "_faults", "line")

    def __init__(self, cells: dict[str, str], line: int, faults: list[str]) -> None:
        self._cells, self.line, self._faults = cells, line, faults

    def text(self, group: str, name: str, statistic: str = "") -> str:
        return self._cells.get(f"{group}|{name}|{statistic}", self._cells.get(name, ""))

    def number(self, group: str, name: str, statistic: str = "") -> float | None:
        text = self.text(group, name, statistic)
        if is_blank(text):
            return None
        return self._checked(text, f"{group} {name} {statistic}".strip())

    def points(self, group: str, name: str) -> dict[str, float]:
        text = self.text(group, name, "Percentiles")
        if is_blank(text):
            return {}
        parts = text.strip("[]").split(",")
        where = f"{group} {name} Percentiles"
        if len(parts) != len(_POINTS) or not (text.startswith("[") and text.endswith("]")):
            self._faults.append(f"line {self.line}: {where} is {text[:60]!r}, not {len(_POINTS)} numbers")
            return {}
        values = [self._checked(part, where) for part in parts]
        return {point: value for point, value in zip(_POINTS, values, strict=True) if value}

    def _checked(self, text: str, where: str) -> float | None:
        value = number_in(text)
        if value is None or not 0 <= value <= MOST_COUNT:
            self._faults.append(f"line {self.line}: {where} is {text[:40]!r}, not a number from 0 up")
            return None
        return value

    def document(self, group: str, name: str) -> dict[str, object]:
        try:
            found = json.loads(self.text(group, name) or "{}")
        except (ValueError, RecursionError):
            return {}
        return found if isinstance(found, dict) else {}


def _row(run: Gathering, cells: _Cells, *, old: bool) -> BenchmarkRun:
    metadata = cells.document("Runtime Info", "Metadata")
    version = "0.3" if old else str(metadata.get("guidellm_version") or "")
    backend = cells.document("Run Info", "Backend")
    model = backend.get("model")
    run.state("model", model if isinstance(model, str) else "", "Backend")
    for quantity, group, name, unit_s in _TIMES:
        _times(run, cells, quantity, group, name=name, unit_s=unit_s)
    tokens = cells.number("Token Metrics", "Successful Output Tokens", "Mean") or None
    _per_token(run, cells, version, tokens, old=old)
    for quantity, group, name in _RATES:
        value = cells.number(group, f"Successful {name}", "Mean") or None
        run.add(quantity, MEAN, value, f"line {cells.line}, {group} {name}")
    run.convert("inter token latency is (last - first token) / (tokens - 1) of a request: it is tpot_s here")
    completed, failed, total = (cells.number("Request Counts", name) for name in ("Successful", "Errored", "Total"))
    load = _load(
        cells.text("Benchmark", "Strategy") or cells.text("", "Name"),
        cells.document("Run Info", "Profile") or cells.document("", "Profile"),
        None if total is None else int(total),
        cells.number("Token Metrics", "Successful Input Tokens", "Mean") or None,
        tokens,
    )
    if load.requests_per_s is None and load.num_clients is None and not load.unlimited:
        run.missing.append("rate or concurrency of this row: the JSON beside this file states it")
    return run.run(
        load,
        Fields({}),
        num_completed=None if completed is None else int(completed),
        num_failed=None if failed is None else int(failed),
        duration_s=cells.number("Timings", "Duration", "Sec") or cells.number("", "Duration") or None,
    )


def _times(run: Gathering, cells: _Cells, quantity: Quantity, group: str, *, name: str, unit_s: float) -> None:
    where = f"line {cells.line}, {group}"
    for statistic, word in ((MEAN, "Mean"), (MEDIAN, "Median"), ("std", "Std Dev")):
        value = cells.number(group, f"Successful {name}", word)
        run.add(quantity, statistic, value * unit_s if value else None, where)
    for point, value in cells.points(group, f"Successful {name}").items():
        run.add(quantity, point, value * unit_s, where)


def _per_token(run: Gathering, cells: _Cells, version: str, tokens: float | None, *, old: bool) -> None:
    group, name = "Time per Output Token", "ms"
    value = cells.number(group, f"Successful {name}", "Mean")
    if not value:
        return
    with_first = False if old else inclusive(version)
    if with_first is None:
        run.missing.append(f"version of GuideLLM: whether {group} holds the wait for the first token is not known")
    elif with_first:
        _times(run, cells, Quantity.TPOT_INCLUSIVE, group, name=name, unit_s=MS)
        run.convert(f"{group} of GuideLLM {version} holds the wait for the first token: it is tpot_inclusive_s here")
    elif tokens is not None and tokens > 1:
        run.add(Quantity.TPOT, MEAN, value * MS * tokens / (tokens - 1), group, f"{group} x tokens / (tokens - 1)")


def _load(
    strategy: str, profile: dict[str, object], total: int | None, prompt: float | None, answer: float | None
) -> StatedLoad:
    """Return the load of a row: the strategy names the kind, ``concurrent@16`` its value, or a profile."""
    match = _STRATEGY.fullmatch(strategy.strip().lower())
    kind = match["kind"] if match else ""
    value = number_in(match["value"] or "") if match else None
    if value is None and profile.get("strategy_types") in ([kind], None):
        for key in ("streams", "rate"):
            listed = profile.get(key)
            if isinstance(listed, list) and len(listed) == 1 and type(listed[0]) in {int, float} and listed[0] > 0:
                value = float(listed[0])
                break
    lengths = {"num_requests": total, "input_tokens": prompt, "output_tokens": answer}
    match kind:
        case "synchronous":
            return StatedLoad(num_clients=1, **lengths)  # type: ignore[arg-type]
        case "concurrent" if value and value == int(value):
            return StatedLoad(num_clients=int(value), **lengths)  # type: ignore[arg-type]
        case "throughput":
            return StatedLoad(unlimited=True, **lengths)  # type: ignore[arg-type]
        case "constant" | "poisson" if value:
            burstiness = 1.0 if kind == "poisson" else None
            return StatedLoad(requests_per_s=value, burstiness=burstiness, **lengths)  # type: ignore[arg-type]
        case _:
            return StatedLoad(**lengths)  # type: ignore[arg-type]
