from __future__ import annotations

import pytest

from infcalc.catalog.free_text import read_gpu_text, read_kv_text, read_model_text, read_weights_text
from infcalc.catalog.lookup import Catalog
from infcalc.errors import UnknownName
from infcalc.files import load_catalog
from infcalc.units import GIB


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.mark.parametrize(
    ("text", "gpu", "total_gib"),
    [
        ("H100-80GB", "h100-sxm5-80gb", 79.15),
        ("DGX Spark (GB10)", "dgx-spark-gb10", 120.65),
        ("DGX Spark-class (119.63 GiB unified)", "dgx-spark-gb10", 120.65),
        ("V100-32GB (31.74 GiB; log says Volta/Turing)", "v100-sxm2-32gb", 31.74),
        ("RTX 4090 (48GB-modded, 47.50 GiB)", "rtx-4090", 47.5),
        ("consumer Blackwell (31.84 GiB; RTX 5090 class)", "rtx-5090", 31.38),
        ("Turing sm_75 24GB-class (23.47 GiB)", "titan-rtx", 23.47),
        ("AMD ROCm 24GB card (23.98 GiB)", "rx-7900-xtx", 23.98),
        ("AMD ROCm ~192GB (MI300X class; name not printed)", "mi300x", 191.57),
        ("B300 (275 GB)", "b300-sxm", 267.7),
        ("44.39 GiB card (A40/L40S class)", "a40", 44.39),
    ],
)
def test_gpus_as_people_write_them(catalog: Catalog, text: str, gpu: str, total_gib: float) -> None:
    read = read_gpu_text(catalog, text)
    assert read.entry.gpu.name == gpu
    assert read.entry.gpu.cuda_total_bytes / GIB == pytest.approx(total_gib, rel=0.015)


def test_a_given_total_wins(catalog: Catalog) -> None:
    read = read_gpu_text(catalog, "H100-80GB", round(79.19 * GIB))
    assert read.entry.gpu.cuda_total_bytes == round(79.19 * GIB)
    assert read.exact


def test_only_memory_gives_a_class(catalog: Catalog) -> None:
    read = read_gpu_text(catalog, None, round(79.2 * GIB))
    assert not read.exact
    assert read.entry.gpu.memory_bytes == 80 * GIB
    assert "stands in" in read.assumptions[0]


def test_two_cards_are_warned_of(catalog: Catalog) -> None:
    read = read_gpu_text(catalog, "RTX 5080 16GB + RTX 5070 Ti 16GB (WSL)")
    assert any("different GPUs" in warning for warning in read.warnings)


def test_a_name_of_two_cards_is_warned_of(catalog: Catalog) -> None:
    read = read_gpu_text(catalog, "H20")
    assert not read.exact
    assert read.variants == ("h20-96gb", "h20-141gb")
    for told in (read_gpu_text(catalog, "H20 96GB"), read_gpu_text(catalog, "H20", 140 * GIB)):
        assert told.variants == ()
    assert any("141 GB" in warning for warning in read.warnings)


def test_nothing_is_no_gpu(catalog: Catalog) -> None:
    with pytest.raises(UnknownName):
        read_gpu_text(catalog, None)
    with pytest.raises(UnknownName):
        read_gpu_text(catalog, "a card I forgot")


@pytest.mark.parametrize(
    ("text", "shape", "identified"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3.1-8b", True),
        ("Llama-3.1-8B (Instruct or base not stated)", "llama3.1-8b", True),
        ("unsloth Qwen2.5-0.5B-Instruct (bnb 4-bit class by weights)", "qwen2.5-0.5b", True),
        ("Qwen3.8-27B (bf16, local)", "qwen3.8-27b", True),
        ("Qwen3.8-27B (checkpoint quant not read)", "qwen3.8-27b", False),
        ("deepseek32b-medical (local; R1-Distill-Qwen-32B shape)", "deepseek-r1-distill-qwen-32b", True),
        ("Qwen3-Next-80B-A3B-Instruct (local int4 WNA16 compressed-tensors)", "qwen3-next-80b", False),
        ("GLM-5.3-Flash EXL3", "glm-5.3-flash", False),
        ("GLM-4-32B-0414 GGUF (61 layers)", "glm-4-32b-0414", False),
        ("Qwen/Qwen2.5-Math-1.5B", "qwen2.5-1.5b", True),
    ],
)
def test_models_as_people_write_them(catalog: Catalog, text: str, shape: str, identified: bool) -> None:
    read = read_model_text(catalog, text)
    assert read.entry.model.layers == catalog.model(shape).model.layers
    assert read.identified is identified


@pytest.mark.parametrize("text", ["", "a model", "LlamaForCausalLM 8B class (name outside excerpt)", "Qwen3.5 GGUF"])
def test_a_guess_is_refused(catalog: Catalog, text: str) -> None:
    with pytest.raises(UnknownName):
        read_model_text(catalog, text)


def test_words_for_precisions() -> None:
    assert read_weights_text("fp8 linear + mxfp4 experts") == "auto"
    assert read_weights_text("bitsandbytes nf4") == "nf4_dq"
    assert read_weights_text("W8A16 G256") == "int8_a16"
    assert read_weights_text("exl3") is None
    assert read_weights_text(None) is None
    assert read_kv_text("fp8 (by arithmetic)") == "fp8"
    assert read_kv_text("f16") == "fp16"
    assert read_kv_text(None) is None


@pytest.mark.parametrize(
    ("text", "name", "gib"),
    [
        ("NVIDIA A100 SXM 40GB", "a100-sxm4-40gb", 39.56),
        ("NVIDIA A10G", "a10g", 22.05),
        ("AMD MI250X (1 GCD)", "mi250x-gcd", 63.98),
        ("NVIDIA V100S PCIe 32GB", "v100s-pcie-32gb", 31.7),
    ],
)
def test_variants_of_a_gpu_are_told_by_their_memory(text: str, name: str, gib: float) -> None:
    found = read_gpu_text(load_catalog(), text).entry.gpu
    assert found.name == name
    assert found.cuda_total_bytes / GIB == pytest.approx(gib, abs=0.2)


def test_an_organisations_checkpoint_is_not_that_of_another() -> None:
    catalog = load_catalog()
    metas, nvidias = (
        read_model_text(catalog, f"{org}/Llama-3.1-405B-{end}").entry.model
        for org, end in (("meta-llama", "Instruct-FP8"), ("nvidia", "FP8"))
    )
    assert metas.quantization is not None
    assert nvidias.quantization is not None
    assert len(metas.quantization.rules) > len(nvidias.quantization.rules) == 0
