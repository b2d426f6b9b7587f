"""Formats of traces: how each is told from the others by its content, and the names that its columns have.

- azure: CSV ``TIMESTAMP,ContextTokens,GeneratedTokens``, the Azure LLM inference traces of 2023 and 2024.
- burstgpt: CSV with ``Timestamp`` (seconds), ``Request tokens``, ``Response tokens``; later files have more columns.
- mooncake: JSON lines ``timestamp`` (ms), ``input_length``, ``output_length``, ``hash_ids`` of 512-token blocks; the
  ``timed_trace`` of vLLM's benchmark is the same with blocks of another size.
- bailian: JSON lines as mooncake's, with seconds, 16-token blocks and ``chat_id`` (Alibaba's Qwen traces).
- sharegpt: JSON of conversations. The first turn is a request, as benchmarks take it; sharegpt-sessions takes all.
- csv, jsonl: times in seconds (or in the unit that ends the name), input and output tokens, under the names below;
  CSV without a header has these three columns.
- infcalc: what ``infcalc workload --save-trace`` writes.

Sources: the pages of the data sets themselves (Azure/AzurePublicDataset, HPMLL/BurstGPT, kvcache-ai/Mooncake,
alibaba-edu/qwen-bailian-usagetraces-anon) and ``vllm/benchmarks/datasets.py``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum

from infcalc.frozen import frozen


class TraceFormat(StrEnum):
    """A format that traces are read in."""

    INFCALC = "infcalc"
    AZURE = "azure"
    BURSTGPT = "burstgpt"
    MOONCAKE = "mooncake"
    BAILIAN = "bailian"
    SHAREGPT = "sharegpt"
    SHAREGPT_SESSIONS = "sharegpt-sessions"
    CSV = "csv"
    JSONL = "jsonl"


CONVERSATIONS = frozenset({TraceFormat.SHAREGPT, TraceFormat.SHAREGPT_SESSIONS})
_JSON = frozenset({TraceFormat.INFCALC, TraceFormat.MOONCAKE, TraceFormat.BAILIAN, TraceFormat.JSONL, *CONVERSATIONS})
HEADER_KEY = "infcalc_trace"
"""Key of the first line of a trace of our own, where something concerns all requests."""

ARRIVAL = "arrival_s"
"""Our own name of the time of arrival, which counts from the start of the trace; other times are shifted to it."""
TIMES: Mapping[str, float] = {
    ARRIVAL: 1.0,
    "arrival_time_s": 1.0,
    "arrival_time": 1.0,
    "arrived_at": 1.0,
    "arrival": 1.0,
    "timestamp": 1.0,
    "time": 1.0,
    "time_s": 1.0,
    "timestamp_s": 1.0,
    "arrival_ms": 1e-3,
    "arrival_time_ms": 1e-3,
    "timestamp_ms": 1e-3,
    "time_ms": 1e-3,
}
"""Names of times of arrival, and the seconds of their unit."""
INPUTS = (
    "input_tokens",
    "input_length",
    "input_len",
    "input_toks",
    "prompt_tokens",
    "prompt_len",
    "num_prefill_tokens",
    "contexttokens",
    "request tokens",
    # After all that say a unit.
    "input",
    "prompt",
)
OUTPUTS = (
    "output_tokens",
    "output_length",
    "output_len",
    "output_toks",
    "completion_tokens",
    "num_decode_tokens",
    "generatedtokens",
    "response tokens",
    "output",
    "completion",
)
_TALKS = ("conversations", "conversation", "messages")


@frozen
class Names:
    """The names of the columns of a trace: of the time (where it has one), of input and output."""

    time: str | None
    input: str
    output: str
    time_unit_s: float = 1.0


def is_json(form: TraceFormat) -> bool:
    """Return whether a format is one of JSON."""
    return form in _JSON


def detected(text: str) -> TraceFormat:
    """Return the format of a trace by its first line, or by the first entry of a JSON list.

    >>> detected('{"timestamp": 0, "input_length": 9, "output_length": 1, "hash_ids": [7]}')
    <TraceFormat.MOONCAKE: 'mooncake'>
    >>> detected("TIMESTAMP,ContextTokens,GeneratedTokens")
    <TraceFormat.AZURE: 'azure'>
    """
    start = text[:_LOOK].lstrip()
    if start.startswith("["):
        return TraceFormat.SHAREGPT if any(f'"{name}"' in start for name in _TALKS) else TraceFormat.JSONL
    line = start.split("\n", 1)[0].strip()
    if line.startswith("{"):
        return _of_keys(_keys(line, start))
    header = {name.strip().strip('"').lower() for name in line.split(",")}
    if {"timestamp", "contexttokens", "generatedtokens"} <= header:
        return TraceFormat.AZURE
    return TraceFormat.BURSTGPT if {"request tokens", "response tokens"} <= header else TraceFormat.CSV


_LOOK = 2**16


def _keys(line: str, start: str) -> set[str]:
    """Return the keys of the first line; of one that is cut or broken, the known names that stand in it."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        known = ("hash_ids", "chat_id", "input_length", "timestamp", HEADER_KEY, "prefix_ids", *_TALKS)
        return {name for name in known if f'"{name}"' in start}
    return set(value) if isinstance(value, dict) else set()


def _of_keys(keys: set[str]) -> TraceFormat:
    if keys & {HEADER_KEY, "prefix_ids"}:
        return TraceFormat.INFCALC
    if keys & set(_TALKS):
        return TraceFormat.SHAREGPT
    if "chat_id" in keys:
        return TraceFormat.BAILIAN
    mooncake = "hash_ids" in keys or {"timestamp", "input_length"} <= keys
    return TraceFormat.MOONCAKE if mooncake else TraceFormat.JSONL


def names_among(columns: Iterable[str], form: TraceFormat) -> Names | None:
    """Return which of ``columns`` hold time, input and output; None where input or output is missing."""
    # The first spelling wins where a name is there twice.
    spelled: dict[str, str] = {}
    for column in columns:
        spelled.setdefault(column.strip().lower(), column)
    time = next((name for name in TIMES if name in spelled), None)
    given = next((spelled[name] for name in INPUTS if name in spelled), None)
    made = next((spelled[name] for name in OUTPUTS if name in spelled), None)
    if given is None or made is None:
        return None
    unit_s = 1.0 if time is None else 1e-3 if form is TraceFormat.MOONCAKE and time == "timestamp" else TIMES[time]
    return Names(time=None if time is None else spelled[time], input=given, output=made, time_unit_s=unit_s)
