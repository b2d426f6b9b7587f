"""llama.cpp: no fraction; the KV cache is allocated in full for the asked context, compute buffers beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.rules import (
    NO_PROFILE,
    Allocator,
    EngineRules,
    FractionBase,
    SchedulerDefaults,
    TokenLine,
    non_torch,
)

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu

NEWEST = "llama-cpp-python 0.3.36"


def rules(version: str | None, gpu: Gpu) -> EngineRules:
    """Return llama.cpp's rules."""
    # It copies between GPUs without a communication library: no buffers beyond the context.
    buffers = non_torch(gpu, ranks=1)
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
        sampler_source="logits of the outputs of one micro-batch in fp32",
        cuda_graph_bytes=0,
        cuda_graph_source="CUDA graphs are negligible",
        non_torch=buffers,
        non_torch_source=buffers.source,
        profile=NO_PROFILE,
        token_line=TokenLine.CONTEXT,
        printed_line_source="llama.cpp allocates cells for the asked context, padded to 256",
        allocator=Allocator.CELLS,
        allocation_bytes=0,
    )
