"""DeepSeek and its kin: latent attention (MLA), sparse-attention indexers, and the compressed attention of V4.

Shapes follow the modelling code published by DeepSeek and the classes of Hugging Face transformers of the same name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.architectures.assembly import (
    HEADS,
    KV_HEADS,
    alternating,
    dense,
    experts,
    hidden,
    leading_dense,
    model,
    next_token_extras,
    nextn,
    norm_vector,
    num_layers,
    runs,
)
from infcalc.catalog.architectures.reader import MAX_CONTEXT_TOKENS, MAX_DIMENSION, MAX_LAYERS, Reader
from infcalc.errors import FileProblem
from infcalc.spec.layers import (
    CompressedAttention,
    Indexer,
    LatentAttention,
    Layer,
    Matrix,
    Shard,
)
from infcalc.spec.model import MultiTokenPrediction
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from infcalc.spec.layers import MoeFeedForward
    from infcalc.spec.model import Model

_ATTENTION = TensorRole.ATTENTION
_MAX_STREAMS = 64


def latent(reader: Reader, *, indexer: Indexer | None = None, extras: tuple[Matrix, ...] = ()) -> LatentAttention:
    """Return the config's MLA; the rotary part may be empty (``mla_use_nope``)."""
    bias = reader.flag("attention_bias", default=False)
    if bias:
        raise reader.unsupported("attention_bias", value=True, known=("false",))
    # Some configs carry the (unused) head sizes of plain attention beside the latent ones.
    reader.accept("head_dim", "qk_head_dim", *KV_HEADS)
    return LatentAttention(
        num_heads=reader.integer(*HEADS),
        kv_lora_rank=reader.integer("kv_lora_rank"),
        q_lora_rank=reader.optional_integer("q_lora_rank"),
        qk_nope_head_dim=reader.integer("qk_nope_head_dim"),
        qk_rope_head_dim=reader.integer("qk_rope_head_dim", low=0),
        value_head_dim=reader.integer("v_head_dim"),
        indexer=indexer,
        extras=extras,
    )


def dsa_indexer(reader: Reader, *, shared: bool = False, pool_tokens: int = 1) -> Indexer | None:
    """Return the lightning indexer of DeepSeek Sparse Attention, or None without ``index_topk``.

    Queries from the latent query, keys and head weights from the hidden state; the key norm has weight and bias.
    """
    topk = reader.optional_integer("index_topk")
    if topk is None:
        return None
    count, size, width = reader.integer("index_n_heads"), reader.integer("index_head_dim"), hidden(reader)
    rank = reader.optional_integer("q_lora_rank") or width
    matrices = (
        Matrix(name="indexer.q_b", rows=count * size, columns=rank, role=TensorRole.INDEXER),
        Matrix(name="indexer.k", rows=size, columns=width, role=TensorRole.INDEXER),
        norm_vector("indexer.k_norm", size, copies=2),
        Matrix(name="indexer.weights", rows=count, columns=width, role=TensorRole.INDEXER),
    )
    return Indexer(
        num_heads=count,
        head_dim=size,
        topk_tokens=topk,
        shared=shared,
        pool_tokens=pool_tokens,
        matrices=() if shared else matrices,
    )


def deepseek_experts(reader: Reader) -> MoeFeedForward:
    """Return DeepSeek's experts: shared ones as wide as routed ones, a correction bias with ``noaux_tc``."""
    shared = reader.integer("n_shared_experts", "num_shared_experts", default=0, low=0)
    return experts(
        reader,
        shared_width=shared * reader.integer("moe_intermediate_size"),
        router_bias=reader.text("topk_method") == "noaux_tc",
    )


