from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infcalc.catalog.architectures import REFUSED
from infcalc.catalog.huggingface import from_config
from infcalc.errors import FileProblem, InfcalcError, UnsupportedArchitecture
from infcalc.lowering.tensors import inventory, parameters
from infcalc.memory.kv import kv_components
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import DenseFeedForward, GroupedAttention, LatentAttention, MoeFeedForward, Reach
from infcalc.spec.model import Model
from infcalc.spec.weights import WeightQuantization
from tests.shipped import FACTS, facts, shipped

Config = dict[str, Any]

LLAMA: Config = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    "torch_dtype": "bfloat16",
    "tie_word_embeddings": False,
    "rope_scaling": {"rope_type": "llama3"},
    "attention_dropout": 0.0,
    "use_cache": True,
}
KIMI_VL: Config = {
    "model_type": "kimi_vl",
    "vision_config": {"hidden_size": 1152},
    "text_config": {
        "model_type": "deepseek_v3",
        "hidden_size": 2048,
        "intermediate_size": 11264,
        "num_hidden_layers": 27,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "n_routed_experts": 64,
        "n_shared_experts": 2,
        "num_experts_per_tok": 6,
        "moe_intermediate_size": 1408,
        "first_k_dense_replace": 1,
        "kv_lora_rank": 512,
        "q_lora_rank": None,
        "qk_rope_head_dim": 64,
        "qk_nope_head_dim": 128,
        "v_head_dim": 128,
        "topk_method": "noaux_tc",
        "vocab_size": 163840,
        "max_position_embeddings": 131072,
        "torch_dtype": "bfloat16",
    },
}
QWEN35_SMALL: Config = {
    "model_type": "qwen3_5",
    "text_config": {
        "model_type": "qwen3_5_text",
        "hidden_size": 1024,
        "intermediate_size": 3584,
        "num_hidden_layers": 24,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "head_dim": 256,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 16,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 248320,
        "max_position_embeddings": 262144,
    },
    "tie_word_embeddings": True,
}
GEMMA4_12B: Config = {
    "model_type": "gemma4",
    "text_config": {
        "model_type": "gemma4_text",
        "hidden_size": 3840,
        "intermediate_size": 15360,
        "num_hidden_layers": 48,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "global_head_dim": 512,
        "num_global_key_value_heads": 1,
        "attention_k_eq_v": True,
        "sliding_window": 1024,
        "vocab_size": 262144,
        "max_position_embeddings": 262144,
    },
}


def slope(model: Model) -> float:
    return float(sum(part.slope_bytes_per_token for part in kv_components(model, KV_FORMATS["bf16"])))


def mixers(model: Model) -> list[object]:
    return [run.layer.mixer for run in model.layers for _ in range(run.num_layers)]


def test_a_llama_config_is_the_catalog_entry() -> None:
    model = from_config(LLAMA, name="mine")
    assert model.layers == shipped("llama3-8b").layers
    assert (model.name, model.architecture, model.dtype) == ("mine", "llama", "bf16")
    assert not model.tied_embeddings
    assert parameters(inventory(model)).total == 8_030_261_248


def test_quantization_and_cache_type_are_passed_on() -> None:
    quantization = WeightQuantization(format="fp8")
    model = from_config(LLAMA, quantization=quantization, kv_dtype="fp8")
    assert (model.quantization, model.kv_dtype) == (quantization, "fp8")


# https://github.com/llm-d-incubation/llm-d-planner: the MLA of a nested text config was priced as 16-head MHA (7.1 x).
def test_latent_attention_is_found_in_a_nested_text_config() -> None:
    model = from_config(KIMI_VL)
    assert slope(model) == 31_104
    assert all(isinstance(mixer, LatentAttention) for mixer in mixers(model))
    assert model.unmodelled == ("vision tower (vision_config)",)


@pytest.mark.parametrize("key", ["text_config", "llm_config", "language_config"])
def test_every_kind_of_nesting(key: str) -> None:
    assert from_config({"model_type": "wrapper", key: LLAMA}).layers == from_config(LLAMA).layers


def test_thinker_configs_nest_twice() -> None:
    config = {"model_type": "omni", "thinker_config": {"text_config": LLAMA, "audio_config": {"d_model": 1}}}
    assert from_config(config).layers == from_config(LLAMA).layers


# https://github.com/LMCache/LMCache/pull/3080: 12,288 B per token, not 49,152.
def test_only_full_layers_of_a_linear_hybrid_grow() -> None:
    model = from_config(QWEN35_SMALL)
    assert slope(model) == 12_288
    assert slope(model) * 131_072 == 1_610_612_736
    assert model.tied_embeddings


# https://github.com/raullenchai/Rapid-MLX/pull/1423: 16 KiB per token, not 64, 128 or 384.
def test_global_layers_of_gemma_4_have_their_own_heads() -> None:
    assert slope(from_config(GEMMA4_12B)) == 16_384


