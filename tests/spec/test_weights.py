from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.errors import UsageError
from infcalc.lowering.tensors import storage_bytes
from infcalc.spec.weights import GGUF_BLOCKS, WEIGHT_FORMATS, weight_format


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        # reference: effective bits of the usual group sizes
        ("int4", 4.125),
        ("int4_g64", 4.25),
        ("int4_g32", 4.5),
        ("int4_g32_asym", 4.625),
        ("awq", 4.15625),
        ("awq_g64", 4.3125),
        ("gptq", 4.15625),
        ("mxfp4", 4.25),
        ("mxfp8", 8.25),
        ("nvfp4", 4.5),
        ("nf4", 4.5),
        ("nf4_dq", 4.126953125),
        ("q4_0", 4.5),
        ("q8_0", 8.5),
        ("q6_k", 6.5625),
        ("q4_k", 4.5),
        ("gguf_mxfp4", 4.25),
        ("gguf_nvfp4", 4.5),
    ],
)
def test_bits_count_scales_and_zero_points(name: str, bits: float) -> None:
    assert weight_format(name).bits == pytest.approx(bits, abs=1e-9)


def test_bytes_of_a_large_matrix_agree_with_the_bits() -> None:
    rows, columns = 4096, 16384
    for form in WEIGHT_FORMATS.values():
        expected = rows * columns * form.bits / 8
        # Scales of whole rows, of the tensor and indices of columns are beyond `bits`, and small.
        assert expected <= storage_bytes(rows, columns, form) <= expected * 1.002, form.name


def test_gptq_with_one_group_per_channel_has_one_scale_per_row() -> None:
    form = weight_format("gptq_g-1")
    assert storage_bytes(100, 800, form) == 100 * 800 // 2 + 100 * 2 + 100 // 2 + 800 * 4


def test_fp8_blocks_at_the_edges_count_in_full() -> None:
    assert storage_bytes(129, 128, weight_format("fp8_block")) == 129 * 128 + 2 * 4
    assert storage_bytes(129, 128, weight_format("fp8_block_64x128")) == 129 * 128 + 3 * 4


@pytest.mark.parametrize(
    ("name", "width"),
    [
        ("fp8", 8),
        ("int8", 8),
        ("w8a8", 8),
        ("nvfp4", 4),
        ("mxfp4", 4),
        ("awq", 16),
        ("gptq", 16),
        ("int4", 16),
        ("w4a16", 16),
        ("w8a16", 16),
        ("nf4", 16),
        ("q4_k", 16),
        ("fp8_a16", 16),
        ("int4_g128_a8", 8),
        ("nvfp4_a16", 16),
    ],
)
def test_weight_only_formats_multiply_in_sixteen_bits(name: str, width: int) -> None:
    assert weight_format(name).compute_bits == width


@pytest.mark.parametrize(
    ("given_name", "name"),
    [
        ("F16", "fp16"),
        ("bfloat16", "bf16"),
        ("fp8-e4m3", "fp8"),
        ("Q4_K", "q4_k"),
        ("float32", "fp32"),
        ("int8_channel", "int8"),
    ],
)
def test_other_spellings(given_name: str, name: str) -> None:
    assert weight_format(given_name).name == name


@pytest.mark.parametrize(("wrong", "near"), [("mxpf4", "mxfp4"), ("awqq", "awq"), ("q4_kk", "q4_k")])
def test_an_unknown_format_names_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        weight_format(wrong)
    assert near in (caught.value.hint or "")


def test_every_parametric_name_is_its_own() -> None:
    for name in ("int4_g64", "awq_g32", "gptq8_g128", "gptq_g-1", "fp8_block_64x64_ue8m0", "int3_g64_asym_a8"):
        assert weight_format(name).name == name


def test_gguf_type_ids_are_distinct() -> None:
    assert len({number for number, _, _ in GGUF_BLOCKS.values()}) == len(GGUF_BLOCKS)


@given(st.text(max_size=40))
def test_any_text_is_a_format_or_a_usage_error(text: str) -> None:
    try:
        found = weight_format(text)
    except UsageError:
        return
    assert found.element_bits > 0