def deepseek(reader: Reader) -> Model:
    """DeepSeek V2, V3, V3.2, Kimi K2, GLM-4.7-Flash: MLA, leading dense layers, MTP with copies of the embeddings."""
    count = num_layers(reader)
    attention = latent(reader, indexer=dsa_indexer(reader))
    # Small fine-tunes of the family (Moonlight, Kimi-VL) keep the class default of the routing method.
    block = deepseek_experts(reader)
    plain = dense(reader)
    mtp = nextn(reader, Layer(mixer=attention, feed_forward=block), copies=1)
    sparse = leading_dense(reader, count)
    return model(reader, alternating([attention] * count, [block if on else plain for on in sparse]), mtp=mtp)


def glm_dsa(reader: Reader) -> Model:
    """GLM-5: DeepSeek V3.2 where ``indexer_types`` lets layers reuse the selection of the last full indexer."""
    count = num_layers(reader)
    own = latent(reader, indexer=dsa_indexer(reader))
    reuse = latent(reader, indexer=dsa_indexer(reader, shared=True))
    words = reader.words("indexer_types", length=count) or ("full",) * count
    for word in words:
        if word not in {"full", "shared"}:
            raise reader.unsupported("indexer_types", word, ("full", "shared"))
    reader.accept("index_topk_freq", "index_skip_topk_offset", "index_topk_pattern")
    block = deepseek_experts(reader)
    plain = dense(reader)
    sparse = leading_dense(reader, count)
    return model(
        reader,
        alternating([own if word == "full" else reuse for word in words], [block if on else plain for on in sparse]),
        mtp=nextn(reader, Layer(mixer=own, feed_forward=block), copies=1),
    )


_OVERLAPPING_COMPRESSION = 4
"""At this ratio neighbouring windows overlap, which doubles the compressor, and an indexer picks entries."""


def _compressor(name: str, width: int, size: int, ratio: int, role: TensorRole) -> tuple[Matrix, ...]:
    """Return the weights that pool ``ratio`` tokens into one entry of ``size`` elements."""
    wide = size * (2 if ratio == _OVERLAPPING_COMPRESSION else 1)
    return (
        Matrix(name=f"{name}.kv", rows=wide, columns=width, role=role),
        Matrix(name=f"{name}.gate", rows=wide, columns=width, role=role),
        Matrix(name=f"{name}.positions", rows=ratio, columns=wide, role=TensorRole.POSITION),
        norm_vector(f"{name}.norm", size),
    )


