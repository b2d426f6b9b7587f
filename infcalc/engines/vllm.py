"""vLLM: defaults and memory accounting by version.

Read from vLLM 0.8.5, 0.11.2, 0.14.1, 0.18.0, 0.19.1, 0.20.0, 0.21.0, 0.26.0, 0.30.0 and 0.33.0; what a profiling run
occupies was taken from start-up logs. A version may name its core: ``0.9+v0`` is 0.9 with the V0 engine, ``0.28+v2``
with model runner V2.
"""

from __future__ import annotations

from dataclasses import replace
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.engines.rules import (
    PLAIN,
    Allocator,
    Band,
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
from infcalc.frozen import frozen
from infcalc.units import GIB, MIB

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.engines.rules import Served
    from infcalc.spec.hardware import Gpu

OLDEST = "0.5"
NEWEST = "0.33"

_FRACTION = (
    Since(version=(0,), value=0.9, source="vLLM up to 0.19.1: gpu_memory_utilization 0.9"),
    Since(version=(0, 20), value=0.92, source="vLLM from 0.20.0: gpu_memory_utilization 0.92"),
)
_GENERATION = (
    Since(version=(0,), value="v0", source="vLLM before 0.8: engine V0"),
    Since(version=(0, 8), value="v1", source="vLLM from 0.8: engine V1"),
)
_GRAPHS_UNCHARGED = "vLLM up to 0.19.1: CUDA graphs are not charged to the budget, they come on top of it"
_GRAPHS_CHARGED = "vLLM from 0.20.0 charges its estimate of CUDA-graph memory: 0.1 to 2.4 GiB in 9 logs"
_GRAPHS_V2 = "model runner V2 estimates no CUDA-graph memory: they come on top of the budget"
_CHARGED_FROM = (0, 20)

_SAMPLER = (
    Since(
        version=(0,),
        value=9.56,
        source="dummy sampler sorts full-vocabulary logits: 9.56 copies in 13 logs of V0 and V1 up to 0.16, to 1 %",
    ),
    Since(
        version=(0, 17),
        value=3.73,
        source="no sort from 0.17 on: 3.6 to 3.8 copies in 8 logs on H100, A100 and ROCm",
    ),
)
_SORT_UNKNOWN_FROM, _SORT_UNKNOWN_UNTIL = (0, 17), (0, 26)
"""Between these versions the sampler without a sort is used where it can be; from the later one on it is the default
(``VLLM_USE_FLASHINFER_SAMPLER`` unset, then True)."""
_SEEN_WITHOUT_SORT = frozenset({(8, 0), (9, 0)})
"""Compute capabilities on which logs between those versions show no sort."""
_SORT_UNKNOWN = "logs of 0.17 to 0.25 show no sort on H100 and A100; elsewhere the sampler may still sort (1 log)"
_LAST_V0 = (0, 11)
_V2_SAMPLER_COPIES = 3.4

_V0_PROFILE = (
    Since(
        version=(0,),
        value=ProfileRules(
            hidden_copies=3.3,
            moe_hidden_copies=1,
            reduced_hidden_copies=0,
            stream_copies=0,
            sampler_hidden_copies=1.34,
            split_gemm_copies=8,
            unchunked=True,
            sampler_on_first_rank=True,
            source="un-chunked run of max_model_len tokens: inner widths and 3.0 to 3.1 hidden states (3 logs)",
        ),
        source="",
    ),
    Since(
        version=(0, 3),
        value=ProfileRules(
            hidden_copies=3.1,
            moe_hidden_copies=6,
            reduced_hidden_copies=0,
            stream_copies=0,
            sampler_hidden_copies=1.34,
            unchunked=True,
            sampler_on_first_rank=True,
            chunk_from_tokens=32768,
            source="un-chunked run of max_model_len tokens: inner widths and 3.0 to 3.1 hidden states (3 logs)",
        ),
        source="",
    ),
    Since(
        version=(0, 7),
        value=ProfileRules(
            hidden_copies=4.0,
            moe_hidden_copies=6,
            reduced_hidden_copies=1,
            stream_copies=0,
            sampler_hidden_copies=1.34,
            unchunked=True,
            sampler_on_first_rank=True,
            chunk_from_tokens=32768,
            source="un-chunked profiling run: inner widths and 4.0 hidden states, one more with TP (5 logs of V0)",
        ),
        source="",
    ),
)
_V1_VIDEO_UNTIL = (0, 12)
"""Until then the encoder's profile took a video of many frames."""
_VIDEO_HIGH_FRACTION, _PICTURES_HIGH_FRACTION = 3.2, 1.6
_V1_PROFILE = ProfileRules(
    hidden_copies=5.2,
    moe_hidden_copies=6,
    reduced_hidden_copies=0,
    stream_copies=5.5,
    sampler_hidden_copies=1.34,
    source="profiling run of max_num_batched_tokens: inner widths and 5 to 5.3 hidden states (4 logs of V1)",
)
_V2_PROFILE = ProfileRules(
    hidden_copies=3.8,
    moe_hidden_copies=6,
    reduced_hidden_copies=0,
    stream_copies=5.5,
    sampler_hidden_copies=1.0,
    low_fraction=0.7,
    high_fraction=1.5,
    source="model runner V2, attention skipped: inner widths and 3.8 hidden states (1 log)",
)
_HOPPER = (9, 0)
_BLACKWELL = (10, 0)
_CONSUMER_BLACKWELL = (12, 0)
_AMPERE = (8, 0)
_LARGE_BYTES = 70 * GIB
_HUGE_BYTES = 160 * GIB
_WIDE_TP = 8


@frozen
class _BlockTokens:
    """The block that the attention backend of one kind of cache demands, on GPUs from one capability to another."""

    compressed: bool
    """For compressed caches; else for latents."""
    since: tuple[int, ...]
    tokens: int
    least_capability: tuple[int, ...] = (0,)
    below_capability: tuple[int, ...] = (99,)
    source: str


_BLOCK_TOKENS = 16
_BACKEND_BLOCKS = (
    _BlockTokens(
        compressed=True, since=(0,), tokens=256, source="DeepSeek-V4 sparse attention takes blocks of 256 tokens"
    ),
    _BlockTokens(
        compressed=False,
        since=(0, 9),
        tokens=64,
        least_capability=_HOPPER,
        below_capability=_BLACKWELL,
        source="FlashMLA, on Hopper, takes blocks of 64 tokens (a log of 0.7 still prints 16)",
    ),
    _BlockTokens(
        compressed=False,
        since=(0, 9),
        tokens=128,
        least_capability=_BLACKWELL,
        below_capability=_CONSUMER_BLACKWELL,
        source="CUTLASS-MLA, on Blackwell, takes blocks of 128 tokens",
    ),
)


def _block_tokens(at: tuple[int, ...], gpu: Gpu, served: Served) -> int:
    """Return the tokens of a block: 16, unless the backend of the model's attention demands another."""
    capability = _capability(gpu)
    return next(
        (
            row.tokens
            for row in _BACKEND_BLOCKS
            if (served.compressed if row.compressed else served.latent)
            and at >= row.since
            and row.least_capability <= capability < row.below_capability
        ),
        _BLOCK_TOKENS,
    )


def rules(version: str | None, gpu: Gpu, *, ranks: int, pp: int = 1, served: Served = PLAIN) -> EngineRules:
    """Return vLLM's rules at ``version`` on ``gpu``; None is the newest known version."""
    named = version or NEWEST
    at = parse_version(named)
    generation = _generation(named, at, gpu)
    fraction = at_version(_FRACTION, at)
    sampler = at_version(_SAMPLER, at)
    copies, copies_source = sampler.value, sampler.source
    if generation == "v2" and copies > _V2_SAMPLER_COPIES:
        copies, copies_source = _V2_SAMPLER_COPIES, "sampler of model runner V2: at most 3.4 copies (1 log)"
    # FlashInfer's sampler, which does not sort, is NVIDIA's.
    may_sort = (
        gpu.vendor == "NVIDIA"
        and generation == "v1"
        and _SORT_UNKNOWN_FROM <= at < _SORT_UNKNOWN_UNTIL
        and _capability(gpu) not in _SEEN_WITHOUT_SORT
    )
    charged = at >= _CHARGED_FROM and generation != "v2"
    buffers, weight_fraction = _non_torch(at, generation, gpu, ranks)
    hybrid = generation != "v0" and at >= (0, 10)
    profile = at_version(_V0_PROFILE, at).value if generation == "v0" else _V1_PROFILE
    if _capability(gpu) < _AMPERE:
        # The kernels that continue a prefill need Ampere: older GPUs never chunk.
        profile = replace(profile, chunk_from_tokens=None)
    return EngineRules(
        engine="vllm",
        version=named,
        oldest=OLDEST,
        newest=NEWEST,
        generation=generation,
        fraction=fraction.value,
        fraction_base=FractionBase.TOTAL,
        fraction_flag="--gpu-memory-utilization",
        fraction_source=fraction.source,
        block_tokens=_block_tokens(at, gpu, served),
        scheduler=_scheduler(at, generation, gpu),
        sampler_logit_copies=copies,
        sampler_source=copies_source,
        sampler_high_logit_copies=_SAMPLER[0].value if may_sort else 0.0,
        sampler_high_source=_SORT_UNKNOWN if may_sort else "",
        cuda_graph_bytes=(_UNIFIED_GRAPH_BYTES if gpu.unified_memory else _GRAPH_BYTES) if charged else 0,
        cuda_graph_low_bytes=_LEAST_GRAPH_BYTES if charged else 0,
        cuda_graph_high_bytes=(_MOST_UNIFIED_GRAPH_BYTES if gpu.unified_memory else _MOST_GRAPH_BYTES)
        if charged
        else 0,
        small_batch_graph_bytes=_FEW_GRAPH_BYTES if charged else 0,
        cuda_graph_source=_GRAPHS_CHARGED if charged else _GRAPHS_V2 if generation == "v2" else _GRAPHS_UNCHARGED,
        non_torch=buffers,
        non_torch_weight_fraction=weight_fraction,
        profile=replace(
            _V2_PROFILE if generation == "v2" else profile,
            encoder_high_fraction=_VIDEO_HIGH_FRACTION if at < _V1_VIDEO_UNTIL else _PICTURES_HIGH_FRACTION,
        ),
        token_line=TokenLine.CONCURRENCY if at >= (0, 20) else TokenLine.GROUPS if hybrid else TokenLine.BLOCKS,
        printed_line_source=_printed_line(at, hybrid=hybrid),
        allocator=Allocator.PAGE_GROUPS if hybrid else Allocator.UNIFORM,
        null_blocks=0 if generation == "v0" else 1,
        # "max_num_seqs exceeds available Mamba cache blocks": builds of August 2026 (recipes PR 831).
        refuses_more_states=at >= (0, 26),
        recurrent_pages=2 if at >= (0, 20) else 1,
        in_flight_steps=_in_flight(at, generation, pp),
        latent_multiple=128 if (0, 7) <= at < (0, 8) else 1,
        latent_as_heads=at < (0, 7),
        absorbed_latent_copies=0 if at < (0, 7) else 1,
        absorbed_output=(0, 7) <= at < (0, 8),
        loaded_as=(("nf4_dq", "nf4"),),
        expert_input_multiple=256,
        expert_inner_multiple=_expert_inner_multiple(gpu),
    )


_GRAPH_BYTES = 1400 * MIB
_LEAST_GRAPH_BYTES, _MOST_GRAPH_BYTES = 100 * MIB, round(2.4 * GIB)
_UNIFIED_GRAPH_BYTES = 2000 * MIB
_MOST_UNIFIED_GRAPH_BYTES = 5 * GIB
_FEW_GRAPH_BYTES = 400 * MIB
"""Where few sequences run at once, and few graphs are captured."""


def _generation(named: str, at: tuple[int, ...], gpu: Gpu) -> str:
    """Return the core that runs: engine V1 needs Ampere, older NVIDIA GPUs fall back to V0 as long as there is one."""
    for mark in ("v0", "v1", "v2"):
        if named.lower().endswith(f"+{mark}"):
            return mark
    if at < _LAST_V0 and gpu.vendor == "NVIDIA" and (0,) < _capability(gpu) < _AMPERE:
        return "v0"
    return at_version(_GENERATION, at).value


def _in_flight(at: tuple[int, ...], generation: str, pp: int) -> int:
    """Return the batches at work at once (``max_concurrent_batches``): two with asynchronous scheduling, or the stages.

    Model runner V2 keeps one beside those of the stages. Before 0.20 windows were sized for one step.
    """
    if at < (0, 20):
        return 1
    if pp == 1:
        return 2
    return pp + 1 if generation == "v2" else pp


def _expert_inner_multiple(gpu: Gpu) -> int:
    """Return to what the inner width of MXFP4 experts is padded: not on Hopper, whose Triton kernels pad one side."""
    capability = _capability(gpu)
    if _HOPPER <= capability < _BLACKWELL:
        return 1
    return 256 if _BLACKWELL <= capability < _CONSUMER_BLACKWELL else 128


def _printed_line(at: tuple[int, ...], *, hybrid: bool) -> str:
    if at >= (0, 20):
        return "vLLM from 0.20: int(concurrency x max_model_len)"
    if hybrid:
        return "vLLM 0.10 to 0.19: blocks // groups x smallest block"
    return "vLLM up to 0.9: blocks x block size"


class _Place(StrEnum):
    """What a rank's context and buffers depend on."""

    UNIFIED = "unified memory"
    ONE_ROCM = "one AMD GPU"
    ROCM = "several AMD GPUs"
    ONE = "one GPU"
    PCIE = "several GPUs without a scale-up link"
    EARLY_NVLINK = "GPUs before Hopper, several with NVLink"
    FIRST_NVLINK = "engine V0, up to 7 Hopper GPUs with NVLink"
    FIRST_WIDE_NVLINK = "engine V0, 8 Hopper GPUs"
    NVLINK = "several GPUs with NVLink"


_MOST_MEASURED_RANKS = 8
"""Logs are of so many communicating ranks at most. Beyond, buffers are taken to grow no more: those between GPUs of one
machine do not, and nothing is known of the others."""


@frozen
class _Buffers:
    """Context and buffers of a rank: what is there at any number of ranks, and what each rank adds."""

    fixed: Band
    each_rank_bytes: int = 0

    def at(self, ranks: int) -> Band:
        more = self.each_rank_bytes * min(ranks, _MOST_MEASURED_RANKS)
        beyond = f"; of {ranks} ranks taken as of {_MOST_MEASURED_RANKS}, the most in a log"
        return Band(
            value_bytes=self.fixed.value_bytes + more,
            low_bytes=self.fixed.low_bytes + more // 2,
            high_bytes=self.fixed.high_bytes + more,
            source=self.fixed.source + (beyond if more and ranks > _MOST_MEASURED_RANKS else ""),
        )


def _since(
    version: tuple[int, ...], figures: tuple[float, float, float], source: str, *, each: float = 0.0
) -> Since[_Buffers]:
    """Return a step from value, low and high in GiB."""
    buffers = _Buffers(fixed=band(*figures, source), each_rank_bytes=round(each * GIB))
    return Since(version=version, value=buffers, source=source)


_NON_TORCH: dict[_Place, tuple[Since[_Buffers], ...]] = {
    _Place.UNIFIED: (
        _since(
            (0,),
            (0.3, 0.0, 3.8),
            "unified memory: 0.6 GiB and 6 % of the weights, which the loader still holds (5 logs: 1 to 6 GiB)",
            each=0.3,
        ),
    ),
    _Place.ONE_ROCM: (_since((0,), (0.55, 0.5, 0.7), "ROCm at TP 1: 0.53 to 0.6 GiB (4 logs)"),),
    _Place.ROCM: (_since((0,), (1.8, 0.6, 2.6), "ROCm with TP: 1.78 GiB (1 log)"),),
    _Place.ONE: (
        _since(
            (0,),
            (0.09, 0.01, 0.35),
            "CUDA at TP 1 up to 0.10: 0.01 to 0.16 GiB, 0.35 at most (10 logs)",
        ),
        _since((0, 11), (0.14, 0.05, 0.3), "CUDA at TP 1, 0.11 to 0.14: 0.13 to 0.16 GiB (5 logs)"),
        _since((0, 15), (0.25, 0.15, 0.4), "CUDA at TP 1 from 0.15: 0.23 to 0.27 GiB (5 logs)"),
    ),
    _Place.PCIE: (
        _since((0,), (0.32, 0.2, 0.45), "PCIe with TP up to 0.11: 0.25 to 0.4 GiB (4 logs)"),
        _since((0, 12), (0.32, 0.05, 1.2), "PCIe with TP from 0.12: 0.1 to 0.6 GiB (5 logs), once 2.7"),
    ),
    _Place.EARLY_NVLINK: (
        _since(
            (0,),
            (0.4, 0.1, 2.4),
            "NVLink before Hopper, more with each rank: 0.4 GiB at 2, 0.9 to 3 at 8 (3 logs, all of engine V0)",
            each=0.22,
        ),
    ),
    _Place.FIRST_NVLINK: (
        _since(
            (0,),
            (0.4, 0.1, 3.4),
            "V0 on Hopper with NVLink: taken as before Hopper, more with each rank; 3.6 GiB at 2 (1 log)",
            each=0.22,
        ),
    ),
    _Place.FIRST_WIDE_NVLINK: (
        _since(
            (0,),
            (7.3, 3.5, 8.0),
            "V0 on 8 Hopper GPUs: NVLink SHARP buffers of NCCL, 7.2 to 7.5 GiB (2 logs)",
        ),
    ),
    _Place.NVLINK: (
        _since(
            (0,),
            (0.6, 0.1, 1.1),
            "NVLink, 0.8 to 0.11, more with each rank: 0.54 to 1.4 GiB at 2, 2.4 at 4, some 4 at 8 (6 logs)",
            each=0.4,
        ),
        _since((0, 12), (2.1, 1.7, 2.3), "NVLink with TP, 0.12 to 0.19: 2.06 to 2.17 GiB (6 logs)"),
        _since((0, 20), (1.75, 1.3, 2.3), "NVLink with TP from 0.20: 1.74 GiB on 8 H200 (1 log)"),
    ),
}
_UNIFIED_WEIGHT_FRACTION = 0.06


def _non_torch(at: tuple[int, ...], generation: str, gpu: Gpu, ranks: int) -> tuple[Band, float]:
    """Return context and buffers of a rank, and the share of the weights that counts besides."""
    step = at_version(_NON_TORCH[_place(generation, gpu, ranks)], at)
    return step.value.at(ranks), _UNIFIED_WEIGHT_FRACTION if gpu.unified_memory else 0.0


def _place(generation: str, gpu: Gpu, ranks: int) -> _Place:
    first = generation == "v0"
    several = (
        (gpu.unified_memory, _Place.UNIFIED),
        (gpu.vendor == "AMD", _Place.ROCM if ranks > 1 else _Place.ONE_ROCM),
        (ranks == 1, _Place.ONE),
        (not linked(gpu, ranks=ranks), _Place.PCIE),
        (first and ranks >= _WIDE_TP and _capability(gpu) >= _HOPPER, _Place.FIRST_WIDE_NVLINK),
        # Symmetric memory and NVLink SHARP, which the later figures hold, begin with Hopper.
        (_capability(gpu) < _HOPPER, _Place.EARLY_NVLINK),
        (first, _Place.FIRST_NVLINK),
    )
    return next((place for holds, place in several if holds), _Place.NVLINK)


def _scheduler(version: tuple[int, ...], generation: str, gpu: Gpu) -> SchedulerDefaults:
    """Server defaults by device memory; A100 is not in the large tier from 0.11.2 on, GB10 never is."""
    # vLLM asks the driver's product name, which the title holds; a catalog may call the entry anything.
    name = gpu.title.lower()
    small = gpu.unified_memory or ("a100" in name and version >= (0, 11, 2))
    if generation == "v0":
        return SchedulerDefaults(max_num_seqs=256, max_num_batched_tokens=512 if version < (0, 7) else 2048)
    if gpu.cuda_total_bytes >= _HUGE_BYTES and version >= (0, 30):
        return SchedulerDefaults(max_num_seqs=1024, max_num_batched_tokens=16384)
    if gpu.cuda_total_bytes >= _LARGE_BYTES and not small and version >= (0, 8):
        return SchedulerDefaults(max_num_seqs=1024, max_num_batched_tokens=8192)
    return SchedulerDefaults(max_num_seqs=256, max_num_batched_tokens=2048)


def _capability(gpu: Gpu) -> tuple[int, ...]:
    """Return the CUDA compute capability; (0,) for what is no CUDA device (``gfx942``)."""
    text = gpu.compute_capability or ""
    return parse_version(text) if text[:1].isdigit() else (0,)


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence, of_steps, since  # noqa: PLC0415 - only for the page on accuracy

    forward = "the widest layer's inner widths and whole hidden states, for each token of the profiling run"
    generations = (*((step.version, step.value) for step in _V0_PROFILE), ((0, 8), _V1_PROFILE), ((0, 28), _V2_PROFILE))
    return (
        *of_steps("vLLM: memory fraction", _FRACTION, read_in="vLLM `CacheConfig`", about=("_FRACTION",)),
        Evidence(
            rule="vLLM: sequences and tokens of a step by default",
            figures="by the memory and name of the device: 70 and 160 GiB, A100 left out from 0.11.2 on",
            read_in="vLLM `EngineArgs` of 0.8.5, 0.11.2, 0.26, 0.30, 0.33",
            about=("_LARGE_BYTES", "_HUGE_BYTES"),
        ),
        Evidence(
            rule="vLLM: blocks of attention backends",
            figures="; ".join(row.source for row in _BACKEND_BLOCKS),
            read_in="vLLM 0.33, attention backends",
            about=("_BLOCK_TOKENS", "_BACKEND_BLOCKS"),
        ),
        Evidence(
            rule="vLLM: token line",
            figures="; ".join(
                _printed_line(at, hybrid=hybrid) for at, hybrid in (((0,), False), ((0,), True), ((1,), True))
            ),
            read_in="vLLM `_report_kv_cache_config` of 0.8.5, 0.11, 0.19, 0.20, 0.33",
        ),
        *of_steps(
            "vLLM: sampler",
            _SAMPLER,
            mechanism="fp32 logits of max_num_seqs sequences, copied to be sorted",
            about=("_SAMPLER",),
        ),
        Evidence(
            rule="vLLM: sampler that may still sort, 0.17 to 0.25",
            figures=f"up to {_SAMPLER[0].value} copies at the high end: {_SORT_UNKNOWN}",
            mechanism="the sampler without a sort is used where FlashInfer is there; by default only from 0.26 on",
            read_in="vLLM `VLLM_USE_FLASHINFER_SAMPLER` of 0.19.1 and 0.26",
            about=("_SORT_UNKNOWN_FROM", "_SORT_UNKNOWN_UNTIL", "_SEEN_WITHOUT_SORT"),
        ),
        Evidence(
            rule="vLLM: sampler of model runner V2",
            figures=f"{_V2_SAMPLER_COPIES} copies at most (1 log)",
            mechanism="fp32 logits of max_num_seqs sequences, and copies of them",
            about=("_V2_SAMPLER_COPIES",),
        ),
        *(
            Evidence(
                rule=since("vLLM: forward pass", version),
                figures=profile.source,
                mechanism=forward,
                about=("_V0_PROFILE", "_V1_PROFILE", "_V2_PROFILE", "hidden_copies", "reduced_hidden_copies"),
            )
            for version, profile in generations
        ),
        Evidence(
            rule="vLLM: forward pass of experts",
            figures=f"{_V1_PROFILE.moe_hidden_copies:g} hidden states where experts are",
            mechanism="the tokens in the order of their experts, and the sum of what these yield, are further copies",
            by_hand=True,
            about=("moe_hidden_copies",),
        ),
        Evidence(
            rule="vLLM: hidden states beside the sampler",
            figures=(
                f"{_V1_PROFILE.sampler_hidden_copies} copies for each token of a step: 1.89 and 2.21 GiB of two "
                "models come out to 2 % (2 logs)"
            ),
            mechanism="the hidden state of the forward pass is still held, and with it a part of its normalized copy",
            about=("sampler_hidden_copies",),
        ),
        Evidence(
            rule="vLLM: split quantized matrix multiplications of experts, before 0.3",
            figures=f"{_V0_PROFILE[0].value.split_gemm_copies:g} partial results (1 log)",
            mechanism="kernels of 4-bit weights cut the inner dimension in 8, and hold the partial results to add them",
            about=("split_gemm_copies",),
        ),
        Evidence(
            rule="vLLM: band of the forward pass",
            figures=(
                f"{_V1_PROFILE.low_fraction} to {_V1_PROFILE.high_fraction} of it; {_V2_PROFILE.low_fraction} to "
                f"{_V2_PROFILE.high_fraction} with model runner V2"
            ),
            mechanism="kernels differ in the tensors that they hold at once, and allocators in what lies idle",
            by_hand=True,
            about=("low_fraction", "high_fraction"),
        ),
        Evidence(
            rule="vLLM: band of the encoder",
            figures=(
                f"up to {_PICTURES_HIGH_FRACTION:g} times the largest picture; before 0.12, {_VIDEO_HIGH_FRACTION:g} "
                "times (3 times in 1 log)"
            ),
            mechanism="several pictures, or a video of many frames, pass the tower at once where nothing limits them",
            by_hand=True,
            about=("_V1_VIDEO_UNTIL", "_VIDEO_HIGH_FRACTION", "_PICTURES_HIGH_FRACTION", "encoder_high_fraction"),
        ),
        Evidence(
            rule="vLLM: lengths that are chunked by themselves",
            figures="from 32,768 tokens on",
            read_in="vLLM 0.8.5 `EngineArgs`",
            about=("chunk_from_tokens",),
        ),
        Evidence(
            rule="vLLM: residual streams",
            figures=f"{_V1_PROFILE.stream_copies} copies (4 logs)",
            mechanism="hyper-connections keep several streams in fp32",
            about=("stream_copies",),
        ),
        *(
            one
            for place, steps in _NON_TORCH.items()
            for one in of_steps(
                f"vLLM: context and buffers, {place.value}", steps, mechanism=_BUFFERS_OF[place], about=("_NON_TORCH",)
            )
        ),
        Evidence(
            rule="vLLM: buffers that grow with the ranks",
            figures=f"up to {_MOST_MEASURED_RANKS} ranks, the most in a log; further ranks add none",
            mechanism=(
                "buffers between GPUs of one machine do not grow with further machines; attention-DP ranks of a model "
                "without experts are engines apart, and do not count"
            ),
            by_hand=True,
            about=("_MOST_MEASURED_RANKS",),
        ),
        Evidence(
            rule="vLLM: weights that others still hold on unified memory",
            figures=f"{_UNIFIED_WEIGHT_FRACTION:.0%} of them (5 logs)",
            mechanism="the file cache of the loader is in the same memory, and counts as used",
            about=("_UNIFIED_WEIGHT_FRACTION", "non_torch_weight_fraction"),
        ),
        Evidence(
            rule="vLLM: CUDA graphs",
            figures=_GRAPHS_CHARGED,
            mechanism="a graph for each captured batch size",
            about=("_GRAPH_BYTES", "_LEAST_GRAPH_BYTES", "_MOST_GRAPH_BYTES", "_CHARGED_FROM"),
        ),
        Evidence(
            rule="vLLM: CUDA graphs where few sequences run",
            figures=f"{_FEW_GRAPH_BYTES // MIB} MiB",
            mechanism="graphs are captured up to twice the sequences that run at once: there are fewer",
            by_hand=True,
            about=("_FEW_GRAPH_BYTES", "small_batch_graph_bytes"),
        ),
        Evidence(
            rule="vLLM: CUDA graphs on unified memory",
            figures=f"{_UNIFIED_GRAPH_BYTES // MIB} MiB; an estimate of 1.9 GiB, of which 0.9 were used (1 log)",
            mechanism="what others free or take while graphs are captured counts in the estimate",
            by_hand=True,
            about=("_UNIFIED_GRAPH_BYTES", "_MOST_UNIFIED_GRAPH_BYTES"),
        ),
    )


_COMMUNICATORS = "device context, NCCL communicators and the workspace of the custom all-reduce"
_BUFFERS_OF = {
    _Place.UNIFIED: "the device's used memory counts pages that the loader and others hold",
    _Place.ONE_ROCM: "device context",
    _Place.ROCM: "device context and RCCL communicators",
    _Place.ONE: "device context and what of it was there before the first measurement",
    _Place.PCIE: "device context and NCCL: no custom all-reduce over PCIe",
    _Place.EARLY_NVLINK: _COMMUNICATORS,
    _Place.FIRST_NVLINK: _COMMUNICATORS,
    _Place.FIRST_WIDE_NVLINK: "NVLink SHARP buffers of NCCL",
    _Place.NVLINK: _COMMUNICATORS,
}
