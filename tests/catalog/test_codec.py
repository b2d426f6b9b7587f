from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.catalog.codec import model_from_mapping, model_to_mapping
from infcalc.errors import CatalogError
from infcalc.files import yaml_text
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layer,
    LayerRun,
    Matrix,
    MoeFeedForward,
    QkNorm,
    Reach,
    RecurrentKind,
    RecurrentMixer,
    Shard,
)
from infcalc.spec.model import Model, MultiTokenPrediction
from infcalc.spec.weights import TensorRole, WeightQuantization, WeightRule

COUNTS = st.integers(1, 2**20)
SMALL = st.integers(1, 64)
MATRICES = st.lists(
    st.builds(
        Matrix,
        name=st.text("abc_", min_size=1, max_size=6),
        rows=COUNTS,
        columns=COUNTS | st.just(1),
        role=st.sampled_from(TensorRole),
        shard=st.sampled_from(Shard),
        copies=SMALL,
    ),
    max_size=3,
    unique_by=lambda matrix: matrix.name,
).map(tuple)
INDEXERS = st.builds(
    Indexer,
    num_heads=SMALL,
    head_dim=SMALL,
    topk_tokens=COUNTS,
    shared=st.booleans(),
    pool_tokens=SMALL,
    matrices=MATRICES,
)
GROUPED = st.builds(
    lambda num_kv_heads, factor, window, **rest: GroupedAttention(
        num_heads=num_kv_heads * factor,
        num_kv_heads=num_kv_heads,
        reach=window[0],
        window_tokens=window[1],
        **rest,
    ),
    num_kv_heads=SMALL,
    factor=SMALL,
    window=st.just((Reach.FULL, None)) | st.tuples(st.sampled_from([Reach.SLIDING, Reach.CHUNKED]), COUNTS),
    head_dim=SMALL,
    value_head_dim=st.none() | SMALL,
    qkv_bias=st.booleans(),
    output_bias=st.booleans(),
    qk_norm=st.sampled_from(QkNorm),
    output_gate=st.booleans(),
    value_from_key=st.booleans(),
    shares_kv=st.booleans(),
    indexer=st.none() | INDEXERS,
    extras=MATRICES,
)
MIXERS = (
    GROUPED
    | st.builds(
        LatentAttention,
        num_heads=SMALL,
        kv_lora_rank=COUNTS,
        qk_nope_head_dim=SMALL,
        qk_rope_head_dim=SMALL,
        value_head_dim=SMALL,
        q_lora_rank=st.none() | COUNTS,
        indexer=st.none() | INDEXERS,
        extras=MATRICES,
    )
    | st.builds(
        CompressedAttention,
        num_heads=SMALL,
        entry_dim=st.integers(64, 1024),
        rope_dim=SMALL,
        window_tokens=COUNTS,
        compression=st.integers(0, 128),
        matrices=MATRICES,
    )
    | st.builds(
        RecurrentMixer,
        recurrent=st.sampled_from(RecurrentKind),
        state_elements=COUNTS,
        conv_elements=st.integers(0, 9),
        state_bits=st.sampled_from([16, 32]),
        matrices=MATRICES,
    )
)
FEED_FORWARDS = st.builds(
    DenseFeedForward, width=COUNTS, gated=st.booleans(), bias=st.booleans(), extras=MATRICES
) | st.builds(
    lambda per_token, more, **rest: MoeFeedForward(num_experts=per_token + more, experts_per_token=per_token, **rest),
    per_token=SMALL,
    more=st.integers(0, 512),
    expert_width=COUNTS,
    shared_width=SMALL,
    shared_gate=st.booleans(),
    router_bias=st.booleans(),
    expert_input_dim=st.none() | COUNTS,
)
LAYERS = st.builds(
    Layer,
    mixer=MIXERS,
    feed_forward=st.none() | FEED_FORWARDS,
    num_norms=st.integers(0, 6),
    norm_bias=st.booleans(),
    extras=MATRICES,
)
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs", "Cc"]), max_size=12)


