from __future__ import annotations

import re

import pytest

from infcalc.catalog.architectures.harmless import is_harmless
from infcalc.catalog.huggingface import from_config
from infcalc.errors import FileProblem, UnsupportedArchitecture
from infcalc.lowering.tensors import inventory
from infcalc.spec.layers import GroupedAttention, MoeFeedForward, Reach
from infcalc.spec.weights import TensorRole
from tests.catalog.configs import DEEPSEEK, GEMMA, LLAMA_8B, QWEN_MOE, Config

FAMILIES = {"llama": LLAMA_8B, "qwen3_moe": QWEN_MOE, "deepseek_v3": DEEPSEEK, "gemma3_text": GEMMA}

# Keys of architectures that exist elsewhere, or might: each would change weights or cache if it meant what it says.
STRUCTURAL: Config = {
    "swa_size": 1024,
    "use_swa": True,
    "hybrid_override_pattern": "M-M*",
    "mixer_types": ["attention", "mamba"],
    "token_mixer": "rwkv",
    "cla_factor": 2,
    "share_cache_from": [0, 0, 2, 2],
    "num_loops": 4,
    "total_ut_steps": 4,
    "moba_chunk_size": 4096,
    "norm_type": "layernorm",
    "altup_num_inputs": 4,
    "laurel_rank": 64,
    "ngram_table_size": 100_000,
    "embedding_rank": 128,
    "q_rank": 128,
    "local_global_pattern": 5,
    "global_every_n": 4,
    "d_ff": 1024,
    "router_num_layers": 2,
    "aux_layers": 1,
    "num_heads_multiplier": 2,
    "ffn_dim_multiplier": 1.3,
    "output_gate": True,
    "use_gated_activation": True,
    "cross_layer_sharing": 2,
    "num_registers": 16,
    "recurrent_depth": 8,
    "use_alibi": True,
    "learned_positions": True,
    "rope_head_dim": 64,
    "is_encoder_decoder": True,
    "add_cross_attention": True,
    "cross_attention_hidden_size": 1024,
    "pruned_heads": {"0": [1]},
    "quantization": {"group_size": 64, "bits": 4},
    "lora_r": 16,
    "canon_set": "ABCD",
    "value_residual": True,
    "differential": True,
    "nsa_block_size": 64,
    "kv_bits": 4,
    "per_layer_config": {"3": {"head_dim": 64}},
    "tie_encoder_decoder": True,
    "mlp_only": [0],
    "num_branches": 2,
    "block_types": ["recurrent"],
}
HARMLESS_KEYS: Config = {
    "_name_or_path": "somewhere/else",
    "architectures": ["AnyForCausalLM"],
    "attention_dropout": 0.1,
    "auto_map": {"AutoConfig": "configuration.Config"},
    "begin_suppress_tokens": [1],
    "chunk_size_feed_forward": 1,
    "classifier_dropout": 0.1,
    "diversity_penalty": 0.5,
    "do_sample": True,
    "embd_pdrop": 0.1,
    "eos_token_id": [1, 2],
    "final_logit_softcapping": 30.0,
    "hidden_act": "silu",
    "id2label": {"0": "LABEL_0"},
    "initializer_range": 0.02,
    "max_length": 20,
    "max_window_layers": 28,
    "num_beams": 4,
    "output_attentions": True,
    "pretraining_tp": 8,
    "problem_type": "regression",
    "return_dict": True,
    "rms_norm_eps": 1e-6,
    "rope_scaling": {"rope_type": "yarn", "factor": 4.0},
    "rope_theta": 1e6,
    "router_aux_loss_coef": 0.001,
    "sep_token_id": 3,
    "temperature": 0.6,
    "top_k": 20,
    "top_p": 0.95,
    "torchscript": True,
    "transformers_version": "4.57.1",
    "unsloth_version": "2025.9",
    "use_bfloat16": True,
    "use_cache": True,
    "vision_feature_layer": -2,
}


def with_key(config: Config, key: str, value: object) -> Config:
    """Return the config with one more key where its decoder is described."""
    if "text_config" in config:
        return config | {"text_config": config["text_config"] | {key: value}}
    return config | {key: value}


def test_there_are_many_invented_keys() -> None:
    assert len(STRUCTURAL) >= 40
    assert not [key for key in STRUCTURAL if is_harmless(key)]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("key", STRUCTURAL)
