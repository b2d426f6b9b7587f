from __future__ import annotations

import json
import struct
from typing import Any

import pytest

from infcalc.catalog import checkpoint
from infcalc.catalog.checkpoint import (
    ShardIndex,
    StoredTensor,
    count_checkpoint,
    cross_check,
    model_from_parts,
    read_index,
    read_safetensors_header,
    safetensors_head_bytes,
)
from infcalc.catalog.huggingface import from_config
from infcalc.catalog.quantization import read_quantization
from infcalc.errors import FileProblem, UnsupportedArchitecture
from infcalc.lowering.tensors import inventory, parameters
from infcalc.spec.model import Model
from tests.catalog.configs import DEEPSEEK, GEMMA, LLAMA_8B, QWEN_MOE, SHARED_CONFIGS, Config, published

PLACE = "model.safetensors"
W4A16: Config = {
    "quant_method": "compressed-tensors",
    "format": "pack-quantized",
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128, "symmetric": True},
        }
    },
    "ignore": ["lm_head"],
}
_NAMES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
}


def header(entries: dict[str, Any]) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text


def entry(dtype: str, shape: list[int], begin: int, num_bytes: int) -> Config:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + num_bytes]}


def plain_tensors(model: Model) -> list[StoredTensor]:
    """Return what a 16-bit checkpoint of ``model`` lists."""
    found = []
    for tensor in inventory(model, with_mtp=True):
        for layer in tensor.layers or (-1,):
            for copy in range(tensor.copies):
                elements = tensor.rows * tensor.columns
                found.append(
                    StoredTensor(
                        name=f"model.layers.{layer}.{tensor.name}.{copy}.weight",
                        dtype="BF16",
                        shape=(tensor.rows, tensor.columns),
                        num_bytes=2 * elements,
                    )
                )
    return found


def packed_tensors(model: Model) -> list[StoredTensor]:
    """Return what a w4a16 checkpoint of ``model`` lists: int32 words of eight elements, a scale per 128, and shapes."""
    found = []
    for tensor in inventory(model):
        for layer in tensor.layers or (-1,):
            if tensor.name not in _NAMES:
                size = tensor.rows * tensor.columns * tensor.copies
                name = f"model.layers.{layer}.{tensor.name}.weight"
                found.append(StoredTensor(name=name, dtype="BF16", shape=(size,), num_bytes=2 * size))
                continue
            stem = f"model.layers.{layer}.{_NAMES[tensor.name]}"
            words, scales = (tensor.rows, tensor.columns // 8), (tensor.rows, tensor.columns // 128)
            found += [
                StoredTensor(name=f"{stem}.weight_packed", dtype="I32", shape=words, num_bytes=4 * words[0] * words[1]),
                StoredTensor(
                    name=f"{stem}.weight_scale", dtype="BF16", shape=scales, num_bytes=2 * scales[0] * scales[1]
                ),
                StoredTensor(name=f"{stem}.weight_shape", dtype="I64", shape=(2,), num_bytes=16),
            ]
    return found


# Headers -------------------------------------------------------------------------------------------------------------


def test_a_header_lists_tensors_in_order_of_their_data() -> None:
    head = header(
        {
            "__metadata__": {"format": "pt"},
            "b": entry("F8_E4M3", [3, 5], 64, 15),
            "a": entry("BF16", [4, 8], 0, 64),
            "c": entry("F32", [], 79, 4),
        }
    )
    assert safetensors_head_bytes(head[:8], place=PLACE) == len(head)
    found = read_safetensors_header(head, place=PLACE, file_size=len(head) + 83)
    assert [(tensor.name, tensor.num_bytes, tensor.num_elements) for tensor in found] == [
        ("a", 64, 32),
        ("b", 15, 15),
        ("c", 4, 1),
    ]


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"a": entry("BF16", [4], 0, 9)}, "span 9 bytes"),
        ({"a": entry("BF16", [4], 0, 8), "b": entry("BF16", [4], 7, 8)}, "inside the tensor before it"),
        ({"a": entry("Q9", [4], 0, 8)}, "Q9"),
        ({"a": entry("BF16", [-4], 0, 8)}, "shape"),
        ({"a": entry("BF16", [2**40, 2**40], 0, 8)}, "shape"),
        ({"a": {"dtype": "BF16", "shape": [4]}}, "data_offsets"),
        ({"a": {"dtype": "BF16", "shape": [4], "data_offsets": [8, 0]}}, "byte range"),
        ({"a": 3}, "data_offsets"),
    ],
)
def test_headers_that_contradict_themselves(entries: Config, message: str) -> None:
    with pytest.raises(FileProblem, match=message):
        read_safetensors_header(header(entries), place=PLACE)


