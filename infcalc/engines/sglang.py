"""SGLang: the static fraction and its automatic default. Read from SGLang 0.5.23."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.rules import (
    NO_PROFILE,
    PLAIN,
    Allocator,
    Band,
    EngineRules,
    FractionBase,
    SchedulerDefaults,
    TokenLine,
    band,
    linked,
    parse_version,
)
from infcalc.units import GIB, MIB

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.engines.rules import Served
    from infcalc.spec.hardware import Gpu

OLDEST = "0.4"
NEWEST = "0.5.23"

_TIERS: tuple[tuple[int, int, int, int], ...] = (
    (20 * GIB, 2048, 8, 8),
    (35 * GIB, 4096, 48, 160),
    (60 * GIB, 4096, 32, 160),
    (160 * GIB, 8192, 256, 512),
)
"""Below this memory: chunked prefill size, largest decode CUDA graph at TP below 4, and at TP 4 and above."""
_TOP_TIER = (16384, 512, 512)
_WIDE_TP = 4
_LARGE_GRAPH = 300
_PREFILL_GRAPH_MIB = 8 * 50
_LATENT_PREFILL_GRAPH_MIB = 1536
_MULTIMODAL_SHARE = 0.95
"""Of the fraction, where towers need room outside; further 0.8 to 1.05 by the size of the tower, which is left out."""
_RESERVE_FLOOR_BYTES = 10 * GIB
_RESERVE_FLOOR_FROM_BYTES = 60 * GIB
_WINDOW_POOL_FRACTION = 0.8
"""``swa_full_tokens_ratio`` by default."""
_STATE_POOL_RATIO = 0.9
"""``mamba_full_memory_ratio`` by default: recurrent states over attention; they take r / (1 + r) of the pool."""
_GONE_BEFORE_LOAD = {
    "one GPU": "SGLang at TP 1: 0.6 to 1.1 GiB gone before load (3 logs)",
    "NVLink": "SGLang with NVLink: 1.8 to 2.5 GiB gone before load (3 logs)",
    "PCIe": "SGLang with TP over PCIe: 0.42 GiB gone before load (1 log)",
}
_UNIFIED_BUFFERS = band(6.0, 2.0, 20.0, "unified memory: what the system and others hold at start")
_ONE_BUFFERS = band(0.7, 0.4, 1.2, _GONE_BEFORE_LOAD["one GPU"])
_NVLINK_BUFFERS = band(1.9, 1.2, 2.6, _GONE_BEFORE_LOAD["NVLink"])
_PCIE_BUFFERS = band(0.5, 0.3, 1.0, _GONE_BEFORE_LOAD["PCIe"])
_TWO_POOLS_FROM = (0, 4, 9)
"""Before, windowed layers kept every token (a Gemma 3 log of 0.4.4)."""


def rules(
    version: str | None,
    gpu: Gpu,
    *,
    tp: int,
    pp: int = 1,
    dp: int = 1,
    joined: int | None = None,
    served: Served = PLAIN,
) -> EngineRules:
    """Return SGLang's rules on ``gpu``; its fraction keeps activation and CUDA graphs in the part outside.

    That part also holds the graphs of prefill, larger ones for latents, and what towers need. With DeepEP, which is
    not the default, it reserves 2 GiB more; then state the fraction. ``joined`` are the attention-DP ranks that
    communicate (None: all).
    """
    named = version or NEWEST
    at = parse_version(named)
    chunk, narrow_graph, wide_graph = next((row[1:] for row in _TIERS if gpu.cuda_total_bytes < row[0]), _TOP_TIER)
    max_graph = wide_graph if tp >= _WIDE_TP else narrow_graph
    reserved_mib = 512 + 1.5 * max(chunk, 2048) + tp * pp / 8 * 1024 + 2 * max_graph
    if dp > 1:
        # Attention data parallelism captures its graphs for every rank.
        reserved_mib += 3 * max_graph * dp * (1.5 if max_graph > _LARGE_GRAPH else 1)
    reserved_mib += _LATENT_PREFILL_GRAPH_MIB if served.latent else _PREFILL_GRAPH_MIB
    reserved = reserved_mib * MIB
    if gpu.cuda_total_bytes > _RESERVE_FLOOR_FROM_BYTES:
        reserved = max(reserved, _RESERVE_FLOOR_BYTES)
    fraction = round((gpu.cuda_total_bytes - reserved) / gpu.cuda_total_bytes, 3)
    source = "SGLang's automatic mem_fraction_static: 1 - reserved / memory"
    if served.multimodal:
        fraction, source = fraction * _MULTIMODAL_SHARE, f"{source}, x {_MULTIMODAL_SHARE} for a model with towers"
    buffers = _before_load(gpu, tp * (dp if joined is None else joined))
    two_pools = at >= _TWO_POOLS_FROM
    return EngineRules(
        engine="sglang",
        version=named,
        oldest=OLDEST,
        newest=NEWEST,
        fraction=fraction,
        fraction_base=FractionBase.FREE_BEFORE_WEIGHTS,
        fraction_flag="--mem-fraction-static",
        fraction_source=source,
        block_tokens=1,
        scheduler=SchedulerDefaults(max_num_seqs=2048, max_num_batched_tokens=chunk),
        sampler_logit_copies=0,
        sampler_source="activation lives outside the static fraction",
        cuda_graph_bytes=0,
        cuda_graph_source="CUDA graphs live outside the static fraction",
        non_torch=buffers,
        profile=NO_PROFILE,
        token_line=TokenLine.POOL,
        printed_line_source="SGLang: pool // bytes per token, floored to a page",
        allocator=Allocator.TWO_POOLS if two_pools else Allocator.UNIFORM,
        checks_longest=False,
        window_pool_fraction=_WINDOW_POOL_FRACTION if two_pools else 0.0,
        state_pool_ratio=_STATE_POOL_RATIO if two_pools else 0.0,
        absorbed_latent_copies=1,
        whole_allocations=True,
    )


def _before_load(gpu: Gpu, ranks: int) -> Band:
    """Return what is gone before weights load: the context, and from TP 2 on the communicators."""
    if gpu.unified_memory:
        return _UNIFIED_BUFFERS
    if ranks == 1:
        return _ONE_BUFFERS
    return _NVLINK_BUFFERS if linked(gpu, ranks=ranks) else _PCIE_BUFFERS


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    buffers = "device context and communicators, by link"
    return (
        Evidence(
            rule="SGLang: pool",
            figures="(total - context) x fraction - weights (4 logs)",
            read_in="SGLang `model_runner`",
        ),
        *(
            Evidence(
                rule=f"SGLang: gone before load, {name}",
                figures=figures,
                mechanism=buffers,
                about=("_GONE_BEFORE_LOAD", "_ONE_BUFFERS", "_NVLINK_BUFFERS", "_PCIE_BUFFERS"),
            )
            for name, figures in _GONE_BEFORE_LOAD.items()
        ),
        Evidence(
            rule="SGLang: gone before load, unified memory",
            figures="6 GiB, between 2 and 20",
            mechanism="what the system, the file cache and other processes hold is in the same memory",
            by_hand=True,
            about=("_UNIFIED_BUFFERS",),
        ),
        Evidence(
            rule="SGLang: automatic fraction",
            figures=(
                "512 MiB, 1.5 MiB a token of a chunk, 128 MiB a rank, 2 MiB a sequence of the largest graph, "
                f"{_PREFILL_GRAPH_MIB} MiB for graphs of prefill ({_LATENT_PREFILL_GRAPH_MIB} with MLA); 10 GiB at "
                f"least above 60 GiB; x {_MULTIMODAL_SHARE} with towers"
            ),
            read_in="SGLang 0.5.23 `ServerArgs`",
            about=(
                "_TIERS",
                "_TOP_TIER",
                "_LARGE_GRAPH",
                "_PREFILL_GRAPH_MIB",
                "_LATENT_PREFILL_GRAPH_MIB",
                "_MULTIMODAL_SHARE",
                "_RESERVE_FLOOR_BYTES",
                "_RESERVE_FLOOR_FROM_BYTES",
            ),
        ),
        Evidence(
            rule="SGLang: slots of recurrent states",
            figures=f"their pool is {_STATE_POOL_RATIO} times that of the tokens",
            read_in="SGLang 0.5.23 `mamba_full_memory_ratio`",
            about=("_STATE_POOL_RATIO", "state_pool_ratio"),
        ),
        Evidence(
            rule="SGLang: two pools",
            figures=f"the windowed pool has {_WINDOW_POOL_FRACTION} of the tokens of the full one",
            read_in="SGLang `swa_full_tokens_ratio`",
            about=("_WINDOW_POOL_FRACTION", "_TWO_POOLS_FROM", "window_pool_fraction"),
        ),
    )
