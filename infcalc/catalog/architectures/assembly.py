"""What adapters share: common fields of a config into parts of a layer, and layers into a model."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from infcalc.catalog.architectures.reader import MAX_CONTEXT_TOKENS, MAX_LAYERS, MAX_VOCABULARY, shown
from infcalc.errors import FileProblem, UnsupportedArchitecture
from infcalc.spec.layers import (
    DenseFeedForward,
    GroupedAttention,
    Layer,
    LayerRun,
    Matrix,
    MoeFeedForward,
    QkNorm,
    Reach,
    Shard,
)
from infcalc.spec.model import Model, MultiTokenPrediction
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from infcalc.catalog.architectures.reader import Reader
    from infcalc.spec.layers import FeedForward, Mixer

LAYERS = ("num_hidden_layers", "n_layer", "n_layers", "num_layers")
HIDDEN = ("hidden_size", "n_embd", "d_model")
HEADS = ("num_attention_heads", "n_head", "n_heads")
KV_HEADS = ("num_key_value_heads", "n_head_kv", "num_kv_heads", "multi_query_group_num", "num_attention_groups")
HEAD_DIM = ("head_dim", "attention_head_dim", "hidden_size_per_head", "kv_channels")
WIDTH = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
EXPERTS = ("num_experts", "moe_num_experts", "n_routed_experts", "num_local_experts")
EXPERTS_PER_TOKEN = (
    "num_experts_per_tok",
    "num_experts_per_token",
    "top_k_experts",
    "moe_topk",
    "moe_top_k",
    "moe_k",
    "experts_per_token",
)
EXPERT_WIDTH = ("moe_intermediate_size", "expert_intermediate_size")
CONTEXT = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "seq_length",
    "model_max_length",
    "max_sequence_length",
    "max_target_positions",
)
DTYPE = ("dtype", "torch_dtype")
_DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "half": "fp16", "float": "fp32", "auto": "bf16"}
# Routing rules change which experts a token takes, not how many nor their shape.
_ROUTING = (
    "scoring_func",
    "topk_method",
    "topk_group",
    "n_group",
    "num_expert_group",
    "norm_topk_prob",
    "routed_scaling_factor",
    "ep_size",
    "output_router_logits",
)
ALL_FULL = {"full_attention": Reach.FULL}
SLIDING = {"full_attention": Reach.FULL, "sliding_attention": Reach.SLIDING}
CHUNKED = {"full_attention": Reach.FULL, "chunked_attention": Reach.CHUNKED}


def num_layers(reader: Reader) -> int:
    """Return the number of decoder layers."""
    return reader.integer(*LAYERS, high=MAX_LAYERS)


def hidden(reader: Reader) -> int:
    """Return the hidden size."""
    return reader.integer(*HIDDEN)


def context(reader: Reader) -> int | None:
    """Return the longest context in tokens, or None where the config does not say."""
    return reader.optional_integer(*CONTEXT, high=MAX_CONTEXT_TOKENS)


def dtype(reader: Reader) -> str:
    """Return the checkpoint's own type as ``bf16``, ``fp16`` or ``fp32``; bf16 where the config does not say."""
    source = reader
    while not source.has(*DTYPE) and source.parent is not None:
        source = source.parent
    word = source.text(*DTYPE, default="bfloat16").removeprefix("torch.")
    if word not in _DTYPES:
        raise FileProblem(f"{shown(word)} is not a dtype", place=source.place("torch_dtype"), hint=", ".join(_DTYPES))
    return _DTYPES[word]


def tied(reader: Reader, *, default: bool) -> bool:
    """Return whether input and output embeddings are one table; a nested text config inherits from its wrapper."""
    source = reader
    while not source.has("tie_word_embeddings") and source.parent is not None:
        source = source.parent
    return source.flag("tie_word_embeddings", default=default)


def heads(reader: Reader, *, head_dim: int | None = None) -> tuple[int, int, int]:
    """Return (query heads, KV heads, head dim); ``head_dim`` is the family's default where the key is absent.

    Raises:
        FileProblem: KV heads do not divide query heads, or the hidden size does not divide by the heads.

    """
    count = reader.integer(*HEADS)
    kv = reader.integer(*KV_HEADS, default=count)
    if count % kv:
        raise FileProblem(f"{kv} KV heads do not divide {count} attention heads", place=reader.place(KV_HEADS[0]))
    size = reader.optional_integer(*HEAD_DIM) or head_dim
    if size is None:
        width = hidden(reader)
        if width % count:
            raise FileProblem(
                f"hidden size {width} does not divide by {count} attention heads and there is no head_dim",
                place=reader.place(HEADS[0]),
            )
        size = width // count
    return count, kv, size


