"""From a text to what was measured: the format by its content, or as it is named."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from infcalc.errors import FileProblem, UsageError
from infcalc.evidence import (
    aiperf,
    aiperf_csv,
    engine_trace,
    guidellm,
    guidellm_csv,
    inference_perf,
    interval_log,
    llama_bench,
    llama_bench_tables,
    metrics,
    serve_text,
    sglang_serve,
    trtllm_bench,
    trtllm_text,
    vllm_offline,
    vllm_serve,
)
from infcalc.evidence.documents import records
from infcalc.evidence.nouns import BenchmarkRun, Evidence, Format, MetricsSnapshot

if TYPE_CHECKING:
    from collections.abc import Callable

_Record = dict[str, Any]
_JSON: Final = re.compile(r"\ufeff?\s*(?:\{\s*(?:[\"}]|$)|\[\s*(?:[\[{\]]|$))")
"""How objects begin, and no line of a log: ``[2026-01-02 ...``."""
_OBJECTS: Final[tuple[tuple[Format, Callable[[_Record], bool], Callable[[_Record, str], BenchmarkRun]], ...]] = (
    (Format.TRTLLM_BENCH, trtllm_bench.is_trtllm_bench, trtllm_bench.read_trtllm_bench),
    (Format.INFERENCE_PERF, inference_perf.is_inference_perf, inference_perf.read_inference_perf),
    (Format.AIPERF, aiperf.is_aiperf, aiperf.read_aiperf),
    (Format.VLLM_SERVE, vllm_serve.is_vllm_serve, vllm_serve.read_vllm_serve),
    (Format.SGLANG_SERVE, sglang_serve.is_sglang_serve, sglang_serve.read_sglang_serve),
    (Format.VLLM_LATENCY, vllm_offline.is_vllm_latency, vllm_offline.read_vllm_latency),
    (Format.VLLM_THROUGHPUT, vllm_offline.is_vllm_throughput, vllm_offline.read_vllm_throughput),
    (Format.LLAMA_BENCH, llama_bench.is_llama_bench, llama_bench.read_llama_bench),
)
"""Formats whose every object is a run."""
_TEXTS: Final[tuple[tuple[Format, Callable[[str], bool], Callable[[str, str], Any]], ...]] = (
    (Format.SERVE_TEXT, serve_text.is_serve_text, serve_text.read_serve_text),
    (Format.TRTLLM_TEXT, trtllm_text.is_trtllm_text, trtllm_text.read_trtllm_text),
    (Format.AIPERF_CSV, aiperf_csv.is_aiperf_csv, aiperf_csv.read_aiperf_csv),
    (Format.GUIDELLM_CSV, guidellm_csv.is_guidellm_csv, guidellm_csv.read_guidellm_csv),
    (Format.LLAMA_BENCH_CSV, llama_bench_tables.is_llama_bench_csv, llama_bench_tables.read_llama_bench_csv),
    (
        Format.LLAMA_BENCH_MARKDOWN,
        llama_bench_tables.is_llama_bench_markdown,
        llama_bench_tables.read_llama_bench_markdown,
    ),
    (Format.PROMETHEUS, metrics.is_metrics, metrics.read_metrics),
    (Format.INTERVAL_LOG, interval_log.is_interval_log, interval_log.read_interval_log),
)
KNOWN: Final = (
    "results of vllm bench serve, latency and throughput, SGLang bench_serving, GuideLLM, AIPerf, genai-perf, "
    "inference-perf, trtllm-bench and llama-bench, /metrics of vLLM and SGLang, and their interval lines"
)


def read_evidence(text: str, place: str, form: Format | None = None) -> tuple[Evidence, ...]:
    """Return what a text measures, a run or a snapshot each; ``place`` is what errors call it.

    ``form`` is the format where it is not to be found out.

    Raises:
        FileProblem: the text is of no format that is known, is cut off, or holds values that are none.

    >>> line = '{"num_prompts": 8, "request_throughput": 2.0, "completed": 8, "duration": 4.0, "mean_ttft_ms": 20.0}'
    >>> run, = read_evidence(line, "result.json")
    >>> run.form.value, run.figure("ttft_s").value
    ('vllm-serve', 0.02)

    """
    named = form is not None
    form = form or sniff(text, place)
    if form is None:
        raise FileProblem("nothing that is known as a measurement", place=place, hint=f"known are {KNOWN}")
    for known, _, read_text in _TEXTS:
        if known is form:
            read = read_text(text, place)
            found: tuple[Evidence, ...] = read if isinstance(read, tuple) else (read,)
            break
    else:
        found = _from_objects(text, place, form, named=named)
    silent = [one for one in found if isinstance(one, BenchmarkRun | MetricsSnapshot) and not one.measured]
    if silent or not found:
        where = silent[0].place if silent else place
        raise FileProblem(f"no figure of {form}", place=where, hint=f"--benchmark-format; known are {KNOWN}")
    return found


def sniff(text: str, place: str) -> Format | None:
    """Return the format of a text by its content; None for one that is not known.

    Raises:
        FileProblem: it begins as the JSON of a benchmark, and is cut off or damaged.

    """
    if _JSON.match(text):
        return _form_of(records(text, place)[0][1])
    return next((form for form, is_it, _ in _TEXTS if is_it(text)), None)


def _form_of(record: _Record) -> Format | None:
    if guidellm.is_guidellm(record):
        return Format.GUIDELLM
    if engine_trace.is_engine_trace(record):
        return Format.ENGINE_TRACE
    return next((form for form, is_it, _ in _OBJECTS if is_it(record)), None)


def _from_objects(text: str, place: str, form: Format, *, named: bool) -> tuple[Evidence, ...]:
    """Return the runs of a JSON text; where the format was found out, each by its own."""
    found = records(text, place)
    if form is Format.ENGINE_TRACE:
        return (engine_trace.read_engine_trace(found, place),)
    runs: list[Evidence] = []
    faults = []
    for number, (line, record) in enumerate(found, start=1):
        one = place if len(found) == 1 else f"{place}, run {number} (line {line})"
        try:
            runs += _runs_of(record, form if named else _form_of(record), one)
        except FileProblem as problem:
            faults.append(problem)
    if faults:
        raise _together(faults, place)
    return tuple(runs)


def _runs_of(record: _Record, form: Format | None, place: str) -> tuple[Evidence, ...]:
    """Return the runs of one object.

    Raises:
        FileProblem: it is no result, or one with values that are none.

    """
    if form is Format.GUIDELLM:
        return guidellm.read_guidellm(record, place)
    read = next((read for known, _, read in _OBJECTS if known is form), None)
    if read is None:
        raise FileProblem("this is no result as the others are", place=place, hint="give results of one kind a file")
    return (read(record, place),)


def _together(problems: list[FileProblem], place: str) -> FileProblem:
    """Return the problems of all runs of a file as one."""
    if len(problems) == 1:
        return problems[0]
    shown = [f"{problem.place}: {problem.message}" for problem in problems[:10]]
    more = f"\n  and {len(problems) - 10:,} more runs" if len(problems) > 10 else ""  # noqa: PLR2004 - as many as are shown
    return FileProblem(
        f"{len(problems):,} runs cannot be read:\n" + "\n".join(shown) + more, place=place, hint=problems[0].hint
    )


def format_of(word: str | None) -> Format | None:
    """Return the format that ``--benchmark-format`` names; None where it is to be found out.

    Raises:
        UsageError: there is no such format.

    """
    if word is None or word.strip().lower() == "auto":
        return None
    try:
        return Format(word.strip().lower().replace("_", "-"))
    except ValueError:
        raise UsageError(
            f"{word!r} is no format of benchmarks", place="--benchmark-format", hint=f"one of {', '.join(Format)}"
        ) from None
