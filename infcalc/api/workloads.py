"""``infcalc workload``: what is in a trace, and traces made from arrivals, lengths, shared prefixes and sessions."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer
from infcalc.api.ranges import check_range
from infcalc.api.workload_ask import MAX_REQUESTS, WorkloadAsk, recipe_of, seed_of, times_of
from infcalc.errors import FileProblem, UsageError
from infcalc.files import check_target, read_trace_text, write_text
from infcalc.frozen import frozen
from infcalc.spec.explain import Explanation, Input
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.workload.description import Interval, LengthSummary, Rates
    from infcalc.workload.reading import Reading
    from infcalc.workload.trace import Trace


@frozen
class WorkloadResult:
    """What a trace holds.

    ``rate_per_s`` is one over the mean gap between arrivals, ``burstiness_cv`` the coefficient of variation of the gaps
    (Poisson: 1), ``burstiness`` the same as vLLM's benchmark takes it, ``count_dispersion`` the variance over the mean
    of requests per second (Poisson: 1); None where there are no times. ``prefix_share_fraction`` is the share of prompt
    tokens that an endless prefix cache would find, ``prefix_share_requests_fraction`` that of requests with any.
    ``like`` are options that make a similar trace.
    """

    trace_format: str
    requests: int
    sessions: int
    duration_s: float
    rate_per_s: float | None
    peak_rate_per_s: float | None
    burstiness_cv: float | None
    burstiness: float | None
    count_dispersion: float | None
    concurrency: int | None
    input_tokens: LengthSummary
    output_tokens: LengthSummary
    prefix_share_fraction: float
    prefix_share_requests_fraction: float
    left_out: int
    over_time: tuple[Interval, ...]
    like: str


def workload(ask: WorkloadAsk | None = None, *, explain: bool = False) -> Answer[WorkloadResult]:
    """Describe the trace of a file, or one that is made; with ``save_trace`` also write it.

    What is described is there where the trace then cannot be written: ``unsaved`` of the answer holds why.

    Raises:
        UsageError: options that say no load, or that contradict each other.
        FileProblem: a file that cannot be read, or a place where none can be written.
        TraceError: a file with lines that are no requests, all of them named.

    """
    ask = WorkloadAsk() if ask is None else ask
    if ask.save_trace is not None:
        check_target(ask.save_trace)
    traced = traced_of(ask)
    answer = _described(traced, explain=explain)
    if ask.save_trace is not None:
        try:
            save_trace(traced.trace, ask.save_trace)
        except FileProblem as problem:
            return replace(answer, unsaved=(problem,))
    return answer


@frozen
class Traced:
    """A trace that was asked for: where it comes from, and what is to be said of it.

    ``trace_format`` is ``generated`` where it was made.
    """

    trace: Trace
    trace_format: str
    inputs: tuple[Input, ...]
    assumptions: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    reading: Reading | None = None


def traced_of(ask: WorkloadAsk) -> Traced:
    """Return the trace of a file, or one that is made.

    Raises:
        UsageError, FileProblem, TraceError: as :func:`workload`.

    """
    if ask.speedup is not None and not 0 < ask.speedup <= _MAX_SPEEDUP:
        raise UsageError(f"{ask.speedup:g} is out of range", place="--speedup", hint="above 0; 2 is twice the rate")
    check_range("--num-requests", ask.num_requests, most=MAX_REQUESTS)
    seed = seed_of(ask)
    if ask.file is None:
        trace, inputs, assumptions = _made(ask, seed)
        return Traced(trace=trace, trace_format="generated", inputs=inputs, assumptions=assumptions)
    trace, reading, inputs, assumptions = _read(ask, seed)
    return Traced(
        trace=trace,
        trace_format=str(reading.form),
        inputs=inputs,
        assumptions=assumptions,
        warnings=_warnings(reading, trace),
        reading=reading,
    )


_MAX_SPEEDUP = 1e6


def _made(ask: WorkloadAsk, seed: int) -> tuple[Trace, tuple[Input, ...], tuple[str, ...]]:
    if ask.speedup is not None or ask.trace_format is not None:
        option = "--speedup" if ask.speedup is not None else "--trace-format"
        raise UsageError("there is no file", place=option, hint="name a trace, or leave the option out")
    recipe, inputs = recipe_of(ask)
    import numpy as np  # noqa: PLC0415 - what is refused needs no numpy

    from infcalc.workload.generation import generated  # noqa: PLC0415

    try:
        trace = generated(recipe, np.random.default_rng(seed))
    except ValueError as wrong:
        raise UsageError(str(wrong), place="--turns", hint="leave one of the two out") from None
    assumptions = ["lengths and gaps are independent of one another"]
    if trace.sharing is not None:
        assumptions.append(
            "--input-tokens is a request's own text; a shared prefix and what was said in its session come before it"
        )
    if trace.turns is not None:
        assumptions.append(
            "arrivals are those of sessions; a later turn is counted at the earliest, with answers that take no time"
        )
    seeded = Input(name="seed", value=seed, origin="default" if ask.seed is None else "given")
    return trace, (*inputs, seeded), tuple(assumptions)


def _read(ask: WorkloadAsk, seed: int) -> tuple[Trace, Reading, tuple[Input, ...], tuple[str, ...]]:
    import numpy as np  # noqa: PLC0415

    from infcalc.workload.generation import faster, first_requests, with_arrivals  # noqa: PLC0415
    from infcalc.workload.reading import read_trace  # noqa: PLC0415
    from infcalc.workload.trace_formats import TraceFormat  # noqa: PLC0415

    path = ask.file or "-"
    form = None
    if ask.trace_format is not None:
        try:
            form = TraceFormat(ask.trace_format.lower())
        except ValueError:
            hint = f"one of {', '.join(TraceFormat)}"
            raise UsageError(f"{ask.trace_format!r} is no format", place="--trace-format", hint=hint) from None
    arrivals, timed = times_of(ask, for_file=True)
    reading = read_trace(read_trace_text(path), "standard input" if path == "-" else path, form)
    trace = reading.trace if ask.num_requests is None else first_requests(reading.trace, ask.num_requests)
    assumptions = []
    inputs = [Input(name="trace", value="standard input" if path == "-" else path, origin="given")]
    inputs.append(Input(name="format", value=str(reading.form), origin="by its content" if form is None else "given"))
    if ask.num_requests is not None:
        inputs.append(Input(name="num_requests", value=ask.num_requests, origin="given"))
    if arrivals is not None:
        try:
            trace = with_arrivals(trace, arrivals, np.random.default_rng(seed))
        except ValueError as wrong:
            raise UsageError(str(wrong), place="--arrivals", hint="leave it out, or let sessions arrive") from None
        inputs += [*timed, Input(name="seed", value=seed, origin="default" if ask.seed is None else "given")]
        assumptions.append("times of arrival are drawn anew; order and lengths are those of the file")
    if ask.speedup is not None:
        trace = faster(trace, ask.speedup)
        inputs.append(Input(name="speedup", value=ask.speedup, origin="given"))
    if reading.block_tokens:
        assumptions.append(f"hash_ids name blocks of {reading.block_tokens} tokens, each with all blocks before it")
    elif trace.sharing is None:
        assumptions.append("the trace does not say what prompts have in common: counted as nothing")
    if trace.turns is not None:
        assumptions.append("a later turn is counted at the earliest, with answers that take no time")
    return trace, reading, tuple(inputs), tuple(assumptions)


def _warnings(reading: Reading, trace: Trace) -> tuple[str, ...]:
    found = []
    if reading.num_left_out:
        talks = reading.tokens_low_fraction is not None
        what = _many(reading.num_left_out, "conversation" if talks else "line")
        why = "which benchmarks leave out" if talks else "without a prompt or an answer"
        found.append(f"{what} {why}: not counted")
    if reading.num_unsorted:
        found.append(f"times go back at {_many(reading.num_unsorted, 'place')}; the requests were sorted by time")
    if reading.tokens_low_fraction is not None and reading.tokens_high_fraction is not None:
        found.append(
            "the file holds texts: tokens are estimated as one for each 4 bytes of UTF-8, and may be "
            f"{reading.tokens_low_fraction:g} to {reading.tokens_high_fraction:g} times that"
        )
    if not reading.has_times and trace.clients is None and trace.arrivals_s[-1] == 0:
        found.append("the file has no times of arrival: all requests are there at once; --arrivals gives them times")
    return tuple(found)


def _many(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'s' if number != 1 else ''}"


def _described(traced: Traced, *, explain: bool) -> Answer[WorkloadResult]:
    from infcalc.workload.description import (  # noqa: PLC0415
        length_summary,
        num_sessions,
        over_time,
        rates,
        scaled_mean,
        shares,
        time_grid_s,
    )
    from infcalc.workload.likeness import options_like  # noqa: PLC0415

    trace, reading = traced.trace, traced.reading
    arriving = rates(trace)
    given, made = length_summary(trace.input_tokens), length_summary(trace.output_tokens)
    if reading is not None and reading.tokens_low_fraction is not None and reading.tokens_high_fraction is not None:
        given = scaled_mean(given, reading.tokens_low_fraction, reading.tokens_high_fraction)
        made = scaled_mean(made, reading.tokens_low_fraction, reading.tokens_high_fraction)
    intervals = over_time(trace)
    shared = shares(trace)
    result = WorkloadResult(
        trace_format=traced.trace_format,
        requests=len(trace),
        sessions=num_sessions(trace),
        duration_s=arriving.duration_s,
        rate_per_s=arriving.rate_per_s,
        peak_rate_per_s=max((interval.requests_per_s for interval in intervals), default=None),
        burstiness_cv=arriving.cv,
        burstiness=arriving.cv**-2 if arriving.cv else None,
        count_dispersion=arriving.dispersion,
        concurrency=None if trace.clients is None else trace.clients.num_clients,
        input_tokens=given,
        output_tokens=made,
        prefix_share_fraction=shared.tokens_fraction,
        prefix_share_requests_fraction=shared.requests_fraction,
        left_out=0 if reading is None else reading.num_left_out,
        over_time=intervals,
        like=options_like(arriving, given, made),
    )
    return Answer(
        command="workload",
        results=(result,),
        inputs=traced.inputs,
        assumptions=(*traced.assumptions, *_notes(result, time_grid_s(trace))),
        warnings=traced.warnings,
        explanations=_explanations(trace, arriving, result) if explain else (),
    )


def _notes(result: WorkloadResult, grid_s: float | None) -> tuple[str, ...]:
    found = []
    if result.concurrency is not None:
        found.append("when the clients of a closed loop send is known only to who serves them: there are no rates")
    if grid_s is not None:
        found.append(
            f"times lie on a grid of {format_seconds(grid_s)}, many requests on each: burstiness is that of the grid"
        )
    if result.prefix_share_fraction:
        found.append("the shared part is what a prefix cache without end would find; a real one finds at most that")
    return tuple(found)


def _explanations(trace: Trace, arriving: Rates, result: WorkloadResult) -> tuple[Explanation, ...]:
    found = []
    if arriving.rate_per_s is not None and arriving.cv is not None:
        gaps = len(trace) - 1
        found.append(
            Explanation(
                quantity="rate_per_s",
                formula="gaps / (last arrival - first arrival)",
                substituted=f"{gaps:,} / {arriving.duration_s:,.6g} s = {arriving.rate_per_s:.6g} per s",
            )
        )
        mean_s = 1 / arriving.rate_per_s
        found.append(
            Explanation(
                quantity="burstiness_cv",
                formula="standard deviation of the gaps / their mean",
                substituted=f"{arriving.cv * mean_s:.6g} s / {mean_s:.6g} s = {arriving.cv:.6g}",
                source="vLLM benchmarks: gaps follow a Gamma law of shape burstiness = 1 / cv**2",
            )
        )
    total, share = int(trace.input_tokens.sum()), result.prefix_share_fraction
    found.append(
        Explanation(
            quantity="prefix_share_fraction",
            formula="prompt tokens that an earlier prompt or answer holds in the same place / all prompt tokens",
            substituted=f"{round(share * total):,} / {total:,} = {share:.6g}",
        )
    )
    return tuple(found)


def save_trace(trace: Trace, path: str) -> None:
    """Write a trace: CSV holds times and lengths, JSON lines hold all.

    Raises:
        UsageError: CSV cannot hold it.
        FileProblem: the file cannot be written.

    """
    from infcalc.workload.writing import as_csv, as_json_lines, fits_csv  # noqa: PLC0415

    if path.lower().endswith(".csv"):
        if not fits_csv(trace):
            raise UsageError(
                "CSV holds times and lengths only, and this trace has shared prefixes, sessions or a closed loop",
                place="--save-trace",
                hint="name the file x.jsonl",
            )
        write_text(path, as_csv(trace))
    else:
        write_text(path, as_json_lines(trace))