def grouped(
    reader: Reader,
    *,
    qkv_bias: bool = False,
    output_bias: bool = False,
    qk_norm: QkNorm = QkNorm.NONE,
    head_dim: int | None = None,
    output_gate: bool = False,
    extras: tuple[Matrix, ...] = (),
) -> GroupedAttention:
    """Return full attention with the config's heads."""
    count, kv, size = heads(reader, head_dim=head_dim)
    return GroupedAttention(
        num_heads=count,
        num_kv_heads=kv,
        head_dim=size,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        qk_norm=qk_norm,
        output_gate=output_gate,
        extras=extras,
    )


def limited(
    attention: GroupedAttention, window: int | None, longest: int | None, *, reach: Reach = Reach.SLIDING
) -> GroupedAttention:
    """Return ``attention`` with a window, unless the window is as long as the longest context anyway."""
    if window is None or reach is Reach.FULL or (longest is not None and window >= longest):
        return attention
    return replace(attention, reach=reach, window_tokens=window)


def always_full(_index: int) -> Reach:
    """Return the pattern in which every layer sees everything."""
    return Reach.FULL


def reaches(
    reader: Reader,
    count: int,
    default: Callable[[int], Reach] = always_full,
    *,
    known: Mapping[str, Reach] = ALL_FULL,
    window: int | None = None,
) -> tuple[Reach, ...]:
    """Return each layer's reach from ``layer_types``, else from ``default(index)``.

    ``known`` are the words that the architecture has layers for, ``window`` the tokens that a limited layer sees: a
    config that states limited layers without a window is refused, unless ``use_sliding_window`` switches them off.

    Raises:
        UnsupportedArchitecture: a layer type is not ``known``, or is limited and there is no window.

    """
    words = reader.words("layer_types", length=count)
    if words is None:
        return tuple(default(index) for index in range(count))
    for word in words:
        if word not in known:
            raise reader.unsupported("layer_types", word, tuple(known))
        if known[word] is not Reach.FULL and window is None and reader.config.get("use_sliding_window") is not False:
            raise UnsupportedArchitecture(
                f"layer_types names {word!r}, and no window is stated",
                place=reader.place("layer_types"),
                hint="state sliding_window (or attention_chunk_size), or describe the model in a catalog file",
            )
    return tuple(known[word] for word in words)


def every_full(period: int) -> Callable[[int], Reach]:
    """Return the pattern in which every ``period``-th layer sees everything and the others slide."""
    return lambda index: Reach.SLIDING if (index + 1) % period else Reach.FULL


def dense(reader: Reader, *, gated: bool = True, bias: bool = False, default: int | None = None) -> DenseFeedForward:
    """Return the feed-forward block of the config's inner width."""
    return DenseFeedForward(width=reader.integer(*WIDTH, default=default), gated=gated, bias=bias)


def experts(
    reader: Reader,
    *,
    width: int | None = None,
    shared_width: int = 0,
    shared_gate: bool = False,
    router_bias: bool = False,
    expert_bias: bool = False,
    gated: bool = True,
    expert_input_dim: int | None = None,
    extras: tuple[Matrix, ...] = (),
) -> MoeFeedForward:
    """Return the mixture of experts of the config; ``width`` overrides the expert width.

    Raises:
        FileProblem: more experts per token than experts.

    """
    reader.accept(*_ROUTING)
    total = reader.integer(*EXPERTS)
    # `top_k` is also a setting of generation: it counts experts only where nothing else does.
    active = reader.integer(*EXPERTS_PER_TOKEN, *(() if reader.has(*EXPERTS_PER_TOKEN) else ("top_k",)))
    if active > total:
        raise FileProblem(
            f"{active} experts per token of only {total} experts", place=reader.place(EXPERTS_PER_TOKEN[0])
        )
    return MoeFeedForward(
        num_experts=total,
        experts_per_token=active,
        expert_width=reader.integer(*EXPERT_WIDTH) if width is None else width,
        shared_width=shared_width,
        shared_gate=shared_gate,
        router_bias=router_bias,
        expert_bias=expert_bias,
        gated=gated,
        expert_input_dim=expert_input_dim,
        extras=extras,
    )


