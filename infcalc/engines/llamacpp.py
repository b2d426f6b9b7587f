"""llama.cpp: no fraction; the KV cache is allocated in full for the asked context, compute buffers beside it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.engines.rules import (
    NO_PROFILE,
    Allocator,
    Band,
    EngineRules,
    FractionBase,
    SchedulerDefaults,
    TokenLine,
    band,
)

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.spec.hardware import Gpu

NEWEST = "llama-cpp-python 0.3.36"
_PROFILE = replace(
    NO_PROFILE,
    # One hidden state in fp32 stands beside the logits.
    sampler_hidden_copies=2,
    logits_of_all_tokens=True,
    scores_without_flash=True,
    low_fraction=0.8,
    high_fraction=1.4,
    source="worst-case graph of a micro-batch: two hidden states and the inner widths",
)
_UNIFIED_CONTEXT = band(2.0, 0.7, 6.0, "unified memory: 1 to 6 GiB seen in logs of vLLM")
_ROCM_CONTEXT = band(0.55, 0.5, 0.8, "ROCm at one GPU: 0.5 to 0.6 GiB seen in logs of vLLM")
_CUDA_CONTEXT = band(0.25, 0.02, 0.3, "CUDA at one GPU: 0.24 to 0.27 GiB measured on H100 with vLLM 0.19")


def rules(version: str | None, gpu: Gpu) -> EngineRules:
    """Return llama.cpp's rules."""
    buffers = _context(gpu)
    return EngineRules(
        engine="llama.cpp",
        version=version or NEWEST,
        oldest=NEWEST,
        newest=NEWEST,
        fraction=None,
        fraction_base=FractionBase.NONE,
        fraction_flag="-c",
        fraction_source="llama.cpp has no memory fraction",
        block_tokens=256,
        scheduler=SchedulerDefaults(max_num_seqs=4, max_num_batched_tokens=512),
        sampler_logit_copies=1,
        sampler_source="fp32 logits of every token, beside one hidden state",
        cuda_graph_bytes=0,
        cuda_graph_source="CUDA graphs are negligible",
        non_torch=buffers,
        profile=_PROFILE,
        token_line=TokenLine.CONTEXT,
        printed_line_source="llama.cpp allocates cells for the asked context, padded to 256",
        allocator=Allocator.CELLS,
        allocation_bytes=0,
        host_embedding=True,
    )


def _context(gpu: Gpu) -> Band:
    """Return what the device context takes: GPUs copy to each other without a communication library or its buffers."""
    if gpu.unified_memory:
        return _UNIFIED_CONTEXT
    return _ROCM_CONTEXT if gpu.vendor == "AMD" else _CUDA_CONTEXT


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    return (
        Evidence(
            rule="llama.cpp: cells",
            figures="cells for the asked context, padded to 256 (1 log)",
            read_in="llama.cpp `llama_kv_cache`",
        ),
        Evidence(
            rule="llama.cpp: compute buffer",
            figures=(
                "fp32 logits of every token of a micro-batch and one hidden state, or two hidden states and the inner "
                "widths, where that is more; without flash attention with the scores of a layer over all cells; "
                f"between {_PROFILE.low_fraction} and {_PROFILE.high_fraction} of it"
            ),
            mechanism="the graph of the largest micro-batch is reserved, and its largest tensors are alive together",
            by_hand=True,
            about=("_PROFILE", "logits_of_all_tokens", "scores_without_flash"),
        ),
        Evidence(
            rule="llama.cpp: device context",
            figures="; ".join(one.source for one in (_CUDA_CONTEXT, _ROCM_CONTEXT, _UNIFIED_CONTEXT)),
            mechanism="each device has a context, as in every engine; there is no communication library",
            by_hand=True,
            about=("_UNIFIED_CONTEXT", "_ROCM_CONTEXT", "_CUDA_CONTEXT"),
        ),
        Evidence(
            rule="llama.cpp: embedding on the host",
            figures="4,403 MiB of weights on the GPU for Llama 3.1 8B in Q4_K_M (recalled): all but the embedding",
            mechanism="rows of the input embedding are looked up by the CPU, whatever is offloaded",
        ),
    )
