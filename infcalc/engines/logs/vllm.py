"""vLLM's start-up lines, V0 and V1, from 0.2 to 0.33; the label GB means GiB."""

from __future__ import annotations

from infcalc.engines.logs.grammar import ArgumentList, Grammar, Keep, out_of_memory_shapes, shape
from infcalc.engines.logs.reading import FailureKind, Quantity

GRAMMAR = Grammar(
    engine="vllm",
    starts=("vLLM API server version", "LLM engine (v"),
    shapes=(
        shape("LLM engine (v", r"Initializing an? (?:(?P<runner>V[01]) )?LLM engine \(v(?P<version>[\w.+-]{1,60})\)"),
        # The second model runner lives in a file of that name; so did that of V0, which says V0.
        shape("[model_runner.py:", r"(?P<runner_v2>\[model_runner\.py:)[0-9]{1,6}\] (?:Model loading|Graph capturing)"),
        shape("API server version", r"vLLM API server version:? v?(?P<version>[\w.+-]{1,60})"),
        shape("odel loading took", r"[Mm]odel loading took <weights_bytes> (?:GiB|GB)"),
        shape("odel weights took", r"Loading model weights took <weights_bytes> (?:GiB|GB)"),
        shape("weights take", r"model weights take <weights_bytes>\s?GiB"),
        shape("non_torch_memory takes", r"non_torch_memory takes <non_torch_bytes>\s?GiB"),
        shape("activation peak memory takes", r"activation peak memory takes <activation_bytes>\s?GiB"),
        shape("reserved for KV Cache is", r"reserved for KV Cache is <kv_pool_bytes>\s?GiB"),
        shape(
            "x gpu_memory_utilization",
            r"total_gpu_memory \(<device_total_bytes>\s?GiB\) x gpu_memory_utilization \(<printed_fraction>\) = "
            r"<usable_bytes>\s?GiB",
        ),
        shape("total_gpu_memory=", r"total_gpu_memory=<device_total_bytes>\s?GiB"),
        shape("peak_torch_memory=", r"peak_torch_memory=<peak_bytes>\s?GiB"),
        shape("non_torch_memory=", r"non_torch_memory=<non_torch_bytes>\s?GiB"),
        shape("kv_cache_size=", r"kv_cache_size=<kv_pool_bytes>\s?GiB"),
        shape("gpu_memory_utilization=", r"kv_cache_size=.{1,40} gpu_memory_utilization=<printed_fraction>"),
        shape("Available KV cache memory", r"Available KV cache memory: <kv_pool_bytes> GiB"),
        shape(
            "Free memory on device",
            r"Free memory on device[^()]{0,40}\(<free_at_start_bytes>/<device_total_bytes> GiB\)",
        ),
        shape("utilization is (", r"utilization is \(<memory_fraction>, <usable_bytes> GiB\)"),
        shape("Requested memory:", r"Requested memory: <printed_fraction> \(util\), <usable_bytes> GiB"),
        shape("GiB for weight", r"<weights_bytes> GiB for weights?,"),
        shape("for consumed memory", r"<weights_and_non_torch_bytes> GiB for consumed memory"),
        shape("for peak activation", r"<activation_bytes> GiB for peak activation"),
        shape("for non-torch memory", r"<non_torch_bytes> GiB for non-torch memory"),
        shape("raph memory", r"<cuda_graph_bytes> GiB for (?:CUDA ?|NPU |XPU )[Gg]raph memory"),
        shape("kv cache memory in use", r"kv cache memory in use is <kv_pool_bytes> GiB"),
        shape("torch peak memory increase", r"torch peak memory increase: <activation_bytes>\s?GiB"),
        shape("non-torch forward increase", r"non-torch forward increase memory: <non_torch_bytes>\s?GiB"),
        shape("weights memory:", r"weights memory: <weights_bytes>\s?GiB"),
        shape("Estimated CUDA graph memory", r"Estimated CUDA graph memory: <cuda_graph_estimate_bytes> GiB"),
        shape(
            "CUDA graph pool memory",
            r"CUDA graph pool memory: <cuda_graph_bytes> GiB \(actual\), <cuda_graph_estimate_bytes> GiB \(estimated\)",
        ),
        shape("Graph capturing finished", r"Graph capturing finished in .{1,40}?took <cuda_graph_bytes> GiB"),
        shape(
            "is equivalent to --gpu-memory-utilization",
            r"The current --gpu-memory-utilization=<memory_fraction> is equivalent to",
        ),
        shape("graph memory profiling is disabled", r"(?P<graphs_uncharged>CUDA graph memory profiling is disabled)"),
        shape("# GPU blocks", r"# GPU blocks: <kv_blocks>"),
        shape("cuda blocks", r"# cuda blocks: <kv_blocks>"),
        shape("CUDA blocks", r"# CUDA blocks: <kv_blocks>"),
        shape("rocm blocks", r"# rocm blocks: <kv_blocks>"),
        shape("KV cache size", r"[GC]PU KV cache size: <kv_cache_tokens> tokens"),
        shape(
            "Maximum concurrency for",
            r"Maximum concurrency for <printed_length> tokens per request: <max_concurrency>x",
        ),
        shape("max model len", r"Using max model len <printed_length>"),
        shape(
            "max_num_batched_tokens=",
            r"[Cc]hunked prefill is enabled (?:with|\().{0,20}?max_num_batched_tokens=<max_num_batched_tokens>",
        ),
        shape("attention block size to", r"Setting attention block size to <block_tokens> tokens", note=True),
        shape("Padding mamba page", r"Padding mamba page size by <padding>\s?%", note=True),
        shape("padding layers", r"Add <padding> padding layers", note=True),
        shape(
            "larger than the available KV cache",
            r"max seq len \(<max_model_len>\).{0,20}?\(?<needed> GiB KV cache is needed, which is larger than the "
            r"available KV cache memory \(<available> GiB\)(?:.{0,200}estimated maximum model length is <estimated>)?",
            failure=FailureKind.ONE_REQUEST,
        ),
        shape(
            "that can be stored in KV cache",
            r"max seq len \(<max_model_len>\) is larger than the maximum number of tokens that can be stored in KV "
            r"cache \(<estimated>\)",
            failure=FailureKind.ONE_REQUEST,
        ),
        shape(
            "less than desired GPU memory utilization",
            r"\(<available>/<total> GiB\) on startup is less than desired GPU memory utilization "
            r"\(<fraction>, <needed> GiB\)",
            failure=FailureKind.FREE_MEMORY,
        ),
        shape(
            "No available memory for the cache blocks",
            r"No available memory for the cache blocks",
            failure=FailureKind.NO_ROOM,
        ),
        shape(
            "available Mamba cache blocks",
            r"max_num_seqs \(<max_num_seqs>\) exceeds (?:the )?available Mamba cache blocks \(<num_blocks>\)",
            failure=FailureKind.STATES,
        ),
        *out_of_memory_shapes(),
    ),
    arguments=(
        ArgumentList(clue="with config: "),
        ArgumentList(clue="non-default args: {", sure=False),
        ArgumentList(clue="args: Namespace(", sure=False),
        ArgumentList(clue="vllm serve ", command_line=True, sure=False),
        ArgumentList(clue="vllm.entrypoints.openai.api_server", command_line=True, sure=False),
    ),
    names={
        "model": "model",
        "model_tag": "model",
        "served_model_name": "served_name",
        "tensor_parallel_size": "tp",
        "tp": "tp",
        "pipeline_parallel_size": "pp",
        "pp": "pp",
        "data_parallel_size": "dp",
        "dp": "dp",
        "decode_context_parallel_size": "dcp",
        "dcp": "dcp",
        "enable_expert_parallel": "expert_parallel",
        "max_seq_len": "max_model_len",
        "max_model_len": "max_model_len",
        "dtype": "dtype",
        "quantization": "quantization",
        "kv_cache_dtype": "kv_dtype",
        "gpu_memory_utilization": "memory_fraction",
        "max_num_seqs": "max_num_seqs",
        "max_num_batched_tokens": "max_num_batched_tokens",
        "enforce_eager": "enforce_eager",
        "block_size": "block_size",
        "speculative_config": "speculative",
        "kv_cache_memory_bytes": "kv_pool_bytes_set",
        "kv_cache_memory": "kv_pool_bytes_set",
        "num_gpu_blocks_override": "kv_blocks_set",
        "cpu_offload_gb": "cpu_offload",
        "enable_lora": "lora",
        "max_lora_rank": "max_lora_rank",
        "max_loras": "max_loras",
    },
    keep={
        # A draft model prints its own, smaller, line.
        Quantity.WEIGHTS: Keep.LARGEST,
        # Where every worker reports its own, the smallest holds for all.
        Quantity.TOKENS: Keep.SMALLEST,
        Quantity.BLOCKS: Keep.SMALLEST,
        Quantity.CONCURRENCY: Keep.SMALLEST,
    },
    looked_for=(
        "'Initializing a V1 LLM engine'",
        "'Model loading took'",
        "'Available KV cache memory'",
        "'GPU KV cache size'",
        "'# GPU blocks'",
    ),
)
