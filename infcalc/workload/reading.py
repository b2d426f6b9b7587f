"""Traces from text: the format found out, every fault with its line at once, times sorted, failures left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from infcalc.errors import TraceError
from infcalc.frozen import frozen
from infcalc.workload.arrivals import ClosedLoop, parse_arrivals
from infcalc.workload.chains import column, hashed_blocks, prefix_chains
from infcalc.workload.conversations import ESTIMATE_HIGH, ESTIMATE_LOW, Talks, talks
from infcalc.workload.faults import Faults, Values, dates_s, shown, times_s, tokens
from infcalc.workload.generation import in_order, of_requests
from infcalc.workload.rows import Columns, csv_columns, json_columns, json_records
from infcalc.workload.sessions import woven
from infcalc.workload.trace import NONE, Flags, Floats, Ints, Sharing, Trace, Turns
from infcalc.workload.trace_formats import ARRIVAL, CONVERSATIONS, HEADER_KEY, TraceFormat, detected, is_json

_MEND = "correct or remove these lines; --trace-format names the format, if it was taken for another"


@frozen
class Reading:
    """A trace as it was read.

    ``block_tokens`` is the size of hashed blocks, 0 where there are none. ``tokens_low_fraction`` and
    ``tokens_high_fraction`` span what estimated lengths may be, as shares of them; None: they were counted.
    """

    trace: Trace
    form: TraceFormat
    has_times: bool
    num_left_out: int = 0
    num_unsorted: int = 0
    block_tokens: int = 0
    tokens_low_fraction: float | None = None
    tokens_high_fraction: float | None = None


def read_trace(text: str, place: str, form: TraceFormat | None = None) -> Reading:
    """Return the trace of a text; ``place`` is what errors call it.

    Requests without a prompt or without an answer have failed: they are left out and counted. Times that are not in
    order are sorted, equal ones staying as they were. Times count from the first request, those called ``arrival_s``
    from where they do already.

    Raises:
        TraceError: lines that are no requests, all of them with their numbers; or no request at all.

    """
    if not text.strip():
        raise TraceError(place, ("it is empty",), hint="a trace has a line for each request")
    form = detected(text) if form is None else form
    faults = Faults()
    if not is_json(form):
        return _from_columns(csv_columns(text, place, form, faults), place, form, faults)
    records, lines = json_records(text, faults)
    clients = None
    if records and HEADER_KEY in records[0]:
        clients = _clients(records[0], lines[0], faults)
        records, lines = records[1:], lines[1:]
    if form in CONVERSATIONS:
        found = talks(records, lines, faults, sessions=form is TraceFormat.SHAREGPT_SESSIONS)
        _refuse(place, faults)
        return _from_talks(found, place, form)
    reading = _from_columns(json_columns(records, lines, place, form, faults), place, form, faults)
    if clients is None:
        return reading
    return replace(reading, trace=replace(reading.trace, clients=clients))


def _refuse(place: str, faults: Faults) -> None:
    if len(faults):
        raise TraceError(place, faults.texts(), hint=_MEND)


def _clients(header: Mapping[str, Any], line: int, faults: Faults) -> ClosedLoop | None:
    """Return the closed loop that the first line of a trace of our own states."""
    text = header.get("arrivals")
    if text is None:
        return None
    try:
        found = parse_arrivals(str(text))
    except ValueError as wrong:
        faults.add(line, str(wrong))
        return None
    return found if isinstance(found, ClosedLoop) else None


def _from_columns(columns: Columns, place: str, form: TraceFormat, faults: Faults) -> Reading:
    names, lines = columns.names, columns.lines
    arrivals = np.zeros(len(lines))
    if names.time is not None and columns.times is not None:
        if form is TraceFormat.AZURE or _are_dates(columns.times):
            arrivals = dates_s([str(time) for time in columns.times], lines, names.time, faults)
        else:
            arrivals = times_s(columns.times, lines, names.time, faults, unit_s=names.time_unit_s)
    inputs = tokens(columns.inputs, lines, names.input, faults)
    outputs = tokens(columns.outputs, lines, names.output, faults)
    sharing, block = _sharing(columns, inputs, outputs, faults)
    turns = _turns(columns.records, lines, arrivals, faults)
    think_s = column(columns.records, lines, "think_s", faults)
    _refuse(place, faults)
    served = (inputs > 0) & (outputs > 0)
    if not served.any():
        what = f"{len(lines):,} lines, none with both a prompt and an answer" if lines else "it holds no request"
        raise TraceError(place, (what,), hint="a trace has a line for each request")
    num_unsorted = int((np.diff(arrivals[served]) < 0).sum())
    if names.time != ARRIVAL:
        arrivals = arrivals - arrivals[served].min()
    whole = Trace(
        arrivals_s=np.zeros(len(lines)),
        # What was not served goes before anything looks at its lengths.
        input_tokens=np.maximum(inputs, 1),
        output_tokens=np.maximum(outputs, 1),
        sharing=sharing,
        turns=turns,
        think_s=think_s,
    )
    return Reading(
        trace=in_order(_served(whole, served), arrivals[served]),
        form=form,
        has_times=names.time is not None,
        num_left_out=len(lines) - int(served.sum()),
        num_unsorted=num_unsorted,
        block_tokens=block,
    )


def _are_dates(times: Values) -> bool:
    first = next(iter(times), 0)
    return isinstance(first, str) and "-" in first.strip()[1:] and ":" in first


def _sharing(columns: Columns, inputs: Ints, outputs: Ints, faults: Faults) -> tuple[Sharing | None, int]:
    if not columns.records:
        return None, 0
    sharing = prefix_chains(columns.records, columns.lines, inputs, outputs, faults)
    return (sharing, 0) if sharing is not None else hashed_blocks(columns.records, columns.lines, inputs, faults)


def _turns(
    records: Sequence[Mapping[str, Any]], lines: Sequence[int], arrivals: Floats, faults: Faults
) -> Turns | None:
    """Return which request each follows (by its place among the requests, from 0) and after what pause."""
    if not any("follows" in record for record in records):
        return None
    follows = np.full(len(records), NONE, dtype=np.int64)
    for place, record in enumerate(records):
        value = record.get("follows")
        if value is None:
            continue
        if type(value) is int and 0 <= value < place:
            follows[place] = value
        else:
            faults.add(lines[place], f"follows {shown(value)} is not the number of an earlier request, from 0")
    pauses = column(records, lines, "pause_s", faults)
    early = (follows != NONE) & (arrivals < arrivals[np.maximum(follows, 0)])
    for place in np.flatnonzero(early).tolist():
        faults.add(lines[place], f"it comes before request {follows[place]}, which it follows")
    if pauses is None:
        pauses = np.zeros(len(records))
    return Turns(follows=follows, pauses_s=pauses)


def _served(trace: Trace, served: Flags) -> Trace:
    """Return the trace of the requests that were served; who follows one that was not begins by itself."""
    chosen = np.flatnonzero(served)
    turns = trace.turns
    if turns is not None:
        number = np.where(served, np.cumsum(served) - 1, NONE)
        follows = np.where(turns.follows == NONE, NONE, number[np.maximum(turns.follows, 0)])[chosen]
        turns = Turns(follows=follows, pauses_s=np.where(follows == NONE, 0.0, turns.pauses_s[chosen]))
    return replace(
        trace,
        arrivals_s=trace.arrivals_s[chosen],
        input_tokens=trace.input_tokens[chosen],
        output_tokens=trace.output_tokens[chosen],
        sharing=None if trace.sharing is None else of_requests(trace.sharing, chosen),
        turns=turns,
        think_s=None if trace.think_s is None else trace.think_s[chosen],
    )


def _from_talks(found: Talks, place: str, form: TraceFormat) -> Reading:
    """Return conversations as requests, all at time 0; of sessions each turn follows the one before."""
    count = len(found.said_tokens)
    if not count:
        raise TraceError(
            place,
            (f"{found.num_left_out:,} conversations, none that benchmarks would take",),
            hint="they take a first turn of 4 to 1,024 tokens; --trace-format sharegpt-sessions takes all turns",
        )
    turns = np.unique(found.conversation_ids, return_counts=True)[1]
    return Reading(
        trace=woven(turns, found.said_tokens, found.answer_tokens, np.zeros(count)),
        form=form,
        has_times=False,
        num_left_out=found.num_left_out,
        tokens_low_fraction=ESTIMATE_LOW,
        tokens_high_fraction=ESTIMATE_HIGH,
    )
