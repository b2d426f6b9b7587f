from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import pytest

from infcalc.catalog.architectures import ADAPTERS, REFUSED
from infcalc.lowering.tensors import inventory, parameters
from infcalc.memory.kv import KvKind, constant_bytes, kv_components
from infcalc.spec.draft import Draft
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import (
    CompressedAttention,
    GroupedAttention,
    LatentAttention,
    Layer,
    MoeFeedForward,
    Reach,
    RecurrentMixer,
)
from infcalc.spec.model import Model
from infcalc.spec.weights import TensorRole
from tests.shipped import FACTS, document, facts, names, published, shipped

BF16 = KV_FORMATS["bf16"]
BY_NAME = {entry["name"]: entry for entry in published()}


def layers_of(model: Model) -> list[Layer]:
    return [run.layer for run in model.layers for _ in range(run.num_layers)]


@pytest.mark.parametrize("target", sorted(set(ADAPTERS.values())))
def test_every_adapter_exists(target: str) -> None:
    module, _, function = target.partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_no_architecture_is_both_adapted_and_refused() -> None:
    assert not ADAPTERS.keys() & REFUSED.keys()


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_parameter_counts_of_the_catalog(name: str) -> None:
    entry = BY_NAME[name]
    model = shipped(name)
    assert model.hf_id == entry["hf_id"]
    counts = parameters(inventory(model))
    assert counts.total == entry["total"]
    assert counts.active == entry["active"]
    assert counts.active_without_embedding == entry["active_without_embedding"]
    if "published" in entry:
        assert counts.total == entry["published"] == model.published_parameters


def test_most_models_equal_their_published_count() -> None:
    assert sum("published" in entry for entry in BY_NAME.values()) >= 120


@pytest.mark.parametrize("name", sorted(name for name, entry in BY_NAME.items() if "mtp" in entry))
def test_mtp_parameters_of_the_catalog(name: str) -> None:
    model = shipped(name)
    if model.mtp is None:
        # Its checkpoint holds no MTP layer although the architecture has one: the published count shows it.
        assert BY_NAME[name]["published"] == parameters(inventory(model)).total
        return
    assert parameters(t for t in inventory(model, with_mtp=True) if t.mtp).total == BY_NAME[name]["mtp"]


# What published counts hold beside decoder, MTP layers and modelled extras, by cause.
SCALES = {
    # fp8 block scales, causal masks, rotary buffers, counts without biases: the facts' own explanations.
    "deepseek-v3",
    "deepseek-v3.1",
    "deepseek-v4-flash",
    "deepseek-v4-pro",
    "qwen3-32b-fp8",
    "qwen3-30b-a3b-fp8",
    "minimax-m2.5",
    "mimo-v2-flash",
    "llama2-7b",
    "llama2-13b",
    "llama2-70b",
    "kimi-k2",
    "glm-4-9b-chat",
    "gpt2",
    "gpt2-large",
    "gpt2-xl",
    "gpt-neox-20b",
    "nemotron-3-nano-30b",
    "nemotron-3-super-120b-fp8",
    "nemotron-3-ultra-550b",
    "qwen1.5-0.5b",
    "qwen3-0.6b",
    "qwen3-1.7b",
    "falcon-7b",
    "falcon-40b",
    "falcon-180b",
    "gemma-4-26b-a4b",
    "minimax-m3",
    *(f"opt-{size}" for size in ("125m", "1.3b", "6.7b", "13b", "30b", "66b")),
}


@pytest.mark.parametrize("name", sorted(set(names()) - SCALES))
def test_published_counts_are_explained_to_the_last_parameter(name: str) -> None:
    model = shipped(name)
    if model.published_parameters is None or any("published total" in doubt for doubt in model.doubts):
        pytest.skip("no published count, or a rounded one")
    if name == "step-3.7-flash":
        pytest.skip("its config copy is reduced; the entry says so")
    copies = model.mtp.embedding_copies * 2 * model.vocab_size * model.hidden_size if model.mtp else 0
    counted = parameters(inventory(model, with_mtp=True)).total + model.unmodelled_parameters + copies
    assert counted == model.published_parameters