def _v4_attention(reader: Reader, ratio: int) -> CompressedAttention:
    width, count, size = hidden(reader), reader.integer(*HEADS), reader.integer("head_dim")
    q_rank, o_rank = reader.integer("q_lora_rank"), reader.integer("o_lora_rank")
    groups = reader.integer("o_groups")
    if count % groups:
        raise FileProblem(f"{groups} output groups do not divide {count} heads", place=reader.place("o_groups"))
    if reader.integer(*KV_HEADS, default=1) != 1:
        raise reader.unsupported("num_key_value_heads", reader.config["num_key_value_heads"], ("1",))
    matrices = [
        Matrix(name="q_a", rows=q_rank, columns=width, role=_ATTENTION),
        norm_vector("q_a_norm", q_rank),
        Matrix(name="q_b", rows=count * size, columns=q_rank, role=_ATTENTION, shard=Shard.ROWS),
        Matrix(name="kv", rows=size, columns=width, role=_ATTENTION),
        norm_vector("kv_norm", size),
        Matrix(name="o_a", rows=groups * o_rank, columns=count * size // groups, role=_ATTENTION, shard=Shard.ROWS),
        Matrix(name="o_b", rows=width, columns=groups * o_rank, role=_ATTENTION, shard=Shard.COLUMNS),
        Matrix(name="sinks", rows=count, role=TensorRole.BIAS, shard=Shard.ROWS),
    ]
    index_heads, index_size = reader.integer("index_n_heads"), reader.integer("index_head_dim")
    indexer = None
    topk = reader.integer("index_topk")
    if ratio:
        matrices.extend(_compressor("compressor", width, size, ratio, _ATTENTION))
    if ratio == _OVERLAPPING_COMPRESSION:
        role = TensorRole.INDEXER
        indexer = Indexer(
            num_heads=index_heads,
            head_dim=index_size,
            topk_tokens=topk,
            pool_tokens=ratio,
            matrices=(
                Matrix(name="indexer.q_b", rows=index_heads * index_size, columns=q_rank, role=role),
                Matrix(name="indexer.weights", rows=index_heads, columns=width, role=role),
                *_compressor("indexer.compressor", width, index_size, ratio, role),
            ),
        )
    return CompressedAttention(
        num_heads=count,
        entry_dim=size,
        rope_dim=reader.integer("qk_rope_head_dim"),
        window_tokens=reader.integer("sliding_window", high=MAX_CONTEXT_TOKENS),
        compression=ratio,
        indexer=indexer,
        matrices=tuple(matrices),
    )


def hyper_connections(width: int, streams: int) -> tuple[Matrix, ...]:
    """Return the weights that mix ``streams`` residual streams around attention and around the feed-forward block."""
    mixes = (2 + streams) * streams
    return (
        Matrix(name="hc.fn", rows=mixes, columns=streams * width, copies=2),
        Matrix(name="hc.base", rows=mixes, copies=2),
        Matrix(name="hc.scale", rows=3, copies=2),
    )


def _hyper_head(width: int, streams: int) -> tuple[Matrix, ...]:
    return (
        Matrix(name="hc_head.fn", rows=streams, columns=streams * width),
        Matrix(name="hc_head.base", rows=streams),
        Matrix(name="hc_head.scale", rows=1),
    )


def deepseek_v4(reader: Reader) -> Model:
    """DeepSeek V4: attention over compressed entries, hyper-connections, experts in every layer.

    ``compress_ratios`` has one entry per layer and one per MTP layer. The first ``num_hash_layers`` route by token id:
    their tables (an integer per vocabulary entry and expert slot) replace the correction bias and are not counted.
    """
    count = num_layers(reader)
    width = hidden(reader)
    num_mtp = reader.integer("num_nextn_predict_layers", default=0, low=0, high=MAX_LAYERS)
    ratios = reader.integers("compress_ratios", high=MAX_DIMENSION)
    if ratios is None or len(ratios) not in {count, count + num_mtp}:
        raise FileProblem(
            f"needs one entry for each of {count} layers and {num_mtp} MTP layers",
            place=reader.place("compress_ratios"),
        )
    hashed = reader.integer("num_hash_layers", default=0, low=0, high=MAX_LAYERS)
    streams = reader.integer("hc_mult")
    if streams > _MAX_STREAMS:
        raise FileProblem(f"{streams} is more than {_MAX_STREAMS}", place=reader.place("hc_mult"))
    reader.accept(
        "expert_dtype", "swiglu_limit", "hc_sinkhorn_iters", "hc_eps", "attention_bias", "compress_rope_theta"
    )
    if reader.flag("attention_bias", default=False):
        raise reader.unsupported("attention_bias", value=True, known=("false",))
    block = deepseek_experts(reader)
    mixing = hyper_connections(width, streams)
    mixers = {ratio: _v4_attention(reader, ratio) for ratio in set(ratios)}
    layers = runs(
        Layer(
            mixer=mixers[ratios[index]],
            feed_forward=block if index >= hashed else replace(block, router_bias=False),
            extras=mixing,
        )
        for index in range(count)
    )
    mtp = None
    if num_mtp:
        head = _hyper_head(width, streams)
        mtp = MultiTokenPrediction(
            num_layers=num_mtp,
            layer=Layer(mixer=_v4_attention(reader, ratios[-1]), feed_forward=block, extras=mixing),
            extras=(*next_token_extras(width), *head),
        )
    return model(reader, layers, mtp=mtp, extras=_hyper_head(width, streams))
