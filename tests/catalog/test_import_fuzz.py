"""Whatever is done to an imported file, only the project's own errors escape."""

from __future__ import annotations

import copy
import json
import struct
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from infcalc.catalog.checkpoint import model_from_parts, read_index, read_safetensors_header
from infcalc.catalog.gguf import model_from_gguf, read_gguf
from infcalc.catalog.lenient_json import parse_json_object
from infcalc.errors import InfcalcError
from infcalc.lowering.tensors import inventory
from tests.catalog import gguf_files
from tests.catalog.configs import SHAPES, SHARED_CONFIGS, Config, published
from tests.catalog.gguf_files import Row, Value

FUZZ = settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])

QUANTIZATIONS: tuple[Config, ...] = (
    {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["model.layers.0", "lm_head"]},
    {
        "quant_method": "compressed-tensors",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True},
                "input_activations": None,
            }
        },
        "ignore": ["lm_head", "re:.*self_attn.*"],
        "kv_cache_scheme": {"num_bits": 8, "type": "float"},
    },
    {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
    {"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {"+:.*down.*": {"bits": 8}}, "lm_head": True},
    {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]},
    {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8", "exclude_modules": ["*attn*"]},
    {"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
    {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"model.layers.0.mlp.up_proj": {"quant_algo": "FP8"}}},
)
ODD = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(),
    st.text(max_size=12),
    st.lists(st.one_of(st.integers(-5, 5), st.text(max_size=5), st.none()), max_size=4),
    st.dictionaries(st.text(max_size=8), st.integers(), max_size=2),
    st.sampled_from(
        ["sliding_attention", "float16", "re:((", "model.layers.0.*", "[", [[]], [0], {"a": {}}, 10**30, 0]
    ),
)


def starting_points() -> list[Config]:
    """Return own shapes, with and without a quantization block, and some published ones where they are present."""
    found = list(SHAPES) + [SHAPES[index % 3] | {"quantization_config": q} for index, q in enumerate(QUANTIZATIONS)]
    for path in sorted(SHARED_CONFIGS.glob("*.json"))[::3]:
        config = published(path.name)
        if config is not None and "model_type" in config:
            found.append(config)
    return found


STARTS = starting_points()