@pytest.mark.parametrize(
    ("head", "file_size", "message"),
    [
        (b"\x01", None, "too few"),
        (b"\xff" * 8, None, "not that of a safetensors file"),
        (b"version https://git-lfs", None, "LFS"),
        (struct.pack("<Q", 200) + b"{}", 100, "should have 200 bytes"),
        (struct.pack("<Q", 200) + b"{}", None, "ends after"),
        (struct.pack("<Q", 4) + b"[1,]", None, "not JSON"),
        (struct.pack("<Q", 2) + b"[]", None, "not an object"),
    ],
)
def test_files_that_are_no_safetensors(head: bytes, file_size: int | None, message: str) -> None:
    with pytest.raises(FileProblem, match=message) as caught:
        read_safetensors_header(head, place=PLACE, file_size=file_size)
    assert caught.value.place == PLACE


def test_a_file_cut_short_is_noticed() -> None:
    head = header({"a": entry("BF16", [4], 0, 8)})
    with pytest.raises(FileProblem, match="the file has"):
        read_safetensors_header(head, place=PLACE, file_size=len(head) + 7)


# Index ---------------------------------------------------------------------------------------------------------------


def test_an_index_may_lack_its_total_or_write_it_as_float() -> None:
    assert read_index({"metadata": {"total_size": 1.5e10}, "weight_map": {"a": "x"}}).num_bytes == 15_000_000_000
    bare = read_index({"weight_map": {"a": "two", "b": "one", "c": "two"}})
    assert bare.num_bytes is None
    assert bare.shards == ("one", "two")


@pytest.mark.parametrize("broken", [{}, {"weight_map": []}, {"weight_map": {"a": 1}}])
def test_an_index_without_map_is_refused(broken: Config) -> None:
    with pytest.raises(FileProblem, match="weight_map"):
        read_index(broken)


def shard_index(size: int | None, *, names: tuple[str, ...] = ("lm_head.weight",)) -> ShardIndex:
    return ShardIndex(num_bytes=size, total_parameters=None, weight_map=dict.fromkeys(names, "a.safetensors"))