# https://github.com/ollama/ollama/pull/16958: 0.40, 0.48, 0.99 and 3.00 GB with a micro-batch of 512 in flight.
@pytest.mark.parametrize(("tokens", "gb"), [(4096, 0.40), (8192, 0.48), (32768, 0.99), (131072, 3.00)])
def test_gemma_4_26b_saturates_its_sliding_layers(tokens: int, gb: float) -> None:
    from infcalc.memory.kv import sequence_bytes  # noqa: PLC0415

    parts = kv_components(shipped("gemma-4-26b-a4b"), KV_FORMATS["bf16"])
    assert sequence_bytes(parts, tokens, in_flight_tokens=512) / 1e9 == pytest.approx(gb, rel=0.05)


def test_windows_that_never_bind_are_full_attention() -> None:
    qwen = LLAMA | {"model_type": "qwen2", "sliding_window": 1024, "use_sliding_window": False, "max_window_layers": 8}
    assert {mixer.reach for mixer in mixers(from_config(qwen)) if isinstance(mixer, GroupedAttention)} == {Reach.FULL}
    on = qwen | {"use_sliding_window": True}
    found = [mixer.reach for mixer in mixers(from_config(on)) if isinstance(mixer, GroupedAttention)]
    assert found == [Reach.FULL] * 8 + [Reach.SLIDING] * 24
    long = LLAMA | {"model_type": "mistral", "sliding_window": 8192}
    assert {mixer.reach for mixer in mixers(from_config(long)) if isinstance(mixer, GroupedAttention)} == {Reach.FULL}


def test_explicit_head_dim_wins_over_hidden_over_heads() -> None:
    (first, *_) = mixers(from_config(LLAMA | {"head_dim": 96}))
    assert isinstance(first, GroupedAttention)
    assert first.head_dim == 96


@pytest.mark.parametrize(
    ("key", "aliased"),
    [
        ("num_hidden_layers", "n_layer"),
        ("num_hidden_layers", "n_layers"),
        ("num_hidden_layers", "num_layers"),
        ("hidden_size", "n_embd"),
        ("hidden_size", "d_model"),
        ("num_attention_heads", "n_head"),
        ("num_attention_heads", "n_heads"),
        ("num_key_value_heads", "n_head_kv"),
        ("num_key_value_heads", "num_kv_heads"),
        ("num_key_value_heads", "num_attention_groups"),
        ("intermediate_size", "ffn_dim"),
        ("intermediate_size", "ffn_hidden_size"),
        ("max_position_embeddings", "n_positions"),
        ("max_position_embeddings", "seq_length"),
        ("torch_dtype", "dtype"),
    ],
)
def test_other_names_of_a_key(key: str, aliased: str) -> None:
    renamed = {aliased if name == key else name: value for name, value in LLAMA.items()}
    assert from_config(renamed) == from_config(LLAMA)


def test_falcon_of_the_old_kind_has_one_kv_head() -> None:
    old = {"model_type": "RefinedWebModel", "hidden_size": 4544, "n_head": 71, "n_layer": 32, "vocab_size": 65024}
    model = from_config(old | {"multi_query": True, "parallel_attn": True, "bias": False})
    assert slope(model) == 2 * 32 * 64 * 2
    assert model.tied_embeddings


# Refusals ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model_type", ["t5", "whisper", "nonesuch", *REFUSED])
def test_an_unknown_architecture_is_refused_and_named(model_type: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=model_type) as failure:
        from_config(LLAMA | {"model_type": model_type})
    assert failure.value.exit_code == 6
    assert "num_key_value_heads" in str(failure.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("kv_lora_rank", 512),
        ("index_topk", 2048),
        ("num_local_experts", 8),
        ("n_routed_experts", 8),
        ("sliding_window", 4096),
        ("attention_chunk_size", 8192),
        ("layer_types", ["linear_attention"] * 32),
        ("layer_types", ["sliding_attention"] * 32),
        ("num_nextn_predict_layers", 1),
        ("mamba_d_state", 16),
        ("full_attention_interval", 4),
        ("cross_attention_layers", [3, 8]),
        ("num_kv_shared_layers", 8),
        ("moe_intermediate_size", 1024),
        ("block_configs", [{}]),
        ("ssm_state_size", 128),
        ("attention_sink_tokens", 4),
    ],
)
def test_a_key_that_shapes_layers_is_never_passed_over(key: str, value: object) -> None:
    with pytest.raises(UnsupportedArchitecture, match=key):
        from_config(LLAMA | {key: value})


@pytest.mark.parametrize("value", [None, False, 0, [], {}, ""])
def test_keys_without_a_value_do_no_harm(value: object) -> None:
    assert from_config(LLAMA | {"kv_lora_rank": value, "index_topk": value}) == from_config(LLAMA)


