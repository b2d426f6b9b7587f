"""TensorRT-LLM: KV gets a fraction of what weights, buffers and activation leave. Read from 1.2 to 1.4.

Two phases: a temporary small cache and dummy requests of ``max_num_tokens`` measure the peak, then the final cache
takes its fraction of what is left. Buffers follow the build limits: the decoder keeps several fp32 copies of
``max_batch_size`` rows of logits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.rules import (
    EngineRules,
    FractionBase,
    ProfileRules,
    SchedulerDefaults,
    Since,
    TokenLine,
    at_version,
    band,
    linked,
    parse_version,
)
from infcalc.units import MIB

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.spec.hardware import Gpu

OLDEST = "0.14"
NEWEST = "1.4"

_DECODER = (
    Since(
        version=(0,),
        value=7.3,
        source="runtime and decoder buffers of a compiled engine: 2.3 + 5.0 copies of the logits of max_batch_size",
    ),
    Since(
        version=(0, 17),
        value=4.9,
        source="decoder buffers: 4.5 to 5 copies of the logits of max_batch_size rows (2 logs)",
    ),
)
_PROFILE = ProfileRules(
    hidden_copies=4.0,
    moe_hidden_copies=6.0,
    reduced_hidden_copies=0,
    stream_copies=0,
    sampler_hidden_copies=0,
    encoder=False,
    beside=True,
    low_fraction=0.6,
    high_fraction=1.4,
    source="buffers of max_batch_size beside a forward pass of max_num_tokens",
)
_ONE_BUFFERS = band(0.5, 0.2, 0.9, "CUDA context at TP 1")
_NVLINK_BUFFERS = band(2.3, 1.5, 3.0, "context, NCCL and all-reduce workspaces over NVLink")
_PCIE_BUFFERS = band(0.8, 0.4, 1.5, "context and NCCL over PCIe")
_GRAPH_BYTES, _LEAST_GRAPH_BYTES, _MOST_GRAPH_BYTES = 600 * MIB, 100 * MIB, 1200 * MIB
_FEW_GRAPH_BYTES = 200 * MIB


def rules(version: str | None, gpu: Gpu, *, ranks: int) -> EngineRules:
    """Return TensorRT-LLM's rules."""
    named = version or NEWEST
    decoder = at_version(_DECODER, parse_version(named))
    buffers = _ONE_BUFFERS if ranks == 1 else _NVLINK_BUFFERS if linked(gpu, ranks=ranks) else _PCIE_BUFFERS
    return EngineRules(
        engine="tensorrt-llm",
        version=named,
        oldest=OLDEST,
        newest=NEWEST,
        fraction=0.9,
        fraction_base=FractionBase.FREE_AFTER_WEIGHTS,
        fraction_flag="--free_gpu_memory_fraction",
        fraction_source="kv_cache_config.free_gpu_memory_fraction 0.9 (exact in the three logs that print both)",
        block_tokens=32,
        scheduler=SchedulerDefaults(max_num_seqs=2048, max_num_batched_tokens=8192),
        sampler_logit_copies=decoder.value,
        sampler_source=decoder.source,
        cuda_graph_bytes=_GRAPH_BYTES,
        cuda_graph_low_bytes=_LEAST_GRAPH_BYTES,
        cuda_graph_high_bytes=_MOST_GRAPH_BYTES,
        small_batch_graph_bytes=_FEW_GRAPH_BYTES,
        cuda_graph_source="CUDA graphs are captured before the final KV size is set; 0.1 to 1.1 GiB is typical",
        non_torch=buffers,
        profile=_PROFILE,
        checks_longest=False,
        token_line=TokenLine.POOL,
        printed_line_source="TensorRT-LLM: pool // bytes per token, rounded to blocks",
        absorbed_latent_copies=1,
    )


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence, of_steps  # noqa: PLC0415 - only for the page on accuracy

    return (
        Evidence(
            rule="TensorRT-LLM: pool",
            figures="fraction x what weights, forward pass and decoder leave (exact in 3 logs that print both)",
            read_in="TensorRT-LLM `KvCacheCreator`",
        ),
        *of_steps(
            "TensorRT-LLM: decoder",
            _DECODER,
            mechanism="several fp32 copies of max_batch_size rows of logits are kept",
            about=("_DECODER",),
        ),
        Evidence(
            rule="TensorRT-LLM: forward pass",
            figures=_PROFILE.source,
            mechanism="inner widths and hidden states of max_num_tokens, beside the decoder's buffers",
            by_hand=True,
            about=("_PROFILE",),
        ),
        Evidence(
            rule="TensorRT-LLM: CUDA graphs",
            figures="0.1 to 1.2 GiB, fewer where few sequences run",
            mechanism="graphs are captured for decoding batches before the final cache is sized",
            by_hand=True,
            about=("_GRAPH_BYTES", "_LEAST_GRAPH_BYTES", "_MOST_GRAPH_BYTES", "_FEW_GRAPH_BYTES"),
        ),
        Evidence(
            rule="TensorRT-LLM: context and buffers",
            figures="0.5 GiB at TP 1, 2.3 over NVLink, 0.8 over PCIe (3 logs)",
            mechanism="device context, NCCL and all-reduce workspaces",
            by_hand=True,
            about=("_ONE_BUFFERS", "_NVLINK_BUFFERS", "_PCIE_BUFFERS"),
        ),
    )