@st.composite
def models(draw: st.DrawFn) -> Model:
    blocks = draw(st.lists(LAYERS, min_size=1, max_size=3, unique=True))
    sequence = draw(st.lists(st.sampled_from(blocks), min_size=1, max_size=12))
    runs: list[LayerRun] = []
    for layer in sequence:
        if runs and runs[-1].layer == layer:
            runs[-1] = replace(runs[-1], num_layers=runs[-1].num_layers + 1)
        else:
            runs.append(LayerRun(num_layers=1, layer=layer))
    numbers = st.lists(st.integers(0, len(sequence) - 1), max_size=12, unique=True).map(tuple)
    rules = st.builds(
        WeightRule,
        roles=st.lists(st.sampled_from(TensorRole), max_size=2).map(tuple),
        names=st.lists(TEXTS, max_size=2).map(tuple),
        layers=st.none() | numbers,
        format=st.sampled_from(["bf16", "fp8", "awq_g64"]),
    )
    return Model(
        name="m",
        architecture=draw(TEXTS),
        hidden_size=draw(COUNTS),
        vocab_size=draw(COUNTS),
        layers=tuple(runs),
        tied_embeddings=draw(st.booleans()),
        embedding_dim=draw(st.none() | COUNTS),
        max_context_tokens=draw(st.none() | COUNTS),
        quantization=draw(
            st.none()
            | st.builds(WeightQuantization, format=st.just("fp8"), rules=st.lists(rules, max_size=3).map(tuple))
        ),
        kv_dtype=draw(st.sampled_from([None, "fp8"])),
        mtp=draw(
            st.none()
            | st.builds(MultiTokenPrediction, num_layers=SMALL, layer=LAYERS | st.sampled_from(blocks), extras=MATRICES)
        ),
        extras=draw(MATRICES),
        unmodelled=draw(st.lists(TEXTS, max_size=2).map(tuple)),
        published_parameters=draw(st.none() | st.integers(1, 2**45)),
        aliases=draw(st.lists(TEXTS, max_size=3).map(tuple)),
        source=draw(TEXTS),
        doubts=draw(st.lists(TEXTS, max_size=2).map(tuple)),
    )


@settings(max_examples=60, deadline=None)
@given(models())
def test_every_model_survives_writing_and_reading(model: Model) -> None:
    assert model_from_mapping("m", model_to_mapping(model)) == model


@settings(max_examples=25, deadline=None)
@given(models())
def test_every_model_survives_yaml_text(model: Model) -> None:
    import yaml  # noqa: PLC0415

    assert model_from_mapping("m", yaml.safe_load(yaml_text(model_to_mapping(model)))) == model


def entry() -> dict[str, Any]:
    return {
        "architecture": "deepseek_v3",
        "hidden_size": 7168,
        "vocab_size": 129280,
        "layers": "3*dense 58*moe",
        "blocks": {
            "dense": {
                "mixer": {"num_heads": 8, "num_kv_heads": 2, "head_dim": 64, "extras": {"sink": 8, "gate": [8, 7168]}},
                "feed_forward": {"width": 18432},
            },
            "moe": {
                "mixer": {
                    "kind": "latent",
                    "num_heads": 128,
                    "kv_lora_rank": 512,
                    "qk_nope_head_dim": 128,
                    "qk_rope_head_dim": 64,
                    "value_head_dim": 128,
                },
                "feed_forward": {"kind": "moe", "num_experts": 256, "experts_per_token": 8, "expert_width": 2048},
            },
        },
        "quantization": {"format": "fp8_block", "rules": [{"roles": ["attention"], "layers": "0-2 60"}]},
        "mtp": {"num_layers": 1, "layer": "moe"},
    }


def test_an_entry_reads_as_its_words_say() -> None:
    model = model_from_mapping("deepseek", entry())
    assert [(run.num_layers, type(run.layer.mixer)) for run in model.layers] == [
        (3, GroupedAttention),
        (58, LatentAttention),
    ]
    assert model.num_layers == 61
    dense = model.layers[0].layer.mixer
    assert isinstance(dense, GroupedAttention)
    assert dense.extras == (Matrix(name="sink", rows=8), Matrix(name="gate", rows=8, columns=7168))
    assert model.mtp is not None
    assert model.mtp.layer == model.layers[1].layer
    assert model.quantization is not None
    assert model.quantization.rules[0].layers == (0, 1, 2, 60)
    assert model.quantization.rules[0].roles == (TensorRole.ATTENTION,)


def _set(*path: str | int) -> Callable[[object], Callable[[dict[str, Any]], None]]:
    def to(value: object) -> Callable[[dict[str, Any]], None]:
        def change(mapping: dict[str, Any]) -> None:
            target: Any = mapping
            for step in path[:-1]:
                target = target[step]
            target[path[-1]] = value

        return change

    return to


def _drop(mapping: dict[str, Any]) -> None:
    del mapping["hidden_size"]


