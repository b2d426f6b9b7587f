from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.catalog.derivatives import apply_derivative, resolve_derivative
from infcalc.catalog.huggingface import from_config
from infcalc.catalog.lookup import fold
from infcalc.catalog.quantization import read_quantization
from infcalc.lowering.tensors import inventory
from infcalc.units import GIB
from tests.catalog.configs import LLAMA_8B, LLAMA_405B, QWEN_MOE

HUB_IDS = (
    "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B",
    "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-70b-chat-hf",
    "mistralai/Mistral-7B-v0.1",
    "mistralai/Mistral-7B-Instruct-v0.3",
    "mistralai/Mixtral-8x7B-v0.1",
    "Qwen/Qwen2.5-7B-Instruct",
    "Qwen/Qwen2.5-32B-Instruct",
    "Qwen/Qwen3-8B",
    "Qwen/Qwen3-32B",
    "Qwen/Qwen3-235B-A22B",
    "nvidia/Qwen3.6-35B-A3B-NVFP4",
    "deepseek-ai/DeepSeek-R1",
    "deepseek-ai/DeepSeek-V3",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
    "moonshotai/Kimi-K2-Instruct",
    "google/gemma-3-27b-it",
    "openai/gpt-oss-120b",
)
KNOWN = {hub_id: hub_id.partition("/")[2].lower() for hub_id in HUB_IDS}


@pytest.mark.parametrize(
    ("name", "base", "form"),
    [
        ("meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama-3-8b", None),
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b-hf", None),
        ("meta-llama/Llama-2-70b-hf", "llama-2-70b-chat-hf", None),
        ("google/gemma-3-27b-pt", "gemma-3-27b-it", None),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b", None),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", "mixtral-8x7b-v0.1", None),
        ("mistralai/Mistral-7B-v0.3", "mistral-7b-instruct-v0.3", None),
        ("unsloth/Llama-3.3-70B-Instruct", "llama-3.3-70b-instruct", None),
        ("Qwen/Qwen3-235B-A22B-Instruct-2507", "qwen3-235b-a22b", None),
        ("deepseek-ai/DeepSeek-R1-0528", "deepseek-r1", None),
        ("moonshotai/Kimi-K2-Instruct-0905", "kimi-k2-instruct", None),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "llama-3.1-8b", None),
        ("nvidia/Llama-3.1-70B-Instruct-FP8", "llama-3.1-70b", "fp8"),
        ("Qwen/Qwen3-32B-FP8", "qwen3-32b", "fp8_block"),
        ("nvidia/Llama-3.3-70B-Instruct-FP4", "llama-3.3-70b-instruct", "nvfp4"),
        ("amd/Llama-3.3-70B-Instruct-FP4", "llama-3.3-70b-instruct", "mxfp4"),
        ("nvidia/Qwen3-235B-A22B-NVFP4", "qwen3-235b-a22b", "nvfp4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", "int4"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b", "int8"),
        ("RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w8a16", "llama-3.1-8b", "int8_a16"),
        ("RedHatAI/DeepSeek-R1-Distill-Llama-70B-FP8-dynamic", "deepseek-r1-distill-llama-70b", "fp8_channel"),
        ("unsloth/Llama-3.1-8B-Instruct-bnb-4bit", "llama-3.1-8b", "nf4_dq"),
        ("unsloth/qwen2.5-7b-instruct-unsloth-bnb-4bit", "qwen2.5-7b-instruct", "nf4_dq"),
        ("TheBloke/Mixtral-8x7B-Instruct-v0.1-AWQ", "mixtral-8x7b-v0.1", "awq"),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int4", "qwen2.5-32b-instruct", "gptq"),
        ("Qwen/Qwen2.5-32B-Instruct-GPTQ-Int8", "qwen2.5-32b-instruct", "gptq8_g128"),
        ("hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", "awq"),
        ("bartowski/Meta-Llama-3.1-8B-Instruct-GGUF:Q4_K_M", "llama-3.1-8b", "q4_k_m"),
        ("unsloth/Qwen3-32B-GGUF:UD-IQ2_XXS", "qwen3-32b", "iq2_xxs"),
        ("Qwen/Qwen3-32B-GGUF", "qwen3-32b", "q4_k_m"),
        ("Qwen/Qwen3-32B-MXFP4", "qwen3-32b", "mxfp4"),
        ("unsloth/gpt-oss-120b-BF16", "gpt-oss-120b", "bf16"),
        ("llama-3.1-8b awq", "llama-3.1-8b", "awq"),
        # The catalog knows only a quantized sibling: its shape holds, its precision does not.
        ("Qwen/Qwen3.6-35B-A3B-FP8", "qwen3.6-35b-a3b-nvfp4", "fp8_block"),
        ("Qwen/Qwen3.6-35B-A3B", "qwen3.6-35b-a3b-nvfp4", "bf16"),
    ],
)
def test_names_that_state_shape_and_precision(name: str, base: str, form: str | None) -> None:
    found = resolve_derivative(name, KNOWN)
    assert found is not None
    assert (found.base, found.format) == (base, form)
    assert name in found.assumption
    assert base in found.assumption