def leading_dense(reader: Reader, count: int) -> tuple[bool, ...]:
    """Return, per layer, whether it has experts.

    All from ``first_k_dense_replace`` on whose index divides by ``moe_layer_freq`` (which may also be a list of marks);
    ``mlp_layer_types`` states the same in words and wins.

    Raises:
        FileProblem: a list has not one entry per layer.

    """
    first = reader.integer("first_k_dense_replace", default=0, low=0, high=MAX_LAYERS)
    if isinstance(reader.config.get("moe_layer_freq"), list | tuple):
        marks = reader.integers("moe_layer_freq", length=count, high=1) or ()
        sparse = tuple(bool(mark) for mark in marks)
    else:
        period = reader.integer("moe_layer_freq", default=1, high=MAX_LAYERS)
        sparse = tuple(index >= first and index % period == 0 for index in range(count))
    words = reader.words("mlp_layer_types", length=count)
    if words is not None:
        for word in words:
            if word not in {"dense", "sparse"}:
                raise reader.unsupported("mlp_layer_types", word, ("dense", "sparse"))
        sparse = tuple(word == "sparse" for word in words)
    return sparse


def norm_vector(name: str, size: int, *, copies: int = 1, shard: Shard = Shard.REPLICATED) -> Matrix:
    """Return the weights of a norm over ``size`` elements that is not one of the layer's hidden-size norms."""
    return Matrix(name=name, rows=size, role=TensorRole.NORM, copies=copies, shard=shard)


def repeated(count: int, layer: Callable[[int], Layer]) -> tuple[LayerRun, ...]:
    """Return the layers ``layer(0) .. layer(count - 1)`` as runs of equal ones."""
    return runs(layer(index) for index in range(count))


def alternating(
    mixers: Iterable[Mixer | None],
    blocks: Iterable[FeedForward | None],
    *,
    num_norms: int = 2,
    norm_bias: bool = False,
) -> tuple[LayerRun, ...]:
    """Return layers with these mixers and feed-forward blocks, as runs of equal ones."""
    return runs(
        Layer(mixer=mixer, feed_forward=block, num_norms=num_norms, norm_bias=norm_bias)
        for mixer, block in zip(mixers, blocks, strict=True)
    )


def runs(layers: Iterable[Layer]) -> tuple[LayerRun, ...]:
    """Return ``layers`` as runs of equal ones."""
    return tuple(LayerRun(num_layers=len(list(group)), layer=layer) for layer, group in groupby(layers))


def nextn(
    reader: Reader,
    layer: Layer,
    *keys: str,
    default: int = 0,
    extras: tuple[Matrix, ...] | None = None,
    copies: int = 0,
) -> MultiTokenPrediction | None:
    """Return the MTP layers of DeepSeek's kind: a decoder layer, three norms and a projection of 2h to h.

    ``keys`` name their number; ``copies`` of embedding and head lie in the checkpoint beside the decoder's.
    """
    count = reader.integer(*(keys or ("num_nextn_predict_layers",)), default=default, low=0, high=MAX_LAYERS)
    if not count:
        return None
    width = hidden(reader)
    return MultiTokenPrediction(
        num_layers=count,
        layer=layer,
        extras=next_token_extras(width) if extras is None else extras,
        embedding_copies=copies,
    )


def next_token_extras(width: int, *, num_norms: int = 3) -> tuple[Matrix, ...]:
    """Return the usual weights of an MTP layer beside its decoder layer: norms and the projection of 2h to h."""
    return (
        norm_vector("norms", width, copies=num_norms),
        Matrix(name="projection", rows=width, columns=2 * width, role=TensorRole.OTHER),
    )


def model(
    reader: Reader,
    layers: tuple[LayerRun, ...],
    *,
    tie_default: bool = False,
    vocab_size: int | None = None,
    final_norm_bias: bool = False,
    lm_head_bias: bool = False,
    mtp: MultiTokenPrediction | None = None,
    extras: tuple[Matrix, ...] = (),
) -> Model:
    """Return the model of these layers with the config's surroundings (vocabulary, tying, context, dtype)."""
    return Model(
        name="",
        architecture=reader.text("model_type"),
        hidden_size=hidden(reader),
        vocab_size=reader.integer("vocab_size", "padded_vocab_size", default=vocab_size, high=MAX_VOCABULARY),
        layers=layers,
        tied_embeddings=tied(reader, default=tie_default),
        final_norm_bias=final_norm_bias,
        lm_head_bias=lm_head_bias,
        max_context_tokens=context(reader),
        dtype=dtype(reader),
        mtp=mtp,
        extras=extras,
    )
