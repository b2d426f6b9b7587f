"""The JSON of ``vllm bench serve --save-result``, before it ``benchmark_serving.py``: one object for each run.

Source: vLLM benchmarks/serve.py, 0.6 to 0.33. TPOT is (latency - TTFT) / (tokens - 1) of each request; ITL pools the
gaps of all. Results that are wrapped with what was run (``{"gpu": ..., "result": {...}}``) are read with it.
"""

from __future__ import annotations

import re
from typing import Any

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import Gathering
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity
from infcalc.evidence.serving_keys import accepted_of, load_of, settings_of, times_of

_DATE = re.compile(r"(20[0-9]{2})([0-9]{2})[0-9]{2}-[0-9]{6}")
_SIGNS = ("request_throughput", "completed")


def is_vllm_serve(record: dict[str, Any]) -> bool:
    """Return whether an object is a result of this tool, or wraps one."""
    inner = _inner(record)
    return all(sign in inner for sign in _SIGNS) and "num_prompts" in inner


def _inner(record: dict[str, Any]) -> dict[str, Any]:
    result = record.get("result")
    return result if isinstance(result, dict) and "request_throughput" in result else record


def read_vllm_serve(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one object.

    Raises:
        FileProblem: values that are none, all of them.

    """
    inner = _inner(record)
    outer = Fields({key: value for key, value in record.items() if key != "result"} if inner is not record else {})
    fields = Fields(inner, "result." if inner is not record else "", outer.faults, outer.nothing)
    run = Gathering(Format.VLLM_SERVE, place)
    settings_of(run, fields, outer)
    date = _DATE.fullmatch(fields.text("date"))
    run.state("date", f"{date[1]}-{date[2]}" if date else "", fields.named("date"))
    run.state("engine", "vllm" if "vllm" in fields.text("endpoint_type").lower() else "", fields.named("endpoint_type"))
    times_of(run, fields)
    for quantity, key in (
        (Quantity.REQUESTS_PER_S, "request_throughput"),
        (Quantity.GOODPUT, "request_goodput"),
        (Quantity.OUTPUT_PER_S, "output_throughput"),
        (Quantity.TOTAL_PER_S, "total_token_throughput"),
    ):
        run.add(quantity, MEAN, fields.per_s(key), fields.named(key))
    run.add(Quantity.CONCURRENT, "max", fields.amount("max_concurrent_requests") or None, "max_concurrent_requests")
    run.add(Quantity.OUTPUT_PER_S, "max", fields.per_s("max_output_tokens_per_s"), "max_output_tokens_per_s")
    accepted_of(run, fields, "spec_decode_acceptance_length")
    completed = fields.whole("completed")
    load = load_of(
        run,
        fields,
        num_requests=fields.whole("num_prompts", least=1),
        num_completed=completed,
        input_tokens="total_input_tokens",
        output_tokens="total_output_tokens",
    )
    duration_s = fields.time_s("duration", 1.0)
    failed = fields.whole("failed")
    refuse(fields.faults, place)
    if failed is None and completed is not None and load.num_requests is not None:
        failed = max(0, load.num_requests - completed)
    return run.run(load, fields, num_completed=completed, num_failed=failed, duration_s=duration_s)
