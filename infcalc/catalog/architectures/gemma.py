"""Gemma, from the first to the fourth: tied, wide heads, sliding layers from the second on.

Norms, windows and shared caches follow the model classes of Hugging Face transformers of the same name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.architectures.assembly import (
    SLIDING,
    WIDTH,
    context,
    dense,
    every_full,
    experts,
    grouped,
    hidden,
    limited,
    model,
    norm_vector,
    num_layers,
    reaches,
    runs,
)
from infcalc.catalog.architectures.dense import stack, window
from infcalc.catalog.architectures.reader import MAX_LAYERS, MAX_VOCABULARY, Reader
from infcalc.errors import FileProblem
from infcalc.spec.layers import DenseFeedForward, GroupedAttention, Layer, Matrix, MoeFeedForward, QkNorm, Reach, Shard
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from infcalc.spec.model import Model

_HEAD_DIM = 256
_GEMMA3_HEADS = 8
_GEMMA3_KV_HEADS = 4
_GEMMA3_VOCABULARY = 262_208
_HF_DEFAULT_WINDOW = 4096


def gemma(reader: Reader) -> Model:
    """Gemma 1: Llama with heads of 256, tied."""
    bias = reader.flag("attention_bias", default=False)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias, head_dim=_HEAD_DIM)
    return stack(reader, attention, dense(reader), tie_default=True)


def gemma2(reader: Reader) -> Model:
    """Gemma 2: four norms per layer, every other layer slides, beginning with the first."""
    bias = reader.flag("attention_bias", default=False)
    return stack(
        reader,
        grouped(reader, qkv_bias=bias, output_bias=bias, head_dim=_HEAD_DIM),
        dense(reader),
        sliding=window(reader, default=_HF_DEFAULT_WINDOW),
        pattern=every_full(2),
        known=SLIDING,
        num_norms=4,
        tie_default=True,
    )


def gemma3(reader: Reader) -> Model:
    """Gemma 3: Gemma 2 with Q and K normed per head, every sixth layer full; sparse configs rely on class defaults."""
    bias = reader.flag("attention_bias", default=False)
    period = reader.integer("sliding_window_pattern", "_sliding_window_pattern", default=6, high=MAX_LAYERS)
    defaults = {
        "num_attention_heads": _GEMMA3_HEADS,
        "num_key_value_heads": _GEMMA3_KV_HEADS,
        "vocab_size": _GEMMA3_VOCABULARY,
    }
    reader.config = {**defaults, **{key: value for key, value in reader.config.items() if value is not None}}
    return stack(
        reader,
        grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=QkNorm.PER_HEAD, head_dim=_HEAD_DIM),
        dense(reader),
        sliding=window(reader, default=_HF_DEFAULT_WINDOW),
        pattern=every_full(period),
        known=SLIDING,
        num_norms=4,
        tie_default=True,
    )


def gemma4(reader: Reader) -> Model:
    """Gemma 4: full layers with their own head sizes, last layers that share earlier caches, per-layer embeddings.

    With ``attention_k_eq_v`` full layers have no value projection and ``num_global_key_value_heads`` KV heads. The MoE
    block stands beside a dense one of ``intermediate_size``, which every token uses like a shared expert.
    """
    count = num_layers(reader)
    width = hidden(reader)
    longest = context(reader)
    sliding_window = window(reader, default=512)
    shared = reader.integer("num_kv_shared_layers", default=0, low=0, high=MAX_LAYERS)
    if shared >= count:
        raise FileProblem(f"{shared} of {count} layers share a cache", place=reader.place("num_kv_shared_layers"))
    bias = reader.flag("attention_bias", default=False)
    local = grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=QkNorm.PER_HEAD, head_dim=_HEAD_DIM)
    full = _global_attention(reader, local)
    inner = reader.integer(*WIDTH)
    wide = 2 if reader.flag("use_double_wide_mlp", default=False) else 1
    sparse = _sparse(reader, width, inner) if reader.flag("enable_moe_block", default=False) else None
    reader.accept("num_experts", "top_k_experts", "moe_intermediate_size", "expert_intermediate_size")
    per_layer = reader.integer("hidden_size_per_layer_input", default=0, low=0)
    extras, norms = _layer_extras(width, per_layer), 4 + (1 if per_layer else 0) + (3 if sparse else 0)
    found = reaches(reader, count, every_full(6), known=SLIDING, window=sliding_window)

    def layer(index: int) -> Layer:
        reuses = index >= count - shared
        attention = full if found[index] is Reach.FULL else limited(local, sliding_window, longest, reach=found[index])
        block = sparse or DenseFeedForward(width=inner * (wide if reuses else 1))
        return Layer(mixer=replace(attention, shares_kv=reuses), feed_forward=block, num_norms=norms, extras=extras)

    rows = reader.integer("vocab_size_per_layer_input", default=1, high=MAX_VOCABULARY)
    return model(
        reader,
        runs(layer(index) for index in range(count)),
        tie_default=True,
        extras=_per_layer_inputs(count, width, per_layer, rows) if per_layer else (),
    )


def _global_attention(reader: Reader, local: GroupedAttention) -> GroupedAttention:
    keys_serve = reader.flag("attention_k_eq_v", default=False)
    kv_heads = reader.integer("num_global_key_value_heads", default=local.num_kv_heads)
    full = replace(
        local,
        head_dim=reader.integer("global_head_dim", default=local.head_dim),
        num_kv_heads=kv_heads if keys_serve else local.num_kv_heads,
        value_from_key=keys_serve,
    )
    if full.num_heads % full.num_kv_heads:
        raise FileProblem(
            f"{kv_heads} global KV heads do not divide {full.num_heads} heads",
            place=reader.place("num_global_key_value_heads"),
        )
    return full


def _sparse(reader: Reader, width: int, inner: int) -> MoeFeedForward:
    total = reader.integer("num_experts")
    return experts(
        reader,
        shared_width=inner,
        extras=(
            Matrix(name="router.scale", rows=width, role=TensorRole.ROUTER),
            Matrix(name="router.expert_scale", rows=total, role=TensorRole.ROUTER),
        ),
    )


def _layer_extras(width: int, per_layer: int) -> tuple[Matrix, ...]:
    scalar = norm_vector("layer_scalar", 1)
    if not per_layer:
        return (scalar,)
    return (
        scalar,
        Matrix(name="per_layer_gate", rows=per_layer, columns=width, role=TensorRole.FEED_FORWARD),
        Matrix(name="per_layer_projection", rows=width, columns=per_layer, role=TensorRole.FEED_FORWARD),
    )


def _per_layer_inputs(count: int, width: int, per_layer: int, rows: int) -> tuple[Matrix, ...]:
    return (
        Matrix(
            name="per_layer_embedding",
            rows=rows,
            columns=count * per_layer,
            role=TensorRole.EMBEDDING,
            shard=Shard.VOCABULARY,
        ),
        Matrix(name="per_layer_model_projection", rows=count * per_layer, columns=width, role=TensorRole.FEED_FORWARD),
        norm_vector("per_layer_projection_norm", per_layer),
    )
