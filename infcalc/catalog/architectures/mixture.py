"""Mixtures of experts on grouped-query attention.

Biases, norms, routers and which layers have experts follow the model classes of Hugging Face transformers of the same
name, or the modelling code published with the weights.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.catalog.architectures.assembly import (
    CHUNKED,
    HEADS,
    SLIDING,
    WIDTH,
    alternating,
    context,
    dense,
    every_full,
    experts,
    grouped,
    heads,
    hidden,
    leading_dense,
    limited,
    model,
    next_token_extras,
    nextn,
    norm_vector,
    num_layers,
    reaches,
)
from infcalc.catalog.architectures.dense import window
from infcalc.catalog.architectures.reader import MAX_CONTEXT_TOKENS, MAX_LAYERS, Reader
from infcalc.errors import FileProblem
from infcalc.spec.layers import (
    DenseFeedForward,
    GroupedAttention,
    Indexer,
    Layer,
    LayerRun,
    Matrix,
    MoeFeedForward,
    QkNorm,
    Reach,
    Shard,
)
from infcalc.spec.weights import TensorRole

if TYPE_CHECKING:
    from infcalc.spec.layers import FeedForward
    from infcalc.spec.model import Model


def _uniform(
    reader: Reader,
    attention: GroupedAttention,
    block: FeedForward,
    *,
    num_norms: int = 2,
    norm_bias: bool = False,
) -> tuple[LayerRun, ...]:
    layer = Layer(mixer=attention, feed_forward=block, num_norms=num_norms, norm_bias=norm_bias)
    return (LayerRun(num_layers=num_layers(reader), layer=layer),)


def _windowed(reader: Reader, attention: GroupedAttention, *, default: int | None = None) -> GroupedAttention:
    return limited(attention, window(reader, default=default), context(reader))


def sinks(count: int) -> Matrix:
    """Return the learned attention sink of each query head."""
    return Matrix(name="sinks", rows=count, role=TensorRole.BIAS, shard=Shard.ROWS)


def mixtral(reader: Reader) -> Model:
    """Mixtral: ``intermediate_size`` is the width of one expert."""
    attention = _windowed(reader, grouped(reader))
    return model(reader, _uniform(reader, attention, experts(reader, width=reader.integer(*WIDTH))))


def _qwen_sparse(reader: Reader, count: int) -> tuple[bool, ...]:
    """Return which layers have experts: every ``decoder_sparse_step``-th that is not in ``mlp_only_layers``."""
    step = reader.integer("decoder_sparse_step", default=1, high=MAX_LAYERS)
    only = set(reader.integers("mlp_only_layers", high=MAX_LAYERS) or ())
    return tuple(index not in only and (index + 1) % step == 0 for index in range(count))


def _qwen_moe(reader: Reader, attention: GroupedAttention, block: MoeFeedForward) -> Model:
    count = num_layers(reader)
    reader.accept("max_window_layers", "sliding_window", *WIDTH)
    if reader.flag("use_sliding_window", default=False):
        raise reader.unsupported("use_sliding_window", value=True, known=("false",))
    reaches(reader, count)
    sparse = _qwen_sparse(reader, count)
    plain = None if all(sparse) else dense(reader)
    return model(reader, alternating([attention] * count, [block if on else plain for on in sparse]))


def qwen2_moe(reader: Reader) -> Model:
    """Qwen1.5-MoE and Qwen2-MoE: bias on Q, K and V, one gated shared expert."""
    shared = reader.integer("shared_expert_intermediate_size", default=0, low=0)
    block = experts(reader, shared_width=shared, shared_gate=shared > 0)
    return _qwen_moe(reader, grouped(reader, qkv_bias=reader.flag("qkv_bias", default=True)), block)


def qwen3_moe(reader: Reader) -> Model:
    """Qwen3-MoE: Q and K normed per head, no shared expert."""
    bias = reader.flag("attention_bias", default=False)
    reader.accept("use_qk_norm")
    if reader.integer("shared_expert_intermediate_size", default=0, low=0):
        raise reader.unsupported("shared_expert_intermediate_size", reader.config["shared_expert_intermediate_size"])
    attention = grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=QkNorm.PER_HEAD)
    return _qwen_moe(reader, attention, experts(reader))


def phimoe(reader: Reader) -> Model:
    """Phi-3.5-MoE: LayerNorm with bias, attention and head bias by flags."""
    bias = reader.flag("attention_bias", default=False)
    attention = _windowed(reader, grouped(reader, qkv_bias=bias, output_bias=bias))
    layers = _uniform(reader, attention, experts(reader, width=reader.integer(*WIDTH)), norm_bias=True)
    return model(reader, layers, final_norm_bias=True, lm_head_bias=reader.flag("lm_head_bias", default=False))


def dbrx(reader: Reader) -> Model:
    """DBRX: sizes in ``attn_config`` and ``ffn_config``, norms without bias."""
    attn = reader.section("attn_config") or Reader({})
    ffn = reader.section("ffn_config") or Reader({})
    count, _, size = heads(reader)
    kv_heads = attn.integer("kv_n_heads", default=count)
    if count % kv_heads:
        raise FileProblem(f"{kv_heads} KV heads do not divide {count} attention heads", place=attn.place("kv_n_heads"))
    block = experts(ffn, width=ffn.integer("ffn_hidden_size"))
    attn.accept("attn_pdrop", "clip_qkv")
    ffn.accept("moe_loss_weight", "moe_normalize_expert_weights", "uniform_expert_assignment", "ffn_act_fn")
    attn.refuse_unread("dbrx")
    ffn.refuse_unread("dbrx")
    attention = GroupedAttention(num_heads=count, num_kv_heads=kv_heads, head_dim=size)
    return model(reader, _uniform(reader, attention, block))


def grok(reader: Reader) -> Model:
    """Grok-1 and Grok-2: four norms per layer; Grok-2 adds a dense block beside the experts (``residual_moe``)."""
    width = reader.integer(*WIDTH)
    residual = reader.flag("residual_moe", default=False)
    for key, off in (("sliding_window_size", -1), ("global_attn_every_n", 1)):
        if reader.integer(key, default=off, low=-1) != off:
            raise reader.unsupported(key, reader.config[key], (str(off),))
    block = experts(
        reader,
        width=reader.integer("moe_intermediate_size", default=width),
        shared_width=width if residual else 0,
    )
    return model(reader, _uniform(reader, grouped(reader), block, num_norms=4))


def llama4(reader: Reader) -> Model:
    """Llama 4: experts every ``interleave_moe_layer_step`` layers, chunked attention in layers with rotary positions.

    Step 1 makes every layer sparse. ``no_rope_layers`` marks layers WITH rotary positions by 1 (empty: every fourth is
    without); those without see the whole context.
    """
    count = num_layers(reader)
    bias = reader.flag("attention_bias", default=False)
    # The Q/K normalisation has no weights here.
    reader.accept("use_qk_norm", "attn_temperature_tuning", "no_rope_layer_interval")
    attention = grouped(reader, qkv_bias=bias, output_bias=bias)
    chunk = reader.optional_integer("attention_chunk_size", high=MAX_CONTEXT_TOKENS)
    rotary = reader.integers("no_rope_layers", high=1) or tuple(int((index + 1) % 4 != 0) for index in range(count))
    if len(rotary) != count:
        raise FileProblem(f"has {len(rotary)} entries for {count} layers", place=reader.place("no_rope_layers"))
    found = reaches(
        reader,
        count,
        lambda index: Reach.CHUNKED if rotary[index] else Reach.FULL,
        known=CHUNKED,
        window=chunk,
    )
    longest = context(reader)
    width = reader.integer(*WIDTH)
    block = experts(reader, width=width, shared_width=width)
    plain = DenseFeedForward(width=reader.integer("intermediate_size_mlp", default=width))
    step = reader.integer("interleave_moe_layer_step", default=1, high=MAX_LAYERS)
    listed = reader.integers("moe_layers", high=MAX_LAYERS)
    sparse = set(range(step - 1, count, step) if listed is None else listed)
    return model(
        reader,
        alternating(
            [limited(attention, chunk, longest, reach=reach) for reach in found],
            [block if index in sparse else plain for index in range(count)],
        ),
    )


def gpt_oss(reader: Reader) -> Model:
    """gpt-oss: bias on all projections, experts and router, a sink per head, every other layer slides."""
    count = num_layers(reader)
    bias = reader.flag("attention_bias", default=True)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias, head_dim=64, extras=(sinks(reader.integer(*HEADS)),))
    reader.accept("initial_context_length", "swiglu_limit")
    block = experts(reader, width=reader.integer(*WIDTH), router_bias=True, expert_bias=True)
    sliding = window(reader, default=128)
    longest = context(reader)
    found = reaches(reader, count, every_full(2), known=SLIDING, window=sliding)
    return model(
        reader, alternating([limited(attention, sliding, longest, reach=reach) for reach in found], [block] * count)
    )


def glm4_moe(reader: Reader) -> Model:
    """GLM-4.5 and 4.6: bias on Q, K and V, shared experts, leading dense layers, an MTP layer with its embeddings."""
    norm = QkNorm.PER_HEAD if reader.flag("use_qk_norm", default=False) else QkNorm.NONE
    attention = grouped(reader, qkv_bias=reader.flag("attention_bias", default=False), qk_norm=norm, head_dim=128)
    block = experts(
        reader,
        shared_width=reader.integer("n_shared_experts", default=0, low=0) * reader.integer("moe_intermediate_size"),
        router_bias=True,
    )
    plain = dense(reader)
    count = num_layers(reader)
    sparse = leading_dense(reader, count)
    mtp = nextn(reader, Layer(mixer=attention, feed_forward=block), copies=1)
    return model(reader, alternating([attention] * count, [block if on else plain for on in sparse]), mtp=mtp)


_FULL_ATTENTION_MARK = 1


def minimax_m2(reader: Reader) -> Model:
    """MiniMax-M2: Q and K normed over all heads, a score-correction bias per expert; MTP modules are not published."""
    count = num_layers(reader)
    norm = QkNorm.FULL if reader.flag("use_qk_norm", default=True) else QkNorm.NONE
    kind = reader.text("qk_norm_type", default="per_layer")
    if kind not in {"per_layer", "per_head"}:
        raise reader.unsupported("qk_norm_type", kind, ("per_layer", "per_head"))
    if norm is QkNorm.FULL and kind == "per_head":
        norm = QkNorm.PER_HEAD
    marks = reader.integers("attn_type_list", length=count) or ()
    if any(mark != _FULL_ATTENTION_MARK for mark in marks):
        raise reader.unsupported("attn_type_list", "with lightning attention", ("1",))
    reader.accept("use_mtp", "num_mtp_modules", "mtp_transformer_layers", "layernorm_full_attention_beta")
    if reader.integer("shared_intermediate_size", default=0, low=0):
        raise reader.unsupported("shared_intermediate_size", reader.config["shared_intermediate_size"], ("0",))
    width = reader.integer(*WIDTH)
    block = experts(reader, width=width, router_bias=reader.flag("use_routing_bias", default=True))
    return model(reader, _uniform(reader, grouped(reader, qk_norm=norm), block))


def minimax_m3(reader: Reader) -> Model:
    """MiniMax-M3: leading dense layers, one shared expert, block-sparse attention picked by a small indexer."""
    count = num_layers(reader)
    reader.accept("use_qk_norm", "qk_norm_type", "use_routing_bias", "num_mtp_modules", "num_nextn_predict_layers")
    reader.accept("shared_intermediate_size", "use_mtp", "mtp_transformer_layers")
    attention = grouped(reader, qk_norm=QkNorm.PER_HEAD)
    expert_width = reader.integer("moe_intermediate_size", *WIDTH)
    block = experts(
        reader,
        width=expert_width,
        shared_width=reader.integer("shared_intermediate_size", default=expert_width)
        * reader.integer("n_shared_experts", default=1, low=0),
        router_bias=True,
    )
    plain = DenseFeedForward(width=reader.integer("dense_intermediate_size"))
    section = reader.section("sparse_attention_config")
    indexer, marks = None, (0,) * count
    if section is not None and section.flag("use_sparse_attention", default=True):
        indexer = _block_indexer(section, hidden(reader))
        marks = section.integers("sparse_attention_freq", length=count, high=1) or (1,) * count
        section.accept("sparse_disable_index_value", "sparse_init_block", "sparse_local_block", "sparse_score_type")
        section.refuse_unread("minimax_m3")
    mixers = [replace(attention, indexer=indexer) if mark else attention for mark in marks]
    return model(
        reader,
        alternating(mixers, [block if on else plain for on in leading_dense(reader, count)]),
    )


def _block_indexer(section: Reader, width: int) -> Indexer:
    count = section.integer("sparse_num_index_heads")
    size = section.integer("sparse_index_dim")
    block = section.integer("sparse_block_size")
    topk = section.integer("sparse_topk_blocks")
    return Indexer(
        num_heads=count,
        head_dim=size,
        topk_tokens=block * topk,
        key_bits=16,
        matrices=(
            Matrix(name="index_q", rows=count * size, columns=width, role=TensorRole.INDEXER),
            Matrix(name="index_k", rows=size, columns=width, role=TensorRole.INDEXER),
            norm_vector("index_norms", size, copies=2),
        ),
    )


def hunyuan_moe(reader: Reader) -> Model:
    """Hunyuan-A13B: Q and K normed per head, shared expert, tied; per-layer lists must be uniform."""
    reader.accept("use_mixed_mlp_moe", "cla_share_factor", "group_limited_greedy", "norm_type", "use_rotary_pos_emb")
    reader.accept("moe_random_routing_dropped_token", "capacity_factor", "pool_type", "num_media_embeds", "class_num")
    reader.accept("org_vocab_size", "im_end_id", "im_start_id", "im_newline_id", "mask_init_id", "text_start_id")
    reader.accept("text_end_id", "anyres_pooling_size", "max_video_frame_num", "skip_cls_token", "attention_head_dim")
    reader.accept("dense_list", "pad_id", "video_start_id", "video_end_id", "anyres_vit_max_image_size")
    reader.accept("anyres_vit_two_views", "add_classification_head", "moe_drop_tokens", "position_embedding_xdrope")
    if reader.flag("use_mla", default=False):
        raise reader.unsupported("use_mla", value=True, known=("false",))
    # Sizes of the latent attention that `use_mla` leaves off.
    reader.accept("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
    if reader.integer("moe_layer_num_skipped", default=0, low=0, high=MAX_LAYERS):
        raise reader.unsupported("moe_layer_num_skipped", reader.config["moe_layer_num_skipped"], ("0",))
    if reader.flag("use_cla", default=False):
        raise reader.unsupported("use_cla", value=True, known=("false",))
    flat = reader.with_values({key: _uniform_value(reader, key, value) for key, value in reader.config.items()})
    width = flat.integer(*WIDTH)
    expert_width = flat.integer("moe_intermediate_size", default=width)
    shared = flat.integer("num_shared_expert", "num_shared_experts", default=0, low=0)
    block = experts(flat, width=expert_width, shared_width=shared * expert_width)
    norm = QkNorm.PER_HEAD if reader.flag("use_qk_norm", default=True) else QkNorm.NONE
    bias = reader.flag("attention_bias", default=False)
    reader.accept("moe_topk", "num_experts", "num_shared_expert", "moe_intermediate_size", *WIDTH)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias, qk_norm=norm)
    return model(reader, _uniform(reader, attention, block), tie_default=True)


def _uniform_value(reader: Reader, key: str, value: object) -> object:
    if key not in {"moe_topk", "num_shared_expert", "moe_intermediate_size"} or not isinstance(value, list):
        return value
    if not value or any(item != value[0] for item in value):
        raise reader.unsupported(key, "values that differ by layer")
    return value[0]


def ernie_moe(reader: Reader) -> Model:
    """ERNIE 4.5 MoE: experts from ``moe_layer_start_index`` to ``moe_layer_end_index``, a correction bias per expert.

    The MTP layer is a dense decoder layer.
    """
    count = num_layers(reader)
    bias = reader.flag("use_bias", default=False)
    attention = grouped(reader, qkv_bias=bias, output_bias=bias)
    width = reader.integer("moe_intermediate_size")
    block = experts(
        reader,
        shared_width=reader.integer("moe_num_shared_experts", default=0, low=0) * width,
        router_bias=True,
    )
    plain = dense(reader, bias=bias)
    start = reader.integer("moe_layer_start_index", default=1, low=0, high=MAX_LAYERS)
    end = reader.integer("moe_layer_end_index", default=count - 1, low=0, high=MAX_LAYERS)
    step = reader.integer("moe_layer_interval", default=1, high=MAX_LAYERS)
    reader.accept("moe_capacity", "moe_use_aux_free", "moe_gate", "moe_norm_min", "moe_layers_type")
    reader.accept("compression_ratio", "use_rmsnorm", "ignored_index")
    blocks = [block if start <= index <= end and (index + 1) % step == 0 else plain for index in range(count)]
    mtp = nextn(
        reader,
        Layer(mixer=attention, feed_forward=plain),
        "num_nextn_predict_layers",
        "mtp_num_layers",
        extras=next_token_extras(hidden(reader), num_norms=2),
    )
    return model(reader, alternating([attention] * count, blocks), tie_default=True, mtp=mtp)


def step3(reader: Reader) -> Model:
    """Step3: multi-matrix factorisation attention (low-rank query, one KV head), a shared expert, listed MoE layers."""
    count = num_layers(reader)
    attention = replace(grouped(reader), query_rank=reader.integer("share_q_dim"))
    block = experts(reader, shared_width=reader.integer("share_expert_dim", default=0, low=0))
    plain = dense(reader)
    sparse = _listed_layers(reader, count)
    reader.accept("norm_expert_weight", "moe_dynamic_exp_p", "moe_every_n_layer")
    blocks = [block if index in sparse else plain for index in range(count)]
    return model(reader, alternating([attention] * count, blocks))


def _listed_layers(reader: Reader, count: int) -> set[int]:
    """Return the MoE layers of Step3: a list of numbers, or the same as text with commas; absent: all but the first."""
    for key in ("moe_layers_enum", "moe_layers"):
        value = reader.config.get(key)
        reader.accept(key)
        if isinstance(value, str):
            parts = [part.strip() for part in value.split(",") if part.strip()]
            if not all(part.isascii() and part.isdigit() and len(part) < len(str(MAX_LAYERS)) for part in parts):
                raise FileProblem("not numbers with commas between them", place=reader.place(key))
            return {int(part) for part in parts}
        if value is not None:
            return set(reader.integers(key, high=MAX_LAYERS) or ())
    return set(range(1, count))


def step3p7(reader: Reader) -> Model:
    """Step 3.5 and 3.7: leading dense layers, a shared expert, a gate per head, one full layer before three sliding."""
    count = num_layers(reader)
    gate = Matrix(
        name="head_gate",
        rows=reader.integer(*HEADS),
        columns=hidden(reader),
        role=TensorRole.ATTENTION,
        shard=Shard.ROWS,
    )
    attention = grouped(reader, qk_norm=QkNorm.PER_HEAD, extras=(gate,))
    block = experts(
        reader,
        shared_width=reader.integer("share_expert_dim", default=0, low=0),
        router_bias=True,
    )
    reader.accept("n_shared_experts", "num_nextn_predict_layers")
    plain = dense(reader)
    sliding = window(reader)
    longest = context(reader)
    found = reaches(
        reader,
        count,
        lambda index: Reach.SLIDING if index % 4 else Reach.FULL,
        known=SLIDING,
        window=sliding,
    )
    return model(
        reader,
        alternating(
            [limited(attention, sliding, longest, reach=reach) for reach in found],
            [block if on else plain for on in leading_dense(reader, count)],
        ),
    )


def mimo_v2(reader: Reader) -> Model:
    """MiMo-V2: full and sliding layers with their own heads, value heads narrower than keys, sinks by flags.

    MTP layers are dense sliding layers; how many are published is not in the config.
    """
    count = num_layers(reader)
    bias = reader.flag("attention_bias", default=False)
    query, kv, size = heads(reader)
    full = GroupedAttention(
        num_heads=query,
        num_kv_heads=kv,
        head_dim=size,
        value_head_dim=reader.integer("v_head_dim", default=size),
        qkv_bias=bias,
        extras=(sinks(query),) if reader.flag("add_full_attention_sink_bias", default=False) else (),
    )
    swa_query = reader.integer("swa_num_attention_heads", default=query)
    swa_size = reader.integer("swa_head_dim", default=size)
    swa_kv = reader.integer("swa_num_key_value_heads", default=kv)
    if swa_query % swa_kv:
        raise FileProblem(
            f"{swa_kv} KV heads do not divide {swa_query} heads", place=reader.place("swa_num_key_value_heads")
        )
    sliding = limited(
        GroupedAttention(
            num_heads=swa_query,
            num_kv_heads=swa_kv,
            head_dim=swa_size,
            value_head_dim=reader.integer("swa_v_head_dim", default=swa_size),
            qkv_bias=bias,
            extras=(sinks(swa_query),) if reader.flag("add_swa_attention_sink_bias", default=True) else (),
        ),
        reader.integer("sliding_window", "sliding_window_size", high=MAX_CONTEXT_TOKENS),
        context(reader),
    )
    reader.accept(
        "attention_chunk_size", "sliding_window_size", "attention_value_scale", "add_full_attention_sink_bias"
    )
    marks = reader.integers("hybrid_layer_pattern", length=count, high=1)
    if marks is None:
        raise FileProblem("key 'hybrid_layer_pattern' is missing", place=reader.place("hybrid_layer_pattern"))
    block = experts(
        reader,
        shared_width=reader.integer("n_shared_experts", default=0, low=0) * reader.integer("moe_intermediate_size"),
        router_bias=reader.text("topk_method", default="noaux_tc") == "noaux_tc",
    )
    plain = dense(reader)
    sparse = leading_dense(reader, count)
    layers = alternating([sliding if mark else full for mark in marks], [block if on else plain for on in sparse])
    return model(
        reader,
        layers,
        mtp=nextn(reader, Layer(mixer=sliding, feed_forward=plain)),
    )