@pytest.mark.parametrize(
    "name",
    [
        "Qwen/Qwen2.5-32B-Coder-Special",
        "Qwen/Qwen3-320B",
        "Qwen/Qwen3-3.2B",
        "Qwen/Qwen3-14B-FP8",
        "Qwen/Qwen2-32B-Instruct-AWQ",
        "meta-llama/Llama-3.2-8B-Instruct",
        "mistralai/Mistral-7B-Instruct-v0.2",
        "mistralai/Mixtral-8x22B-Instruct-v0.1",
        "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
        "x/DeepSeek-R1-Distill-Llama-8B-AWQ",
        "RedHatAI/Llama-3.1-8B-Instruct-speculator.eagle3",
        "yuhuili/EAGLE3-Llama-3.1-8B",
        "someone/MoE-2x7B-Llama-3.1-8B",
        "someone/Llava-Llama-3.1-8B",
        "someorg/Llama-3.1-8B-FP4",
        "AWQ",
        "x/-FP8",
        "/",
        "",
        "   ",
        "x" * 500,
    ],
)
def test_what_would_be_a_guess_is_none(name: str) -> None:
    assert resolve_derivative(name, KNOWN) is None


def test_sizes_and_versions_are_never_dropped() -> None:
    # Qwen3-32B must not match Qwen2.5-32B, whatever else the name says.
    known = {"Qwen/Qwen2.5-32B": "qwen2.5-32b"}
    for suffix in ("", "-Instruct", "-FP8", "-Instruct-AWQ", "-GGUF:Q4_K_M"):
        assert resolve_derivative(f"Qwen/Qwen3-32B{suffix}", known) is None
        assert resolve_derivative(f"Qwen/Qwen2.5-32B{suffix}", known) is not None


def test_a_name_that_fits_two_entries_fits_none() -> None:
    known = {"a/Model-9B-Instruct": "one", "b/Model-9B-Chat": "two"}
    assert resolve_derivative("c/Model-9B-FP8", known) is None
    assert resolve_derivative("c/Model-9B-Chat-FP8", known) is not None


def test_folded_spellings_serve_as_well() -> None:
    folded = {fold(name): entry for name, entry in KNOWN.items()} | {
        fold(name.partition("/")[2]): entry for name, entry in KNOWN.items()
    }
    found = resolve_derivative("RedHatAI/Qwen3-32B-quantized.w4a16", folded)
    assert found is not None
    assert (found.base, found.format) == ("qwen3-32b", "int4")


def test_the_cache_is_quantized_only_where_the_name_says_so() -> None:
    with_cache = resolve_derivative("amd/Llama-3.1-405B-Instruct-FP8-KV", KNOWN)
    without = resolve_derivative("nvidia/Llama-3.1-405B-Instruct-FP8", KNOWN)
    assert with_cache is not None
    assert without is not None
    assert (with_cache.kv_dtype, without.kv_dtype) == ("fp8", None)
    assert "KV cache in fp8" in with_cache.assumption


def test_meta_s_own_405b_fp8_is_mixed() -> None:
    # UC-072, measured: 57.75 GiB per GPU on 8. https://github.com/vllm-project/vllm/issues/6746
    found = resolve_derivative("meta-llama/Meta-Llama-3.1-405B-Instruct-FP8", KNOWN)
    assert found is not None
    model = apply_derivative(found, from_config(LLAMA_405B, name="t"))
    total = sum(tensor.bytes_total for tensor in inventory(model))
    assert total / 8 / GIB == pytest.approx(57.75, rel=0.03)
    assert "feed-forward" in found.assumption


def test_a_precision_is_laid_over_the_base() -> None:
    found = resolve_derivative("x/Llama-3.1-8B-Instruct-AWQ", KNOWN)
    assert found is not None
    model = apply_derivative(found, from_config(LLAMA_8B, name="t"))
    assert model.quantization is not None
    assert model.quantization.format == "awq"
    assert model.num_layers == 32


def test_another_precision_does_not_inherit_the_cache() -> None:
    base = replace(from_config(LLAMA_8B, name="t"), kv_dtype="fp8")
    awq = resolve_derivative("x/Llama-3.1-8B-Instruct-AWQ", KNOWN)
    plain = resolve_derivative("x/Llama-3.1-8B-Instruct", KNOWN)
    assert awq is not None
    assert plain is not None
    assert apply_derivative(awq, base).kv_dtype is None
    assert apply_derivative(plain, base).kv_dtype == "fp8"


def test_a_fine_tune_keeps_the_precision_of_its_base() -> None:
    quantization = read_quantization(QWEN_MOE | {"quantization_config": {"quant_method": "mxfp4"}}).quantization
    base = from_config(QWEN_MOE, name="t", quantization=quantization)
    found = resolve_derivative("unsloth/gpt-oss-120b", KNOWN)
    assert found is not None
    assert apply_derivative(found, base).quantization == quantization


@given(st.text(max_size=60))
def test_any_text_is_answered(name: str) -> None:
    found = resolve_derivative(name, KNOWN)
    assert found is None or found.base in KNOWN.values()
