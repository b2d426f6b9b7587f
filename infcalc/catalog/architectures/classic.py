"""Decoders before the Llama kind: LayerNorm with bias, two-matrix feed-forward blocks, learned positions or ALiBi.

Biases and norms follow the model classes of Hugging Face transformers of the same name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.architectures.assembly import (
    HEADS,
    WIDTH,
    context,
    dense,
    grouped,
    heads,
    hidden,
    model,
    num_layers,
)
from infcalc.catalog.architectures.reader import Reader
from infcalc.errors import FileProblem
from infcalc.spec.layers import DenseFeedForward, GroupedAttention, Layer, LayerRun, Matrix
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from infcalc.spec.model import Model

_FFN_FACTOR = 4
_OPT_POSITION_OFFSET = 2


def _equal(reader: Reader, layer: Layer) -> tuple[LayerRun, ...]:
    return (LayerRun(num_layers=num_layers(reader), layer=layer),)


def _wide(reader: Reader, *, bias: bool) -> DenseFeedForward:
    """Return the block of four times the hidden size, unless the config states another width."""
    return dense(reader, gated=False, bias=bias, default=_FFN_FACTOR * hidden(reader))


def _positions(reader: Reader, *, offset: int = 0, default: int | None = None) -> Matrix:
    longest = context(reader)
    if longest is None:
        longest = default
    if longest is None:
        raise FileProblem("the number of positions is missing", place=reader.place("max_position_embeddings"))
    return Matrix(name="positions", rows=longest + offset, columns=hidden(reader), role=TensorRole.POSITION)


def gpt2(reader: Reader) -> Model:
    """GPT-2: bias everywhere, learned positions, tied."""
    attention = grouped(reader, qkv_bias=True, output_bias=True)
    layer = Layer(mixer=attention, feed_forward=_wide(reader, bias=True), norm_bias=True)
    reader.accept("n_ctx", "summary_type", "summary_use_proj", "summary_activation", "summary_first_dropout")
    return model(
        reader,
        _equal(reader, layer),
        tie_default=True,
        final_norm_bias=True,
        extras=(_positions(reader, default=1024),),
    )


def gptj(reader: Reader) -> Model:
    """GPT-J: one norm before parallel attention (no bias) and feed-forward (bias); head with bias."""
    reader.accept("rotary")
    layer = Layer(mixer=grouped(reader), feed_forward=_wide(reader, bias=True), num_norms=1, norm_bias=True)
    return model(reader, _equal(reader, layer), final_norm_bias=True, lm_head_bias=True)


def gpt_neox(reader: Reader) -> Model:
    """GPT-NeoX and Pythia: bias everywhere but in the head."""
    reader.accept("use_parallel_residual")
    bias = reader.flag("attention_bias", default=True)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias)
    layer = Layer(mixer=attention, feed_forward=_wide(reader, bias=True), norm_bias=True)
    return model(reader, _equal(reader, layer), final_norm_bias=True)


def opt(reader: Reader) -> Model:
    """OPT: bias everywhere, learned positions with two spare rows, tied; the 350M one has a narrower embedding."""
    bias = reader.flag("enable_bias", default=True)
    affine = reader.flag("layer_norm_elementwise_affine", default=True)
    first = reader.flag("do_layer_norm_before", default=True)
    final = first and not reader.flag("_remove_final_layer_norm", default=False)
    width = hidden(reader)
    narrow = reader.integer("word_embed_proj_dim", default=width)
    layer = Layer(
        mixer=grouped(reader, qkv_bias=bias, output_bias=bias),
        feed_forward=dense(reader, gated=False, bias=bias),
        num_norms=2 if affine else 0,
        norm_bias=affine,
    )
    extras = [_positions(reader, offset=_OPT_POSITION_OFFSET, default=2048)]
    if narrow != width:
        extras.append(Matrix(name="project_in", rows=width, columns=narrow))
        extras.append(Matrix(name="project_out", rows=narrow, columns=width))
    made = model(
        reader, _equal(reader, layer), tie_default=True, final_norm_bias=final and affine, extras=tuple(extras)
    )
    return replace(made, final_norm=final and affine, embedding_dim=None if narrow == width else narrow)


def bloom(reader: Reader) -> Model:
    """BLOOM: bias everywhere, a norm after the embedding, ALiBi, tied."""
    width = hidden(reader)
    attention = grouped(reader, qkv_bias=True, output_bias=True)
    layer = Layer(mixer=attention, feed_forward=_wide(reader, bias=True), norm_bias=True)
    norm = Matrix(name="embedding_norm", rows=width, role=TensorRole.NORM, copies=2)
    reader.accept("skip_bias_add", "skip_bias_add_qkv", "attention_mask_func", "masked_softmax_fusion", "unk_token_id")
    reader.accept("apply_residual_connection_post_layernorm", "hidden_dropout", "offset_alibi")
    return model(reader, _equal(reader, layer), tie_default=True, final_norm_bias=True, extras=(norm,))


def mpt(reader: Reader) -> Model:
    """MPT: no bias with ``no_bias``, ALiBi or learned positions, tied; grouped heads by ``attn_config.kv_n_heads``."""
    bias = not reader.flag("no_bias", default=True)
    section = reader.section("attn_config") or Reader({})
    count, _, size = heads(reader)
    multi_query = section.text("attn_type", default="multihead_attention") == "multiquery_attention"
    kv_heads = section.integer("kv_n_heads", default=1 if multi_query else count)
    if section.flag("qk_ln", default=False):
        raise section.unsupported("qk_ln", value=True, known=("false",))
    section.accept("attn_impl", "attn_pdrop", "attn_uses_sequence_id", "clip_qkv", "prefix_lm", "softmax_scale")
    section.accept("rope_dail_config", "rope_hf_config", "rope_impl")
    _check_mpt_block(reader)
    alibi = section.flag("alibi", default=False) or section.flag("rope", default=False)
    section.refuse_unread("mpt")
    layer = Layer(
        mixer=GroupedAttention(num_heads=count, num_kv_heads=kv_heads, head_dim=size, qkv_bias=bias, output_bias=bias),
        feed_forward=DenseFeedForward(
            width=reader.integer("expansion_ratio", default=_FFN_FACTOR, high=100) * hidden(reader),
            gated=False,
            bias=bias,
        ),
        norm_bias=bias,
    )
    reader.accept("logit_scale", "embedding_fraction", "learned_pos_emb", "init_config", "init_device", "norm_type")
    reader.accept("emb_pdrop", "resid_pdrop", "attn_impl", "mlp_ratio")
    extras = () if alibi else (_positions(reader, default=2048),)
    return model(reader, _equal(reader, layer), tie_default=True, final_norm_bias=bias, extras=extras)


def _check_mpt_block(reader: Reader) -> None:
    section = reader.section("ffn_config")
    if section is None:
        return
    if section.text("ffn_type", default="mptmlp") != "mptmlp":
        raise section.unsupported("ffn_type", section.config["ffn_type"], ("mptmlp",))
    section.accept("fc_type")
    section.refuse_unread("mpt")


def falcon(reader: Reader) -> Model:
    """Falcon: one KV head with ``multi_query`` in the old form, ``num_kv_heads`` in the new one; tied.

    Old form: one norm shared by parallel attention and feed-forward. New form: one each, unless
    ``num_ln_in_parallel_attn`` says 1.
    """
    new = reader.flag("new_decoder_architecture", default=reader.has("n_head_kv"))
    bias = reader.flag("bias", default=False)
    count, kv_heads, size = heads(reader)
    multi_query = reader.flag("multi_query", default=True)
    if not new:
        kv_heads = 1 if multi_query else reader.integer(*HEADS)
    parallel = reader.flag("parallel_attn", default=True)
    norms = 2 if new or not parallel else 1
    norms = reader.integer("num_ln_in_parallel_attn", default=norms, high=2) if new else norms
    reader.accept("alibi")
    layer = Layer(
        mixer=GroupedAttention(num_heads=count, num_kv_heads=kv_heads, head_dim=size, qkv_bias=bias, output_bias=bias),
        feed_forward=dense(reader, gated=False, bias=bias, default=_FFN_FACTOR * hidden(reader)),
        num_norms=norms,
        norm_bias=True,
    )
    made = model(reader, _equal(reader, layer), tie_default=True, final_norm_bias=True)
    # The early configs leave out the context, which is 2,048 in all of them.
    return made if made.max_context_tokens else replace(made, max_context_tokens=2048)


def phi(reader: Reader) -> Model:
    """Phi-1 to Phi-2: one norm before parallel attention and feed-forward, bias everywhere, head included."""
    if reader.flag("qk_layernorm", default=False):
        raise reader.unsupported("qk_layernorm", value=True, known=("false",))
    reader.accept("rotary_dim", "flash_attn", "flash_rotary", "fused_dense", *WIDTH)
    attention = grouped(reader, qkv_bias=True, output_bias=True)
    layer = Layer(mixer=attention, feed_forward=_wide(reader, bias=True), num_norms=1, norm_bias=True)
    return model(reader, _equal(reader, layer), final_norm_bias=True, lm_head_bias=True)
