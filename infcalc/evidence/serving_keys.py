"""What ``vllm bench serve`` and SGLang's ``bench_serving`` have in common: one tool is the other's ancestor."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from infcalc.evidence.gathering import MS, Gathering, is_statistic, statistic_of
from infcalc.evidence.nouns import MEAN, Quantity, StatedLoad

if TYPE_CHECKING:
    from infcalc.evidence.fields import Fields

_TIME = re.compile(r"(?P<statistic>[a-z]+[0-9.]*)_(?P<name>ttft|tpot|itl|e2el|e2e_latency)_ms")
_MAX_ITL = "max_itl_ms"
_TIMES: Final = {
    "ttft": Quantity.TTFT,
    "tpot": Quantity.TPOT,
    "itl": Quantity.ITL,
    "e2el": Quantity.E2E,
    "e2e_latency": Quantity.E2E,
}
_BACKENDS: Final = (
    ("sglang", "sglang"),
    ("vllm", "vllm"),
    ("tensorrt", "tensorrt-llm"),
    ("trt", "tensorrt-llm"),
    ("lmdeploy", "lmdeploy"),
    ("tgi", "tgi"),
    ("llama.cpp", "llama.cpp"),
)
METADATA: Final = (
    ("gpu", ("gpu", "gpu_name", "gpu_type", "device")),
    ("gpus", ("gpu_count", "num_gpus")),
    ("tp", ("tp", "tp_size", "tensor_parallel_size", "tensor_parallel")),
    ("pp", ("pp", "pp_size", "pipeline_parallel_size")),
    ("dp", ("dp", "dp_size", "data_parallel_size")),
    ("ep", ("ep", "ep_size", "expert_parallel_size")),
    ("engine_version", ("engine_version", "version", "vllm_version", "sglang_version")),
    ("weights", ("quantization", "weights")),
    ("kv_dtype", ("kv_cache_dtype",)),
    ("max_num_seqs", ("max_num_seqs",)),
    ("max_num_batched_tokens", ("max_num_batched_tokens",)),
    ("max_model_len", ("max_model_len",)),
    ("memory_fraction", ("gpu_memory_utilization",)),
    ("engine_arguments", ("engine_args", "server_args")),
)
"""Settings that people write beside a result (``--metadata k=v``), by the names of the engines' own options."""
_WHOLE = frozenset({"gpus", "tp", "pp", "dp", "ep", "max_num_seqs", "max_num_batched_tokens", "max_model_len"})


def engine_of(backend: str) -> str:
    """Return the engine that a benchmark's backend names; empty for a protocol, which any engine may speak.

    >>> engine_of("sglang-oai"), engine_of("openai-chat"), engine_of("vllm")
    ('sglang', '', 'vllm')
    """
    return next((engine for word, engine in _BACKENDS if word in backend.lower()), "")


def settings_of(run: Gathering, *parts: Fields) -> None:
    """Note model, engine and what is stated beside the result."""
    for fields in parts:
        run.state("model", fields.text("model_id"), fields.named("model_id"))
        run.state("engine", engine_of(fields.text("engine")), fields.named("engine"))
        for name, keys in METADATA:
            for key in keys:
                if name in _WHOLE:
                    run.state(name, fields.whole(key, least=1), fields.named(key))
                elif name == "memory_fraction":
                    run.state(name, fields.fraction(key), fields.named(key))
                else:
                    run.state(name, fields.text(key), fields.named(key))
        run.state("engine", engine_of(fields.text("backend")), fields.named("backend"))


def rate_of(fields: Fields) -> tuple[float | None, bool, bool]:
    """Return the rate that requests were sent at, whether nothing paced them, and whether a trace did."""
    value = fields.raw("request_rate")
    if value == "trace":
        return None, False, True
    if value in ("inf", "Infinity") or (isinstance(value, float) and math.isinf(value) and value > 0):
        return None, True, False
    rate = fields.amount("request_rate", most=1e6)
    if rate == 0:
        fields.fault("request_rate", "a rate above 0, or inf")
    return rate or None, False, False


def times_of(run: Gathering, fields: Fields) -> None:
    """Note the times of requests, all statistics that are there."""
    for key in fields.names():
        match = _TIME.fullmatch(key)
        if match and is_statistic(match["statistic"]):
            run.add(_TIMES[match["name"]], statistic_of(match["statistic"]), fields.time_s(key, MS), fields.named(key))


def _listed(run: Gathering, fields: Fields, num_completed: int | None) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return the lengths of the answered requests, where the file lists them, and as many as it says it answered."""
    inputs, outputs = fields.amounts("input_lens"), fields.amounts("output_lens")
    if not outputs or len(inputs) != len(outputs):
        return (), ()
    answered = [(one, other) for one, other in zip(inputs, outputs, strict=True) if one > 0 and other > 0]
    if num_completed is not None and len(answered) != num_completed:
        run.warnings.append(
            f"{num_completed:,} requests are called answered, and {len(answered):,} of the listed have a token: "
            "the listed lengths are not used"
        )
        return (), ()
    return tuple(one for one, _ in answered), tuple(other for _, other in answered)


def load_of(
    run: Gathering,
    fields: Fields,
    *,
    num_requests: int | None,
    num_completed: int | None,
    input_tokens: str,
    output_tokens: str,
) -> StatedLoad:
    """Return how requests came; lengths are the totals over the answered requests."""
    rate, unlimited, trace = rate_of(fields)
    inputs, outputs = _listed(run, fields, num_completed)
    totals = [fields.amount(key) for key in (input_tokens, output_tokens)]
    means = [None if total is None or not num_completed else total / num_completed or None for total in totals]
    return StatedLoad(
        num_requests=num_requests,
        num_clients=fields.whole("max_concurrency", least=1),
        requests_per_s=rate,
        unlimited=unlimited,
        burstiness=fields.amount("burstiness", most=1e6) or None,
        input_tokens=means[0],
        output_tokens=means[1],
        inputs_tokens=inputs,
        outputs_tokens=outputs,
        dataset=fields.text("dataset_name"),
        trace=trace,
    )


def accepted_of(run: Gathering, fields: Fields, key: str) -> None:
    """Note tokens per round of drafting, where there was any; then gaps between chunks are no gaps between tokens."""
    run.add(Quantity.TOKENS_PER_ROUND, MEAN, fields.amount(key, most=1e3) or None, fields.named(key))
    accepted = run.value(Quantity.TOKENS_PER_ROUND)
    if accepted is not None and accepted > 1:
        run.convert("itl_s is per chunk of accepted tokens: tpot_s is what compares with an estimate")
