"""Memory that is neither weights nor KV: activation peak of the profiling run. Modelled, with a band.

Forward of T tokens: ``T * (inner + copies * hidden) * 2`` bytes. ``inner`` is gate, up and their product of a dense
layer (``3 * width / tp``), the same of the routed experts with every expert's output (``k * (3 * expert_width / within
+ hidden)``), or twice what a mixer's projections yield where that is more. The sampler of the profiling run holds
``copies * max_num_seqs * vocabulary * 4`` bytes beside the hidden states, undivided by TP. The largest picture of a
multimodal model passes the vision tower. The largest of the three is the peak.
Source: vLLM logs and llm-d-planner's measurements, versions 0.2 to 0.28; docs/accuracy.md lists the cases of each rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.engines.rules import Band
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    LatentAttention,
    Layer,
    Mixer,
    MoeFeedForward,
    RecurrentMixer,
)
from infcalc.units import GIB

if TYPE_CHECKING:
    from infcalc.engines.evidence import Evidence
    from infcalc.engines.rules import EngineRules
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism

_ELEMENT_BYTES = 2
_LOGIT_BYTES = 4
_STREAM_ELEMENTS = 2
"""Residual streams are held in fp32: two 16-bit elements each."""
_STREAM_MATRIX = "hc.fn"
_ENCODER_TOKENS = 16384
"""Image tokens of the largest picture that dynamic-resolution towers admit."""
_ENCODER_BYTES = 1.08 * GIB
_ENCODER_SPLIT_BYTES = 0.76 * GIB
"""One such picture through a tower 1,152 wide: what every rank holds, and what TP divides (1.84 GiB at TP 1 and 1.46 at
TP 2 in five logs of three models)."""
_LARGE_TOWER_PARAMETERS = 4e8
"""Smaller towers see pictures of one size, which take less than the sampler."""
_ENCODER_LOW_FRACTION = 0.6
_FEW_SEQUENCES = 16
"""Up to so many sequences few graphs are captured."""


def activation_peak(
    model: Model,
    parallelism: Parallelism,
    rules: EngineRules,
    *,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    last_stage: bool = True,
    with_encoder: bool = True,
    score_cells: int = 0,
    flash: bool | None = None,
) -> Band:
    """Return the activation peak of one GPU in bytes.

    ``score_cells`` is the context over which a layer's scores are held without ``flash`` attention, by an engine that
    may run so; ``flash`` None: not known.

    Worked example, Llama 3.1 8B on H100 with vLLM 0.19: 3.73 x 1024 x 128,256 x 4 + 1.34 x 8192 x 4096 x 2 bytes is
    1.91 GiB; the log says 1.89. llama.cpp, Llama 3 8B, 512 tokens: logits of 250.5 + 8 MiB; without flash attention at
    8,192 cells 512 + 50 MiB.
    """
    profile = rules.profile
    forward = max((_forward_elements(model, run.layer, parallelism, rules) for run in model.layers), default=0.0)
    forward_bytes = forward * max_num_batched_tokens * _ELEMENT_BYTES
    hidden_bytes = max_num_batched_tokens * model.hidden_size * _ELEMENT_BYTES
    sampler_bytes = sampler_high_bytes = 0.0
    if last_stage and rules.sampler_logit_copies:
        rows = max_num_batched_tokens if profile.logits_of_all_tokens else max_num_seqs
        logits = rows * model.vocab_size * _LOGIT_BYTES
        sampler_bytes = rules.sampler_logit_copies * logits + profile.sampler_hidden_copies * hidden_bytes
        if rules.sampler_high_logit_copies:
            sampler_high_bytes = sampler_bytes + logits * (rules.sampler_high_logit_copies - rules.sampler_logit_copies)
    encoder_bytes = _encoder_bytes(model, parallelism, rules, max_num_batched_tokens) if with_encoder else 0.0
    score_bytes = 0.0
    if profile.scores_without_flash and flash is not True:
        score_bytes = forward_bytes + _query_heads(model) * max_num_batched_tokens * score_cells * _LOGIT_BYTES
    sampled = f"sampler of the profiling run, {max_num_seqs:,} sequences"
    if profile.logits_of_all_tokens:
        sampled = f"graph of the largest micro-batch, {max_num_batched_tokens:,} tokens"
    scores_source = f"scores of {max_num_batched_tokens:,} tokens over {score_cells:,} cells: no flash attention"
    if profile.beside:
        peak, what = forward_bytes + sampler_bytes, profile.source
    else:
        peak, what = max(
            (forward_bytes, f"forward pass of {max_num_batched_tokens:,} tokens ({profile.source})"),
            (sampler_bytes, f"{sampled} ({rules.sampler_source})"),
            (encoder_bytes, "the largest picture through the vision tower"),
            (score_bytes if flash is False else 0.0, scores_source),
        )
    low = _ENCODER_LOW_FRACTION if peak == encoder_bytes else profile.low_fraction
    lowest = peak * low
    if profile.sampler_on_first_rank and parallelism.tp > 1:
        lowest = min(lowest, forward_bytes)
    most, why = max(
        (peak * profile.high_fraction, ""),
        # Limits on pictures and videos are seldom stated.
        (
            encoder_bytes * profile.encoder_high_fraction,
            f"up to {profile.encoder_high_fraction:g} times the largest picture: several of them, or a video",
        ),
        (sampler_high_bytes, f"sampler of the profiling run, {max_num_seqs:,} sequences: {rules.sampler_high_source}"),
        (score_bytes * profile.high_fraction, scores_source),
    )
    return Band(value_bytes=round(peak), low_bytes=round(lowest), high_bytes=round(most), source=what, high_source=why)


def _query_heads(model: Model) -> int:
    """Return the most query heads of any layer."""
    return max(
        (
            run.layer.mixer.num_heads
            for run in model.layers
            if isinstance(run.layer.mixer, GroupedAttention | LatentAttention | CompressedAttention)
        ),
        default=0,
    )


def cuda_graphs(rules: EngineRules, *, max_num_seqs: int) -> Band:
    """Return what the engine charges for CUDA graphs: fewer are captured where few sequences run at once."""
    few = max_num_seqs <= _FEW_SEQUENCES
    value = rules.small_batch_graph_bytes if few else rules.cuda_graph_bytes
    return Band(
        value_bytes=value,
        low_bytes=min(value, rules.cuda_graph_low_bytes),
        high_bytes=max(value, rules.cuda_graph_high_bytes // 2 if few else rules.cuda_graph_high_bytes),
        source=rules.cuda_graph_source,
    )


def _encoder_bytes(model: Model, parallelism: Parallelism, rules: EngineRules, tokens: int) -> float:
    if not rules.profile.encoder or model.unmodelled_parameters < _LARGE_TOWER_PARAMETERS:
        return 0.0
    pictures = max(tokens, _ENCODER_TOKENS) / _ENCODER_TOKENS
    return pictures * (_ENCODER_BYTES + _ENCODER_SPLIT_BYTES / parallelism.tp)


def _forward_elements(model: Model, layer: Layer, parallelism: Parallelism, rules: EngineRules) -> float:
    """Return activation elements per token of one layer at its peak."""
    tp, profile, hidden = parallelism.tp, rules.profile, model.hidden_size
    copies = profile.hidden_copies + (profile.reduced_hidden_copies if tp > 1 else 0.0)
    inner = 0.0
    match layer.feed_forward:
        case None:
            pass
        case DenseFeedForward() as block:
            inner = (3 if block.gated else 2) * block.width / tp
        case MoeFeedForward() as block:
            copies = max(copies, profile.moe_hidden_copies)
            # Experts that lie whole on a rank still hold room for every token's share.
            within = max(1, tp * parallelism.dp // parallelism.ep)
            matrices = 3 if block.gated else 2
            width = matrices * block.expert_width / within
            inner = matrices * block.shared_width / tp + block.experts_per_token * (width + hidden)
            if profile.split_gemm_copies > 1:
                inner = max(inner, profile.split_gemm_copies * matrices * block.expert_width)
        case _:
            assert_never(layer.feed_forward)
    streams = next((matrix.columns // hidden for matrix in layer.extras if matrix.name == _STREAM_MATRIX), 0)
    wide = max(inner, 2 * _mixer_width(layer.mixer) / tp)
    return wide + copies * hidden + profile.stream_copies * streams * hidden * _STREAM_ELEMENTS


def _mixer_width(mixer: Mixer | None) -> int:
    """Return the elements per token that a mixer's projections yield."""
    match mixer:
        case None:
            return 0
        case GroupedAttention():
            value_dim = mixer.value_head_dim or mixer.head_dim
            return (mixer.num_heads + mixer.num_kv_heads) * mixer.head_dim + mixer.num_kv_heads * value_dim
        case LatentAttention():
            key_dim = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
            return mixer.num_heads * key_dim
        case CompressedAttention():
            return mixer.num_heads * mixer.entry_dim
        case RecurrentMixer():
            return sum(matrix.rows for matrix in mixer.matrices if matrix.columns > 1)
        case _:
            assert_never(mixer)


