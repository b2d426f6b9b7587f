"""A launch in the words of ``python -m sglang.launch_server``."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.engines.flags.table import has_flag, version_of
from infcalc.engines.launch.spec import Drafter, Role
from infcalc.engines.launch.vllm import Words, listening, named, precisions, stated
from infcalc.engines.launch.want import Refusal, Want
from infcalc.units import GB, GIB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.engines.launch.spec import Drafting, LaunchSpec

_KV_WORDS = {"bf16": "bf16", "fp8": "fp8_e4m3", "nvfp4": "nvfp4"}
"""Source: choices of ``--kv-cache-dtype`` of 0.5.23."""
_ONLINE = {"fp8": "fp8"}
_STORED = {
    "awq": "awq",
    "gptq": "gptq",
    "nvfp4": "modelopt_fp4",
    "mxfp4": "mxfp4",
    "int8": "w8a8_int8",
    "int4": "compressed-tensors",
}
"""Source: choices of ``--quantization``."""
_ALGORITHMS = {
    Drafter.NGRAM: ("NGRAM", (0, 5, 3)),
    Drafter.MTP: ("NEXTN", (0, 4, 4)),
    Drafter.EAGLE: ("EAGLE", (0, 4, 4)),
    Drafter.EAGLE3: ("EAGLE3", (0, 4, 6)),
    Drafter.MODEL: ("STANDALONE", (0, 5, 2)),
}
"""Ways of drafting, each with the first release read that has it. Source: choices of ``--speculative-algorithm``."""


def wants(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    """Yield the options of one server of ``spec``, machine 0 of a replica."""
    at = version_of(spec.engine, spec.version)
    yield Want(flag="--model-path", value=spec.model_id, why=spec.why("model"))
    yield from _ranks(spec, at)
    yield from precisions(spec, _WORDS)
    yield from stated(
        spec,
        ("--mem-fraction-static", spec.memory_fraction, "memory_fraction"),
        ("--context-length", spec.max_model_len, "max_model_len"),
        ("--max-running-requests", spec.max_num_seqs, "max_num_seqs"),
        ("--chunked-prefill-size", _chunk(spec), "max_num_batched_tokens"),
        ("--page-size", spec.block_tokens, "block_tokens"),
    )
    if spec.prefix_caching is False:
        yield Want(flag="--disable-radix-cache", value=None, why=spec.why("prefix_caching"))
    if spec.enforce_eager:
        yield Want(flag="--disable-cuda-graph", value=None, why=spec.why("enforce_eager"))
    if spec.drafting is not None:
        yield from _drafting(spec, spec.drafting, at)
    yield from _beside(spec)
    if spec.role is not Role.SERVER:
        yield Want(flag="--disaggregation-mode", value=spec.role.value, why=spec.why("role"))
        yield Want(flag="--disaggregation-transfer-backend", value="nixl", why="KV moves over NIXL on both sides")
    yield from named(spec)
    yield from listening(spec)


def _ranks(spec: LaunchSpec, at: tuple[int, ...]) -> Iterator[Want | Refusal]:
    ranks = spec.parallelism
    shared = spec.has_experts and ranks.dp > 1
    tp = ranks.tp * ranks.dp if shared else ranks.tp
    why = spec.why("tp") + (f"; --tp-size counts the {ranks.dp} attention ranks too" if shared else "")
    yield Want(flag="--tp-size", value=tp, why=why)
    if ranks.pp > 1:
        yield Want(flag="--pp-size", value=ranks.pp, why=spec.why("pp"))
    if shared and has_flag("sglang", "--attn-dp-size", at):
        yield Want(flag="--attn-dp-size", value=ranks.dp, why=spec.why("dp"))
    elif ranks.dp > 1:
        yield Want(flag="--dp-size", value=ranks.dp, why=spec.why("dp"))
        if shared:
            yield Want(flag="--enable-dp-attention", value=None, why="--dp-size counts attention ranks, not copies")
    if ranks.ep > 1:
        yield Want(flag="--ep-size", value=ranks.ep, why=spec.why("ep"))
    if ranks.dcp > 1:
        yield Want(flag="--dcp-size", value=ranks.dcp, why=spec.why("dcp"))


def _chunk(spec: LaunchSpec) -> int | None:
    return -1 if spec.chunked_prefill is False else spec.max_num_batched_tokens


_WORDS = Words(engine="SGLang", online=_ONLINE, stored=_STORED, kv=_KV_WORDS)


def _drafting(spec: LaunchSpec, drafting: Drafting, at: tuple[int, ...]) -> Iterator[Want | Refusal]:
    algorithm, since = _ALGORITHMS[drafting.drafter]
    if at < since:
        yield Refusal(text=f"sglang {spec.version} does not draft by {algorithm}: it is left out")
        return
    why = spec.why("drafting")
    yield Want(flag="--speculative-algorithm", value=algorithm, why=why)
    if drafting.model_id:
        yield Want(flag="--speculative-draft-model-path", value=drafting.model_id, why="the draft's own checkpoint")
    number = drafting.num_draft_tokens
    if drafting.drafter is not Drafter.NGRAM:
        yield Want(flag="--speculative-num-steps", value=number, why=f"a chain of {number} drafted tokens")
        yield Want(flag="--speculative-eagle-topk", value=1, why="one child each: a chain, no tree")
    yield Want(
        flag="--speculative-num-draft-tokens",
        value=number + 1,
        why=f"{number} drafted tokens are verified with the one before them",
    )


def _beside(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    if spec.cpu_offload_bytes:
        yield Want(flag="--cpu-offload-gb", value=math.ceil(spec.cpu_offload_bytes / GIB), why=spec.why("cpu_offload"))
    if spec.kv_offload_bytes:
        ranks = spec.parallelism.num_gpus
        each = math.floor(spec.kv_offload_bytes / ranks / GB)
        yield Want(flag="--enable-hierarchical-cache", value=None, why=spec.why("kv_offload"))
        yield Want(flag="--hicache-size", value=max(1, each), why=f"the host memory, over {ranks} ranks")
    if spec.lora_rank:
        yield Want(flag="--enable-lora", value=None, why=spec.why("lora"))
        yield Want(flag="--max-lora-rank", value=spec.lora_rank, why=spec.why("lora"))
        yield Want(flag="--max-loras-per-batch", value=spec.num_adapters, why=spec.why("lora"))
    if spec.text_only:
        yield Refusal(text="SGLang has no option to serve a multimodal model without pictures: --text-only is left out")
