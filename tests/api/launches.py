"""Launches of many kinds, and their texts read again."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product

from infcalc.api.deployment import Ask, kv_format, load, resolve, single_kv_dtype
from infcalc.api.launch_ask import LaunchAsk
from infcalc.api.launching import LaunchResult, launched
from infcalc.engines.launch.want import text_of

_VERSIONS = {
    "vllm": ("0.6.6", "0.8.5", "0.10.2", "0.19.1", None),
    "sglang": ("0.4.6", "0.5.4", "0.5.21", None),
    "tensorrt-llm": ("0.20", "1.1", None),
    "llama.cpp": (None,),
}
_EIGHT = Ask(models=("llama3.1-8b",), gpus=("h100",))
_DENSE = (
    replace(_EIGHT, tp=1),
    replace(_EIGHT, tp=2, pp=2),
    replace(_EIGHT, tp=4, kv_dtypes=("fp8",)),
    replace(_EIGHT, tp=1, weights="fp8", kv_dtypes=("fp8",), max_num_seqs=64),
    replace(_EIGHT, tp=2, weights="int4", block_size=32, max_num_batched_tokens=4096),
    replace(_EIGHT, tp=2, max_model_len=16384, memory_fraction=0.85, enforce_eager=True),
    replace(_EIGHT, tp=2, draft_model="llama3-8b-eagle3", num_lookahead_tokens=4),
    replace(_EIGHT, tp=1, kv_offload_bytes=64 * 2**30, cpu_offload_bytes=2**30),
    replace(_EIGHT, tp=1, lora_rank=16, num_adapters=2),
)
_SPARSE = (
    Ask(models=("deepseek-v3",), gpus=("h200",), tp=8, ep=8, num_draft_tokens=1),
    Ask(models=("deepseek-v3",), gpus=("h200",), tp=2, dp=4, ep=8, kv_dtypes=("fp8",)),
    Ask(models=("deepseek-v3",), gpus=("h100",), tp=8, pp=2, max_model_len=32768),
    Ask(models=("deepseek-v3",), gpus=("h200",), tp=1, dp=16, ep=16),
    Ask(models=("qwen3-235b-a22b",), gpus=("h100",), tp=8, dcp=2, weights="fp8"),
)
_ROWS = (
    Ask(models=("llama3.1-8b",), gpus=("h100",), tp=1),
    Ask(models=("llama3.1-8b",), gpus=("h100",), num_gpus=2, weights="q4_k_m", kv_dtypes=("q8_0",), max_num_seqs=4),
    Ask(models=("llama3.1-8b",), gpus=("rtx-4090",), num_gpus=1, weights="q8_0", draft_model="llama3.2-1b"),
)
HOW = (
    LaunchAsk(),
    LaunchAsk(num_replicas=3, port=9000, served_name="my model"),
    LaunchAsk(drafter="ngram", num_draft_tokens=4, prefix_caching=False, chunked_prefill=False),
    LaunchAsk(num_replicas=2, num_prefill_replicas=1),
)


@cache
def launches(engine: str) -> tuple[LaunchResult, ...]:
    """Return every deployment of an engine, in each of its versions, started in each way."""
    found = []
    catalog = load(Ask())
    for ask, version in product(_ROWS if engine == "llama.cpp" else (*_DENSE, *_SPARSE), _VERSIONS[engine]):
        (deployment,) = resolve(replace(ask, engine=engine, engine_version=version), catalog)
        form, _, _ = kv_format(deployment, single_kv_dtype(ask))
        found += [launched(deployment, form, how, catalog=catalog, draft_name=ask.draft_model) for how in HOW]
    return tuple(found)


def words_of(result: LaunchResult, role: str) -> list[str]:
    """Return the words of the options of one side, in their order, from the list of options."""
    found = []
    for one in result.flags:
        if one.role == role and one.place == "command line":
            found += [one.flag] if one.value is None else [one.flag, text_of(one.value)]
    return found


def file_of(result: LaunchResult, name: str) -> str | None:
    """Return the text of a file; None where it is not written."""
    return next((file.content for file in result.files if file.name == name), None)
