"""GGUF metadata in the words of ``config.json``: one builder per architecture, so that each has one adapter only.

Names of keys and tensors: the ``gguf`` package of llama.cpp (``constants.py``).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from infcalc.catalog.gguf_header import GgufHeader, GgufTensor
from infcalc.errors import FileProblem, UnsupportedArchitecture
from infcalc.frozen import frozen

_MAX_LAYERS = 10_000
_FULL, _SLIDING = "full_attention", "sliding_attention"
_MATRIX_DIMENSIONS = 2

Config = dict[str, object]
IN_BLOCK = re.compile(r"blk\.(\d{1,5})\.(.+)")
"""Name of a tensor inside a layer: layer, and the name below it."""


def config_of(facts: Facts) -> Config:
    """Return the config that the metadata describes, without keys that are absent.

    Raises:
        UnsupportedArchitecture: an architecture that is not understood.
        FileProblem: a key is missing or has an impossible value.

    """
    architecture = facts.header.architecture
    build = ARCHITECTURES.get(architecture)
    if build is None:
        raise UnsupportedArchitecture(
            f"GGUF architecture {architecture[:60]!r} is not understood",
            place=facts.place,
            hint=f"understood are {', '.join(sorted(ARCHITECTURES))}",
        )
    num_layers = facts.num_layers
    config = _common(facts, num_layers) | build(facts, num_layers)
    return {key: value for key, value in config.items() if value is not None}


@frozen
class _Table:
    """The tensor table by name, and by name below the first layer that has it."""

    by_name: Mapping[str, GgufTensor]
    in_layers: frozenset[str]


class Facts:
    """Typed access to the keys of the header's architecture and to its tensors."""

    def __init__(self, header: GgufHeader, place: str) -> None:
        self.header = header
        self.place = place
        names = {tensor.name: tensor for tensor in header.tensors}
        self.table = _Table(
            by_name=names,
            in_layers=frozenset(match[2] for name in names if (match := IN_BLOCK.fullmatch(name))),
        )

    @property
    def num_layers(self) -> int:
        """Number of decoder layers; MTP layers follow them in the file."""
        return self.integer("block_count") - self.integer("nextn_predict_layers", 0)

    def integer(self, key: str, default: int | None = None) -> int:
        """Return a whole number; of an array the largest item."""
        value = self.header.metadata.get(f"{self.header.architecture}.{key}")
        items = value if isinstance(value, tuple) and value else (value,)
        whole = [item for item in items if isinstance(item, int) and not isinstance(item, bool)]
        if len(whole) == len(items) and all(0 <= item < 2**40 for item in whole):
            return max(whole)
        if value is None and default is not None:
            return default
        raise FileProblem(
            f"key {self.header.architecture}.{key} {'is missing' if value is None else 'is no size'}",
            place=self.place,
            hint="the architecture cannot be sized without it",
        )

    def optional(self, key: str) -> int | None:
        """Return a whole number, or None where the key is absent."""
        if f"{self.header.architecture}.{key}" not in self.header.metadata:
            return None
        return self.integer(key)

    def items(self, key: str) -> tuple[object, ...] | None:
        """Return an array, or None where the key is absent or no array."""
        value = self.header.metadata.get(f"{self.header.architecture}.{key}")
        return value if isinstance(value, tuple) else None

    def flag(self, key: str) -> bool:
        """Return a boolean key, False where absent."""
        return self.header.metadata.get(f"{self.header.architecture}.{key}") is True

    def has(self, *suffixes: str) -> bool:
        """Return whether any layer has a tensor called so below ``blk.N.``."""
        return any(suffix in self.table.in_layers for suffix in suffixes)

    def vocabulary(self) -> int:
        """Return the rows of the embedding table, else what the metadata says of the vocabulary."""
        table = self.table.by_name.get("token_embd.weight")
        if table is not None and len(table.shape) == _MATRIX_DIMENSIONS:
            return table.shape[1]
        return self.optional("vocab_size") or self.header.array_items.get("tokenizer.ggml.tokens", 0)


# Metadata in the words of config.json --------------------------------------------------------------------------------


def _common(facts: Facts, num_layers: int) -> Config:
    """Return the keys that every decoder with attention has."""
    if not 0 < num_layers <= _MAX_LAYERS:
        raise FileProblem(
            f"{num_layers:,} layers", place=facts.place, hint="look at block_count and nextn_predict_layers"
        )
    return {
        "num_hidden_layers": num_layers,
        "hidden_size": facts.integer("embedding_length"),
        "num_attention_heads": facts.integer("attention.head_count"),
        "num_key_value_heads": facts.optional("attention.head_count_kv"),
        "intermediate_size": facts.optional("feed_forward_length"),
        "vocab_size": facts.vocabulary(),
        "max_position_embeddings": facts.optional("context_length"),
        "tie_word_embeddings": "output.weight" not in facts.table.by_name,
        "torch_dtype": "float16",
        "head_dim": facts.optional("attention.key_length"),
    }


