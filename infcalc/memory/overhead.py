"""Memory that is neither weights nor KV: activation peak of the profiling run. Modelled, with a band.

Forward activation of T tokens: ``T * (2 * hidden + 2 * width / tp + qkv / tp) * 2`` bytes for a dense layer and
``T * k * (2 * expert_width / tp + hidden) * 2`` more for routed experts; the sampler of the profiling run holds
``copies * max_num_seqs * vocabulary * 4`` bytes, undivided by TP. The larger of the two is the peak.
Source: vLLM logs and llm-d-planner's measurements, versions 0.6 to 0.19.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.engines.rules import Band
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    LatentAttention,
    Mixer,
    MoeFeedForward,
    RecurrentMixer,
)

if TYPE_CHECKING:
    from infcalc.engines.rules import EngineRules
    from infcalc.spec.model import Model
    from infcalc.spec.parallelism import Parallelism

_LOW = 0.5
_HIGH = 1.6
_ELEMENT_BYTES = 2
_LOGIT_BYTES = 4


def activation_peak(
    model: Model, parallelism: Parallelism, rules: EngineRules, *, max_num_seqs: int, max_num_batched_tokens: int
) -> Band:
    """Return the activation peak of one GPU in bytes."""
    forward = max(
        (_forward_bytes(model, run.layer.mixer, run.layer.feed_forward, parallelism) for run in model.layers), default=0
    )
    forward_bytes = forward * max_num_batched_tokens
    sampler_bytes = round(rules.sampler_logit_copies * max_num_seqs * model.vocab_size * _LOGIT_BYTES)
    peak = max(forward_bytes, sampler_bytes)
    source = (
        f"sampler of the profiling run ({rules.sampler_source})"
        if sampler_bytes > forward_bytes
        else f"forward pass of {max_num_batched_tokens:,} tokens"
    )
    return Band(value_bytes=peak, low_bytes=round(peak * _LOW), high_bytes=round(peak * _HIGH), source=source)


def _forward_bytes(
    model: Model,
    mixer: Mixer | None,
    feed_forward: DenseFeedForward | MoeFeedForward | None,
    parallelism: Parallelism,
) -> int:
    """Return activation bytes per token of one layer."""
    tp = parallelism.tp
    elements = 2 * model.hidden_size + _mixer_width(mixer) // tp
    match feed_forward:
        case None:
            pass
        case DenseFeedForward():
            elements += 2 * feed_forward.width // tp
        case MoeFeedForward():
            elements += 2 * feed_forward.shared_width // tp
            elements += feed_forward.experts_per_token * (2 * feed_forward.expert_width // tp + model.hidden_size)
        case _:
            assert_never(feed_forward)
    return elements * _ELEMENT_BYTES


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
            return mixer.num_heads * (2 * key_dim + mixer.value_head_dim)
        case CompressedAttention():
            return mixer.num_heads * mixer.entry_dim
        case RecurrentMixer():
            return sum(matrix.rows for matrix in mixer.matrices if matrix.columns > 1)
        case _:
            assert_never(mixer)
