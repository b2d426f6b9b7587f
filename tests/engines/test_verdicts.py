from __future__ import annotations

import pytest

from infcalc.api.deployment import Ask, load
from infcalc.engines import verdicts
from infcalc.engines.precisions import KV, WEIGHTS, CacheKind, Generation, Line, Status
from infcalc.engines.rules import ENGINES
from infcalc.engines.verdicts import (
    cache_kind,
    generation,
    is_widened,
    kv_verdict,
    verdict,
    weight_family,
    weights_verdict,
)
from infcalc.spec.hardware import Gpu
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.weights import WEIGHT_FORMATS
from tests.shipped import shipped

CATALOG = load(Ask())


def gpu(name: str) -> Gpu:
    return CATALOG.gpu(name).gpu


@pytest.mark.parametrize(
    ("server", "card", "kv", "status", "says"),
    [
        # Capacity doubles, speed does not (measured: vllm issue 42058).
        ("vllm 0.26", "a100-80gb", "fp8", Status.MEMORY_ONLY, "FlashInfer"),
        ("vllm 0.33", "a10g", "fp8", Status.MEMORY_ONLY, "speed does not"),
        ("vllm 0.2.7", "h100", "fp8", Status.UNSUPPORTED, "0.3"),
        ("vllm 0.33", "h100", "fp8", Status.SUPPORTED, "FlashAttention 3"),
        ("vllm 0.25.1", "l4", "fp8", Status.SUPPORTED, "decode"),
        ("vllm 0.23", "t4", "fp8", Status.MEMORY_ONLY, "FlashInfer"),
        ("vllm 0.24", "t4", "fp8", Status.UNSUPPORTED, "0.24"),
        ("vllm 0.33", "mi300x", "fp8", Status.SUPPORTED, "ROCm"),
        # INT4: none in older vLLM, only int4_per_token_head in newer.
        ("vllm 0.19.1", "h100", "int4", Status.UNSUPPORTED, "no int4"),
        ("vllm 0.21.0", "h100", "int4", Status.UNSUPPORTED, "no int4"),
        ("vllm 0.33", "a100-80gb", "int4", Status.MEMORY_ONLY, "int4_per_token_head"),
        ("vllm 0.23", "h100", "int4", Status.UNKNOWN, "nothing on record"),
        ("sglang 0.5.23", "h100", "int4", Status.UNSUPPORTED, "not among"),
        ("tensorrt-llm 1.4", "h100", "int4", Status.UNSUPPORTED, "fp8"),
        ("llama.cpp b4000", "rtx-4090", "int4", Status.UNSUPPORTED, "q4_0"),
        # NVFP4: Blackwell SM 10.x from 0.21.
        ("vllm 0.33", "b200", "nvfp4", Status.SUPPORTED, "FlashInfer"),
        ("vllm 0.20.2", "b200", "nvfp4", Status.UNSUPPORTED, "0.21"),
        ("vllm 0.33", "h100", "nvfp4", Status.UNSUPPORTED, "Blackwell"),
        ("vllm 0.27.1", "rtx-5090", "nvfp4", Status.UNSUPPORTED, "patched"),
        ("tensorrt-llm 1.4", "b200", "nvfp4", Status.SUPPORTED, "ModelOpt"),
        ("tensorrt-llm 1.4", "h200", "nvfp4", Status.UNSUPPORTED, "Blackwell"),
        # INT8.
        ("vllm 0.18.1", "a100-80gb", "int8", Status.UNSUPPORTED, "no int8"),
        ("vllm 0.21", "a100-80gb", "int8", Status.MEMORY_ONLY, "int8_per_token_head"),
        ("tensorrt-llm 0.16", "a100-80gb", "int8", Status.MEMORY_ONLY, "TensorRT backend"),
        ("tensorrt-llm 1.2", "a100-80gb", "int8", Status.UNSUPPORTED, "PyTorch"),
        # The quantized caches of llama.cpp, and nobody else's.
        ("llama.cpp b4000", "rtx-4090", "q8_0", Status.SUPPORTED, "-ctv"),
        ("llama.cpp b4000", "apple-m2-ultra", "q4_0", Status.SUPPORTED, "flash attention"),
        ("llama.cpp b4000", "rtx-4090", "fp8", Status.UNSUPPORTED, "q8_0"),
        ("vllm 0.33", "h100", "q8_0", Status.UNSUPPORTED, "llama.cpp"),
        # A width that the GPU cannot compute with.
        ("vllm 0.8.5", "v100-32gb", "bf16", Status.UNSUPPORTED, "fp16"),
        ("vllm 0.8.5", "v100-32gb", "fp16", Status.SUPPORTED, "16 bits"),
    ],
)
def test_what_an_engine_makes_of_a_kv_precision(server: str, card: str, kv: str, status: Status, says: str) -> None:
    engine, version = server.split()
    found = kv_verdict(engine, version, gpu(card), kv)
    assert found.status is status
    assert says in found.text


