from __future__ import annotations

import io
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from infcalc.catalog.gguf import model_from_gguf, read_gguf
from infcalc.catalog.gguf_config import ARCHITECTURES
from infcalc.catalog.gguf_header import ByteSource
from infcalc.errors import FileProblem, UnsupportedArchitecture
from infcalc.lowering.tensors import inventory, parameters
from infcalc.spec.layers import GroupedAttention, LatentAttention, Reach
from infcalc.spec.model import Model
from infcalc.spec.weights import GGUF_BLOCKS
from tests.catalog import gguf_files
from tests.catalog.gguf_files import F16, F32, Q4_K, Q6_K, Row, Value, gguf_bytes

Built = tuple[dict[str, Value], list[Row]]
PLACE = "tiny.gguf"


def read(metadata: dict[str, Value], rows: Sequence[Row]) -> tuple[Model, tuple[str, ...]]:
    return model_from_gguf(read_gguf(gguf_bytes(metadata, rows), place=PLACE), "tiny", place=PLACE)


def mixers(model: Model) -> list[Any]:
    return [run.layer.mixer for run in model.layers for _ in range(run.num_layers)]


# Header --------------------------------------------------------------------------------------------------------------


def test_metadata_and_table_are_read() -> None:
    header = read_gguf(gguf_bytes(*gguf_files.llama()), place=PLACE)
    assert header.architecture == "llama"
    assert header.metadata["llama.block_count"] == 4
    assert header.array_items["tokenizer.ggml.tokens"] == 1024
    table = {tensor.name: tensor for tensor in header.tensors}
    assert table["blk.0.ffn_down.weight"].shape == (512, 256)
    assert table["blk.0.ffn_down.weight"].num_bytes == 512 * 256 // 32 * 18
    assert table["output.weight"].num_bytes == 256 * 1024 // 32 * 34
    assert header.head_bytes == len(gguf_bytes(*gguf_files.llama()))


def test_only_the_head_is_read_and_long_arrays_are_walked_over() -> None:
    metadata, rows = gguf_files.llama()
    metadata["tokenizer.ggml.tokens"] = ["x" * (index % 50) for index in range(50_000)]
    metadata["tokenizer.ggml.scores"] = list(range(20_000))
    head = gguf_bytes(metadata, rows)
    stream = io.BytesIO(head + bytes(10 * 2**20))
    header = read_gguf(stream, place=PLACE)
    assert len(header.tensors) == len(rows)
    assert header.array_items["tokenizer.ggml.tokens"] == 50_000
    assert header.array_items["tokenizer.ggml.scores"] == 20_000
    assert "tokenizer.ggml.tokens" not in header.metadata
    assert stream.tell() <= len(head) + 2**19


def test_version_two_is_read() -> None:
    assert read_gguf(gguf_bytes(*gguf_files.llama(), version=2), place=PLACE).architecture == "llama"


@pytest.mark.parametrize("name", sorted(GGUF_BLOCKS))
def test_every_block_type(name: str) -> None:
    number, elements, num_bytes = GGUF_BLOCKS[name]
    rows = [("a", (elements * 3, 5), number)]
    (tensor,) = read_gguf(gguf_bytes({"general.architecture": "llama"}, rows), place=PLACE).tensors
    assert tensor.num_bytes == 15 * num_bytes
    assert tensor.format == name


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "ends at byte 0"),
        (b"GG", "ends at byte 2"),
        (b"PK\x03\x04rest", "not a GGUF file"),
        (b"version https://git-lfs.github.com", "LFS"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "tensors"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 2**60), "keys"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 2**62), "bytes"),
        (gguf_bytes({}, []), "general.architecture"),
        (gguf_bytes({"general.architecture": ""}, []), "general.architecture"),
        (gguf_bytes({"general.architecture": "llama"}, [("a", (256, 4), 250)]), "type 250"),
        (gguf_bytes({"general.architecture": "llama"}, [("a", (100, 4), Q4_K)]), "no multiple of the 256"),
        (gguf_bytes({"general.architecture": "llama"}, [("a", (2**40, 2**40), F32)]), "more elements"),
    ],
)
def test_damage_is_a_file_problem(content: bytes, message: str) -> None:
    with pytest.raises(FileProblem, match=message) as caught:
        read_gguf(content, place=PLACE)
    assert caught.value.place == PLACE


def test_every_cut_is_noticed() -> None:
    content = gguf_bytes(*gguf_files.llama(layers=1))
    for end in range(0, len(content) - 1, 7):
        with pytest.raises(FileProblem, match="interrupted download"):
            read_gguf(content[:end], place=PLACE)


def test_arrays_that_claim_to_be_huge_allocate_nothing() -> None:
    entry = gguf_files.text("k") + struct.pack("<IIQ", 9, 4, 2**63)
    with pytest.raises(FileProblem, match="items"):
        read_gguf(b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + entry, place=PLACE)