def test_a_key_that_nobody_has_read_is_refused_by_name(family: str, key: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=re.escape(key)) as caught:
        from_config(with_key(FAMILIES[family], key, STRUCTURAL[key]))
    assert caught.value.exit_code == 6


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("llama", "use_qk_norm"),
        ("llama", "qk_norm"),
        ("llama", "use_bias"),
        ("qwen3_moe", "qk_norm"),
        ("qwen3_moe", "use_bias"),
        ("qwen3_moe", "mlp_bias"),
        ("deepseek_v3", "use_qk_norm"),
        ("gemma3_text", "use_bias"),
    ],
)
def test_flags_of_other_families_are_refused_when_set(family: str, key: str) -> None:
    plain = from_config(FAMILIES[family])
    assert from_config(with_key(FAMILIES[family], key, False)) == plain
    with pytest.raises(UnsupportedArchitecture, match=key):
        from_config(with_key(FAMILIES[family], key, True))


@pytest.mark.parametrize("family", FAMILIES)
def test_keys_that_shape_nothing_are_passed_over(family: str) -> None:
    config = FAMILIES[family]
    for key, value in HARMLESS_KEYS.items():
        assert from_config(with_key(config, key, value)) == from_config(config), key


def test_a_window_that_is_switched_off_is_none() -> None:
    off = {"use_sliding_window": False, "sliding_window": 4096, "max_window_layers": 28}
    assert from_config(LLAMA_8B | off) == from_config(LLAMA_8B)
    with pytest.raises(UnsupportedArchitecture, match="max_window_layers"):
        from_config(LLAMA_8B | off | {"use_sliding_window": True})


def test_many_keys_are_listed_in_part() -> None:
    with pytest.raises(UnsupportedArchitecture, match="and 70 more") as caught:
        from_config(LLAMA_8B | {f"invented_{index}_{'x' * 500}": 1 for index in range(100)})
    assert len(str(caught.value)) < 10_000


# Layer types ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (QWEN_MOE, "chunked_attention"),
        (QWEN_MOE, "sliding_attention"),
        (QWEN_MOE | {"sliding_window": 128}, "sliding_attention"),
        (LLAMA_8B, "sliding_attention"),
        (LLAMA_8B | {"model_type": "mistral", "sliding_window": 512}, "chunked_attention"),
        (LLAMA_8B | {"model_type": "mistral", "sliding_window": None}, "sliding_attention"),
        (LLAMA_8B | {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 8}, "chunked_attention"),
        (LLAMA_8B | {"model_type": "olmo3", "sliding_window": None}, "sliding_attention"),
        (LLAMA_8B | {"model_type": "gemma2"}, "chunked_attention"),
        (LLAMA_8B | {"model_type": "gemma3_text"}, "chunked_attention"),
        (LLAMA_8B | {"model_type": "gemma4_text", "sliding_window": None}, "sliding_attention"),
        (QWEN_MOE | {"model_type": "gpt_oss"}, "chunked_attention"),
        (QWEN_MOE | {"model_type": "llama4_text", "attention_chunk_size": 64}, "sliding_attention"),
    ],
)
def test_a_layer_type_that_the_family_has_not_is_refused(config: Config, word: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=word):
        from_config(config | {"layer_types": [word] * config["num_hidden_layers"]})


def test_layer_types_that_the_family_has_are_read() -> None:
    words = ["sliding_attention", "full_attention"] * 16
    model = from_config(LLAMA_8B | {"model_type": "mistral", "sliding_window": 512, "layer_types": words})
    found = [run.layer.mixer for run in model.layers for _ in range(run.num_layers)]
    assert [mixer.reach for mixer in found if isinstance(mixer, GroupedAttention)] == [Reach.SLIDING, Reach.FULL] * 16


# Experts -------------------------------------------------------------------------------------------------------------


def experts_per_token(config: Config) -> set[int]:
    blocks = [run.layer.feed_forward for run in from_config(config).layers]
    return {block.experts_per_token for block in blocks if isinstance(block, MoeFeedForward)}


def test_top_k_counts_experts_only_where_nothing_else_does() -> None:
    bare = {key: value for key, value in QWEN_MOE.items() if key != "num_experts_per_tok"}
    assert experts_per_token(bare | {"top_k": 3}) == {3}
    assert experts_per_token(QWEN_MOE | {"top_k": 3}) == {2}
    with pytest.raises(FileProblem, match="num_experts_per_tok"):
        from_config(bare)


def test_score_corrections_are_stored_in_32_bits() -> None:
    (bias,) = (t for t in inventory(from_config(DEEPSEEK)) if t.name == "router.bias")
    assert (bias.role, bias.format.name, bias.bytes_total) == (TensorRole.ROUTER_BIAS, "fp32", 3 * 8 * 4)
    gpt_oss = {key: value for key, value in QWEN_MOE.items() if key != "moe_intermediate_size"}
    gpt_oss["model_type"] = "gpt_oss"
    linear = {(t.role, t.format.name) for t in inventory(from_config(gpt_oss)) if t.name == "router.bias"}
    assert linear == {(TensorRole.ROUTER, "bf16")}
