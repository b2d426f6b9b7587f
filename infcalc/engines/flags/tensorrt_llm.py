"""Options of ``trtllm-serve`` and keys of its YAML, which go before the options.

Read from TensorRT-LLM near 1.4 (``tensorrt_llm/commands/serve.py``, ``llmapi/llm_args.py``); older spellings from the
command's page of 0.18.2 and 1.0. Where a newer spelling has no release on record, the older, which is still taken, is
written up to 1.2.
"""

from __future__ import annotations

from infcalc.engines.flags.flag import Flag, Place

_COMMAND = "TensorRT-LLM 1.4, tensorrt_llm/commands/serve.py"
_OLD_COMMAND = "TensorRT-LLM 0.18.2 to 1.4, trtllm-serve"
_ARGUMENTS = "TensorRT-LLM 1.4, tensorrt_llm/llmapi/llm_args.py"
_SHORT_NAMES = (1, 3)

FLAGS = (
    Flag(
        name="--backend",
        meaning="runtime: pytorch, or a compiled engine",
        default="pytorch from 1.0 on",
        source=_OLD_COMMAND,
        until=(1, 0),
    ),
    Flag(
        name="--tp_size",
        meaning="GPUs of a stage: with attention data parallelism, its ranks too",
        default="1",
        keyword="tensor_parallel_size",
        source=_OLD_COMMAND,
    ),
    Flag(
        name="--pp_size",
        meaning="stages that hold some layers each",
        default="1",
        keyword="pipeline_parallel_size",
        source=_OLD_COMMAND,
    ),
    Flag(
        name="--ep_size",
        meaning="ranks that whole experts are spread over",
        default="1",
        keyword="moe_expert_parallel_size",
        source=_OLD_COMMAND,
    ),
    Flag(
        name="--max_batch_size",
        meaning="requests that run at once; buffers of the decoder are allocated for so many",
        default="2048",
        keyword="max_batch_size",
        source=_OLD_COMMAND,
    ),
    Flag(
        name="--max_num_tokens",
        meaning="tokens of one step; without chunked prefill also of the longest prompt",
        default="8192",
        keyword="max_num_tokens",
        source=_OLD_COMMAND,
    ),
    Flag(
        name="--max_seq_len",
        meaning="longest prompt and answer together",
        default="the model's",
        keyword="max_seq_len",
        source=_OLD_COMMAND,
    ),
    Flag(
        name="--free_gpu_memory_fraction",
        meaning="fraction of the memory that weights and activation leave free, for KV",
        default="0.9",
        since=_SHORT_NAMES,
        keyword="kv_cache_config.free_gpu_memory_fraction",
        source=_COMMAND,
    ),
    Flag(
        name="--kv_cache_free_gpu_memory_fraction",
        meaning="fraction of the memory that weights and activation leave free, for KV",
        default="0.9",
        until=_SHORT_NAMES,
        keyword="kv_cache_config.free_gpu_memory_fraction",
        source=_OLD_COMMAND,
    ),
    Flag(
        name="--config",
        meaning="the YAML with what has no option; it goes before the options",
        since=_SHORT_NAMES,
        source=_COMMAND,
    ),
    Flag(
        name="--extra_llm_api_options",
        meaning="the YAML with what has no option; it goes before the options",
        until=_SHORT_NAMES,
        source=_OLD_COMMAND,
    ),
    Flag(name="--host", meaning="address to listen on", default="localhost", source=_OLD_COMMAND),
    Flag(name="--port", meaning="port to listen on", default="8000", source=_OLD_COMMAND),
    Flag(
        name="kv_cache_config.dtype",
        meaning="how keys and values are stored: auto, fp8, fp8_ds_mla or nvfp4",
        default="auto",
        keyword="kv_cache_config.dtype",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="kv_cache_config.enable_block_reuse",
        meaning="blocks of prompts seen before are used again",
        default="true",
        keyword="kv_cache_config.enable_block_reuse",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="kv_cache_config.tokens_per_block",
        meaning="tokens of a KV block",
        default="32",
        keyword="kv_cache_config.tokens_per_block",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="kv_cache_config.host_cache_size",
        meaning="bytes of host memory for the KV of each rank",
        default="0",
        keyword="kv_cache_config.host_cache_size",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="enable_attention_dp",
        meaning="attention ranks have sequences of their own; experts are shared",
        default="false",
        keyword="enable_attention_dp",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="enable_chunked_prefill",
        meaning="a prompt longer than a step is computed in chunks",
        default="false",
        keyword="enable_chunked_prefill",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="speculative_config.decoding_type",
        meaning="way of drafting: Eagle3, Eagle, MTP, Draft_Target or NGram",
        keyword="speculative_config.decoding_type",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="speculative_config.max_draft_len",
        meaning="tokens that are drafted in a round",
        keyword="speculative_config.max_draft_len",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="speculative_config.num_nextn_predict_layers",
        meaning="tokens that MTP layers draft in a round",
        until=_SHORT_NAMES,
        keyword="speculative_config.num_nextn_predict_layers",
        place=Place.FILE,
        source="TensorRT-LLM, docs/source/blogs (DeepSeek-R1 on B200)",
    ),
    Flag(
        name="speculative_config.speculative_model",
        meaning="hub id or folder of the draft",
        since=_SHORT_NAMES,
        keyword="speculative_config.speculative_model",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="speculative_config.speculative_model_dir",
        meaning="folder of the draft",
        until=_SHORT_NAMES,
        keyword="speculative_config.speculative_model_dir",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="cache_transceiver_config.backend",
        meaning="over what KV moves: DEFAULT (NIXL), UCX, MPI or MOONCAKE",
        default="none",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
    Flag(
        name="disable_overlap_scheduler",
        meaning="a prefill server hands its first token on before the next step",
        default="false",
        keyword="disable_overlap_scheduler",
        place=Place.FILE,
        source=_ARGUMENTS,
    ),
)