@pytest.mark.parametrize(
    ("card", "kv", "cache", "status"),
    [
        ("h100", "fp8_ds_mla", CacheKind.SPARSE_LATENT, Status.SUPPORTED),
        ("h100", "fp8_ds_mla", CacheKind.LATENT, Status.UNSUPPORTED),
        ("h100", "fp8_ds_mla", CacheKind.GROUPED, Status.UNSUPPORTED),
        ("a100-80gb", "fp8_ds_mla", CacheKind.SPARSE_LATENT, Status.UNSUPPORTED),
        ("b200", "nvfp4_ds_mla", CacheKind.SPARSE_LATENT, Status.SUPPORTED),
        ("h200", "nvfp4_ds_mla", CacheKind.SPARSE_LATENT, Status.UNKNOWN),
        ("b200", "nvfp4", CacheKind.LATENT, Status.UNSUPPORTED),
        ("h100", "int4", CacheKind.LATENT, Status.UNSUPPORTED),
        ("h100", "fp8", CacheKind.LATENT, Status.SUPPORTED),
        ("a100-80gb", "fp8", CacheKind.LATENT, Status.UNKNOWN),
    ],
)
def test_latents_have_precisions_of_their_own(card: str, kv: str, cache: CacheKind, status: Status) -> None:
    assert kv_verdict("vllm", "0.33", gpu(card), kv, cache=cache).status is status


@pytest.mark.parametrize(
    ("server", "card", "weights", "status", "says"),
    [
        ("vllm 0.33", "a100-80gb", "fp8_block", Status.MEMORY_ONLY, "Marlin"),
        ("vllm 0.33", "h100", "fp8", Status.SUPPORTED, "W8A8"),
        ("vllm 0.14", "t4", "fp8", Status.UNSUPPORTED, "Marlin"),
        ("vllm 0.32", "t4", "fp8", Status.MEMORY_ONLY, "Marlin"),
        ("vllm 0.33", "h100", "awq", Status.SUPPORTED, "weight-only"),
        ("vllm 0.33", "a10g", "gptq", Status.SUPPORTED, "prefill gains nothing"),
        ("vllm 0.33", "v100-16gb", "awq", Status.UNSUPPORTED, "Turing"),
        ("vllm 0.11", "h100", "mxfp4", Status.MEMORY_ONLY, "no fp4 unit"),
        ("vllm 0.10.0", "h100", "mxfp4", Status.UNSUPPORTED, "0.10.1"),
        ("vllm 0.33", "b200", "nvfp4", Status.SUPPORTED, "fp4"),
        ("vllm 0.33", "a100-80gb", "nvfp4", Status.MEMORY_ONLY, "Marlin"),
        ("vllm 0.18", "rtx-3090", "q4_k_m", Status.MEMORY_ONLY, "built-in"),
        ("vllm 0.33", "rtx-3090", "q4_k_m", Status.MEMORY_ONLY, "plugin"),
        ("sglang 0.5.23", "a100-80gb", "fp8", Status.MEMORY_ONLY, "Marlin"),
        ("tensorrt-llm 1.2", "a100-80gb", "fp8", Status.UNSUPPORTED, "Ada"),
        ("tensorrt-llm 1.2", "h100", "nvfp4", Status.UNSUPPORTED, "Blackwell"),
        ("llama.cpp b4000", "rtx-4090", "q4_k_m", Status.SUPPORTED, "own format"),
        ("llama.cpp b4000", "rtx-4090", "awq", Status.UNSUPPORTED, "GGUF"),
    ],
)
def test_what_an_engine_makes_of_weights(server: str, card: str, weights: str, status: Status, says: str) -> None:
    engine, version = server.split()
    found = weights_verdict(engine, version, gpu(card), weights)
    assert found.status is status
    assert says in found.text


def test_two_precisions_together_are_as_good_as_the_worse() -> None:
    a100 = gpu("a100-80gb")
    assert verdict("vllm", "0.33", a100, "bf16", "fp8").status is Status.MEMORY_ONLY
    assert verdict("vllm", "0.33", a100, "nvfp4", "bf16").status is Status.UNSUPPORTED
    assert verdict("vllm", "0.33", a100, "bf16", "bf16").status is Status.SUPPORTED
    assert verdict("vllm", "0.33", a100, "fp8").status is Status.MEMORY_ONLY


@pytest.mark.parametrize(
    ("status", "supported"),
    [
        (Status.SUPPORTED, True),
        (Status.MEMORY_ONLY, True),
        (Status.UNSUPPORTED, False),
        (Status.UNKNOWN, None),
    ],
)
def test_supported_is_true_false_or_not_known(status: Status, supported: bool | None) -> None:
    assert verdicts.Verdict(status=status, text="", source="").supported is supported


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("v100-32gb", Generation.VOLTA),
        ("t4", Generation.TURING),
        ("a100-80gb", Generation.AMPERE),
        ("l40s", Generation.ADA),
        ("h200", Generation.HOPPER),
        ("b300-sxm", Generation.BLACKWELL),
        ("dgx-spark-gb10", Generation.BLACKWELL_SM12),
        ("mi355x", Generation.CDNA4),
        ("tpu-v6e", Generation.OTHER),
        ("jetson-agx-thor", Generation.OTHER),
    ],
)
def test_the_generation_comes_from_the_compute_capability(name: str, expected: Generation) -> None:
    assert generation(gpu(name)) is expected


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("llama3-70b", CacheKind.GROUPED),
        ("deepseek-v3", CacheKind.LATENT),
        ("deepseek-v3.2", CacheKind.SPARSE_LATENT),
        ("deepseek-v4-flash", CacheKind.SPARSE_LATENT),
    ],
)
def test_what_a_model_caches(model: str, expected: CacheKind) -> None:
    assert cache_kind(shipped(model)) is expected


