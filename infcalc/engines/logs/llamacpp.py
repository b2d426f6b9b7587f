"""llama.cpp's start-up lines, old prefixes and new; memory is in MiB, and what several devices hold adds up."""

from __future__ import annotations

from infcalc.engines.logs.grammar import ArgumentList, Grammar, Keep, shape
from infcalc.engines.logs.reading import FailureKind, Quantity
from infcalc.units import MIB

GRAMMAR = Grammar(
    engine="llama.cpp",
    starts=("build: ",),
    second_model="loaded meta data with",
    shapes=(
        shape("build:", r"\bbuild: (?P<version>[0-9]{1,7} \([0-9a-f]{4,40}\))"),
        shape("loaded meta data with", r"tensors from (?P<model>.{1,400}?)(?: \(version|$)"),
        shape("general.name", r"general\.name\s*(?:str\s*)?= (?P<served_name>.{1,200}?)\s*$"),
        shape("model buffer size", r"(?P<device>[\w-]{1,40}) model buffer size =\s*<weights_bytes> MiB", unit=MIB),
        shape("load_tensors:", r"load_tensors:\s+(?P<device>\w{1,40})\s+buffer size =\s*<weights_bytes> MiB", unit=MIB),
        shape("KV buffer size", r"(?P<device>[\w-]{1,40}) KV buffer size =\s*<kv_pool_bytes> MiB", unit=MIB),
        shape("RS buffer size", r"(?P<device>[\w-]{1,40}) RS buffer size =\s*<state_bytes> MiB", unit=MIB),
        shape(
            "compute buffer size",
            r"(?P<device>[\w-]{1,40}) compute buffer size =\s*<compute_buffer_bytes> MiB",
            unit=MIB,
        ),
        shape("K (", r"\bK \((?P<kv_dtype>\w{1,12})\)"),
        # Sequences that share no cells have a stream of as many cells each: "4/4 seqs" are 4 in 4 streams.
        shape("cells", r"\(\s*<kv_cache_tokens> cells(?:,.{0,20}?layers,\s*[0-9]{1,6}/\s*(?P<times>[0-9]{1,6}) seqs)?"),
        shape("cells", r"cells,.{0,20}layers,\s*<sequences>(?:/\s*<streams>)? seqs"),
        shape("n_ctx ", r"\bn_ctx\s{0,20}=\s*<max_model_len>"),
        shape("n_ubatch", r"\bn_ubatch\s{0,20}=\s*<max_num_batched_tokens>"),
        shape("flash_attn", r"\bflash_attn\s{0,20}=\s*(?P<flash_attention>\w{1,12})"),
        shape("ftype", r"\bmodel ftype\s{0,20}= (?P<file_type>\S.{0,60}?)\s*$"),
        shape("file type", r"\bfile type\s{0,20}= (?P<file_type>\S.{0,60}?)\s*$"),
        shape("kv_unified", r"\bkv_unified\s{0,20}=\s*(?P<kv_unified>true|false)"),
        shape("n_seq_max", r"\bn_seq_max\s{0,20}=\s*<sequences>"),
        shape("layers to GPU", r"offloaded <offloaded_layers>/<layers> layers to GPU"),
        shape(
            "out of memory",
            r"(?:cudaMalloc failed: )?out of memory|allocating <needed> MiB on device",
            unit=MIB,
            failure=FailureKind.OUT_OF_MEMORY,
        ),
    ),
    arguments=(
        ArgumentList(clue="llama-server ", command_line=True, sure=False),
        ArgumentList(clue="llama-cli ", command_line=True, sure=False),
    ),
    names={
        "m": "model",
        "model": "model",
        "c": "max_model_len",
        "ctx_size": "max_model_len",
        "ub": "max_num_batched_tokens",
        "ubatch_size": "max_num_batched_tokens",
        "np": "sequences",
        "parallel": "sequences",
        "kvu": "kv_unified",
        "kv_unified": "kv_unified",
        "ctk": "kv_dtype",
        "cache_type_k": "kv_dtype",
    },
    keep={
        Quantity.WEIGHTS: Keep.SUM,
        Quantity.POOL: Keep.SUM,
        Quantity.STATE: Keep.SUM,
        Quantity.COMPUTE: Keep.LAST,
        # A model with a sliding window has a second, smaller cache.
        Quantity.TOKENS: Keep.LARGEST,
    },
    looked_for=(
        "'loaded meta data with ... from model.gguf'",
        "'CUDA0 model buffer size ='",
        "'KV buffer size ='",
    ),
)
