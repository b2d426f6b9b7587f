"""vLLM: defaults and memory accounting by version.

Read from vLLM 0.8.5, 0.11.2, 0.14.1, 0.18.0, 0.19.1, 0.20.0, 0.21.0, 0.26.0, 0.30.0 and 0.33.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.rules import (
    EngineRules,
    FractionBase,
    SchedulerDefaults,
    Since,
    at_version,
    non_torch,
    parse_version,
)
from infcalc.units import GIB, MIB

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu

OLDEST = "0.5"
NEWEST = "0.33"

_FRACTION = (
    Since(version=(0,), value=0.9, source="vLLM up to 0.19.1: gpu_memory_utilization 0.9"),
    Since(version=(0, 20), value=0.92, source="vLLM from 0.20.0: gpu_memory_utilization 0.92"),
)
_GRAPHS = (
    Since(
        version=(0,),
        value=0,
        source="vLLM up to 0.19.1: CUDA graphs are not charged to the budget, they come on top of it",
    ),
    Since(
        version=(0, 20),
        value=600 * MIB,
        source="vLLM from 0.20.0 charges its estimate of CUDA-graph memory; 0.1 to 1.1 GiB is typical",
    ),
)
_SORTING_SAMPLER = (
    Since(
        version=(0,),
        value=9.7,
        source="dummy sampler of the profiling run, full-vocabulary sort: 9.6 to 9.9 copies measured in 0.11",
    ),
)
_HOPPER_SAMPLER = (
    *_SORTING_SAMPLER,
    Since(
        version=(0, 17), value=3.85, source="activation peak fell by 60 % in 0.17 on H100: 3.8 to 3.9 copies measured"
    ),
)
"""Before Hopper the sort stays: an A10 and an A100 log of 0.2x both leave room for 9.7 copies and not for fewer."""
_HOPPER = (9, 0)
_LARGE_BYTES = 70 * GIB
_HUGE_BYTES = 160 * GIB


def rules(version: str | None, gpu: Gpu, *, ranks: int) -> EngineRules:
    """Return vLLM's rules at ``version`` on ``gpu``; None is the newest known version."""
    named = version or NEWEST
    at = parse_version(named)
    fraction = at_version(_FRACTION, at)
    graphs = at_version(_GRAPHS, at)
    sampler = at_version(_HOPPER_SAMPLER if _capability(gpu) >= _HOPPER else _SORTING_SAMPLER, at)
    return EngineRules(
        engine="vllm",
        version=named,
        oldest=OLDEST,
        newest=NEWEST,
        fraction=fraction.value,
        fraction_base=FractionBase.TOTAL,
        fraction_flag="--gpu-memory-utilization",
        fraction_source=fraction.source,
        block_tokens=16,
        scheduler=_scheduler(at, gpu),
        sampler_logit_copies=sampler.value,
        sampler_source=sampler.source,
        cuda_graph_bytes=graphs.value,
        cuda_graph_source=graphs.source,
        non_torch=non_torch(gpu, ranks=ranks),
    )


def _scheduler(version: tuple[int, ...], gpu: Gpu) -> SchedulerDefaults:
    """Server defaults by device memory; A100 is not in the large tier from 0.11.2 on, GB10 never is."""
    # vLLM asks the driver's product name, which the title holds; a catalog may call the entry anything.
    name = gpu.title.lower()
    small = "gb10" in name or ("a100" in name and version >= (0, 11, 2))
    if gpu.cuda_total_bytes >= _HUGE_BYTES and version >= (0, 30):
        return SchedulerDefaults(max_num_seqs=1024, max_num_batched_tokens=16384)
    if gpu.cuda_total_bytes >= _LARGE_BYTES and not small and version >= (0, 8):
        return SchedulerDefaults(max_num_seqs=1024, max_num_batched_tokens=8192)
    return SchedulerDefaults(max_num_seqs=256, max_num_batched_tokens=2048)


def _capability(gpu: Gpu) -> tuple[int, ...]:
    """Return the CUDA compute capability; (0,) for what is no CUDA device (``gfx942``)."""
    text = gpu.compute_capability or ""
    return parse_version(text) if text[:1].isdigit() else (0,)
