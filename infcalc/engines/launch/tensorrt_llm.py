"""A launch in the words of ``trtllm-serve``, and of its YAML where it has no option."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.flags.table import first_known, version_of
from infcalc.engines.launch.spec import Drafter, Role
from infcalc.engines.launch.vllm import listening, no_weights, stated
from infcalc.engines.launch.want import Refusal, Want

if TYPE_CHECKING:
    from collections.abc import Iterator

    from infcalc.engines.launch.spec import Drafting, LaunchSpec

CONFIG_NAMES = ("--config", "--extra_llm_api_options")
_FRACTION_NAMES = ("--free_gpu_memory_fraction", "--kv_cache_free_gpu_memory_fraction")
_DRAFT_NAMES = ("speculative_config.speculative_model", "speculative_config.speculative_model_dir")
_KV_WORDS = {"fp8": "fp8", "nvfp4": "nvfp4", "fp8_ds_mla": "fp8_ds_mla"}
_TYPES = {
    Drafter.NGRAM: "NGram",
    Drafter.MTP: "MTP",
    Drafter.EAGLE: "Eagle",
    Drafter.EAGLE3: "Eagle3",
    Drafter.MODEL: "Draft_Target",
}
_PYTORCH_SINCE = (1, 0)


def wants(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    """Yield the options and YAML keys of one server of ``spec``."""
    at = version_of(spec.engine, spec.version)
    ranks = spec.parallelism
    if at < _PYTORCH_SINCE:
        yield Want(flag="--backend", value="pytorch", why="a checkpoint is served as it is, without building an engine")
    why = spec.why("tp") + (f"; --tp_size counts the {ranks.dp} attention ranks too" if ranks.dp > 1 else "")
    yield Want(flag="--tp_size", value=ranks.tp * ranks.dp, why=why)
    if ranks.pp > 1:
        yield Want(flag="--pp_size", value=ranks.pp, why=spec.why("pp"))
    if ranks.ep > 1:
        yield Want(flag="--ep_size", value=ranks.ep, why=spec.why("ep"))
    if ranks.dcp > 1:
        yield Refusal(text="TensorRT-LLM has no decode context parallelism as it is counted here: --dcp is left out")
    yield from stated(
        spec,
        (first_known("tensorrt-llm", _FRACTION_NAMES, at), spec.memory_fraction, "memory_fraction"),
        ("--max_seq_len", spec.max_model_len, "max_model_len"),
        ("--max_batch_size", spec.max_num_seqs, "max_num_seqs"),
        ("--max_num_tokens", spec.max_num_batched_tokens, "max_num_batched_tokens"),
    )
    yield from listening(spec)
    if ranks.dp > 1:
        yield Want(flag="enable_attention_dp", value=True, why=spec.why("dp"))
    yield from _precisions(spec)
    yield from _cache(spec)
    if spec.drafting is not None:
        yield from _drafting(spec, spec.drafting, at)
    yield from _beside(spec)


def _precisions(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    if spec.weights:
        yield Refusal(text=no_weights(spec, "TensorRT-LLM takes the precision of the checkpoint"))
    if spec.kv_dtype in {"bf16", "fp16"}:
        yield Want(flag="kv_cache_config.dtype", value="auto", why=spec.why("kv_dtype"))
    elif spec.kv_dtype:
        word = _KV_WORDS.get(spec.kv_dtype)
        if word is None:
            yield Refusal(text=f"TensorRT-LLM has no KV cache in {spec.kv_dtype}: kv_cache_config.dtype is left out")
        else:
            yield Want(flag="kv_cache_config.dtype", value=word, why=spec.why("kv_dtype"))


def _cache(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    if spec.block_tokens is not None:
        yield Want(flag="kv_cache_config.tokens_per_block", value=spec.block_tokens, why=spec.why("block_tokens"))
    if spec.prefix_caching is False:
        yield Want(flag="kv_cache_config.enable_block_reuse", value=False, why=spec.why("prefix_caching"))
    step = spec.max_num_batched_tokens
    if spec.chunked_prefill or (spec.chunked_prefill is None and step is not None and spec.max_model_len > step):
        why = spec.why("chunked_prefill") or (
            f"prompts may be longer than a step of {step:,} tokens, and are refused without it"
        )
        yield Want(flag="enable_chunked_prefill", value=True, why=why)
    if spec.kv_offload_bytes:
        each = spec.kv_offload_bytes // spec.parallelism.num_gpus
        yield Want(flag="kv_cache_config.host_cache_size", value=each, why=spec.why("kv_offload"))


def _drafting(spec: LaunchSpec, drafting: Drafting, at: tuple[int, ...]) -> Iterator[Want | Refusal]:
    why = spec.why("drafting")
    yield Want(flag="speculative_config.decoding_type", value=_TYPES[drafting.drafter], why=why)
    names: tuple[str, ...] = ("speculative_config.max_draft_len",)
    if drafting.drafter is Drafter.MTP:
        names = ("speculative_config.num_nextn_predict_layers", *names)
    length = first_known("tensorrt-llm", names, at)
    yield Want(flag=length, value=drafting.num_draft_tokens, why=f"{drafting.num_draft_tokens} tokens in a round")
    if drafting.model_id:
        flag = first_known("tensorrt-llm", _DRAFT_NAMES, at)
        yield Want(flag=flag, value=drafting.model_id, why="the draft's own checkpoint")


def _beside(spec: LaunchSpec) -> Iterator[Want | Refusal]:
    if spec.enforce_eager:
        yield Refusal(text="TensorRT-LLM: no key to run without CUDA graphs is on record: --enforce-eager is left out")
    if spec.cpu_offload_bytes:
        yield Refusal(text="TensorRT-LLM keeps no weights in host memory: --cpu-offload-gb is left out")
    if spec.lora_rank:
        yield Refusal(text="TensorRT-LLM: no key for adapters is on record: --lora-rank is left out")
    if spec.text_only:
        yield Refusal(text="TensorRT-LLM has no option to leave pictures out: --text-only is left out")
    if spec.served_name:
        yield Refusal(
            text="TensorRT-LLM: from which version on it takes a name is not on record: --served-name is left out"
        )
    if spec.role is not Role.SERVER:
        yield Want(flag="cache_transceiver_config.backend", value="DEFAULT", why=spec.why("role"))
        if spec.role is Role.PREFILL:
            yield Want(
                flag="disable_overlap_scheduler",
                value=True,
                why="a prefill server has no step to overlap with, and hands its first token on",
            )
