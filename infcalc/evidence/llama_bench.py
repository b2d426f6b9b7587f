"""The JSON of ``llama-bench -o json`` or ``jsonl``: an object for each test. Source: llama.cpp tools/llama-bench.

A test computes a prompt (``pp512``), or an answer of one sequence token by token (``tg128``), or one after the other
(``pp512+tg128``); ``n_depth`` tokens are in the cache before it.
"""

from __future__ import annotations

import re
from typing import Any

from infcalc.evidence.fields import Fields, refuse
from infcalc.evidence.gathering import Gathering
from infcalc.evidence.nouns import MEAN, BenchmarkRun, Format, Quantity, StatedLoad

_NS = 1e-9
_SLACK = 0.05
_TYPE = re.compile(r"\b(?P<type>I?Q[0-9]_[0-9A-Z]+|MXFP4|BF16|F16)\b(?: - (?P<size>Small|Medium|Large))?")


def is_llama_bench(record: dict[str, Any]) -> bool:
    """Return whether an object is a test of this tool."""
    return "avg_ts" in record and "n_prompt" in record and "n_gen" in record


def read_llama_bench(record: dict[str, Any], place: str) -> BenchmarkRun:
    """Return the run of one test.

    Raises:
        FileProblem: values that are none, all of them.

    """
    fields = Fields(record)
    faults = fields.faults
    run = Gathering(Format.LLAMA_BENCH, place)
    load = tested(
        run,
        fields,
        num_prompt=fields.whole("n_prompt"),
        num_answer=fields.whole("n_gen"),
        depth=fields.whole("n_depth"),
        tokens_per_s=fields.per_s("avg_ts"),
        key="avg_ts",
    )
    run.add(_rate_of(load), "std", fields.amount("stddev_ts") or None, "stddev_ts")
    taken_s = fields.time_s("avg_ns", _NS)
    rate, tokens = fields.amount("avg_ts"), (fields.whole("n_prompt") or 0) + (fields.whole("n_gen") or 0)
    if taken_s and rate and tokens and abs(tokens / taken_s - rate) > _SLACK * rate:
        run.warnings.append(f"avg_ts is {rate:.6g}, and tokens / avg_ns is {tokens / taken_s:.6g}: one is wrong")
    name = fields.text("model_filename") or fields.text("model_type")
    run.state("model", name, "model_filename")
    run.state("weights", weights_of(fields.text("model_type")), "model_type")
    run.state("gpu", fields.text("gpu_info"), "gpu_info")
    run.state("kv_dtype", fields.text("type_k"), "type_k")
    run.state("max_num_batched_tokens", fields.whole("n_ubatch", least=1), "n_ubatch")
    run.state("engine_version", f"b{number}" if (number := fields.whole("build_number")) else "", "build_number")
    run.state("flash_attention", fields.text("flash_attn") if type(fields.raw("flash_attn")) is not bool else "", "")
    refuse(faults, place)
    return run.run(load, fields, duration_s=taken_s, needed=(_rate_of(load),))


def weights_of(model_type: str) -> str:
    """Return the GGUF type that the description of a model ends in, as files are named after it; empty: none.

    >>> weights_of("llama 8B Q4_K - Medium"), weights_of("qwen3moe 30B.A3B Q8_0"), weights_of("gpt-oss 20B MXFP4 MoE")
    ('q4_k_m', 'q8_0', 'mxfp4')
    """
    match = _TYPE.search(model_type)
    if match is None:
        return ""
    size = f"_{match['size'][0].lower()}" if match["size"] else ""
    return match["type"].lower() + size


def tested(
    run: Gathering,
    fields: Fields,
    *,
    num_prompt: int | None,
    num_answer: int | None,
    depth: int | None,
    tokens_per_s: float | None,
    key: str,
) -> StatedLoad:
    """Note the rate of a test by what it computes, and return its load."""
    run.state("engine", "llama.cpp", "the format")
    prompt, answer = num_prompt or 0, num_answer or 0
    if not prompt and not answer:
        fields.faults.append("n_prompt and n_gen: a test of no tokens")
    load = StatedLoad(
        batch=1,
        input_tokens=float(prompt) or None,
        output_tokens=float(answer) or None,
        context_tokens=depth,
    )
    run.add(_rate_of(load), MEAN, tokens_per_s, key)
    if answer and not prompt and tokens_per_s:
        run.add(Quantity.TPOT, MEAN, 1 / tokens_per_s, key, "1 / tokens per second: one sequence")
    if prompt and not answer and tokens_per_s:
        run.add(Quantity.PREFILL, MEAN, prompt / tokens_per_s, key, "tokens of the prompt / tokens per second")
    if prompt and answer:
        run.convert("tokens per second of a prompt with its answer count both: it is total_tokens_per_s here")
    return load


def _rate_of(load: StatedLoad) -> Quantity:
    if load.input_tokens and load.output_tokens:
        return Quantity.TOTAL_PER_S
    return Quantity.INPUT_PER_S if load.input_tokens else Quantity.PER_USER
