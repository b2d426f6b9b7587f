"""Linear attention beside full attention: Qwen3-Next and 3.5, Kimi Linear and K3, GLM-5.3 Flash, MiniMax-M1.

Shapes follow the model classes of Hugging Face transformers and the modelling code published with the weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.architectures.assembly import (
    EXPERTS,
    HEAD_DIM,
    HEADS,
    WIDTH,
    alternating,
    dense,
    experts,
    grouped,
    heads,
    hidden,
    leading_dense,
    model,
    nextn,
    norm_vector,
    num_layers,
    runs,
)
from infcalc.catalog.architectures.latent import deepseek_experts, dsa_indexer, hyper_connections, latent
from infcalc.catalog.architectures.mamba import latent_projections, state_bits, state_vector
from infcalc.catalog.architectures.reader import MAX_LAYERS, Reader
from infcalc.errors import FileProblem
from infcalc.spec.layers import (
    Indexer,
    Layer,
    Matrix,
    QkNorm,
    RecurrentKind,
    RecurrentMixer,
    Shard,
)
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from infcalc.spec.layers import FeedForward, MoeFeedForward
    from infcalc.spec.model import Model

_LINEAR = TensorRole.RECURRENT
_MAX_KERNEL = 1024
_MAX_STREAMS = 64


def gated_delta_net(reader: Reader, *, bits: int, fused: bool) -> RecurrentMixer:
    """Return the config's gated delta net: keys and values with their own numbers of heads, one short convolution.

    ``fused`` names the input projections as Qwen3-Next stores them, else as Qwen3.5 does.
    """
    width = hidden(reader)
    value_heads, value_dim = reader.integer("linear_num_value_heads"), reader.integer("linear_value_head_dim")
    key_dim = reader.integer("linear_key_head_dim")
    keys, values = reader.integer("linear_num_key_heads") * key_dim, value_heads * value_dim
    kernel = reader.integer("linear_conv_kernel_dim", default=4, high=_MAX_KERNEL)
    inputs = (
        (("in_proj_qkvz", 2 * (keys + values)), ("in_proj_ba", 2 * value_heads))
        if fused
        else (
            ("in_proj_qkv", 2 * keys + values),
            ("in_proj_z", values),
            ("in_proj_b", value_heads),
            ("in_proj_a", value_heads),
        )
    )
    return RecurrentMixer(
        recurrent=RecurrentKind.GATED_DELTA_NET,
        state_elements=value_heads * value_dim * key_dim,
        conv_elements=(2 * keys + values) * (kernel - 1),
        state_bits=bits,
        matrices=(
            *(Matrix(name=name, rows=rows, columns=width, role=_LINEAR, shard=Shard.ROWS) for name, rows in inputs),
            state_vector("conv", 2 * keys + values, kernel),
            state_vector("dt_bias", value_heads),
            state_vector("A_log", value_heads),
            norm_vector("gate_norm", value_dim),
            Matrix(name="out_proj", rows=width, columns=values, role=_LINEAR, shard=Shard.COLUMNS),
        ),
    )


def _delta_types(reader: Reader, count: int) -> tuple[bool, ...]:
    """Return which layers are linear: all but every ``full_attention_interval``-th, or as ``layer_types`` says."""
    interval = reader.integer("full_attention_interval", default=4, high=MAX_LAYERS)
    words = reader.words("layer_types", length=count)
    if words is None:
        return tuple((index + 1) % interval != 0 for index in range(count))
    for word in words:
        if word not in {"linear_attention", "full_attention"}:
            raise reader.unsupported("layer_types", word, ("linear_attention", "full_attention"))
    return tuple(word == "linear_attention" for word in words)


def _delta_experts(reader: Reader) -> MoeFeedForward:
    shared = reader.integer("shared_expert_intermediate_size", default=0, low=0)
    return experts(reader, shared_width=shared, shared_gate=shared > 0)


def _delta_model(
    reader: Reader, block: FeedForward, *, bits: int, fused: bool, mtp_key: str, mtp_default: int
) -> Model:
    count = num_layers(reader)
    bias = reader.flag("attention_bias", default=False)
    attention = grouped(
        reader,
        qkv_bias=bias,
        output_bias=bias,
        qk_norm=QkNorm.PER_HEAD,
        output_gate=reader.flag("attn_output_gate", default=True),
        head_dim=256,
    )
    recurrent = gated_delta_net(reader, bits=bits, fused=fused)
    step = reader.integer("decoder_sparse_step", default=1, high=MAX_LAYERS)
    if step != 1 or reader.integers("mlp_only_layers", high=MAX_LAYERS):
        raise reader.unsupported("decoder_sparse_step", step, ("1 with empty mlp_only_layers",))
    reader.accept("mtp_use_dedicated_embeddings", "sliding_window", *WIDTH)
    if reader.flag("mtp_use_dedicated_embeddings", default=False):
        raise reader.unsupported("mtp_use_dedicated_embeddings", value=True, known=("false",))
    linear = _delta_types(reader, count)
    mtp = nextn(reader, Layer(mixer=attention, feed_forward=block), mtp_key, default=mtp_default)
    return model(reader, alternating([recurrent if on else attention for on in linear], [block] * count), mtp=mtp)


def qwen3_next(reader: Reader) -> Model:
    """Qwen3-Next: three gated delta nets to each full layer; the MTP layer is not in the config but is published."""
    bits = state_bits(reader, "mamba_ssm_dtype", "mamba_ssm_cache_dtype", default=16)
    return _delta_model(
        reader, _delta_experts(reader), bits=bits, fused=True, mtp_key="num_nextn_predict_layers", mtp_default=1
    )


def qwen3_5(reader: Reader) -> Model:
    """Qwen3.5 to 3.8, dense or with experts: Qwen3-Next with ``mtp_num_hidden_layers`` stated."""
    bits = state_bits(reader, "mamba_ssm_dtype", "mamba_ssm_cache_dtype", default=16)
    block: FeedForward = _delta_experts(reader) if reader.has(*EXPERTS) else dense(reader)
    return _delta_model(reader, block, bits=bits, fused=False, mtp_key="mtp_num_hidden_layers", mtp_default=0)


def kimi_delta(section: Reader, width: int, *, full_rank_gate: bool) -> RecurrentMixer:
    """Return Kimi Delta Attention: three convolutions, a low-rank decay, a low- or full-rank output gate."""
    count, size = section.integer("num_heads"), section.integer("head_dim")
    kernel = section.integer("short_conv_kernel_size", default=4, high=_MAX_KERNEL)
    channels = count * size
    wide = Shard.ROWS
    matrices = [
        Matrix(name="qkv", rows=3 * channels, columns=width, role=_LINEAR, shard=wide),
        state_vector("conv", 3 * channels, kernel),
        state_vector("A_log", count),
        state_vector("dt_bias", channels),
        Matrix(name="f_a", rows=size, columns=width, role=_LINEAR),
        Matrix(name="f_b", rows=channels, columns=size, role=_LINEAR, shard=wide),
        Matrix(name="b", rows=count, columns=width, role=_LINEAR, shard=wide),
        norm_vector("gate_norm", size),
        Matrix(name="o_proj", rows=width, columns=channels, role=_LINEAR, shard=Shard.COLUMNS),
    ]
    if full_rank_gate:
        matrices.append(Matrix(name="g", rows=channels, columns=width, role=_LINEAR, shard=wide))
    else:
        matrices.append(Matrix(name="g_a", rows=size, columns=width, role=_LINEAR))
        matrices.append(Matrix(name="g_b", rows=channels, columns=size, role=_LINEAR, shard=wide))
    return RecurrentMixer(
        recurrent=RecurrentKind.KIMI_DELTA,
        state_elements=channels * size,
        conv_elements=3 * channels * (kernel - 1),
        matrices=tuple(matrices),
    )


def _linear_section(reader: Reader) -> Reader:
    section = reader.section("linear_attn_config")
    if section is None:
        raise FileProblem("key 'linear_attn_config' is missing", place=reader.place("linear_attn_config"))
    section.accept("gate_lower_bound")
    return section


def kimi_linear(reader: Reader) -> Model:
    """Kimi Linear and K3: Kimi Delta Attention and MLA as ``linear_attn_config`` lists them, counting from 1.

    ``routed_expert_hidden_size`` projects tokens down (and norms them) before the routed experts.
    """
    count = num_layers(reader)
    width = hidden(reader)
    section = _linear_section(reader)
    recurrent = kimi_delta(section, width, full_rank_gate=section.flag("use_full_rank_gate", default=False))
    full = set(section.integers("full_attn_layers", high=MAX_LAYERS) or ())
    linear = set(section.integers("kda_layers", high=MAX_LAYERS) or ())
    if full & linear or full | linear != set(range(1, count + 1)):
        raise FileProblem(f"the lists do not share out layers 1 to {count}", place=section.place("full_attn_layers"))
    section.refuse_unread("kimi_linear")
    reader.accept("mla_use_nope", "moe_renormalize", "moe_router_activation_func", "use_grouped_topk", "head_dim")
    values = reader.integer(*HEADS) * reader.integer("v_head_dim")
    gate = Matrix(name="g", rows=values, columns=width, role=TensorRole.ATTENTION, shard=Shard.ROWS)
    attention = latent(reader, extras=(gate,) if reader.flag("mla_use_output_gate", default=False) else ())
    small = reader.optional_integer("routed_expert_hidden_size")
    block = replace(deepseek_experts(reader), router_bias=True)
    if small is not None:
        extras = (*latent_projections(width, small), norm_vector("latent_norm", small))
        block = replace(block, expert_input_dim=small, extras=extras)
    plain = dense(reader)
    sparse = leading_dense(reader, count)
    return model(
        reader,
        alternating(
            [attention if index + 1 in full else recurrent for index in range(count)],
            [block if on else plain for on in sparse],
        ),
        mtp=nextn(reader, Layer(mixer=attention, feed_forward=block)),
    )


def glm5_next(reader: Reader) -> Model:
    """GLM-5.3 Flash: Kimi Delta Attention and sparse MLA by ``layer_types``, pooled indexer keys, hyper-connections."""
    count = num_layers(reader)
    width = hidden(reader)
    section = _linear_section(reader)
    recurrent = kimi_delta(section, width, full_rank_gate=False)
    section.accept("full_attn_layers", "kda_layers")
    section.refuse_unread("glm5_next")
    words = reader.words("layer_types", length=count)
    if words is None:
        raise FileProblem("key 'layer_types' is missing", place=reader.place("layer_types"))
    for word in words:
        if word not in {"linear_attention", "deepseek_sparse_attention"}:
            raise reader.unsupported("layer_types", word, ("linear_attention", "deepseek_sparse_attention"))
    if set(reader.words("indexer_types", length=count) or ()) - {"full"}:
        raise reader.unsupported("indexer_types", "shared", ("full",))
    attention = latent(reader, indexer=_pooled_indexer(reader, width))
    reader.accept("mla_use_nope", "head_dim", "index_kpool_compress")
    streams = reader.integer("hc_mult", high=_MAX_STREAMS)
    block = deepseek_experts(reader)
    plain = dense(reader)
    sparse = leading_dense(reader, count)
    mixing = hyper_connections(width, streams)
    layers = runs(
        Layer(
            mixer=recurrent if word == "linear_attention" else attention,
            feed_forward=block if on else plain,
            extras=mixing,
        )
        for word, on in zip(words, sparse, strict=True)
    )
    return model(reader, layers, mtp=nextn(reader, Layer(mixer=attention, feed_forward=block)))


def _pooled_indexer(reader: Reader, width: int) -> Indexer:
    indexer = dsa_indexer(reader, pool_tokens=reader.integer("index_kpool", default=1))
    if indexer is None:
        raise FileProblem("key 'index_topk' is missing", place=reader.place("index_topk"))
    if not reader.flag("index_kpool_compress", default=False):
        return indexer
    pooling = (
        Matrix(name="indexer.pool_gate", rows=indexer.head_dim, columns=width, role=TensorRole.INDEXER),
        Matrix(
            name="indexer.pool_positions",
            rows=indexer.pool_tokens,
            columns=indexer.head_dim,
            role=TensorRole.POSITION,
        ),
    )
    return replace(indexer, matrices=(*indexer.matrices, *pooling))


_LIGHTNING_MARK = 0
_FULL_MARK = 1


def minimax_m1(reader: Reader) -> Model:
    """MiniMax-01 and M1: lightning attention (no convolution, a gate, a norm over all heads) and full attention."""
    count = num_layers(reader)
    width = hidden(reader)
    marks = reader.integers("attn_type_list", length=count, high=_FULL_MARK)
    if marks is None:
        raise FileProblem("key 'attn_type_list' is missing", place=reader.place("attn_type_list"))
    num_heads, _, size = heads(reader)
    channels = num_heads * size
    reader.accept("shared_moe_mode", "postnorm", *HEAD_DIM)
    if reader.config.get("shared_intermediate_size") not in (None, 0):
        raise reader.unsupported("shared_intermediate_size", reader.config["shared_intermediate_size"], ("0",))
    reader.accept("shared_intermediate_size", *(f"layernorm_{kind}_{side}" for kind in _BLOCK_KINDS for side in _SIDES))
    recurrent = RecurrentMixer(
        recurrent=RecurrentKind.LIGHTNING,
        state_elements=num_heads * size * size,
        matrices=(
            Matrix(name="qkv", rows=3 * channels, columns=width, role=_LINEAR, shard=Shard.ROWS),
            Matrix(name="g", rows=channels, columns=width, role=_LINEAR, shard=Shard.ROWS),
            norm_vector("gate_norm", channels, shard=Shard.ROWS),
            Matrix(name="out_proj", rows=width, columns=channels, role=_LINEAR, shard=Shard.COLUMNS),
        ),
    )
    block = experts(reader, width=reader.integer(*WIDTH))
    attention = grouped(reader)
    mixers = [recurrent if mark == _LIGHTNING_MARK else attention for mark in marks]
    return model(reader, alternating(mixers, [block] * count))


_BLOCK_KINDS = ("full_attention", "linear_attention", "mlp")
_SIDES = ("alpha", "beta")
