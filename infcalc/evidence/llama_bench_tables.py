"""The CSV and the Markdown table of ``llama-bench``: a row for each test. Source: llama.cpp tools/llama-bench.

The CSV has the keys of the JSON as columns; Markdown, the default, names the test ``pp512``, ``tg128``,
``pp512+tg128``, each with ``@ d4096`` behind it where the cache held tokens, and the rate as ``1234.5 ± 6.7``.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

from infcalc.errors import FileProblem
from infcalc.evidence.fields import Fields, number_in, refuse
from infcalc.evidence.gathering import Gathering
from infcalc.evidence.llama_bench import read_llama_bench, tested, weights_of
from infcalc.evidence.nouns import BenchmarkRun, Format
from infcalc.evidence.tables import csv_rows, keyed, markdown_rows

_TEST = re.compile(r"(?:pp(?P<prompt>[0-9]+))?\+?(?:tg(?P<answer>[0-9]+))?(?:\s*@\s*d(?P<depth>[0-9]+))?")
_RATE = re.compile(r"(?P<mean>[0-9.]+)\s*(?:±|\+/-)\s*[0-9.]+")
_BUILD = re.compile(r"build: [0-9a-f]+ \((?P<number>[0-9]+)\)")
_TEXTS = frozenset({"model_filename", "model_type", "gpu_info", "type_k", "type_v", "cpu_info", "build_commit"})


def is_llama_bench_csv(text: str) -> bool:
    """Return whether a text is its CSV."""
    head = text.lstrip("\ufeff \r\n").partition("\n")[0]
    return "build_commit" in head and "avg_ts" in head and "," in head


def is_llama_bench_markdown(text: str) -> bool:
    """Return whether a text holds its table."""
    return re.search(r"^\s*\|.*\|\s*test\s*\|.*t/s\s*\|", text, re.MULTILINE) is not None


def read_llama_bench_csv(text: str, place: str) -> tuple[BenchmarkRun, ...]:
    """Return the run of each row.

    Raises:
        FileProblem: values that are none; rows with more cells or fewer than columns; no row.

    """
    rows, cut = csv_rows(text, place)
    named = [(line, row) for line, row in rows if any(row)]
    if len(named) <= 1:
        raise FileProblem("no row of the table is whole", place=place, hint="save the file again")
    header = named[0][1]
    runs = []
    for line, row in named[1:]:
        cells = keyed(header, row, line, place)
        record = {key: cell if key in _TEXTS else _value(cell) for key, cell in cells.items()}
        runs.append(_as(Format.LLAMA_BENCH_CSV, read_llama_bench(record, f"{place}, line {line}"), cut))
    return tuple(runs)


def read_llama_bench_markdown(text: str, place: str) -> tuple[BenchmarkRun, ...]:
    """Return the run of each row.

    Raises:
        FileProblem: values that are none; rows with more cells or fewer than columns; no row.

    """
    rows, cut = markdown_rows(text)
    build = _BUILD.search(text)
    header: tuple[str, ...] = ()
    faults: list[str] = []
    runs = []
    for line, row in rows:
        if "test" in row and "t/s" in row:
            header = row
            continue
        if not header:
            continue
        cells = keyed(header, row, line, place)
        test, rate = _TEST.fullmatch(cells["test"]), _RATE.fullmatch(cells["t/s"])
        if test is None or rate is None or number_in(rate["mean"]) is None:
            faults.append(f"line {line}: test {cells['test']!r} with t/s {cells['t/s']!r} is no result")
            continue
        run = Gathering(Format.LLAMA_BENCH_MARKDOWN, f"{place}, line {line}")
        fields = Fields({}, "", faults)
        load = tested(
            run,
            fields,
            num_prompt=int(test["prompt"] or 0),
            num_answer=int(test["answer"] or 0),
            depth=int(test["depth"] or 0),
            tokens_per_s=number_in(rate["mean"]) or None,
            key=f"line {line}",
        )
        run.state("model", cells.get("model", ""), "model")
        run.state("weights", weights_of(cells.get("model", "")), "model")
        run.state("kv_dtype", cells.get("type_k", ""), "type_k")
        run.state("engine_version", f"b{build['number']}" if build else "", "build")
        if cut:
            run.warnings.append(cut)
        runs.append(run.run(load, fields, needed=()))
    refuse(faults, place)
    if not runs:
        raise FileProblem("no row of the table is whole", place=place, hint="copy the table with its head")
    return tuple(runs)


def _value(cell: str) -> object:
    """Return a cell as JSON would have it: numbers as numbers, the rest as text."""
    try:
        return json.loads(cell)
    except (ValueError, RecursionError):
        return cell


def _as(form: Format, run: BenchmarkRun, cut: str) -> BenchmarkRun:
    return replace(run, form=form, warnings=(*run.warnings, *((cut,) if cut else ())))