# Models --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        gguf_files.llama,
        gguf_files.qwen3_moe,
        gguf_files.gpt_oss,
        gguf_files.deepseek,
        gguf_files.gemma3,
        gguf_files.mamba,
    ],
)
def test_the_inventory_repeats_the_tensor_table_to_the_byte(build: Callable[[], Built]) -> None:
    metadata, rows = build()
    header = read_gguf(gguf_bytes(metadata, rows), place=PLACE)
    model, warnings = model_from_gguf(header, "tiny", place=PLACE)
    tensors = inventory(model, with_mtp=True)
    assert warnings == ()
    assert parameters(tensors).total == sum(tensor.num_elements for tensor in header.tensors)
    assert sum(tensor.bytes_total for tensor in tensors) == header.tensor_bytes


def test_types_that_differ_by_layer_become_rules() -> None:
    model, _ = read(*gguf_files.qwen3_moe())
    down = {t.layers: t.format.name for t in inventory(model) if t.name == "experts.down"}
    assert down == {(0, 2): "q4_k", (1,): "q6_k"}
    assert model.quantization is not None
    assert model.quantization.format == "q4_k"
    assert model.quantization.method == "gguf"


def test_tied_embeddings_are_those_without_output_tensor() -> None:
    assert read(*gguf_files.llama(tied=True))[0].tied_embeddings
    assert not read(*gguf_files.llama())[0].tied_embeddings


def test_kv_heads_may_differ_by_layer() -> None:
    metadata, rows = gguf_files.llama(kv_heads=[4, 2, 2, 1])
    model, warnings = read(metadata, rows)
    assert warnings == ()
    assert [mixer.num_kv_heads for mixer in mixers(model)] == [4, 2, 2, 1]
    assert sum(t.bytes_total for t in inventory(model)) == read_gguf(gguf_bytes(metadata, rows), place="").tensor_bytes


def test_layers_without_attention_in_a_list_are_refused() -> None:
    metadata, rows = gguf_files.llama()
    metadata["llama.attention.head_count_kv"] = [2, 0, 2, 2]
    with pytest.raises(UnsupportedArchitecture, match="differ by layer"):
        read(metadata, rows)


def test_sliding_layers_follow_the_period_or_the_list() -> None:
    metadata, rows = gguf_files.gemma3()
    model, _ = read(metadata, rows)
    assert [mixer.reach for mixer in mixers(model)] == [Reach.SLIDING] * 5 + [Reach.FULL]
    metadata["gemma3.attention.sliding_window_pattern"] = [True, False, True, False, True, False]
    model, _ = read(metadata, rows)
    assert [mixer.reach for mixer in mixers(model)] == [Reach.SLIDING, Reach.FULL] * 3
    assert mixers(model)[0].window_tokens == 128


def test_gpt_oss_slides_in_every_other_layer() -> None:
    model, _ = read(*gguf_files.gpt_oss())
    assert [mixer.reach for mixer in mixers(model)] == [Reach.SLIDING, Reach.FULL] * 2


def test_latent_attention_in_old_and_new_words() -> None:
    metadata, rows = gguf_files.deepseek()
    (new,) = set(mixers(read(metadata, rows)[0]))
    assert isinstance(new, LatentAttention)
    assert (new.kv_lora_rank, new.qk_rope_head_dim, new.qk_nope_head_dim, new.value_head_dim) == (256, 64, 128, 128)
    for key in ("key_length_mla", "value_length_mla"):
        metadata.pop(f"deepseek2.attention.{key}")
    metadata |= {"deepseek2.attention.key_length": 192, "deepseek2.attention.value_length": 128}
    (old,) = set(mixers(read(metadata, rows)[0]))
    assert old == new


def test_mixtral_is_a_llama_with_experts() -> None:
    metadata, rows = gguf_files.llama(layers=1)
    metadata |= {"llama.expert_count": 4, "llama.expert_used_count": 2}
    rows = [row for row in rows if ".ffn_" not in row[0] or "norm" in row[0]]
    rows += [
        ("blk.0.ffn_gate_inp.weight", (256, 4), F32),
        ("blk.0.ffn_gate_exps.weight", (256, 512, 4), Q4_K),
        ("blk.0.ffn_up_exps.weight", (256, 512, 4), Q4_K),
        ("blk.0.ffn_down_exps.weight", (512, 256, 4), Q6_K),
    ]
    model, warnings = read(metadata, rows)
    assert model.architecture == "mixtral"
    assert warnings == ()


def test_sixteen_bit_files_are_sixteen_bit_throughout_but_for_norms() -> None:
    metadata, rows = gguf_files.llama(kind=F16)
    rows = [(name, shape, F16 if len(shape) > 1 else F32) for name, shape, _ in rows]
    model, warnings = read(metadata, rows)
    assert warnings == ()
    assert {t.format.name for t in inventory(model) if t.columns > 1} == {"fp16"}
    assert {t.format.name for t in inventory(model) if t.columns == 1} == {"fp32"}


