"""Dense decoders of the Llama kind: gated feed-forward blocks, RMS norms, grouped-query attention.

Biases, norms and windows follow the model classes of Hugging Face transformers of the same name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.architectures.assembly import (
    ALL_FULL,
    HEADS,
    HIDDEN,
    SLIDING,
    alternating,
    always_full,
    context,
    dense,
    every_full,
    grouped,
    heads,
    hidden,
    limited,
    model,
    next_token_extras,
    nextn,
    num_layers,
    reaches,
    runs,
)
from infcalc.catalog.architectures.reader import MAX_CONTEXT_TOKENS, MAX_LAYERS, Reader
from infcalc.errors import FileProblem
from infcalc.spec.layers import DenseFeedForward, GroupedAttention, Layer, QkNorm, Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from infcalc.spec.model import Model

_HF_DEFAULT_WINDOW = 4096
_EXAONE_PATTERN = 4


def window(reader: Reader, *, default: int | None = None) -> int | None:
    """Return ``sliding_window``: null or ``use_sliding_window`` false mean none, an absent key the class default."""
    if not reader.flag("use_sliding_window", default=True):
        reader.accept("sliding_window", "max_window_layers")
        return None
    if "sliding_window" not in reader.config:
        return default
    return reader.optional_integer("sliding_window", high=MAX_CONTEXT_TOKENS)


def stack(
    reader: Reader,
    attention: GroupedAttention,
    block: DenseFeedForward,
    *,
    sliding: int | None = None,
    pattern: Callable[[int], Reach] = always_full,
    known: Mapping[str, Reach] = ALL_FULL,
    num_norms: int = 2,
    norm_bias: bool = False,
    tie_default: bool = False,
    final_norm_bias: bool = False,
) -> Model:
    """Return a model of equal layers, but for their reach."""
    count = num_layers(reader)
    longest = context(reader)
    found = reaches(reader, count, pattern, known=known, window=sliding)
    mixers = [limited(attention, sliding, longest, reach=reach) for reach in found]
    return model(
        reader,
        alternating(mixers, [block] * count, num_norms=num_norms, norm_bias=norm_bias),
        tie_default=tie_default,
        final_norm_bias=final_norm_bias,
    )


def _sliding(_index: int) -> Reach:
    return Reach.SLIDING


def llama(reader: Reader) -> Model:
    """Llama, Granite and the many fine-tunes: all four attention projections share one bias flag."""
    bias = reader.flag("attention_bias", default=False)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias)
    return stack(reader, attention, dense(reader, bias=reader.flag("mlp_bias", default=False)))


def smollm3(reader: Reader) -> Model:
    """SmolLM3: Llama with rotary embeddings left out of some layers (no weights), tied."""
    reader.accept("no_rope_layers", "no_rope_layer_interval")
    bias = reader.flag("attention_bias", default=False)
    return stack(
        reader,
        grouped(reader, qkv_bias=bias, output_bias=bias),
        dense(reader, bias=reader.flag("mlp_bias", default=False)),
        sliding=window(reader) if reader.flag("use_sliding_window", default=False) else None,
        known=SLIDING,
        tie_default=True,
    )


def mistral(reader: Reader) -> Model:
    """Mistral: every layer slides unless the window is null or as long as the context."""
    sliding = window(reader, default=_HF_DEFAULT_WINDOW)
    return stack(reader, grouped(reader), dense(reader), sliding=sliding, pattern=_sliding, known=SLIDING)


def ministral3(reader: Reader) -> Model:
    """Ministral 3: Mistral without a window by default."""
    return stack(reader, grouped(reader), dense(reader), sliding=window(reader), pattern=_sliding, known=SLIDING)


def internlm2(reader: Reader) -> Model:
    """InternLM2: fused QKV, one ``bias`` flag for attention."""
    bias = reader.flag("bias", default=False)
    return stack(reader, grouped(reader, qkv_bias=bias, output_bias=bias), dense(reader))


def seed_oss(reader: Reader) -> Model:
    """Seed-OSS: separate flags for QKV and output bias."""
    attention = grouped(
        reader,
        qkv_bias=reader.flag("attention_bias", default=True),
        output_bias=reader.flag("attention_out_bias", default=False),
    )
    return stack(reader, attention, dense(reader, bias=reader.flag("mlp_bias", default=False)))


def _qwen_window(reader: Reader) -> tuple[int | None, Callable[[int], Reach]]:
    """Return the window and which layers slide: those from ``max_window_layers`` on, when sliding is switched on."""
    first = reader.integer("max_window_layers", default=28, low=0, high=MAX_LAYERS)
    on = reader.flag("use_sliding_window", default=False)
    sliding = window(reader, default=_HF_DEFAULT_WINDOW) if on else None
    reader.accept("sliding_window")
    return sliding, lambda index: Reach.SLIDING if index >= first else Reach.FULL


def qwen2(reader: Reader) -> Model:
    """Qwen 1.5, 2 and 2.5: bias on Q, K and V always."""
    sliding, pattern = _qwen_window(reader)
    return stack(reader, grouped(reader, qkv_bias=True), dense(reader), sliding=sliding, pattern=pattern, known=SLIDING)


def qwen3(reader: Reader) -> Model:
    """Qwen3: norms on Q and K per head, bias by flag."""
    sliding, pattern = _qwen_window(reader)
    bias = reader.flag("attention_bias", default=False)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=QkNorm.PER_HEAD, head_dim=128)
    return stack(reader, attention, dense(reader), sliding=sliding, pattern=pattern, known=SLIDING)


def mimo(reader: Reader) -> Model:
    """MiMo 7B: Qwen2 with an MTP layer that joins two norms and a projection."""
    sliding, pattern = _qwen_window(reader)
    attention = grouped(reader, qkv_bias=reader.flag("attention_bias", default=True))
    block = dense(reader)
    count = num_layers(reader)
    longest = context(reader)
    mixers = [
        limited(attention, sliding, longest, reach=reach)
        for reach in reaches(reader, count, pattern, known=SLIDING, window=sliding)
    ]
    mtp = nextn(reader, Layer(mixer=attention, feed_forward=block), extras=next_token_extras(hidden(reader)))
    return model(reader, alternating(mixers, [block] * count), mtp=mtp)


def phi3(reader: Reader) -> Model:
    """Phi-3 and Phi-4: fused QKV and gate-up, no bias."""
    reader.accept("interpolate_factor")
    if reader.integer("full_attn_mod", default=1, high=MAX_LAYERS) != 1:
        raise reader.unsupported("full_attn_mod", reader.config["full_attn_mod"], ("1",))
    if reader.flag("attention_bias", default=False):
        raise reader.unsupported("attention_bias", value=True, known=("false",))
    return stack(reader, grouped(reader), dense(reader), sliding=window(reader), pattern=_sliding, known=SLIDING)


def olmo2(reader: Reader) -> Model:
    """OLMo 2: norms after attention and feed-forward, Q and K normed over all heads."""
    bias = reader.flag("attention_bias", default=False)
    return stack(reader, grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=QkNorm.FULL), dense(reader))


def olmo3(reader: Reader) -> Model:
    """OLMo 3: OLMo 2 with three sliding layers to each full one where ``layer_types`` does not say otherwise."""
    bias = reader.flag("attention_bias", default=False)
    return stack(
        reader,
        grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=QkNorm.FULL),
        dense(reader),
        sliding=window(reader, default=_HF_DEFAULT_WINDOW),
        pattern=every_full(4),
        known=SLIDING,
    )


def _lettered(letters: str) -> Callable[[int], Reach]:
    return lambda index: Reach.FULL if letters[index % len(letters)] == "G" else Reach.SLIDING


def exaone4(reader: Reader) -> Model:
    """EXAONE 4: norms after the blocks, Q and K normed per head, sliding by ``LLLG`` or a period."""
    written = reader.config.get("sliding_window_pattern")
    if isinstance(written, str):
        letters = reader.text("sliding_window_pattern")
        if not letters or set(letters) - {"L", "G"}:
            raise reader.unsupported("sliding_window_pattern", letters, ("LLLG",))

        pattern = _lettered(letters)
    else:
        pattern = every_full(reader.integer("sliding_window_pattern", default=_EXAONE_PATTERN, high=MAX_LAYERS))
    return stack(
        reader,
        grouped(reader, qk_norm=QkNorm.PER_HEAD),
        dense(reader),
        sliding=window(reader),
        pattern=pattern,
        known=SLIDING,
    )


def glm4(reader: Reader) -> Model:
    """GLM-4-0414: bias on Q, K and V by flag, four norms per layer."""
    attention = grouped(reader, qkv_bias=reader.flag("attention_bias", default=False), head_dim=128)
    return stack(reader, attention, dense(reader), num_norms=4)


def chatglm(reader: Reader) -> Model:
    """ChatGLM / GLM-4 of the remote-code era: multi-query groups, fused QKV with bias by flag."""
    linear = reader.flag("add_bias_linear", default=False)
    attention = grouped(reader, qkv_bias=linear or reader.flag("add_qkv_bias", default=False), output_bias=linear)
    if not reader.flag("multi_query_attention", default=True):
        attention = replace(attention, num_kv_heads=attention.num_heads)
    reader.accept("post_layer_norm", "rmsnorm", "kv_channels", "interleaved_qkv", "pre_seq_len", "prefix_projection")
    return stack(reader, attention, dense(reader, bias=linear))


def cohere(reader: Reader) -> Model:
    """Command R: one norm before parallel attention and feed-forward, tied, Q and K normed over all heads by flag."""
    norm = QkNorm.FULL if reader.flag("use_qk_norm", default=False) else QkNorm.NONE
    bias = reader.flag("attention_bias", default=False)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=norm)
    return stack(reader, attention, dense(reader), num_norms=1, tie_default=True)


def cohere2(reader: Reader) -> Model:
    """Command R7B and Command A: Command R with three sliding layers to each full one."""
    bias = reader.flag("attention_bias", default=False)
    period = reader.integer("sliding_window_pattern", "_sliding_window_pattern", default=4, high=MAX_LAYERS)
    reader.accept("order_of_interleaved_layers", "layer_switch", "use_embedding_sharing", "use_gated_activation")
    reader.accept("use_parallel_block", "use_parallel_embedding", "position_embedding_type")
    return stack(
        reader,
        grouped(reader, qkv_bias=bias, output_bias=bias),
        dense(reader),
        sliding=window(reader, default=_HF_DEFAULT_WINDOW),
        pattern=every_full(period),
        known=SLIDING,
        num_norms=1,
        tie_default=True,
    )


def starcoder2(reader: Reader) -> Model:
    """StarCoder2: LayerNorm with bias, two-matrix feed-forward, bias everywhere by flag, every layer slides."""
    bias = reader.flag("use_bias", default=True)
    for key, known in (("norm_type", "layer_norm"), ("mlp_type", "default")):
        if reader.text(key, default=known) != known:
            raise reader.unsupported(key, reader.config[key], (known,))
    return stack(
        reader,
        grouped(reader, qkv_bias=bias, output_bias=bias),
        dense(reader, gated=False, bias=bias),
        sliding=window(reader),
        pattern=_sliding,
        known=SLIDING,
        norm_bias=True,
        tie_default=True,
        final_norm_bias=True,
    )


def muse_glimmer(reader: Reader) -> Model:
    """Muse Glimmer: an output gate as wide as the queries, four norms, three sliding layers to each full one."""
    bias = reader.flag("attention_bias", default=False)
    return stack(
        reader,
        grouped(reader, qkv_bias=bias, output_bias=bias, output_gate=True),
        dense(reader),
        sliding=window(reader),
        pattern=every_full(4),
        known=SLIDING,
        num_norms=4,
    )


def nemotron_nas(reader: Reader) -> Model:
    """Nemotron of the NAS kind (DeciLM): each block states its KV groups and feed-forward width, or is left out.

    The inner width is ``2 * ffn_mult * hidden / 3`` cut to whole and rounded up to a multiple of 256.
    """
    count = num_layers(reader)
    blocks = reader.items("block_configs")
    if blocks is None:
        raise FileProblem(
            "key 'block_configs' is missing",
            place=reader.place("block_configs"),
            hint="layers of this architecture differ from each other; nothing else in the config says how",
        )
    if len(blocks) != count:
        raise FileProblem(f"has {len(blocks)} entries for {count} layers", place=reader.place("block_configs"))
    reader.accept("num_key_value_heads", "intermediate_size")
    bias = reader.flag("attention_bias", default=False)
    mlp_bias = reader.flag("mlp_bias", default=False)
    layers = []
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            raise FileProblem("not an object", place=reader.place(f"block_configs[{index}]"))
        entry = Reader(block, path=f"{reader.path}block_configs[{index}].", parent=reader)
        attention = _nas_attention(entry, reader, bias=bias)
        feed_forward = _nas_feed_forward(entry, hidden(reader), bias=mlp_bias)
        norms = (attention is not None) + (feed_forward is not None)
        layers.append(Layer(mixer=attention, feed_forward=feed_forward, num_norms=norms))
    return model(reader, runs(layers))


def _nas_attention(entry: Reader, reader: Reader, *, bias: bool) -> GroupedAttention | None:
    section = entry.section("attention")
    if section is None or section.flag("no_op", default=False):
        return None
    _refuse_replacement(
        section, "sparsify", "num_sink_tokens", "unshifted_sink", "use_prefill_window_in_sink_attention"
    )
    section.accept("n_heads_in_group", "window_length")
    section.refuse_unread("nemotron-nas")
    group = section.integer("n_heads_in_group")
    count = reader.integer(*HEADS)
    if count % group:
        raise FileProblem(
            f"{group} heads in a group do not divide {count} heads", place=section.place("n_heads_in_group")
        )
    _, kv, size = heads(reader.with_values({"num_key_value_heads": count // group}))
    reader.accept("head_dim", *HIDDEN)
    attention = GroupedAttention(num_heads=count, num_kv_heads=kv, head_dim=size, qkv_bias=bias, output_bias=bias)
    return limited(attention, section.optional_integer("window_length", high=MAX_CONTEXT_TOKENS), context(reader))


def _nas_feed_forward(entry: Reader, width: int, *, bias: bool) -> DenseFeedForward | None:
    section = entry.section("ffn")
    if section is None or section.flag("no_op", default=False):
        return None
    _refuse_replacement(section, "sparsify")
    section.accept("ffn_mult")
    section.refuse_unread("nemotron-nas")
    inner = int(2 * section.number("ffn_mult") * width / 3)
    return DenseFeedForward(width=-(-inner // 256) * 256, bias=bias)


def _refuse_replacement(section: Reader, *keys: str) -> None:
    if section.flag("replace_with_linear", default=False):
        raise section.unsupported("replace_with_linear", value=True, known=("false",))
    section.accept(*keys)
    for key in keys:
        if section.config.get(key) not in (None, False):
            raise section.unsupported(key, section.config.get(key), ("null", "false"))
