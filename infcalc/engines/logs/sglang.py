"""SGLang's start-up lines, from 0.4 to 0.5; the label GB means GiB."""

from __future__ import annotations

from infcalc.engines.logs.grammar import ArgumentList, Grammar, Keep, out_of_memory_shapes, shape
from infcalc.engines.logs.reading import FailureKind, Quantity

_FIRST = (
    # A draft model is loaded after the target and prints the same lines.
    Quantity.FREE_BEFORE_WEIGHTS,
    Quantity.FREE_AFTER_WEIGHTS,
    Quantity.WEIGHTS,
    Quantity.KEYS,
    Quantity.VALUES,
    Quantity.POOL,
)

GRAMMAR = Grammar(
    engine="sglang",
    starts=("server_args=ServerArgs(",),
    shapes=(
        shape("sglang", r"[Ss][Gg][Ll]ang (?:version|v)[ =:]*v?(?P<version>[0-9][\w.+-]{1,60})"),
        shape("Load weight begin", r"Load weight begin\. avail mem=<free_before_weights_bytes> GB"),
        shape("Load weight end", r"Load weight end\..{0,200}?avail mem=<free_after_weights_bytes> GB"),
        shape("Load weight end", r"Load weight end\..{0,240}?mem usage=<weights_bytes> GB"),
        shape("KV Cache is allocated", r"KV Cache is allocated\..{0,80}?#tokens: <kv_cache_tokens>"),
        shape(", K size", r"#tokens: .{1,30}, K size: <key_cache_bytes> GB, V size: <value_cache_bytes> GB"),
        shape(", KV size", r"#tokens: .{1,30}, KV size: <kv_pool_bytes> GB"),
        shape("SWAKVPool mem usage", r"SWAKVPool mem usage: <kv_pool_bytes>[0-9]{0,20} GB"),
        shape("full_layer_tokens=", r"full_layer_tokens=<kv_cache_tokens>"),
        shape("sliding window memory pool", r"(?P<window_pool>[Uu]se [Ss]liding window memory pool)"),
        *(
            # Drafting keeps the states of its tokens beside those of the sequences.
            shape("is allocated. max_mamba_cache_size", rf"{part} size: <state_bytes>\s?GB", note=True)
            for part in (
                *("conv_state", "ssm_state", "ssm_spec_cache"),
                *("intermediate_ssm_state_cache", "intermediate_conv_window_cache"),
            )
        ),
        shape("graph end", r"(?i:Capture .{0,40}?graph end)\..{0,200}?mem usage=<cuda_graph_bytes> GB"),
        shape("max_total_num_tokens=", r"max_total_num_tokens=<kv_cache_tokens>"),
        shape("max_total_num_tokens=", r"max_total_num_tokens=.{0,60}chunked_prefill_size=<max_num_batched_tokens>"),
        shape("max_total_num_tokens=", r"max_total_num_tokens=.{0,160}max_running_requests=<max_num_seqs>"),
        shape("max_total_num_tokens=", r"max_total_num_tokens=.{0,200}context_len=<printed_length>"),
        shape(
            "Not enough memory",
            r"Not enough memory\. Please try",
            failure=FailureKind.NO_ROOM,
        ),
        *out_of_memory_shapes(),
    ),
    arguments=(
        ArgumentList(clue="server_args=ServerArgs("),
        ArgumentList(clue="sglang.launch_server", command_line=True, sure=False),
        ArgumentList(clue="sglang serve", command_line=True, sure=False),
    ),
    names={
        "model_path": "model",
        "model": "model",
        "served_model_name": "served_name",
        "tp_size": "tp",
        "tp": "tp",
        "tensor_parallel_size": "tp",
        "pp_size": "pp",
        "pipeline_parallel_size": "pp",
        "dp_size": "dp",
        "dp": "dp",
        "data_parallel_size": "dp",
        "ep_size": "ep",
        "ep": "ep",
        "enable_dp_attention": "dp_attention",
        "attn_dp_size": "attention_ranks",
        "attention_data_parallel_size": "attention_ranks",
        "context_length": "max_model_len",
        "dtype": "dtype",
        "quantization": "quantization",
        "kv_cache_dtype": "kv_dtype",
        "mem_fraction_static": "memory_fraction",
        "max_running_requests": "max_num_seqs",
        "chunked_prefill_size": "max_num_batched_tokens",
        "page_size": "block_size",
        "disable_cuda_graph": "enforce_eager",
        "speculative_algorithm": "speculative",
        "max_total_tokens": "kv_cache_tokens_set",
        "cpu_offload_gb": "cpu_offload",
        "enable_lora": "lora",
        "max_lora_rank": "max_lora_rank",
        "max_loras_per_batch": "max_loras",
    },
    keep=dict.fromkeys(_FIRST, Keep.FIRST)
    | {
        Quantity.GRAPHS: Keep.SUM,
        Quantity.STATE: Keep.FIRST_LINE,
        # The pool of the windowed layers, which holds fewer, is set up first.
        Quantity.TOKENS: Keep.LARGEST,
    },
    looked_for=(
        "'server_args=ServerArgs('",
        "'Load weight end'",
        "'KV Cache is allocated. #tokens'",
        "'max_total_num_tokens='",
    ),
)