DENSE = ("blocks", "dense", "mixer")
MOE = ("blocks", "moe", "feed_forward")


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (_drop, "hidden_size", "missing"),
        (_set("hiden_size")(4), "hiden_size", "did you mean hidden_size"),
        (_set("hidden_size")(True), "hidden_size", "whole number, found true"),
        (_set("hidden_size")(0), "hidden_size", "must be from 1"),
        (_set("hidden_size")(-1), "hidden_size", "must be from 1"),
        (_set("hidden_size")(10**30), "hidden_size", "must be from 1"),
        (_set("hidden_size")(math.nan), "hidden_size", "found nan"),
        (_set("hidden_size")(math.inf), "hidden_size", "found inf"),
        (_set("hidden_size")(4096.0), "hidden_size", "whole number"),
        (_set("hidden_size")("4096"), "hidden_size", "whole number, found '4096'"),
        (_set("hidden_size")(None), "hidden_size", "found nothing"),
        (_set("hidden_size")([1]), "hidden_size", "found a list"),
        (_set("tied_embeddings")("yes"), "tied_embeddings", "true or false"),
        (_set("tied_embeddings")(1), "tied_embeddings", "true or false"),
        (_set("aliases")({"a": 1}), "aliases", "list of texts"),
        (_set("aliases")(["a", 7]), "aliases.1", "expected text"),
        (_set("dtype")("fp64"), "dtype", "unknown type"),
        (_set("layers")(["dense"]), "layers", "expected a pattern"),
        (_set("layers")("3*dense 58*mo"), "layers", "block 'mo' is not defined"),
        (_set("layers")("61*dense"), "blocks.moe", "not used"),
        (_set("layers")("9999*dense 58*moe"), "layers", "a count must be"),
        (_set("blocks")([]), "blocks", "expected a mapping"),
        (_set(*DENSE, "kind")("gouped"), "blocks.dense.mixer.kind", "none of grouped"),
        (_set(*DENSE, "kind")(["latent"]), "blocks.dense.mixer.kind", "a list is none of"),
        (_set(*DENSE, "reach")("global"), "blocks.dense.mixer.reach", "none of full"),
        (_set(*DENSE, "num_kv_heads")(3), "blocks.dense.mixer.num_kv_heads", "not a multiple"),
        (_set(*DENSE, "reach")("sliding"), "blocks.dense.mixer.window_tokens", "needs window_tokens"),
        (_set(*DENSE, "extras")({"a": [1, 2, 3]}), "blocks.dense.mixer.extras.a", "expected rows"),
        (_set(*DENSE, "extras")({"a": [0, 2]}), "blocks.dense.mixer.extras.a.rows", "must be from 1"),
        (_set(*DENSE, "extras")({"a": {"rows": 1, "shard": "x"}}), "blocks.dense.mixer.extras.a.shard", "none of"),
        (_set(*MOE, "experts_per_token")(257), "blocks.moe.feed_forward.experts_per_token", "only 256"),
        (_set(*MOE, "width")(4), "blocks.moe.feed_forward.width", "unknown key"),
        (_set("mtp", "layer")("none"), "mtp.layer", "not defined"),
        (_set("quantization", "format")("fp9"), "quantization.format", "unknown weight format"),
        (_set("quantization", "rules", 0, "layers")("0-99999"), "quantization.rules.0.layers", "no layer number"),
        (_set("quantization", "rules", 0, "layers")([61, 62]), "quantization.rules.0.layers", "62 of a model with 62"),
        (_set("quantization", "rules", 0, "roles")(["attn"]), "quantization.rules.0.roles.0", "none of embedding"),
        (_set("quantization", "rules")(4), "quantization.rules", "list of rules"),
        (_set(7)(4), "", "not text"),
    ],
)
def test_a_fault_is_named_with_its_key_path(change: Callable[[dict[str, Any]], None], place: str, message: str) -> None:
    mapping = copy.deepcopy(entry())
    change(mapping)
    with pytest.raises(CatalogError) as caught:
        model_from_mapping("m", mapping)
    prefix = "models.m" + (f".{place}: " if place else ": ")
    assert [fault for fault in caught.value.faults if fault.startswith(prefix) and message in fault], (
        caught.value.faults
    )


def test_all_faults_of_an_entry_are_told_at_once() -> None:
    mapping = entry()
    mapping["hidden_size"] = -1
    mapping["vocab"] = mapping.pop("vocab_size")
    mapping["blocks"]["dense"]["mixer"]["num_heads"] = "eight"
    mapping["quantization"]["rules"][0]["format"] = 8
    with pytest.raises(CatalogError) as caught:
        model_from_mapping("m", mapping)
    assert sorted(fault.partition(": ")[0] for fault in caught.value.faults) == [
        "models.m.blocks.dense.mixer.num_heads",
        "models.m.hidden_size",
        "models.m.quantization.rules.0.format",
        "models.m.vocab",
        "models.m.vocab_size",
    ]


@pytest.mark.parametrize("value", [None, 4, "text", [], math.nan])
def test_an_entry_that_is_no_mapping_is_a_fault(value: object) -> None:
    with pytest.raises(CatalogError, match="expected a mapping"):
        model_from_mapping("m", value)


def test_matrices_that_share_a_name_cannot_be_written() -> None:
    layer = Layer(feed_forward=DenseFeedForward(width=4), extras=(Matrix(name="a", rows=1), Matrix(name="a", rows=2)))
    model = Model(
        name="m", architecture="a", hidden_size=4, vocab_size=4, layers=(LayerRun(num_layers=1, layer=layer),)
    )
    with pytest.raises(ValueError, match="'a'"):
        model_to_mapping(model)