def test_totals_of_an_index_are_checked_within_one_percent() -> None:
    model = from_config(LLAMA_8B, name="t")
    size = 2 * parameters(inventory(model)).total
    assert cross_check(model, index=shard_index(size)) == ()
    assert cross_check(model, index=shard_index(int(size * 1.009))) == ()
    assert "+2.0%" in cross_check(model, index=shard_index(int(size * 1.02)))[0]
    assert "number of parameters" in cross_check(model, index=shard_index(size // 2))[0]
    assert cross_check(model, index=shard_index(None)) == ()


# Counting ------------------------------------------------------------------------------------------------------------


def test_a_sixteen_bit_checkpoint_agrees_exactly() -> None:
    for config in (LLAMA_8B, QWEN_MOE):
        model = from_config(config, name="t")
        tensors = plain_tensors(model)
        count = count_checkpoint(tensors, None)
        assert count.parameters == parameters(inventory(model)).total
        assert cross_check(model, tensors=tuple(tensors)) == ()


def test_packed_words_are_unpacked_and_scales_are_no_parameters() -> None:
    # UC-037: a w4a16 Llama 3.1 8B shows about 2 B "parameters"; it has 8.03 B. https://github.com/huggingface/huggingface.js/pull/2003
    config = LLAMA_8B | {"quantization_config": W4A16}
    reading = read_quantization(config)
    model = from_config(config, name="t", quantization=reading.quantization)
    tensors = packed_tensors(model)
    count = count_checkpoint(tensors, model.quantization)
    assert count.parameters == 8_030_261_248
    assert sum(tensor.num_elements for tensor in tensors) < 2.1e9
    # UC-035: the bytes on disk, not elements times bits. https://github.com/AlexsJones/llmfit/issues/1045
    assert count.num_bytes == sum(tensor.num_bytes for tensor in tensors)
    inventory_bytes = sum(tensor.bytes_total for tensor in inventory(model))
    assert count.num_bytes == pytest.approx(inventory_bytes, rel=1e-5)
    assert cross_check(model, tensors=tuple(tensors)) == ()


@pytest.mark.skipif(not SHARED_CONFIGS.is_dir(), reason="published configs are not here")
def test_kimi_k25_has_a_trillion_parameters() -> None:
    # UC-037: 1.06 T, not 170 B: the quantization block is nested in text_config. The hub's 1.06 counts a scale per 32
    # weights (3 %) as parameters; the layers have 1.03 T.
    config = published("moonshotai__Kimi-K2.5.json")
    assert config is not None
    model, _ = model_from_parts(config=config, name="k", place="folder")
    total = parameters(inventory(model)).total
    experts = sum(tensor.parameters for tensor in inventory(model) if tensor.format.element_bits == 4)
    assert (total + experts / 32) / 1e12 == pytest.approx(1.06, rel=0.005)
    assert model.quantization is not None
    stem = "language_model.model.layers.1.mlp.experts.0.up_proj"
    packed = StoredTensor(name=f"{stem}.weight_packed", dtype="I32", shape=(2048, 896), num_bytes=2048 * 896 * 4)
    assert count_checkpoint([packed], model.quantization).parameters == 2048 * 7168


def stored(name: str, dtype: str, *shape: int) -> StoredTensor:
    return StoredTensor(name=name, dtype=dtype, shape=shape, num_bytes=0)


@pytest.mark.parametrize(
    ("block", "tensor", "elements"),
    [
        ({"quant_method": "gptq", "bits": 4}, stored("model.layers.0.mlp.up_proj.qweight", "I32", 32, 16), 4096),
        ({"quant_method": "gptq", "bits": 8}, stored("model.layers.0.mlp.up_proj.qweight", "I32", 64, 16), 4096),
        ({"quant_method": "gptq", "bits": 3}, stored("model.layers.0.mlp.up_proj.qweight", "I32", 24, 16), 4096),
        ({"quant_method": "awq", "bits": 4}, stored("model.layers.0.mlp.up_proj.qzeros", "I32", 32, 16), 0),
        ({"quant_method": "gptq", "bits": 4}, stored("model.layers.0.mlp.up_proj.g_idx", "I32", 128), 0),
        ({"quant_method": "mxfp4"}, stored("model.layers.0.mlp.experts.down_proj_blocks", "U8", 2, 8, 4, 16), 2048),
        ({"quant_method": "mxfp4"}, stored("model.layers.0.mlp.experts.down_proj_scales", "U8", 2, 8, 4), 0),
        ({"quant_algo": "NVFP4"}, stored("model.layers.0.mlp.up_proj.weight", "U8", 128, 16), 4096),
        ({"quant_algo": "NVFP4"}, stored("model.layers.0.mlp.up_proj.weight_scale", "F8_E4M3", 128, 2), 0),
        ({"load_in_4bit": True}, stored("model.layers.0.mlp.up_proj.weight", "U8", 2048, 1), 4096),
        ({"load_in_4bit": True}, stored("model.layers.0.mlp.up_proj.weight.absmax", "F32", 64), 0),
        ({"load_in_4bit": True}, stored("m.up_proj.weight.quant_state.bitsandbytes__nf4", "U8", 80), 0),
        ({"load_in_8bit": True}, stored("model.layers.0.mlp.up_proj.weight", "I8", 64, 64), 4096),
        ({"quant_method": "fp8"}, stored("model.layers.0.mlp.up_proj.weight", "F8_E4M3", 64, 64), 4096),
        ({"quant_method": "fp8"}, stored("model.layers.0.mlp.up_proj.weight_scale_inv", "F32", 1, 1), 0),
        ({"quant_method": "fp8"}, stored("model.layers.0.self_attn.rotary_emb.inv_freq", "F32", 64), 0),
    ],
)
def test_elements_of_one_stored_tensor(block: Config, tensor: StoredTensor, elements: int) -> None:
    quantization = read_quantization(LLAMA_8B | {"num_experts": 8, "quantization_config": block}).quantization
    assert count_checkpoint([tensor], quantization).parameters == elements


def test_widths_that_differ_by_module_are_told_apart() -> None:
    block = {
        "quant_method": "gptq",
        "bits": 4,
        "dynamic": {r"+:.*layers\.1\..*": {"bits": 8}},
    }
    quantization = read_quantization(LLAMA_8B | {"quantization_config": block}).quantization
    four = stored("model.layers.0.mlp.up_proj.qweight", "I32", 32, 16)
    eight = stored("model.layers.1.mlp.up_proj.qweight", "I32", 32, 16)
    assert count_checkpoint([four], quantization).parameters == 4096
    assert count_checkpoint([eight], quantization).parameters == 2048


def test_a_tied_head_may_be_stored_twice() -> None:
    config = LLAMA_8B | {"tie_word_embeddings": True}
    model = from_config(config, name="t")
    tensors = plain_tensors(model)
    table = 128256 * 4096
    twice = StoredTensor(name="lm_head.weight", dtype="BF16", shape=(128256, 4096), num_bytes=2 * table)
    assert cross_check(model, tensors=(*tensors, twice)) == ()


def test_headers_of_some_shards_only_are_not_judged() -> None:
    model = from_config(LLAMA_8B, name="t")
    index = shard_index(None, names=("a", "b"))
    (warning,) = cross_check(model, tensors=(stored("a", "BF16", 1),), index=index)
    assert "1 of 2" in warning


# Whole checkpoints ---------------------------------------------------------------------------------------------------


def test_vision_parameters_are_counted_from_headers() -> None:
    model = from_config(GEMMA, name="t")
    tower = StoredTensor(name="vision_tower.encoder.weight", dtype="BF16", shape=(100, 50), num_bytes=10_000)
    projector = StoredTensor(name="multi_modal_projector.weight", dtype="BF16", shape=(10,), num_bytes=20)
    found, warnings = model_from_parts(
        config=GEMMA, headers=(*plain_tensors(model), tower, projector), name="t", place="folder"
    )
    assert found.unmodelled_parameters == 5010
    assert warnings == ()


def test_vision_parameters_are_the_excess_of_the_index() -> None:
    model = from_config(GEMMA, name="t")
    decoder = sum(tensor.bytes_total for tensor in inventory(model))
    index = {
        "metadata": {"total_size": decoder + 20_000},
        "weight_map": {"vision_tower.a": "x", "language_model.model.embed_tokens.weight": "x"},
    }
    found, warnings = model_from_parts(config=GEMMA, index=index, name="t", place="folder")
    assert found.unmodelled_parameters == 10_000
    assert warnings == ()


def test_copies_of_embeddings_beside_mtp_layers_are_expected() -> None:
    model = from_config(DEEPSEEK, name="t")
    assert model.mtp is not None
    table = 1024 * 512
    expected = 2 * (parameters(inventory(model, with_mtp=True)).total + 2 * model.mtp.embedding_copies * table)
    assert cross_check(model, index=shard_index(expected)) == ()


def test_warnings_name_their_place() -> None:
    index = {"metadata": {"total_size": 10}, "weight_map": {"a": "x"}}
    _, warnings = model_from_parts(config=LLAMA_8B, index=index, name="t", place="my/folder")
    assert len(warnings) == 1
    assert warnings[0].startswith("my/folder: ")


def test_precision_and_cache_come_from_the_sidecar() -> None:
    sidecar = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8", "exclude_modules": ["lm_head"]}}
    model, _ = model_from_parts(config=LLAMA_8B, sidecar=sidecar, name="t", place="folder")
    assert model.quantization is not None
    assert (model.quantization.format, model.kv_dtype) == ("fp8", "fp8")


def test_an_unknown_architecture_is_refused() -> None:
    with pytest.raises(UnsupportedArchitecture, match="newthing"):
        model_from_parts(config=LLAMA_8B | {"model_type": "newthing"}, name="t", place="folder")


def test_the_tolerance_is_the_one_stated() -> None:
    assert checkpoint.TOLERANCE_FRACTION == 0.01
