"""A launch in the words of ``llama-server``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.launch.spec import Drafter, Role
from infcalc.engines.launch.vllm import listening
from infcalc.engines.launch.want import Refusal, Want

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.engines.launch.spec import Drafting, LaunchSpec

_KV_WORDS = {"bf16": "bf16", "fp16": "f16", "fp32": "f32", "q8_0": "q8_0", "q4_0": "q4_0"}
_WHOLE = frozenset({"bf16", "f16", "f32"})


def wants(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    """Yield the options of one server of ``spec``."""
    yield Want(flag="-m", value=spec.model_id, why=spec.why("model"))
    yield Want(flag="-ngl", value=spec.num_layers + 1, why=f"all {spec.num_layers} layers and the head on the GPU")
    if spec.parallelism.num_gpus > 1:
        by_row = spec.parallelism.tp > 1
        yield Want(flag="-sm", value="row" if by_row else "layer", why=spec.why("tp" if by_row else "pp"))
    yield Want(flag="-c", value=spec.max_model_len, why=spec.why("max_model_len"))
    if spec.max_num_seqs is not None:
        yield Want(flag="-np", value=spec.max_num_seqs, why=spec.why("max_num_seqs"))
    if spec.max_num_batched_tokens is not None:
        yield Want(flag="-ub", value=spec.max_num_batched_tokens, why=spec.why("max_num_batched_tokens"))
    if spec.kv_dtype:
        yield from _cache(spec)
    if spec.drafting is not None:
        yield from _drafting(spec, spec.drafting)
    for asked, option in (
        (spec.prefix_caching is False, "--no-prefix-caching"),
        (spec.chunked_prefill is False, "--no-chunked-prefill"),
        (spec.enforce_eager, "--enforce-eager"),
        (spec.cpu_offload_bytes > 0, "--cpu-offload-gb"),
        (spec.kv_offload_bytes > 0, "--kv-offload-gib"),
        (spec.lora_rank > 0, "--lora-rank"),
        (spec.text_only, "--text-only"),
        (spec.role is not Role.SERVER, "a disaggregated pair"),
    ):
        if asked:
            yield Refusal(text=f"llama.cpp has no option for it: {option} is left out")
    yield from _named(spec)
    yield from listening(spec)


def _named(spec: LaunchSpec) -> Iterator[Want]:
    if spec.served_name:
        yield Want(flag="-a", value=spec.served_name, why=spec.why("served_name"))


def _cache(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    word = _KV_WORDS.get(spec.kv_dtype)
    if word is None:
        yield Refusal(text=f"llama.cpp has no KV cache in {spec.kv_dtype}: -ctk and -ctv are left out")
        return
    yield Want(flag="-ctk", value=word, why=spec.why("kv_dtype"))
    yield Want(flag="-ctv", value=word, why=spec.why("kv_dtype"))
    if word not in _WHOLE:
        yield Want(flag="-fa", value="on", why="values in fewer than 16 bit need flash attention")


def _drafting(spec: LaunchSpec, drafting: Drafting) -> Iterator[Want | Refusal]:
    if drafting.drafter is not Drafter.MODEL:
        yield Refusal(text=f"llama.cpp drafts with a separate model only: {drafting.drafter} is left out")
        return
    yield Want(flag="-md", value=drafting.model_id, why=spec.why("drafting"))
    yield Want(
        flag="--draft-max", value=drafting.num_draft_tokens, why=f"{drafting.num_draft_tokens} tokens in a round"
    )
