"""The JSON lines of SGLang's ``bench_serving``: an object for each run. Source: sglang/bench_serving.py, 0.4 to 0.5."""

from __future__ import annotations

from typing import Any

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import Gathering
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity
from infcalc.evidence.serving_keys import accepted_of, load_of, settings_of, times_of

_SIGNS = ("request_throughput", "completed", "duration")
_OWN = ("dataset_name", "total_output_tokens_retokenized", "random_range_ratio", "sharegpt_output_len", "server_info")
_OF_SERVER = (
    ("model", "model_path"),
    ("engine_version", "version"),
    ("weights", "quantization"),
    ("kv_dtype", "kv_cache_dtype"),
)
_OF_SERVER_WHOLE = (("tp", "tp_size"), ("pp", "pp_size"), ("dp", "dp_size"), ("ep", "ep_size"))


def is_sglang_serve(record: dict[str, Any]) -> bool:
    """Return whether an object is a result of this tool."""
    return all(sign in record for sign in _SIGNS) and any(key in record for key in _OWN)


def read_sglang_serve(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one object.

    Raises:
        FileProblem: values that are none, all of them.

    """
    fields = Fields(record)
    run = Gathering(Format.SGLANG_SERVE, place)
    settings_of(run, fields)
    if isinstance(fields.raw("server_info"), dict):
        server = fields.part("server_info")
        for name, key in _OF_SERVER:
            run.state(name, server.text(key), server.named(key))
        for name, key in _OF_SERVER_WHOLE:
            run.state(name, server.whole(key, least=1), server.named(key))
    times_of(run, fields)
    for quantity, key in (
        (Quantity.REQUESTS_PER_S, "request_throughput"),
        (Quantity.INPUT_PER_S, "input_throughput"),
        (Quantity.OUTPUT_PER_S, "output_throughput"),
        (Quantity.TOTAL_PER_S, "total_throughput"),
        (Quantity.CONCURRENT, "concurrency"),
    ):
        run.add(quantity, MEAN, fields.per_s(key), key)
    accepted_of(run, fields, "accept_length")
    completed = fields.whole("completed")
    load = load_of(
        run,
        fields,
        num_requests=fields.whole("num_prompts", least=1) or completed or None,
        num_completed=completed,
        input_tokens="total_input_tokens",
        output_tokens="total_output_tokens",
    )
    duration_s = fields.time_s("duration", 1.0)
    refuse(fields.faults, place)
    if "num_prompts" not in fields:
        run.missing.append("number of requests that were sent (those that were answered are taken)")
    failed = None if completed is None or load.num_requests is None else max(0, load.num_requests - completed)
    return run.run(load, fields, num_completed=completed, num_failed=failed, duration_s=duration_s)