def evidence() -> tuple[Evidence, ...]:
    """Return what each of these rules rests on."""
    from infcalc.engines.evidence import Evidence  # noqa: PLC0415 - only for the page on accuracy

    whole, split = (num_bytes / GIB for num_bytes in (_ENCODER_BYTES, _ENCODER_SPLIT_BYTES))
    return (
        Evidence(
            rule="largest picture",
            figures=f"{_ENCODER_TOKENS:,} tokens: {whole:.2f} GiB and {split:.2f} GiB / TP (5 logs of three models)",
            mechanism="the profiling run passes the largest picture that the processor admits through the tower",
            about=("_ENCODER_TOKENS", "_ENCODER_BYTES", "_ENCODER_SPLIT_BYTES"),
        ),
        Evidence(
            rule="which towers, and how little of a picture",
            figures=(
                f"from {_LARGE_TOWER_PARAMETERS:,.0f} parameters on; {_ENCODER_LOW_FRACTION} of the largest picture at "
                "the low end"
            ),
            mechanism="towers of one resolution see small pictures only, and limits on their size are seldom stated",
            by_hand=True,
            about=("_LARGE_TOWER_PARAMETERS", "_ENCODER_LOW_FRACTION"),
        ),
        Evidence(
            rule="few sequences",
            figures=f"up to {_FEW_SEQUENCES} have the graphs of few",
            mechanism="batches of up to twice the sequences are captured: 1, 2, 4, then every eighth",
            by_hand=True,
            about=("_FEW_SEQUENCES",),
        ),
    )