def test_every_format_of_the_catalog_gets_an_answer_on_every_gpu() -> None:
    for card in (CATALOG.gpu(name).gpu for name in CATALOG.gpu_names()):
        for engine in ENGINES:
            version = {"tensorrt-llm": "1.4", "sglang": "0.5.23"}.get(engine, "0.33")
            for kv in KV_FORMATS:
                found = kv_verdict(engine, version, card, kv)
                assert found.text
                assert found.source or found.status is Status.UNKNOWN
            for weights in WEIGHT_FORMATS:
                found = weights_verdict(engine, version, card, weights)
                assert found.text
                assert found.source or found.status is Status.UNKNOWN


@pytest.mark.parametrize("record", [KV, WEIGHTS])
def test_every_row_names_formats_that_exist_and_a_source(record: dict[str, tuple[Line, ...]]) -> None:
    families = {weight_family(name) for name in WEIGHT_FORMATS} | {"gguf", "nf4"}
    known = set(KV_FORMATS) if record is KV else families
    assert list(record) == list(ENGINES)
    for row in (row for rows in record.values() for row in rows):
        assert row.formats
        assert set(row.formats) <= known
        assert row.source
        assert row.text


@pytest.mark.parametrize("form", ["int4", "int8", "fp8", "nvfp4"])
def test_a_version_between_two_that_were_read_names_both_and_their_sources(form: str) -> None:
    for minor in range(5, 34):
        found = kv_verdict("vllm", f"0.{minor}", gpu("h100"), form, cache=CacheKind.GROUPED)
        assert found.source, (form, minor)
    between = kv_verdict("vllm", "0.25", gpu("h100"), "int4", cache=CacheKind.GROUPED)
    assert between.status is Status.UNKNOWN
    assert "before 0.22: no int4 KV cache up to 0.21" in between.text
    assert "from 0.26 on: only as int4_per_token_head" in between.text
    assert "0.21.0" in between.source
    assert "40835" in between.source
    # Of a version before all that were read, the first of those.
    early = kv_verdict("tensorrt-llm", "1.2", gpu("b200"), "nvfp4", cache=CacheKind.GROUPED)
    assert "from 1.3 on" in early.text


@pytest.mark.parametrize("rows", [*KV.values(), *WEIGHTS.values()])
def test_no_row_is_hidden_behind_an_earlier_one(rows: tuple[Line, ...]) -> None:
    for index, line in enumerate(rows):
        for earlier in rows[:index]:
            hides = (
                set(line.formats) <= set(earlier.formats)
                and (not earlier.generations or set(line.generations or tuple(Generation)) <= set(earlier.generations))
                and (not earlier.caches or set(line.caches or tuple(CacheKind)) <= set(earlier.caches))
                and earlier.since <= line.since
                and not earlier.until
            )
            assert not hides, (earlier.text, line.text)


@pytest.mark.parametrize(
    ("server", "card", "kv", "widened"),
    [
        # Measured: 1.00 to 1.05 (vllm issue 42058), 0.54 to 0.98 (vllm pull request 49077).
        ("vllm 0.26", "a100-80gb", "fp8", True),
        ("vllm 0.33", "a10g", "fp8", True),
        ("sglang 0.5.23", "a100-80gb", "fp8", True),
        ("tensorrt-llm 1.2", "a100-80gb", "fp8", True),
        ("vllm 0.33", "h100", "int4", True),
        ("vllm 0.33", "h100", "fp8", False),
        ("vllm 0.25.1", "l4", "fp8", False),
        ("vllm 0.33", "b200", "nvfp4", False),
        ("llama.cpp b4000", "a100-80gb", "q8_0", False),
        ("vllm 0.33", "a100-80gb", "bf16", False),
        # Nothing on record of that server: the GPU's own units decide.
        ("tgi 2", "a100-80gb", "fp8", True),
        ("tgi 2", "h100", "fp8", False),
        ("tgi 2", "h100", "nvfp4", True),
        ("tgi 2", "a100-80gb", "int8", False),
    ],
)
def test_what_is_converted_in_software_takes_the_time_of_16_bits(
    server: str, card: str, kv: str, *, widened: bool
) -> None:
    engine, version = server.split()
    assert is_widened(engine, version, gpu(card), kv) is widened
    if engine == "tgi":
        assert is_widened(engine, None, gpu(card), kv) is widened