def places(value: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all values; of long lists only a few."""
    found = [path] if path else []
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))[:3]
    for key, item in items:
        found += places(item, (*path, key))
    return found


@st.composite
def mutated_configs(draw: st.DrawFn) -> Config:
    config: Config = copy.deepcopy(draw(st.sampled_from(STARTS)))
    for _ in range(draw(st.integers(1, 3))):
        paths = places(config)
        if not paths:
            break
        path = draw(st.sampled_from(paths))
        target: Any = config
        for key in path[:-1]:
            target = target[key]
        match draw(st.sampled_from(["change", "drop", "add"])):
            case "drop" if isinstance(target, dict):
                target.pop(path[-1])
            case "add" if isinstance(target, dict):
                target[draw(st.text(max_size=12))] = copy.deepcopy(draw(ODD))
            case _:
                target[path[-1]] = copy.deepcopy(draw(ODD))
    return config


@FUZZ
@given(mutated_configs())
@example(SHAPES[0] | {"num_hidden_layers": 10**9})
@example(SHAPES[0] | {"quantization_config": {"quant_method": "fp8", "weight_block_size": [0, 128]}})
@example(SHAPES[0] | {"quantization_config": {"quant_method": ["fp8"]}})
@example(SHAPES[0] | {"quantization_config": {"config_groups": {"g": {"targets": [3], "weights": {"num_bits": True}}}}})
def test_mutated_configs(config: Config) -> None:
    try:
        model, _ = model_from_parts(config=config, name="fuzz", place="config.json")
        assert sum(tensor.bytes_total for tensor in inventory(model)) > 0
    except InfcalcError as error:
        str(error)


@FUZZ
@given(st.sampled_from(STARTS[:5]), st.dictionaries(st.text(max_size=12), ODD, max_size=3), ODD)
def test_mutated_sidecars_and_indexes(config: Config, extra: Config, odd: object) -> None:
    sidecar = {"quantization": {"quant_algo": odd, **extra}}
    index = {"metadata": {"total_size": odd}, "weight_map": {"model.layers.0.x": "a.safetensors"}, **extra}
    for arguments in ({"sidecar": sidecar}, {"index": index}, {"sidecar": extra, "index": extra}):
        try:
            model_from_parts(config=config, name="fuzz", place="folder", **arguments)
        except InfcalcError as error:
            str(error)


def mangled(content: bytes, edits: list[tuple[int, int]], cut: int) -> bytes:
    """Return ``content`` with bytes replaced and its end cut off."""
    data = bytearray(content)
    for position, value in edits:
        data[position % len(data)] = value
    return bytes(data[: max(0, len(data) - cut)])


EDITS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 255)), max_size=6)


@FUZZ
@given(st.sampled_from(STARTS[:8]), EDITS, st.integers(0, 40))
def test_mangled_json(config: Config, edits: list[tuple[int, int]], cut: int) -> None:
    content = mangled(json.dumps(config).encode(), edits, cut)
    try:
        model_from_parts(config=parse_json_object(content, place="config.json"), name="fuzz", place="config.json")
    except InfcalcError as error:
        str(error).encode()


SAFETENSORS = json.dumps(
    {
        "__metadata__": {"format": "pt"},
        "model.embed_tokens.weight": {"dtype": "BF16", "shape": [8, 4], "data_offsets": [0, 64]},
        "model.layers.0.mlp.up_proj.weight": {"dtype": "I32", "shape": [4, 4], "data_offsets": [64, 128]},
        "lm_head.weight": {"dtype": "F32", "shape": [4], "data_offsets": [128, 144]},
    }
).encode()


@FUZZ
@given(EDITS, st.integers(0, 40), st.one_of(st.none(), st.integers(0, 2**70)))
def test_mangled_safetensors(edits: list[tuple[int, int]], cut: int, file_size: int | None) -> None:
    content = mangled(struct.pack("<Q", len(SAFETENSORS)) + SAFETENSORS, edits, cut)
    try:
        tensors = read_safetensors_header(content, place="model.safetensors", file_size=file_size)
        model_from_parts(config=SHAPES[0], headers=tensors, name="fuzz", place="folder")
    except InfcalcError as error:
        str(error).encode()


GGUF_FILES = [
    gguf_files.gguf_bytes(*build())
    for build in (gguf_files.llama, gguf_files.qwen3_moe, gguf_files.gpt_oss, gguf_files.deepseek, gguf_files.mamba)
]


@FUZZ
@given(st.sampled_from(GGUF_FILES), EDITS, st.integers(0, 40))
@example(GGUF_FILES[0], [], 0)
def test_mangled_gguf(content: bytes, edits: list[tuple[int, int]], cut: int) -> None:
    try:
        header = read_gguf(mangled(content, edits, cut), place="a.gguf")
        model, _ = model_from_gguf(header, "fuzz")
        assert inventory(model)
    except InfcalcError as error:
        str(error)


@FUZZ
@given(
    st.sampled_from([gguf_files.llama, gguf_files.qwen3_moe, gguf_files.deepseek, gguf_files.gemma3, gguf_files.mamba]),
    st.integers(0, 100),
    st.one_of(
        st.integers(0, 2**32 - 1),
        st.booleans(),
        st.floats(width=32),
        st.text(max_size=8),
        st.lists(st.integers(0, 2**32 - 1), max_size=7),
    ),
)
def test_odd_gguf_metadata(build: Callable[[], tuple[dict[str, Value], list[Row]]], which: int, value: Value) -> None:
    metadata, rows = build()
    keys = list(metadata)
    metadata[keys[which % len(keys)]] = value
    try:
        model, _ = model_from_gguf(read_gguf(gguf_files.gguf_bytes(metadata, rows), place="a.gguf"), "fuzz")
        assert inventory(model)
    except InfcalcError as error:
        str(error)


@FUZZ
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=300).map(lambda tail: b"GGUF\x03\x00\x00\x00" + tail)))
def test_random_bytes(content: bytes) -> None:
    for read in (
        lambda: read_gguf(content, place="x"),
        lambda: read_safetensors_header(content, place="x"),
        lambda: read_index(parse_json_object(content, place="x")),
    ):
        with pytest.raises(InfcalcError):
            read()
