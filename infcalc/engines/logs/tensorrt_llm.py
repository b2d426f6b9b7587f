"""TensorRT-LLM's start-up lines: engines and PyTorch backend; GB of the runtime's buffers is taken as printed."""

from __future__ import annotations

from infcalc.engines.logs.grammar import ArgumentList, Grammar, Keep, out_of_memory_shapes, shape
from infcalc.engines.logs.reading import Quantity
from infcalc.units import GIB, MIB

GRAMMAR = Grammar(
    engine="tensorrt-llm",
    starts=("TensorRT-LLM version:", "TensorRT LLM version:", "LLM Args:"),
    shapes=(
        shape("version:", r"TensorRT[- ]LLM version: (?P<version>[\w.+-]{1,60})"),
        shape("found in the config file", r"Engine version (?P<version>[\w.+-]{1,60}) found in the config"),
        shape("Loaded engine size", r"Loaded engine size: <weights_bytes> MiB", unit=MIB),
        shape("after loading model weights", r"loading model weights \(inside torch\).{0,60}: <weights_bytes> GiB"),
        shape("dynamically allocated during inference", r"\(inside torch\).{0,60}: <activation_bytes> GiB"),
        shape("used outside torch", r"Memory used outside torch .{0,120}: <non_torch_bytes> GiB"),
        shape("Peak memory during", r"\(torch \+ non-torch\): <peak_bytes> GiB"),
        shape("Peak memory during", r"when calculating max tokens: <kv_pool_bytes> GiB"),
        shape("fraction is set", r"fraction is set <memory_fraction>"),
        shape("kv size", r"kv size(?: per token)? is <kv_bytes_per_token>(?![0-9])", unit=1),
        shape("device total memory", r"device total memory <device_total_bytes> GiB"),
        shape("tmp kv_mem", r"tmp kv_mem\s+<temporary_kv_bytes> GiB"),
        shape("temporary kv cache memory", r"temporary kv cache memory[\w ]{0,40} <temporary_kv_bytes> GiB"),
        shape(
            "calculating max tokens in paged",
            r"in paged kv cache: total: <device_total_bytes> GiB, available: <free_for_kv_bytes> GiB",
        ),
        shape(
            "for max tokens in paged KV cache",
            r"Allocated <kv_pool_bytes> GiB for max tokens in paged KV cache \(<kv_cache_tokens>\)",
            unit=GIB,
        ),
        shape("primary pool", r"Number of blocks in KV cache primary pool: <kv_blocks>"),
        shape("tokens per block", r"Number of tokens per block: <block_tokens>"),
        shape("max_seq_len=", r"max_seq_len=<printed_length>, max_num_requests"),
        shape("max_num_tokens=", r"max_num_requests=.{0,40}max_num_tokens=<max_num_batched_tokens>"),
        shape("max_batch_size=", r"max_num_tokens=.{0,40}max_batch_size=<max_num_seqs>"),
        *out_of_memory_shapes(),
    ),
    arguments=(
        # The arguments follow on a line of their own.
        ArgumentList(clue="tensor_parallel_size=", spaced=True, sure=False),
        ArgumentList(clue="TensorRT-LLM engine args: {", sure=False),
        ArgumentList(clue="trtllm-serve ", command_line=True, sure=False),
        ArgumentList(clue="trtllm-bench ", command_line=True, sure=False),
    ),
    names={
        "model": "model",
        "model_path": "model",
        "tensor_parallel_size": "tp",
        "tp_size": "tp",
        "tp": "tp",
        "pipeline_parallel_size": "pp",
        "pp_size": "pp",
        "pp": "pp",
        "moe_expert_parallel_size": "ep",
        "ep_size": "ep",
        "max_seq_len": "max_model_len",
        "max_num_tokens": "max_num_batched_tokens",
        "max_batch_size": "max_num_seqs",
        "dtype": "dtype",
        "kv_cache_free_gpu_memory_fraction": "memory_fraction",
        "free_gpu_memory_fraction": "memory_fraction",
    },
    keep={
        # The first pool is the small one of the profiling run.
        Quantity.POOL: Keep.LAST,
        Quantity.TOKENS: Keep.LAST,
        Quantity.BLOCKS: Keep.LAST,
    },
    looked_for=(
        "'Peak memory during memory usage profiling'",
        "'Memory usage when calculating max tokens in paged kv cache'",
        "'Allocated ... for max tokens in paged KV cache'",
    ),
)