def test_scales_of_fp8_blocks_close_the_gap_of_deepseek_v3() -> None:
    model = shipped("deepseek-v3")
    tensors = inventory(model, with_mtp=True)
    scales = sum(
        -(-t.rows // 128) * -(-t.columns // 128) * t.copies * t.multiplicity
        for t in tensors
        if t.format.name == "fp8_block"
    )
    assert model.mtp is not None
    copies = 2 * model.vocab_size * model.hidden_size
    assert model.published_parameters is not None
    gap = model.published_parameters - parameters(tensors).total - copies
    assert gap == pytest.approx(scales, rel=0.001)


def test_three_dense_mtp_layers_close_the_gap_of_mimo_v2_flash() -> None:
    model = shipped("mimo-v2-flash")
    assert model.mtp is not None
    assert model.mtp.num_layers == 3
    assert model.published_parameters is not None
    gap = model.published_parameters - parameters(inventory(model, with_mtp=True)).total
    assert 0 < gap < 0.0001 * model.published_parameters


# Class defaults decide which layers slide; the compilation of facts counts all of them as full.
KV_DISAGREEMENTS = {"allenai/Olmo-3-1025-7B"}


@pytest.mark.skipif(not FACTS.exists(), reason="../shared/facts is not there")
@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_caches_equal_those_of_the_facts(name: str) -> None:
    if BY_NAME[name]["hf_id"] in KV_DISAGREEMENTS:
        pytest.skip("the facts ignore the class default of its layer types")
    (entry,) = (fact for fact in facts() if fact["hf_id"] == BY_NAME[name]["hf_id"])
    components = kv_components(shipped(name), BF16)
    counted = entry["kv_components"]
    growing = [part for part in components if part.kind is not KvKind.INDEXER]
    assert sum(part.slope_bytes_per_token for part in growing) == entry["kv_bytes_per_token_bf16"]
    for key, kinds in (
        ("full_attention_layers", {KvKind.FULL}),
        ("sliding_layers", {KvKind.SLIDING, KvKind.CHUNKED}),
        ("mla_layers", {KvKind.LATENT}),
    ):
        if key in counted:
            assert sum(part.layers for part in components if part.kind in kinds) == counted[key], key
    if "max_sliding_bytes_per_sequence_bf16" in counted:
        saturating = sum(part.max_bytes or 0 for part in components if part.window_tokens is not None)
        assert saturating == counted["max_sliding_bytes_per_sequence_bf16"]
    states = [value for key, value in counted.items() if key.startswith("state_bytes_per_sequence")]
    if states:
        assert constant_bytes(components) in states
    indexed = sum(part.slope_bytes_per_token for part in components if part.kind is KvKind.INDEXER)
    stated = [value for key, value in counted.items() if "indexer" in key and key.startswith("bytes_per_token")]
    if "dsa_indexer_layers" in counted or "sparse_attention_layers" in counted:
        assert indexed in stated


def test_recurrent_states_of_the_facts_are_those_of_the_layers() -> None:
    if not FACTS.exists():
        pytest.skip("../shared/facts is not there")
    checked = 0
    for fact in facts():
        counted = fact.get("kv_components") or {}
        name = next((entry["name"] for entry in published() if entry["hf_id"] == fact["hf_id"]), None)
        if name is None or "ssm_state_elems_per_layer" not in counted:
            continue
        mixers = [layer.mixer for layer in layers_of(shipped(name)) if isinstance(layer.mixer, RecurrentMixer)]
        assert {mixer.state_elements for mixer in mixers} == {counted["ssm_state_elems_per_layer"]}
        assert {mixer.conv_elements for mixer in mixers} == {counted["conv_state_elems_per_layer"]}
        if "state_dtype_bytes_ssm" in counted:
            assert {mixer.state_bits for mixer in mixers} == {8 * counted["state_dtype_bytes_ssm"]}
        checked += 1
    assert checked >= 20


def slope(name: str) -> object:
    return sum(part.slope_bytes_per_token for part in kv_components(shipped(name), BF16))


# Issues that the figures come from: LMCache 688, gemma-4 of Rapid-MLX 1423 and hf-mem 61, TensorRT-LLM 5912.
@pytest.mark.parametrize(
    ("name", "bytes_per_token"),
    [
        ("llama3-70b", 327_680),
        ("llama3-8b", 131_072),
        ("llama3.1-405b", 516_096),
        ("qwen3-32b", 262_144),
        ("qwen3-4b", 147_456),
        ("deepseek-v3", 70_272),
        ("mistral-7b-v0.1", 0),
        ("gemma-4-26b-a4b", 20_480),
        ("gemma-4-31b-nvfp4", 81_920),
    ],
)
def test_well_known_slopes(name: str, bytes_per_token: int) -> None:
    assert slope(name) == bytes_per_token


def test_mistral_7b_slides_everywhere_and_its_successors_nowhere() -> None:
    for name, reach, window in (
        ("mistral-7b-v0.1", Reach.SLIDING, 4096),
        ("mistral-7b-v0.3", Reach.FULL, None),
        ("ministral-8b", Reach.FULL, None),
    ):
        for layer in layers_of(shipped(name)):
            assert isinstance(layer.mixer, GroupedAttention)
            assert (layer.mixer.reach, layer.mixer.window_tokens) == (reach, window), name


def test_llama_4_chunks_three_of_four_layers() -> None:
    reaches = [
        layer.mixer.reach for layer in layers_of(shipped("llama4-scout")) if isinstance(layer.mixer, GroupedAttention)
    ]
    assert reaches == [Reach.CHUNKED, Reach.CHUNKED, Reach.CHUNKED, Reach.FULL] * 12


# https://github.com/inference-sim/inference-sim/issues/877: step 1 makes every layer sparse, step 2 every other.
def test_interleave_step_of_llama_4() -> None:
    scout, maverick = shipped("llama4-scout"), shipped("llama4-maverick")
    assert all(isinstance(layer.feed_forward, MoeFeedForward) for layer in layers_of(scout))
    assert [isinstance(layer.feed_forward, MoeFeedForward) for layer in layers_of(maverick)] == [False, True] * 24
    counts = parameters(inventory(scout))
    assert counts.total / 1e9 == pytest.approx(107.8, rel=0.01)
    assert counts.active / 1e9 == pytest.approx(17.2, rel=0.01)
    assert parameters(inventory(maverick)).total / 1e9 == pytest.approx(400.7, rel=0.001)


# https://github.com/inference-sim/inference-sim/issues/1552: only attention layers hold growing KV.
def test_nemotron_h_has_few_attention_layers() -> None:
    layers = layers_of(shipped("nemotron-3-nano-30b"))
    attention = [layer for layer in layers if isinstance(layer.mixer, GroupedAttention)]
    assert len(layers) / len(attention) == pytest.approx(9, rel=0.2)
    assert constant_bytes(kv_components(shipped("nemotron-3-nano-30b"), BF16)) == 49_082_368


def test_shared_indexers_of_glm_5_2_have_no_weights() -> None:
    layers = layers_of(shipped("glm-5.2"))
    own = [
        layer.mixer.indexer.shared
        for layer in layers
        if isinstance(layer.mixer, LatentAttention) and layer.mixer.indexer
    ]
    assert own.count(False) == 21
    assert own.count(True) == 57
    indexed = [t for t in inventory(shipped("glm-5.2")) if t.role is TensorRole.INDEXER]
    assert sum(len(t.layers) for t in indexed) == 3 * 21


def test_v4_pools_by_layer() -> None:
    ratios = [
        layer.mixer.compression
        for layer in layers_of(shipped("deepseek-v4-flash"))
        if isinstance(layer.mixer, CompressedAttention)
    ]
    assert (ratios.count(0), ratios.count(4), ratios.count(128)) == (2, 21, 20)


def test_every_entry_says_where_it_is_from() -> None:
    for name in names():
        model = shipped(name)
        assert model.source, name
        assert model.date >= "2026-11-29", name
        assert model.hf_id, name


def test_entries_not_read_from_a_config_say_so() -> None:
    if not FACTS.exists():
        pytest.skip("../shared/facts is not there")
    for fact in facts():
        name = next((entry["name"] for entry in published() if entry["hf_id"] == fact["hf_id"]), None)
        if name is not None and fact["evidence"] != "config_json_file":
            assert shipped(name).doubts, name


@pytest.mark.parametrize(
    ("name", "role", "form"),
    [
        ("deepseek-v3", TensorRole.ATTENTION, "fp8_block"),
        ("deepseek-v3", TensorRole.LM_HEAD, "bf16"),
        ("kimi-k2.5", TensorRole.EXPERT, "int4_g32"),
        ("kimi-k2.5", TensorRole.ATTENTION, "bf16"),
        ("kimi-k2.5", TensorRole.SHARED_EXPERT, "bf16"),
        ("gpt-oss-20b", TensorRole.EXPERT, "mxfp4"),
        ("gpt-oss-20b", TensorRole.ATTENTION, "bf16"),
        ("gpt-oss-20b", TensorRole.ROUTER, "bf16"),
        ("minimax-m2", TensorRole.EXPERT, "fp8_block"),
        ("llama3.1-70b-fp8", TensorRole.FEED_FORWARD, "fp8"),
        ("llama3.1-70b-fp8", TensorRole.LM_HEAD, "bf16"),
    ],
)
def test_storage_of_quantized_checkpoints(name: str, role: TensorRole, form: str) -> None:
    assert {t.format.name for t in inventory(shipped(name)) if t.role is role} == {form}


def test_drafts_are_drafts_of_models_in_the_catalog() -> None:
    drafts: dict[str, dict[str, Any]] = document()["drafts"]
    assert len(drafts) == 20
    make: Callable[..., Draft] = Draft
    for name, mapping in drafts.items():
        draft = make(name=name, **mapping)
        assert draft.core_parameters > 0
        assert set(draft.targets) <= set(names())
        assert draft.kind in {"eagle1", "eagle3"}