def _value_width(facts: Facts) -> None:
    """Refuse value heads of another width than key heads where no adapter has them."""
    key, value = facts.optional("attention.key_length"), facts.optional("attention.value_length")
    if key is not None and value is not None and key != value:
        raise UnsupportedArchitecture(
            f"{facts.header.architecture} with attention.key_length {key} and attention.value_length {value} is not "
            "understood",
            place=facts.place,
        )


def _plain(model_type: str, **extra: object) -> Callable[[Facts, int], Config]:
    """Return a builder for architectures whose common keys say all."""

    def build(facts: Facts, _num_layers: int) -> Config:
        _value_width(facts)
        return {"model_type": model_type, **extra}

    return build


def _llama(facts: Facts, num_layers: int) -> Config:
    """Llama, Mistral and their kin; with experts it is Mixtral, with heads that differ by layer a NAS model."""
    _value_width(facts)
    if facts.integer("expert_count", 0):
        if facts.has("ffn_gate_shexp.weight"):
            raise UnsupportedArchitecture("GGUF llama with shared experts is not understood", place=facts.place)
        return {"model_type": "mixtral", "sliding_window": None, **_routed(facts)}
    del num_layers
    return {
        "model_type": "llama",
        "attention_bias": facts.has("attn_q.bias"),
        "mlp_bias": facts.has("ffn_up.bias"),
    }


def _routed(facts: Facts) -> Config:
    return {
        "num_experts": facts.integer("expert_count"),
        "num_experts_per_tok": facts.integer("expert_used_count"),
    }


def _qwen3(facts: Facts, _num_layers: int) -> Config:
    _value_width(facts)
    return {"model_type": "qwen3", "attention_bias": facts.has("attn_q.bias")}


def _qwen2_moe(facts: Facts, _num_layers: int) -> Config:
    _value_width(facts)
    return {
        "model_type": "qwen2_moe",
        **_routed(facts),
        "moe_intermediate_size": facts.integer("expert_feed_forward_length"),
        "shared_expert_intermediate_size": facts.integer("expert_shared_feed_forward_length"),
    }


def _qwen3_moe(facts: Facts, _num_layers: int) -> Config:
    _value_width(facts)
    return {
        "model_type": "qwen3_moe",
        **_routed(facts),
        "moe_intermediate_size": facts.integer("expert_feed_forward_length"),
    }


def _deepseek(facts: Facts, _num_layers: int) -> Config:
    """DeepSeek V2, V3, Kimi K2 and GLM-5: MLA, whose head sizes stand under ``*_mla`` in newer files."""
    rank = facts.optional("attention.kv_lora_rank")
    if rank is None:
        raise UnsupportedArchitecture(
            f"GGUF {facts.header.architecture} without attention.kv_lora_rank is not understood", place=facts.place
        )
    rope = facts.integer("rope.dimension_count")
    key = facts.optional("attention.key_length_mla") or facts.integer("attention.key_length")
    value = facts.optional("attention.value_length_mla") or facts.integer("attention.value_length")
    biased = facts.has("exp_probs_b.bias", "exp_probs_b.weight")
    config: Config = {
        "model_type": "deepseek_v3" if biased else "deepseek_v2",
        "head_dim": None,
        "num_key_value_heads": None,
        "kv_lora_rank": rank,
        "q_lora_rank": facts.optional("attention.q_lora_rank") or None,
        "qk_rope_head_dim": rope,
        "qk_nope_head_dim": key - rope,
        "v_head_dim": value,
        "topk_method": "noaux_tc" if biased else "greedy",
        **_leading_dense(facts),
    }
    if facts.header.architecture == "glm-dsa":
        config |= {
            "model_type": "glm_moe_dsa",
            "index_topk": facts.integer("attention.indexer.top_k"),
            "index_n_heads": facts.integer("attention.indexer.head_count"),
            "index_head_dim": facts.integer("attention.indexer.key_length"),
        }
    return config


