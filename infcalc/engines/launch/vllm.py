"""A launch in the words of ``vllm serve``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from infcalc.engines.flags.table import has_flag, version_of
from infcalc.engines.launch.spec import Drafter, Role
from infcalc.engines.launch.want import Refusal, Want
from infcalc.engines.rules import Since, at_version
from infcalc.frozen import frozen
from infcalc.units import GIB

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from infcalc.engines.launch.spec import Drafting, LaunchSpec

_KV_WORDS = {
    "bf16": "bfloat16",
    "fp16": "float16",
    "fp8": "fp8",
    "int8": "int8_per_token_head",
    "int4": "int4_per_token_head",
    "nvfp4": "nvfp4",
    "fp8_ds_mla": "fp8_ds_mla",
    "nvfp4_ds_mla": "nvfp4_ds_mla",
}
"""Source: choices of ``--kv-cache-dtype`` of 0.33."""
_ONLINE = {"fp8": "fp8"}
"""Precisions to which the engine itself converts a checkpoint in 16 bit."""
_STORED = {
    "awq": "awq",
    "gptq": "gptq",
    "nvfp4": "modelopt_fp4",
    "mxfp4": "mxfp4",
    "int8": "compressed-tensors",
    "int4": "compressed-tensors",
}
"""Precisions that a checkpoint must come in, and the method that reads it. Source: choices of ``--quantization``."""
_PREFIX_DEFAULT = (
    Since(version=(0,), value=False, source="engine V0: off"),
    Since(version=(0, 8), value=True, source="engine V1: on"),
)
_MTP = (
    Since(version=(0,), value="deepseek_mtp", source="vLLM 0.8.5 to 0.10.2, vllm/config: one name per family"),
    Since(version=(0, 11), value="mtp", source="vLLM 0.11.0, vllm/config/speculative.py: one name for all"),
)
_EAGLE3_SINCE, _DRAFT_MODEL_SINCE, _LAST_V0_DRAFT = (0, 9), (0, 15), (0, 9)
"""``eagle3`` is a method from 0.9 on; engine V1 drafts with a separate model from 0.15 on, V0 did up to 0.8."""
_LONGEST_LOOKUP = 4


def wants(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    """Yield the options of one server of ``spec``, machine 0 of a replica, in the order in which they are read."""
    at = version_of(spec.engine, spec.version)
    yield from _ranks(spec)
    yield from precisions(spec, _WORDS)
    yield from _limits(spec)
    yield from _ways(spec, at)
    if spec.drafting is not None:
        yield from _drafting(spec, spec.drafting, at)
    yield from _beside(spec)
    if spec.role is not Role.SERVER:
        role = "kv_producer" if spec.role is Role.PREFILL else "kv_consumer"
        transfer = {"kv_connector": "NixlConnector", "kv_role": role}
        yield Want(flag="--kv-transfer-config", value=json.dumps(transfer), why=spec.why("role"))
    yield from named(spec)
    yield from listening(spec)


def _ranks(spec: LaunchSpec) -> Iterator[Want]:
    ranks = spec.parallelism
    yield Want(flag="--tensor-parallel-size", value=ranks.tp, why=spec.why("tp"))
    if ranks.pp > 1:
        yield Want(flag="--pipeline-parallel-size", value=ranks.pp, why=spec.why("pp"))
    if ranks.dp > 1:
        yield Want(flag="--data-parallel-size", value=ranks.dp, why=spec.why("dp"))
    if ranks.ep > 1:
        yield Want(flag="--enable-expert-parallel", value=None, why=spec.why("ep"))
    if ranks.dcp > 1:
        yield Want(flag="--decode-context-parallel-size", value=ranks.dcp, why=spec.why("dcp"))


def _limits(spec: LaunchSpec) -> Iterator[Want]:
    yield from stated(
        spec,
        ("--gpu-memory-utilization", spec.memory_fraction, "memory_fraction"),
        ("--max-model-len", spec.max_model_len, "max_model_len"),
        ("--max-num-seqs", spec.max_num_seqs, "max_num_seqs"),
        ("--max-num-batched-tokens", spec.max_num_batched_tokens, "max_num_batched_tokens"),
        ("--block-size", spec.block_tokens, "block_tokens"),
    )


def stated(spec: LaunchSpec, *options: tuple[str, float | None, str]) -> Iterator[Want]:
    """Yield the options (name, value, setting) that have a value."""
    for flag, value, setting in options:
        if value is not None:
            yield Want(flag=flag, value=value, why=spec.why(setting))


def listening(spec: LaunchSpec) -> Iterator[Want]:
    """Yield where a server listens, which most engines write alike."""
    if spec.host:
        yield Want(flag="--host", value=spec.host, why="a container is reached from outside only on all addresses")
    if spec.port is not None:
        yield Want(flag="--port", value=spec.port, why=spec.why("port"))


def named(spec: LaunchSpec) -> Iterator[Want]:
    """Yield the name of the model in requests, where it has one of its own."""
    if spec.served_name:
        yield Want(flag="--served-model-name", value=spec.served_name, why=spec.why("served_name"))


def _ways(spec: LaunchSpec, at: tuple[int, ...]) -> Iterator[Want]:
    if spec.prefix_caching is not None and spec.prefix_caching is not at_version(_PREFIX_DEFAULT, at).value:
        flag = "--enable-prefix-caching" if spec.prefix_caching else "--no-enable-prefix-caching"
        yield Want(flag=flag, value=None, why=spec.why("prefix_caching"))
    if spec.chunked_prefill is False:
        yield Want(flag="--no-enable-chunked-prefill", value=None, why=spec.why("chunked_prefill"))
    if spec.enforce_eager:
        yield Want(flag="--enforce-eager", value=None, why=spec.why("enforce_eager"))


@frozen
class Words:
    """How an engine calls precisions: of weights that it converts to, of weights that are stored so, and of KV."""

    engine: str
    online: Mapping[str, str]
    stored: Mapping[str, str]
    kv: Mapping[str, str]


def precisions(spec: LaunchSpec, words: Words) -> Iterator[Want | Refusal]:
    """Yield the options of precision, or what stands against them."""
    if spec.dtype:
        yield Want(flag="--dtype", value={"fp16": "float16", "bf16": "bfloat16"}[spec.dtype], why=spec.why("dtype"))
    if spec.weights:
        method = words.online.get(spec.weights) or words.stored.get(spec.weights)
        if method is None:
            yield Refusal(text=no_weights(spec, f"{words.engine} has no method for it"))
        else:
            yield Want(flag="--quantization", value=method, why=spec.why("weights"))
            if spec.weights not in words.online:
                yield Refusal(text=no_weights(spec, f"{words.engine} does not convert to it at its start"))
    if spec.kv_dtype:
        word = words.kv.get(spec.kv_dtype)
        if word is None:
            yield Refusal(text=f"{words.engine} has no KV cache in {spec.kv_dtype}: --kv-cache-dtype is left out")
        else:
            yield Want(flag="--kv-cache-dtype", value=word, why=spec.why("kv_dtype"))


_WORDS = Words(engine="vLLM", online=_ONLINE, stored=_STORED, kv=_KV_WORDS)


def no_weights(spec: LaunchSpec, why: str) -> str:
    """Return a warning that the checkpoint has other weights than the plan, and that one in these must be named."""
    return (
        f"{spec.model_id} is stored in {spec.stored}, and {why}: put the id of a checkpoint in {spec.weights} in its "
        "place (--model-id)"
    )


def _drafting(spec: LaunchSpec, drafting: Drafting, at: tuple[int, ...]) -> Iterator[Want | Refusal]:
    why = spec.why("drafting")
    if not has_flag("vllm", "--speculative-config", at):
        if drafting.drafter is Drafter.NGRAM:
            yield Want(flag="--speculative-model", value="[ngram]", why=why)
            yield Want(flag="--ngram-prompt-lookup-max", value=_LONGEST_LOOKUP, why="longest run that is looked up")
        elif drafting.drafter is Drafter.MODEL:
            yield Want(flag="--speculative-model", value=drafting.model_id, why=why)
        else:
            yield Refusal(text=f"vllm {spec.version} does not draft by {drafting.drafter}: it is left out")
            return
        yield Want(flag="--num-speculative-tokens", value=drafting.num_draft_tokens, why=why)
        return
    method = {
        Drafter.NGRAM: "ngram",
        Drafter.MTP: at_version(_MTP, at).value,
        Drafter.EAGLE: "eagle",
        Drafter.EAGLE3: "eagle3",
        Drafter.MODEL: "draft_model",
    }[drafting.drafter]
    if drafting.drafter is Drafter.EAGLE3 and at < _EAGLE3_SINCE:
        yield Refusal(text=f"vllm {spec.version} does not draft by eagle3 (it came with 0.9): it is left out")
        return
    if drafting.drafter is Drafter.MODEL and _LAST_V0_DRAFT <= at < _DRAFT_MODEL_SINCE:
        yield Refusal(
            text=f"vllm {spec.version} does not draft with a separate model (engine V1 does from 0.15 on): "
            "it is left out"
        )
        return
    config: dict[str, object] = {"method": method, "num_speculative_tokens": drafting.num_draft_tokens}
    if drafting.model_id:
        config["model"] = drafting.model_id
    if drafting.drafter is Drafter.NGRAM:
        config["prompt_lookup_max"] = _LONGEST_LOOKUP
    yield Want(flag="--speculative-config", value=json.dumps(config), why=why)


def _beside(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    if spec.cpu_offload_bytes:
        yield Want(flag="--cpu-offload-gb", value=spec.cpu_offload_bytes / GIB, why=spec.why("cpu_offload"))
    if spec.kv_offload_bytes:
        yield Want(flag="--kv-offloading-size", value=spec.kv_offload_bytes / GIB, why=spec.why("kv_offload"))
        yield Want(flag="--kv-offloading-backend", value="native", why="vLLM's own, without another library")
    if spec.lora_rank:
        yield Want(flag="--enable-lora", value=None, why=spec.why("lora"))
        yield Want(flag="--max-lora-rank", value=spec.lora_rank, why=spec.why("lora"))
        yield Want(flag="--max-loras", value=spec.num_adapters, why=spec.why("lora"))
    if spec.text_only:
        yield Want(flag="--language-model-only", value=None, why=spec.why("text_only"))
