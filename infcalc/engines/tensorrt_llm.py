"""TensorRT-LLM (PyTorch backend): KV gets a fraction of what weights and activation leave. Read from 1.2 to 1.4."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.rules import EngineRules, FractionBase, SchedulerDefaults, non_torch, parse_version
from infcalc.units import MIB

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu

OLDEST = "1.2"
NEWEST = "1.4"


def rules(version: str | None, gpu: Gpu, *, ranks: int) -> EngineRules:
    """Return TensorRT-LLM's rules."""
    named = version or NEWEST
    parse_version(named)
    return EngineRules(
        engine="tensorrt-llm",
        version=named,
        oldest=OLDEST,
        newest=NEWEST,
        fraction=0.9,
        fraction_base=FractionBase.FREE_AFTER_WEIGHTS,
        fraction_flag="--free_gpu_memory_fraction",
        fraction_source="kv_cache_config.free_gpu_memory_fraction 0.9",
        block_tokens=32,
        scheduler=SchedulerDefaults(max_num_seqs=2048, max_num_batched_tokens=8192),
        sampler_logit_copies=1,
        sampler_source="one fp32 copy of the logits of max_batch_size rows",
        cuda_graph_bytes=600 * MIB,
        cuda_graph_source="CUDA graphs are captured before the final KV size is set; 0.1 to 1.1 GiB is typical",
        non_torch=non_torch(gpu, ranks=ranks),
    )