def test_one_part_of_a_split_model_warns() -> None:
    metadata, rows = gguf_files.llama()
    metadata |= {"split.count": 3, "split.no": 0}
    _, warnings = read(metadata, rows[: len(rows) // 2])
    assert len(warnings) == 1
    assert "part 1 of 3" in warnings[0]


def test_tensors_beyond_the_model_warn() -> None:
    metadata, rows = gguf_files.llama()
    _, warnings = read(metadata, [*rows, ("v.patch_embd.weight", (256, 4096), F32), ("rope_freqs.weight", (32,), F32)])
    assert any("v.patch_embd.weight" in warning for warning in warnings)
    assert not any("rope_freqs" in warning for warning in warnings)
    assert any("parameters" in warning for warning in warnings)


@pytest.mark.parametrize("architecture", ["clip", "bert", "rwkv7", "newthing"])
def test_architectures_that_are_not_understood_are_refused(architecture: str) -> None:
    with pytest.raises(UnsupportedArchitecture, match=architecture):
        read({"general.architecture": architecture}, [])


def test_value_heads_of_another_width_are_refused() -> None:
    metadata, rows = gguf_files.llama()
    metadata |= {"llama.attention.key_length": 64, "llama.attention.value_length": 32}
    with pytest.raises(UnsupportedArchitecture, match="value_length 32"):
        read(metadata, rows)


def test_a_missing_size_is_named() -> None:
    metadata, rows = gguf_files.llama()
    metadata.pop("llama.embedding_length")
    with pytest.raises(FileProblem, match=r"llama\.embedding_length is missing"):
        read(metadata, rows)


def test_a_source_is_anything_that_reads() -> None:
    source: ByteSource = io.BytesIO(gguf_bytes(*gguf_files.llama()))
    assert read_gguf(source, place=PLACE).architecture == "llama"


def test_the_reference_writer_is_understood(tmp_path: Path) -> None:
    gguf = pytest.importorskip("gguf", reason="the gguf package is not installed")
    numpy = pytest.importorskip("numpy")
    path = tmp_path / "reference.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_embedding_length(256)
    writer.add_feed_forward_length(512)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_context_length(4096)
    writer.add_token_list([f"t{index}" for index in range(1024)])
    _, rows = gguf_files.llama(layers=1, kind=F16)
    for name, shape, _ in rows:
        writer.add_tensor(name, numpy.zeros(tuple(reversed(shape)), dtype=numpy.float16))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with path.open("rb") as stream:
        header = read_gguf(stream, place=str(path))
    reference = gguf.GGUFReader(path)
    assert [(t.name, t.num_bytes) for t in header.tensors] == [(t.name, int(t.n_bytes)) for t in reference.tensors]
    model, warnings = model_from_gguf(header, "reference")
    assert warnings == ()
    assert isinstance(mixers(model)[0], GroupedAttention)
    assert sum(tensor.bytes_total for tensor in inventory(model)) == header.tensor_bytes


GENERIC: dict[str, Value] = {
    "block_count": 4,
    "embedding_length": 256,
    "feed_forward_length": 512,
    "context_length": 4096,
    "attention.head_count": 8,
    "attention.head_count_kv": 2,
    "attention.key_length": 32,
    "attention.value_length": 32,
    "attention.sliding_window": 128,
    "rope.dimension_count": 16,
    "expert_count": 8,
    "expert_used_count": 2,
    "expert_feed_forward_length": 128,
    "expert_shared_feed_forward_length": 128,
    "expert_shared_count": 1,
    "leading_dense_block_count": 1,
    "attention.kv_lora_rank": 64,
    "attention.q_lora_rank": 64,
    "attention.indexer.top_k": 64,
    "attention.indexer.head_count": 4,
    "attention.indexer.key_length": 32,
    "ssm.conv_kernel": 4,
    "ssm.inner_size": 512,
    "ssm.state_size": 32,
    "ssm.time_step_rank": 16,
    "ssm.group_count": 8,
}


@pytest.mark.parametrize("architecture", sorted(ARCHITECTURES))
def test_every_builder_writes_a_config_that_its_adapter_reads(architecture: str) -> None:
    metadata: dict[str, Value] = {f"{architecture}.{key}": value for key, value in GENERIC.items()}
    rows: list[Row] = [("token_embd.weight", (256, 1024), F16), ("output.weight", (256, 1024), F16)]
    model, _ = read({"general.architecture": architecture, **metadata}, rows)
    assert (model.num_layers, model.hidden_size, model.vocab_size) == (4, 256, 1024)
    assert not model.tied_embeddings
    assert parameters(inventory(model)).total > 2 * 256 * 1024
