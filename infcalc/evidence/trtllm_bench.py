"""The JSON of ``trtllm-bench --report_json``. Source: TensorRT-LLM 1.0 to 1.2, bench/dataclasses/reporting.py."""

from __future__ import annotations

from typing import Any

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import MS, Gathering, is_statistic, statistic_of
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity, StatedLoad

_WHOLE_LOAD = -1
"""What ``--concurrency`` means where nothing caps it."""
_ALL_AT_ONCE_PER_S = 1e5


def is_trtllm_bench(record: dict[str, Any]) -> bool:
    """Return whether an object is a report of this tool."""
    return isinstance(record.get("performance"), dict) and "world_info" in record and "engine" in record


def read_trtllm_bench(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one report.

    Raises:
        FileProblem: values that are none, all of them.

    """
    fields = Fields(record)
    run = Gathering(Format.TRTLLM_BENCH, place)
    engine, world, machine = (fields.part(key) for key in ("engine", "world_info", "machine"))
    run.state("model", engine.text("model"), engine.named("model"))
    run.state("engine", "tensorrt-llm", "the format")
    run.state("engine_version", engine.text("version"), engine.named("version"))
    run.state("weights", _word(engine.text("quantization")), engine.named("quantization"))
    run.state("kv_dtype", _word(engine.text("kv_cache_dtype")), engine.named("kv_cache_dtype"))
    run.state("max_model_len", engine.whole("max_sequence_length", least=1), engine.named("max_sequence_length"))
    run.state("gpu", machine.text("name"), machine.named("name"))
    for name, key in (
        ("tp", "tp_size"),
        ("pp", "pp_size"),
        ("ep", "ep_size"),
        ("gpus", "world_size"),
        ("max_num_seqs", "max_batch_size"),
        ("max_num_batched_tokens", "max_num_tokens"),
    ):
        run.state(name, world.whole(key, least=1) if world.raw(key) != _WHOLE_LOAD else None, world.named(key))
    performance, streams = fields.part("performance"), fields.part("streaming_metrics")
    for quantity, key in (
        (Quantity.REQUESTS_PER_S, "request_throughput_req_s"),
        (Quantity.OUTPUT_PER_S, "system_output_throughput_tok_s"),
        (Quantity.TOTAL_PER_S, "system_total_throughput_tok_s"),
        (Quantity.PER_USER, "output_throughput_per_user_tok_s"),
    ):
        run.add(quantity, MEAN, performance.per_s(key), performance.named(key))
    for part, quantity, mean, points in (
        (performance, Quantity.E2E, "avg_request_latency_ms", "request_latency_percentiles_ms"),
        (streams, Quantity.TTFT, "avg_ttft_ms", "ttft_percentiles"),
        (streams, Quantity.TPOT, "avg_tpot_ms", "tpot_percentiles"),
    ):
        run.add(quantity, MEAN, part.time_s(mean, MS), part.named(mean))
        inner = part.part(points)
        for name in inner.names():
            if is_statistic(name):
                run.add(quantity, statistic_of(name), inner.time_s(name, MS), inner.named(name))
    asked = fields.part("request_info")
    number, together = asked.whole("num_requests", least=1), asked.amount("avg_num_concurrent_requests")
    run.add(Quantity.CONCURRENT, MEAN, together or None, asked.named("avg_num_concurrent_requests"))
    load = StatedLoad(
        num_requests=number,
        num_clients=_clients(asked, world),
        requests_per_s=_rate(world),
        unlimited=_rate(world) is None,
        input_tokens=asked.amount("avg_input_length") or None,
        output_tokens=asked.amount("avg_output_length") or None,
    )
    drafted = fields.part("decoding_stats").part("acceptance_length_percentiles")
    run.add(Quantity.TOKENS_PER_ROUND, MEAN, drafted.amount("average", most=1e3), drafted.named("average"))
    duration_s = performance.time_s("total_latency_ms", MS)
    refuse(fields.faults, place)
    needed = (Quantity.OUTPUT_PER_S, *((Quantity.TTFT, Quantity.TPOT) if "streaming_metrics" in fields else ()))
    return run.run(load, fields, num_completed=number, duration_s=duration_s, needed=needed)


def _word(text: str) -> str:
    return "" if text.lower() in {"none", "null"} else text


def _clients(asked: Fields, world: Fields) -> int | None:
    """Return the cap on requests under way, where the report states one."""
    for part in (asked, world):
        if "concurrency" in part and part.raw("concurrency") != _WHOLE_LOAD:
            return part.whole("concurrency", least=1)
    return None


def _rate(world: Fields) -> float | None:
    """Return the rate that requests were issued at; None where none was set, or so high that none is."""
    value = world.raw("issue_rate")
    if isinstance(value, str) and value.strip().lower().startswith("inf"):
        return None
    if value == _WHOLE_LOAD or (isinstance(value, float) and value >= _ALL_AT_ONCE_PER_S):
        return None
    return world.amount("issue_rate", most=_ALL_AT_ONCE_PER_S) or None