@pytest.mark.parametrize(
    "key",
    [
        "rope_theta",
        "initializer_range",
        "attn_implementation",
        "output_hidden_states",
        "bos_token_id",
        "layer_norm_eps",
    ],
)
def test_keys_that_shape_nothing_are_passed_over(key: str) -> None:
    assert from_config(LLAMA | {key: 7}) == from_config(LLAMA)


@pytest.mark.parametrize(
    "key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"]
)
@pytest.mark.parametrize(
    "value",
    [0, -1, 10**12, pytest.param(10**5000, id="huge"), 1.5, float("nan"), float("inf"), True, "4096", [4096], {"a": 1}],
)
def test_an_impossible_value_names_its_key(key: str, value: object) -> None:
    with pytest.raises(FileProblem) as failure:
        from_config(LLAMA | {key: value})
    assert failure.value.exit_code == 2
    assert key in str(failure.value)


@pytest.mark.parametrize("key", ["model_type", "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(FileProblem, match=key):
        from_config({name: value for name, value in LLAMA.items() if name != key})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_key_value_heads": 5}, "do not divide"),
        ({"num_attention_heads": 24}, "does not divide by 24"),
        ({"layer_types": ["full_attention"] * 3}, "3 entries for 32 layers"),
        ({"torch_dtype": "float8_e4m3fn"}, "is not a dtype"),
    ],
)
def test_contradictions_are_errors(changes: Config, message: str) -> None:
    with pytest.raises(FileProblem, match=message):
        from_config(LLAMA | changes)


# Configs as found ----------------------------------------------------------------------------------------------------


def found_configs() -> list[Path]:
    folder = FACTS / "hf_configs"
    return sorted(path for path in folder.glob("**/*.json") if not path.name.endswith("hf_quant_config.json"))


@pytest.mark.skipif(not FACTS.exists(), reason="../shared/facts is not there")
@pytest.mark.parametrize("path", found_configs(), ids=lambda path: path.stem)
def test_configs_as_found_import_with_the_figures_of_the_facts(path: Path) -> None:
    config = json.loads(path.read_text())
    model = from_config(config, name=path.stem)
    hf_id = path.stem.replace("__", "/")
    fact = next((fact for fact in facts() if fact["hf_id"] == hf_id), None)
    counts = parameters(inventory(model))
    if fact is not None:
        assert counts.total == fact["computed"]["params_total_computed"]
        assert counts.active == fact["computed"]["params_active_computed"]
        growing = [part for part in kv_components(model, KV_FORMATS["bf16"]) if part.kind != "indexer"]
        assert sum(part.slope_bytes_per_token for part in growing) == fact["kv_bytes_per_token_bf16"]
    else:
        assert hf_id in SAME_SHAPE, "a config without facts needs its base here"
        if base := SAME_SHAPE[hf_id]:
            assert model.layers == shipped(base).layers
            assert counts == parameters(inventory(shipped(base)))


SAME_SHAPE = {
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "nvidia/DeepSeek-V3.1-NVFP4": "deepseek-v3.1",
    "Qwen/Qwen2.5-7B-Instruct-AWQ": "qwen2.5-7b",
    "Qwen/Qwen2.5-7B-Instruct-GPTQ-Int4": "qwen2.5-7b",
    "TheBloke/Llama-2-7B-Chat-GPTQ": "llama2-7b",
    # Pruned to 84 of 126 layers: a shape of its own.
    "amd/mlperf-v5.1-llama3_1-405b-finetuned-84layer": "",
}


# Mutated configs -----------------------------------------------------------------------------------------------------

SEEDS: tuple[Config, ...] = (LLAMA, KIMI_VL, QWEN35_SMALL, GEMMA4_12B, LLAMA | {"model_type": "mistral"})
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(10**30), max_value=10**30),
    st.floats(),
    st.text(max_size=20),
    st.lists(st.one_of(st.none(), st.integers(), st.text(max_size=5)), max_size=40),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=3),
)


def places(config: Config, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for key, value in config.items():
        yield (*path, key)
        if isinstance(value, dict):
            yield from places(value, (*path, key))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_mutated_config_is_read_or_refused(data: st.DataObject) -> None:
    config: Config = json.loads(json.dumps(data.draw(st.sampled_from(SEEDS))))
    for _ in range(data.draw(st.integers(min_value=1, max_value=3))):
        path = data.draw(st.sampled_from(sorted(places(config))))
        inner = config
        for key in path[:-1]:
            inner = inner[key]
        if data.draw(st.booleans()):
            inner[path[-1]] = data.draw(ODD)
        else:
            inner.pop(path[-1])
        if not config:
            return
    try:
        model = from_config(config)
    except InfcalcError:
        return
    assert parameters(inventory(model)).total > 0
    for run in model.layers:
        assert run.num_layers > 0
        block = run.layer.feed_forward
        assert block is None or isinstance(block, DenseFeedForward | MoeFeedForward)
