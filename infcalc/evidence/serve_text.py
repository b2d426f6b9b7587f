"""What benchmarks print: the block of ``vllm bench serve`` and SGLang's ``bench_serving``, one run for each block.

Source: vLLM benchmarks/serve.py and sglang/bench_serving.py. A block begins with ``Serving Benchmark Result`` and ends
with a line of ``=``; of what stands before it, rate and concurrency are read.
"""

from __future__ import annotations

import re

from infcalc.errors import FileProblem
from infcalc.evidence.fields import Fields, is_blank, number_in, refuse
from infcalc.evidence.gathering import MS, Gathering, is_statistic, statistic_of
from infcalc.evidence.lines import whole_lines
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity, StatedLoad
from infcalc.evidence.serving_keys import engine_of

_HEAD = re.compile(r"=+ (?:\S+ )?Serving Benchmark Result =+")
_END = re.compile(r"\s*={20,}\s*")
_ROW = re.compile(r"\s*(?P<name>[A-Za-z][^:]*?)\s*:\s+(?P<value>\S.*?)\s*")
_TIME = re.compile(r"(?P<statistic>mean|median|max|p[0-9.]+) (?P<name>ttft|tpot|itl|e2el|e2e latency) \(ms\)")
_AHEAD = re.compile(r"(?:Traffic request rate|Maximum request concurrency): .*")
"""What stands before a block and belongs to it."""
_TIMES = {
    "ttft": Quantity.TTFT,
    "tpot": Quantity.TPOT,
    "itl": Quantity.ITL,
    "e2el": Quantity.E2E,
    "e2e latency": Quantity.E2E,
}
_RATES = {
    "request throughput (req/s)": (Quantity.REQUESTS_PER_S, MEAN),
    "request goodput (req/s)": (Quantity.GOODPUT, MEAN),
    "output token throughput (tok/s)": (Quantity.OUTPUT_PER_S, MEAN),
    "peak output token throughput (tok/s)": (Quantity.OUTPUT_PER_S, "max"),
    "input token throughput (tok/s)": (Quantity.INPUT_PER_S, MEAN),
    "total token throughput (tok/s)": (Quantity.TOTAL_PER_S, MEAN),
    "total throughput (tok/s)": (Quantity.TOTAL_PER_S, MEAN),
    "concurrency": (Quantity.CONCURRENT, MEAN),
    "peak concurrent requests": (Quantity.CONCURRENT, "max"),
    "accept length": (Quantity.TOKENS_PER_ROUND, MEAN),
    "acceptance length": (Quantity.TOKENS_PER_ROUND, MEAN),
}
_MOST = 1e10


def is_serve_text(text: str) -> bool:
    """Return whether a text holds such a block."""
    return _HEAD.search(text) is not None


def read_serve_text(text: str, place: str) -> tuple[BenchmarkRun, ...]:
    """Return the run of each block of a text.

    Raises:
        FileProblem: no block, or values that are none.

    """
    lines, cut = whole_lines(text, ends=("=" * 20,))
    starts = [number for number, line in enumerate(lines) if _HEAD.search(line)]
    if not starts:
        raise FileProblem(
            "no block of a serving benchmark is whole", place=place, hint="copy it with its line of = at the end"
        )
    faults: list[str] = []
    runs = []
    before = 0
    for start, after in zip(starts, [*starts[1:], len(lines)], strict=True):
        block = lines[start + 1 : after]
        ahead = [(at + 1, lines[at]) for at in range(before, start) if _AHEAD.fullmatch(lines[at])]
        end = next((number for number, line in enumerate(block) if _END.fullmatch(line)), None)
        one = place if len(starts) == 1 else f"{place}, line {start + 1}"
        doubts = [] if end is not None else ["the block does not end with a line of =: it may be cut off"]
        if cut and after == len(lines) and end is None:
            doubts.append(cut)
        inside = list(enumerate(block if end is None else block[:end], start=start + 2))
        runs.append(_block([*ahead, *inside], one, doubts, faults))
        before = start if end is None else start + 1 + end
    refuse(faults, place)
    return tuple(runs)


def _block(rows: list[tuple[int, str]], place: str, doubts: list[str], faults: list[str]) -> BenchmarkRun:
    run = Gathering(Format.SERVE_TEXT, place)
    run.warnings += doubts
    counts: dict[str, float] = {}
    for number, line in rows:
        match = _ROW.fullmatch(line)
        if match is not None:
            _row(run, match["name"], match["value"], number, counts=counts, faults=faults)
    return _finished(run, counts)


def _row(run: Gathering, said: str, text: str, number: int, *, counts: dict[str, float], faults: list[str]) -> None:
    """Note what one line of a block says."""
    name, where = said.lower(), f"line {number}"
    if name == "backend":
        run.state("engine", engine_of(text), where)
        return
    if text in {"inf", "trace"}:
        counts[f"{name} {text}"] = 1.0
        return
    timed = _TIME.fullmatch(name)
    if (timed is None and name not in _RATES and name not in _COUNTS) or is_blank(text) or text == "not set":
        return
    value = number_in(text)
    if value is None or not 0 <= value < _MOST:
        faults.append(f"{where}: {said} is {text!r}, not a number from 0 up")
    elif timed is not None and value and is_statistic(timed["statistic"]):
        run.add(_TIMES[timed["name"]], statistic_of(timed["statistic"]), value * MS, where)
    elif timed is not None:
        run.missing.append(f"{said} (0)")
    elif name in _RATES and value:
        run.add(*_RATES[name], value, where)
    elif name in _COUNTS:
        counts[_COUNTS[name]] = value


_COUNTS = {
    "successful requests": "completed",
    "failed requests": "failed",
    "maximum request concurrency": "clients",
    "max request concurrency": "clients",
    "request rate configured (rps)": "rate",
    "traffic request rate": "rate",
    "benchmark duration (s)": "duration_s",
    "total input tokens": "input",
    "total generated tokens": "output",
}


def _finished(run: Gathering, counts: dict[str, float]) -> BenchmarkRun:
    completed, failed = (None if name not in counts else int(counts[name]) for name in ("completed", "failed"))
    means = [
        None if name not in counts or not completed else counts[name] / completed or None
        for name in ("input", "output")
    ]
    load = StatedLoad(
        num_requests=None if completed is None else completed + (failed or 0),
        num_clients=int(counts["clients"]) or None if "clients" in counts else None,
        requests_per_s=counts.get("rate") or None,
        unlimited="traffic request rate inf" in counts or "request rate configured (rps) inf" in counts,
        input_tokens=means[0],
        output_tokens=means[1],
        trace="traffic request rate trace" in counts,
    )
    if load.requests_per_s is None and load.num_clients is None and not load.unlimited:
        run.missing.append("rate or concurrency that was asked for: this block prints it only where it was limited")
    return run.run(
        load,
        Fields({}),
        num_completed=completed,
        num_failed=failed,
        duration_s=counts.get("duration_s") or None,
    )