def _leading_dense(facts: Facts) -> Config:
    """Return experts after some dense layers, DeepSeek's way."""
    return {
        "n_routed_experts": facts.integer("expert_count"),
        "num_experts_per_tok": facts.integer("expert_used_count"),
        "n_shared_experts": facts.integer("expert_shared_count", 0),
        "moe_intermediate_size": facts.integer("expert_feed_forward_length"),
        "first_k_dense_replace": facts.integer("leading_dense_block_count", 0),
        "num_nextn_predict_layers": facts.integer("nextn_predict_layers", 0),
    }


def _glm4_moe(facts: Facts, _num_layers: int) -> Config:
    _value_width(facts)
    return {
        "model_type": "glm4_moe",
        "attention_bias": facts.has("attn_q.bias"),
        "use_qk_norm": facts.has("attn_q_norm.weight"),
        **_leading_dense(facts),
    }


def _pattern(facts: Facts, num_layers: int, period: int) -> list[str]:
    """Return each layer's kind: from the array in the metadata, else every ``period``-th layer is full."""
    stated = facts.items("attention.sliding_window_pattern")
    if stated is not None:
        if len(stated) < num_layers:
            raise FileProblem(
                f"attention.sliding_window_pattern has {len(stated)} entries for {num_layers} layers", place=facts.place
            )
        return [_SLIDING if slides else _FULL for slides in stated[:num_layers]]
    period = facts.integer("attention.sliding_window_pattern", period) or period
    return [_SLIDING if (layer + 1) % period else _FULL for layer in range(num_layers)]


def _alternating(model_type: str, period: int, **extra: object) -> Callable[[Facts, int], Config]:
    """Return a builder for architectures with one full layer after ``period - 1`` sliding ones."""

    def build(facts: Facts, num_layers: int) -> Config:
        _value_width(facts)
        window = facts.optional("attention.sliding_window")
        layers = _pattern(facts, num_layers, period) if window else [_FULL] * num_layers
        return {"model_type": model_type, "sliding_window": window or None, "layer_types": layers, **extra}

    return build


def _gpt_oss(facts: Facts, num_layers: int) -> Config:
    return {
        **_alternating("gpt_oss", 2)(facts, num_layers),
        **_routed(facts),
        "intermediate_size": facts.integer("expert_feed_forward_length"),
        "attention_bias": facts.has("attn_q.bias"),
    }


def _olmo2(facts: Facts, num_layers: int) -> Config:
    if facts.optional("attention.sliding_window"):
        return _alternating("olmo3", 4)(facts, num_layers)
    return {"model_type": "olmo2"}


def _falcon(facts: Facts, _num_layers: int) -> Config:
    """Falcon: the new form (40B and later) has a second norm."""
    new = facts.has("attn_norm_2.weight")
    return {
        "model_type": "falcon",
        "new_decoder_architecture": new,
        "multi_query": facts.integer("attention.head_count_kv", 1) == 1,
        "bias": facts.has("attn_qkv.bias"),
        "head_dim": None,
    }


def _command_r(facts: Facts, _num_layers: int) -> Config:
    return {"model_type": "cohere", "use_qk_norm": facts.has("attn_q_norm.weight")}


def _phi3(facts: Facts, _num_layers: int) -> Config:
    return {"model_type": "phi3", "sliding_window": facts.optional("attention.sliding_window") or None}


def _glm4(facts: Facts, _num_layers: int) -> Config:
    return {"model_type": "glm4", "attention_bias": facts.has("attn_q.bias", "attn_qkv.bias")}


def _chatglm(facts: Facts, _num_layers: int) -> Config:
    return {
        "model_type": "chatglm",
        "multi_query_group_num": facts.integer("attention.head_count_kv"),
        "multi_query_attention": True,
        "add_qkv_bias": facts.has("attn_q.bias", "attn_qkv.bias"),
        "num_key_value_heads": None,
    }


def _starcoder2(facts: Facts, _num_layers: int) -> Config:
    return {"model_type": "starcoder2", "use_bias": facts.has("attn_q.bias")}


def _seed_oss(facts: Facts, _num_layers: int) -> Config:
    return {
        "model_type": "seed_oss",
        "attention_bias": facts.has("attn_q.bias"),
        "attention_out_bias": facts.has("attn_output.bias"),
    }


def _biased(model_type: str) -> Callable[[Facts, int], Config]:
    """Return a builder for architectures with one bias flag of attention."""

    def build(facts: Facts, _num_layers: int) -> Config:
        _value_width(facts)
        return {"model_type": model_type, "attention_bias": facts.has("attn_q.bias", "attn_qkv.bias")}

    return build


