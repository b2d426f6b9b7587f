"""What ``trtllm-bench`` prints: its report as text. Source: TensorRT-LLM 1.0 to 1.2, bench/dataclasses/reporting.py."""

from __future__ import annotations

import re

from infcalc.errors import FileProblem
from infcalc.evidence.fields import Fields, is_blank, number_in, refuse
from infcalc.evidence.gathering import MS, Gathering
from infcalc.evidence.lines import whole_lines
from infcalc.evidence.nouns import MEAN, MEDIAN, BenchmarkRun, Format, Quantity, StatedLoad

_ROW = re.compile(r"\s*(?P<name>[A-Za-z\[][^:]*?)\s*:\s+(?P<value>\S.*?)\s*")
_SIGNS = ("Request Throughput (req/sec):", "Total Output Throughput (tokens/sec):")
_FIGURES = {
    "request throughput (req/sec)": (Quantity.REQUESTS_PER_S, MEAN, 1.0),
    "total output throughput (tokens/sec)": (Quantity.OUTPUT_PER_S, MEAN, 1.0),
    "total token throughput (tokens/sec)": (Quantity.TOTAL_PER_S, MEAN, 1.0),
    "per user output throughput [w/ ctx] (tps/user)": (Quantity.PER_USER, MEAN, 1.0),
    "average request latency (ms)": (Quantity.E2E, MEAN, MS),
    "average time-to-first-token [ttft] (ms)": (Quantity.TTFT, MEAN, MS),
    "average time-per-output-token [tpot] (ms)": (Quantity.TPOT, MEAN, MS),
}
_POINTS = re.compile(r"\[(?P<name>tpot|ttft|latency)\] (?P<point>p50|p90|p95|p99|minimum|maximum)", re.IGNORECASE)
_OF_POINTS = {"tpot": Quantity.TPOT, "ttft": Quantity.TTFT, "latency": Quantity.E2E}
_STATISTICS = {"p50": MEDIAN, "minimum": "min", "maximum": "max"}
_COUNTS = {
    "number of requests": "num_requests",
    "average input length (tokens)": "input",
    "average output length (tokens)": "output",
    "tp size": "tp",
    "pp size": "pp",
    "ep size": "ep",
    "max runtime batch size": "max_num_seqs",
    "max runtime tokens": "max_num_batched_tokens",
    "total latency (ms)": "duration_ms",
    "number of concurrent requests": "concurrent",
    "issue rate (req/sec)": "rate",
}
_TEXTS = {"model": "model", "tensorrt-llm version": "engine_version", "trt-llm version": "engine_version"}
_RANKS = ("tp", "pp", "ep", "max_num_seqs", "max_num_batched_tokens")
_MOST = 1e16
"""Of a rate at which none is meant: 1.05e15, all at once."""
_ALL_AT_ONCE_PER_S = 1e5


def is_trtllm_text(text: str) -> bool:
    """Return whether a text holds such a report."""
    return any(sign in text for sign in _SIGNS)


def read_trtllm_text(text: str, place: str) -> BenchmarkRun:
    """Return the run of a report.

    Raises:
        FileProblem: no figure, or values that are none.

    """
    lines, cut = whole_lines(text, ends=("====",))
    run = Gathering(Format.TRTLLM_TEXT, place)
    faults: list[str] = []
    counts: dict[str, float] = {}
    for number, line in enumerate(lines, start=1):
        match = _ROW.fullmatch(line)
        if match is not None:
            _row(run, match["name"], match["value"], number, counts=counts, faults=faults)
    refuse(faults, place)
    if run.value(Quantity.REQUESTS_PER_S) is None and run.value(Quantity.OUTPUT_PER_S) is None:
        raise FileProblem("no figure of this report is whole", place=place, hint="copy the whole report")
    if cut:
        run.warnings.append(cut)
    run.state("engine", "tensorrt-llm", "the format")
    for name in _RANKS:
        if counts.get(name):
            run.state(name, int(counts[name]), name)
    run.add(Quantity.CONCURRENT, MEAN, counts.get("concurrent") or None, "number of concurrent requests")
    requests = int(counts["num_requests"]) if counts.get("num_requests") else None
    rate = counts.get("rate") or None
    run.missing.append("cap on requests under way (--concurrency): this report does not print it")
    load = StatedLoad(
        num_requests=requests,
        requests_per_s=rate if rate is not None and rate < _ALL_AT_ONCE_PER_S else None,
        unlimited=rate is None or rate >= _ALL_AT_ONCE_PER_S,
        input_tokens=counts.get("input") or None,
        output_tokens=counts.get("output") or None,
    )
    duration_ms = counts.get("duration_ms")
    return run.run(
        load,
        Fields({}),
        num_completed=requests,
        duration_s=duration_ms * MS if duration_ms else None,
        needed=(Quantity.OUTPUT_PER_S,),
    )


def _row(run: Gathering, name: str, text: str, number: int, *, counts: dict[str, float], faults: list[str]) -> None:
    """Note what one line of the report says."""
    key, where = name.lower(), f"line {number}"
    if key in _TEXTS:
        run.state(_TEXTS[key], text, where)
        return
    point = _POINTS.search(name)
    if (point is None and key not in _FIGURES and key not in _COUNTS) or is_blank(text):
        return
    value = number_in(text)
    if value is None or not 0 <= value <= _MOST:
        faults.append(f"{where}: {name} is {text!r}, not a number from 0 up")
    elif key in _FIGURES and value:
        quantity, statistic, scale = _FIGURES[key]
        run.add(quantity, statistic, value * scale, where)
    elif point is not None and value:
        statistic = point["point"].lower()
        run.add(_OF_POINTS[point["name"].lower()], _STATISTICS.get(statistic, statistic), value * MS, where)
    elif key in _COUNTS:
        counts.setdefault(_COUNTS[key], value)