def _mamba(facts: Facts, _num_layers: int) -> Config:
    """Mamba: no attention; Falcon Mamba is the one that norms dt, B and C."""
    return {
        "model_type": "falcon_mamba" if facts.flag("ssm.dt_b_c_rms") else "mamba",
        "num_attention_heads": None,
        "num_key_value_heads": None,
        "head_dim": None,
        "max_position_embeddings": None,
        "intermediate_size": facts.integer("ssm.inner_size"),
        "state_size": facts.integer("ssm.state_size"),
        "conv_kernel": facts.integer("ssm.conv_kernel"),
        "time_step_rank": facts.integer("ssm.time_step_rank"),
    }


def _delta(facts: Facts, _num_layers: int) -> Config:
    """Qwen3-Next and Qwen3.5: gated delta nets, sized by the state-space keys."""
    value_heads = facts.integer("ssm.time_step_rank")
    config: Config = {
        "model_type": {"qwen3next": "qwen3_next", "qwen35": "qwen3_5_text"}.get(
            facts.header.architecture, "qwen3_5_moe_text"
        ),
        "linear_num_value_heads": value_heads,
        "linear_value_head_dim": facts.integer("ssm.inner_size") // max(1, value_heads),
        "linear_num_key_heads": facts.integer("ssm.group_count"),
        "linear_key_head_dim": facts.integer("ssm.state_size"),
        "linear_conv_kernel_dim": facts.integer("ssm.conv_kernel"),
        "full_attention_interval": facts.integer("full_attention_interval", 4),
    }
    predicts = "num_nextn_predict_layers" if facts.header.architecture == "qwen3next" else "mtp_num_hidden_layers"
    config[predicts] = facts.integer("nextn_predict_layers", 0)
    if facts.integer("expert_count", 0):
        config |= {
            **_routed(facts),
            "moe_intermediate_size": facts.integer("expert_feed_forward_length"),
            "shared_expert_intermediate_size": facts.integer("expert_shared_feed_forward_length", 0),
        }
    return config


def _minimax_m2(facts: Facts, _num_layers: int) -> Config:
    _value_width(facts)
    return {
        "model_type": "minimax_m2",
        **_routed(facts),
        "intermediate_size": facts.integer("expert_feed_forward_length"),
        "use_routing_bias": facts.has("exp_probs_b.bias"),
        "use_qk_norm": facts.has("attn_q_norm.weight"),
    }


def _ernie_moe(facts: Facts, _num_layers: int) -> Config:
    return {
        "model_type": "ernie4_5_moe",
        **_routed(facts),
        "moe_intermediate_size": facts.integer("expert_feed_forward_length"),
        "moe_num_shared_experts": facts.integer("expert_shared_count", 0),
        "moe_layer_start_index": facts.integer("leading_dense_block_count", 0),
        "moe_layer_interval": facts.integer("interleave_moe_layer_step", 1),
    }


ARCHITECTURES: dict[str, Callable[[Facts, int], Config]] = {
    "llama": _llama,
    "mistral3": _llama,
    "qwen2": _plain("qwen2"),
    "qwen2vl": _plain("qwen2"),
    "qwen3": _qwen3,
    "qwen3vl": _qwen3,
    "qwen2moe": _qwen2_moe,
    "qwen3moe": _qwen3_moe,
    "qwen3vlmoe": _qwen3_moe,
    "qwen3next": _delta,
    "qwen35": _delta,
    "qwen35moe": _delta,
    "deepseek2": _deepseek,
    "glm-dsa": _deepseek,
    "gemma": _plain("gemma"),
    "gemma2": _alternating("gemma2", 2),
    "gemma3": _alternating("gemma3_text", 6),
    "phi3": _phi3,
    "phi2": _plain("phi"),
    "gpt-oss": _gpt_oss,
    "falcon": _falcon,
    "command-r": _command_r,
    "cohere2": _alternating("cohere2", 4),
    "starcoder2": _starcoder2,
    "olmo2": _olmo2,
    "granite": _biased("granite"),
    "internlm2": _plain("internlm2"),
    "glm4": _glm4,
    "glm4moe": _glm4_moe,
    "chatglm": _chatglm,
    "seed_oss": _seed_oss,
    "smollm3": _biased("smollm3"),
    "exaone4": _alternating("exaone4", 4),
    "minimax-m2": _minimax_m2,
    "ernie4_5-moe": _ernie_moe,
    "mamba": _mamba,
    "gpt2": _plain("gpt2"),
    "gptneox": _plain("gpt_neox"),
    "bloom": _plain("bloom"),
}
"""Builders by GGUF architecture."""
