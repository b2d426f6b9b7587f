"""Can an engine, on a GPU, store this KV precision and compute with these weights? As data, each line with its source.

Memory arithmetic answers how many bytes a precision takes; whether an engine of that version has a kernel for it is a
matter of record. The first line that holds for engine, format, GPU generation, version and kind of cache decides; where
none does, the verdict is ``unknown`` and says so.

``memory_only`` means: it is stored at that width and saves that memory, but is multiplied at 16 bits, so that it saves
no compute. Formats that are weight-only by design (AWQ, GPTQ, INT4) are ``supported`` where they run.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.engines.rules import parse_version
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.layers import CompressedAttention, LatentAttention

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model


class Status(StrEnum):
    """What an engine makes of a precision."""

    SUPPORTED = "supported"
    MEMORY_ONLY = "memory_only"
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"


_SEVERITY = tuple(Status)
"""From good to bad: two verdicts together are as good as the worse."""


class Generation(StrEnum):
    """GPU generations that kernels tell apart."""

    VOLTA = "Volta"
    TURING = "Turing"
    AMPERE = "Ampere"
    ADA = "Ada"
    HOPPER = "Hopper"
    BLACKWELL = "Blackwell (SM 10.x)"
    BLACKWELL_SM12 = "Blackwell (SM 12.x)"
    CDNA2 = "CDNA2"
    CDNA3 = "CDNA3"
    CDNA4 = "CDNA4"
    OTHER = "another architecture"


class CacheKind(StrEnum):
    """What a model caches, as far as kernels tell it apart."""

    GROUPED = "grouped"
    LATENT = "latent"
    SPARSE_LATENT = "sparse latent"


@frozen
class Verdict:
    """Whether a precision runs, in one sentence, with where that was read."""

    status: Status
    text: str
    source: str

    @property
    def supported(self) -> bool | None:
        """True where it runs (if only to save memory), False where not, None where that is not known."""
        match self.status:
            case Status.SUPPORTED | Status.MEMORY_ONLY:
                return True
            case Status.UNSUPPORTED:
                return False
            case Status.UNKNOWN:
                return None


@frozen
class _Line:
    """One line of the record: holds for versions from ``since`` to before ``until``; empty tuples mean any."""

    engine: str
    formats: tuple[str, ...]
    status: Status
    text: str
    source: str
    generations: tuple[Generation, ...] = ()
    caches: tuple[CacheKind, ...] = ()
    since: tuple[int, ...] = ()
    until: tuple[int, ...] = ()


_PRE_AMPERE = (Generation.VOLTA, Generation.TURING)
_NVIDIA = (
    Generation.AMPERE,
    Generation.ADA,
    Generation.HOPPER,
    Generation.BLACKWELL,
    Generation.BLACKWELL_SM12,
)
_FP8_UNITS = _NVIDIA[1:]
_FP4_UNITS = (Generation.BLACKWELL, Generation.BLACKWELL_SM12)
_NO_FP4_UNITS = (Generation.AMPERE, Generation.ADA, Generation.HOPPER)
_LATENTS = (CacheKind.LATENT, CacheKind.SPARSE_LATENT)
_GGUF_CACHES = ("q8_0", "q4_0")

_VLLM_BACKENDS = "vLLM, attention backend feature table (docs/design/attention_backends.md)"
_VLLM_HARDWARE = "vLLM, quantization: supported hardware (docs/features/quantization)"
_VLLM_CACHE_OPTION = "--kv-cache-dtype of vLLM 0.33.0"
_VLLM_PULL = "https://github.com/vllm-project/vllm/pull/"
_VLLM_ISSUE = "https://github.com/vllm-project/vllm/issues/"
_SGLANG_CACHES = "SGLang 0.5.23 --kv-cache-dtype; docs/advanced_features/quantized_kv_cache.md"
_SGLANG_METHODS = "SGLang, docs/advanced_features/quantization.md"
_TRT_HARDWARE = "TensorRT-LLM, docs/source/features/quantization.md, hardware support matrix"
_TRT_CACHES = "TensorRT-LLM kv_cache_config.dtype: auto, fp8, fp8_ds_mla, nvfp4"
_LLAMACPP_CACHES = "llama.cpp -ctk/-ctv: f32, f16, bf16, q8_0, q4_0, q4_1, iq4_nl, q5_0, q5_1"
_CUDA_TYPES = "NVIDIA tensor cores by compute capability: bf16 from 8.0, fp8 from 8.9, fp4 from 10.0"

_KV: tuple[_Line, ...] = (
    # vLLM
    _Line(
        engine="vllm",
        formats=("bf16",),
        generations=_PRE_AMPERE,
        status=Status.UNSUPPORTED,
        text="bf16 needs compute capability 8.0: use fp16, of the same size",
        source=_CUDA_TYPES,
    ),
    _Line(
        engine="vllm",
        formats=("bf16", "fp16"),
        status=Status.SUPPORTED,
        text="16 bits, every attention backend",
        source=_VLLM_BACKENDS,
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        until=(0, 3),
        status=Status.UNSUPPORTED,
        text="an fp8 KV cache came with 0.3",
        source="https://github.com/vllm-project/vllm/releases/tag/v0.3.0",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.AMPERE,),
        caches=_LATENTS,
        status=Status.UNKNOWN,
        text="Triton MLA is the only MLA backend here, and Triton has no fp8 (e4m3) conversion below SM 8.9",
        source=f"{_VLLM_BACKENDS}; {_VLLM_PULL}49077",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.AMPERE,),
        status=Status.MEMORY_ONLY,
        text=(
            "capacity doubles, speed does not: there is no fp8 unit, FlashInfer converts to 16 bits on the way "
            "(FlashAttention 2 and Triton cannot); Qwen3-8B on A100 measured 1.00 to 1.03x end to end, prefill 2.5 to "
            "5 % slower"
        ),
        source=f"{_VLLM_ISSUE}42058; {_VLLM_BACKENDS}",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.TURING,),
        until=(0, 24),
        status=Status.MEMORY_ONLY,
        text="capacity doubles, speed does not: FlashInfer converts to 16 bits on the way",
        source=_VLLM_BACKENDS,
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.TURING,),
        status=Status.UNSUPPORTED,
        text="FlashInfer is no longer offered on Turing from 0.24, and no other backend there reads fp8",
        source=f"{_VLLM_ISSUE}47549",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.ADA,),
        status=Status.SUPPORTED,
        text=(
            "FlashInfer or Triton; capacity doubles, decode reads half the bytes (Qwen3-4B on L4: +1 % at 2k tokens, "
            "+21 % at 32k)"
        ),
        source="vLLM, docs/features/quantization/quantized_kvcache.md, measured with 0.25.1",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.HOPPER,),
        status=Status.SUPPORTED,
        text=(
            "FlashAttention 3 attends in fp8, MLA through FlashMLA; capacity doubles, decode gains from some 7k tokens "
            "on (Llama 3.1 8B on H100: 0.54x the time per context token)"
        ),
        source=f"vLLM blog 2026-04-22 on fp8 KV cache; {_VLLM_BACKENDS}",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=_FP4_UNITS,
        status=Status.SUPPORTED,
        text="FlashInfer (TRT-LLM kernels on SM 10.x); capacity doubles, decode reads half the bytes",
        source=_VLLM_BACKENDS,
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.CDNA3, Generation.CDNA4),
        status=Status.SUPPORTED,
        text="ROCm attention and AITER backends",
        source=_VLLM_BACKENDS,
    ),
    _Line(
        engine="vllm",
        formats=("int8",),
        until=(0, 19),
        status=Status.UNSUPPORTED,
        text="no int8 KV cache up to 0.18",
        source="vLLM 0.18.1, supported_kv_cache_dtypes of its attention backends",
    ),
    _Line(
        engine="vllm",
        formats=("int8",),
        since=(0, 21),
        generations=_NVIDIA,
        caches=(CacheKind.GROUPED,),
        status=Status.MEMORY_ONLY,
        text=(
            "as int8_per_token_head, Triton backend only, multiplied at 16 bits; its 4-byte scale per token and head "
            "takes 3 % more at head size 128 than is counted here"
        ),
        source=f"vLLM 0.21.0, supported_kv_cache_dtypes of TRITON_ATTN; {_VLLM_PULL}36893",
    ),
    _Line(
        engine="vllm",
        formats=("int4",),
        until=(0, 22),
        status=Status.UNSUPPORTED,
        text="no int4 KV cache up to 0.21",
        source="vLLM 0.21.0, supported_kv_cache_dtypes of its attention backends",
    ),
    _Line(
        engine="vllm",
        formats=("int4",),
        since=(0, 26),
        generations=_NVIDIA,
        caches=(CacheKind.GROUPED,),
        status=Status.MEMORY_ONLY,
        text=(
            "only as int4_per_token_head, Triton backend, multiplied at 16 bits; with its 4-byte scale per token and "
            "head 4.25 bits at head size 128, as counted here"
        ),
        source=f"vLLM 0.26.0, supported_kv_cache_dtypes of TRITON_ATTN; {_VLLM_PULL}40835",
    ),
    _Line(
        engine="vllm",
        formats=("int4", "int8"),
        caches=_LATENTS,
        status=Status.UNSUPPORTED,
        text="MLA backends store latents in 16 bits, fp8, fp8_ds_mla or nvfp4_ds_mla",
        source=f"{_VLLM_BACKENDS}; {_VLLM_CACHE_OPTION}",
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4",),
        caches=_LATENTS,
        status=Status.UNSUPPORTED,
        text="latents are stored in 4 bits as nvfp4_ds_mla only",
        source=f"{_VLLM_BACKENDS}; {_VLLM_CACHE_OPTION}",
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4",),
        until=(0, 21),
        status=Status.UNSUPPORTED,
        text="an nvfp4 KV cache came with 0.21",
        source=f"{_VLLM_PULL}40177",
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4",),
        generations=(Generation.BLACKWELL,),
        status=Status.SUPPORTED,
        text="FlashInfer with TRT-LLM kernels, SM 10.x",
        source=f"{_VLLM_PULL}40177",
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4",),
        generations=(Generation.BLACKWELL_SM12,),
        status=Status.UNSUPPORTED,
        text="releases admit nvfp4 KV on SM 10.x only; patched builds run it on SM 12.x",
        source=f"{_VLLM_ISSUE}49011; {_VLLM_PULL}46329",
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4",),
        generations=(*_PRE_AMPERE, *_NO_FP4_UNITS),
        status=Status.UNSUPPORTED,
        text="the TRT-LLM kernels that read it exist for Blackwell SM 10.x only",
        source=f"{_VLLM_PULL}40177; {_VLLM_ISSUE}47684",
    ),
    _Line(
        engine="vllm",
        formats=("fp8_ds_mla",),
        caches=(CacheKind.GROUPED, CacheKind.LATENT),
        status=Status.UNSUPPORTED,
        text="fp8_ds_mla is the cache of sparse MLA (DeepSeek V3.2 and V4): others take fp8",
        source=_VLLM_BACKENDS,
    ),
    _Line(
        engine="vllm",
        formats=("fp8_ds_mla",),
        generations=(Generation.HOPPER, Generation.BLACKWELL),
        since=(0, 11),
        status=Status.SUPPORTED,
        text="sparse FlashMLA",
        source=_VLLM_BACKENDS,
    ),
    _Line(
        engine="vllm",
        formats=("fp8_ds_mla",),
        generations=(Generation.BLACKWELL_SM12,),
        since=(0, 26),
        status=Status.SUPPORTED,
        text="seen in start-up logs of 0.26 and later",
        source="start-up logs of RTX PRO 6000 and DGX Spark servers",
    ),
    _Line(
        engine="vllm",
        formats=("fp8_ds_mla", "nvfp4_ds_mla"),
        generations=(*_PRE_AMPERE, Generation.AMPERE, Generation.ADA),
        status=Status.UNSUPPORTED,
        text="sparse FlashMLA needs compute capability 9.0",
        source=_VLLM_BACKENDS,
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4_ds_mla",),
        caches=(CacheKind.GROUPED, CacheKind.LATENT),
        status=Status.UNSUPPORTED,
        text="nvfp4_ds_mla is a cache of sparse MLA",
        source=_VLLM_CACHE_OPTION,
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4_ds_mla",),
        generations=_FP4_UNITS,
        since=(0, 33),
        status=Status.SUPPORTED,
        text="a choice of 0.33; DGX Spark servers have run it",
        source=_VLLM_CACHE_OPTION,
    ),
    # SGLang
    _Line(
        engine="sglang",
        formats=("bf16",),
        generations=_PRE_AMPERE,
        status=Status.UNSUPPORTED,
        text="bf16 needs compute capability 8.0: use fp16, of the same size",
        source=_CUDA_TYPES,
    ),
    _Line(
        engine="sglang",
        formats=("bf16", "fp16"),
        status=Status.SUPPORTED,
        text="16 bits, every attention backend",
        source=_SGLANG_CACHES,
    ),
    _Line(
        engine="sglang",
        formats=("fp8",),
        generations=(Generation.AMPERE,),
        status=Status.MEMORY_ONLY,
        text="capacity doubles, speed does not: converted to 16 bits on the way; slow where a backend cannot fuse that",
        source=_SGLANG_CACHES,
    ),
    _Line(
        engine="sglang",
        formats=("fp8",),
        generations=_FP8_UNITS,
        status=Status.SUPPORTED,
        text="fp8_e4m3 or fp8_e5m2; the attention backend must fuse the conversion",
        source=_SGLANG_CACHES,
    ),
    _Line(
        engine="sglang",
        formats=("fp8",),
        generations=(Generation.CDNA3, Generation.CDNA4),
        status=Status.SUPPORTED,
        text="fp8_e4m3 in the AITER and Triton backends",
        source=_SGLANG_CACHES,
    ),
    _Line(
        engine="sglang",
        formats=("nvfp4",),
        generations=_FP4_UNITS,
        status=Status.MEMORY_ONLY,
        text="4-bit floats with a scale per 16 elements, experimental: 1.78x the tokens of fp8",
        source=_SGLANG_CACHES,
    ),
    _Line(
        engine="sglang",
        formats=("nvfp4",),
        generations=(*_PRE_AMPERE, *_NO_FP4_UNITS),
        status=Status.UNKNOWN,
        text="experimental, and shown on Blackwell only",
        source=_SGLANG_CACHES,
    ),
    _Line(
        engine="sglang",
        formats=("int8",),
        status=Status.UNKNOWN,
        text="not among the choices of 0.5.23; documented as an early feature (--int8-kv-cache, Triton, no MLA)",
        source=_SGLANG_CACHES,
    ),
    _Line(
        engine="sglang",
        formats=("fp8_ds_mla",),
        caches=(CacheKind.SPARSE_LATENT,),
        generations=(Generation.HOPPER, Generation.BLACKWELL),
        status=Status.SUPPORTED,
        text="sparse MLA in fp8 is stored in this layout: 656 bytes per token and layer",
        source="SGLang 0.5.23, NSA backend",
    ),
    _Line(
        engine="sglang",
        formats=("int4", "fp8_ds_mla", "nvfp4_ds_mla"),
        status=Status.UNSUPPORTED,
        text="not among the KV types: bf16, fp8_e4m3, fp8_e5m2, mxfp8, nvfp4, fp4_mx_block16",
        source=_SGLANG_CACHES,
    ),
    # TensorRT-LLM
    _Line(
        engine="tensorrt-llm",
        formats=("bf16", "fp16"),
        generations=_NVIDIA,
        status=Status.SUPPORTED,
        text="16 bits",
        source=_TRT_CACHES,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("fp8",),
        generations=(Generation.AMPERE,),
        status=Status.MEMORY_ONLY,
        text="capacity doubles, speed does not: there is no fp8 unit",
        source=_TRT_HARDWARE,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("fp8",),
        generations=_FP8_UNITS,
        status=Status.SUPPORTED,
        text="fp8 KV cache",
        source=_TRT_HARDWARE,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("nvfp4",),
        generations=_FP4_UNITS,
        since=(1, 3),
        status=Status.SUPPORTED,
        text="needs a checkpoint calibrated for it with ModelOpt",
        source="TensorRT-LLM 1.3, docs/source/features/quantization.md, NVFP4 KV Cache",
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("nvfp4",),
        generations=(*_PRE_AMPERE, *_NO_FP4_UNITS),
        status=Status.UNSUPPORTED,
        text="Blackwell only",
        source="TensorRT-LLM 1.3, docs/source/features/quantization.md, NVFP4 KV Cache",
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("fp8_ds_mla",),
        caches=(CacheKind.SPARSE_LATENT,),
        generations=(Generation.HOPPER, Generation.BLACKWELL),
        status=Status.SUPPORTED,
        text="a choice of kv_cache_config.dtype",
        source=_TRT_CACHES,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("int8",),
        until=(1,),
        generations=_NVIDIA,
        status=Status.MEMORY_ONLY,
        text="in engines built with an int8 KV cache (TensorRT backend); the PyTorch backend has none",
        source="TensorRT-LLM 0.x, precision support of the TensorRT backend",
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("int8", "int4", "fp8_ds_mla", "nvfp4_ds_mla"),
        status=Status.UNSUPPORTED,
        text="the PyTorch backend stores KV in 16 bits, fp8 or nvfp4",
        source=_TRT_CACHES,
    ),
    # llama.cpp
    _Line(
        engine="llama.cpp",
        formats=("fp32", "fp16", "bf16"),
        status=Status.SUPPORTED,
        text="-ctk and -ctv",
        source=_LLAMACPP_CACHES,
    ),
    _Line(
        engine="llama.cpp",
        formats=_GGUF_CACHES,
        status=Status.SUPPORTED,
        text="-ctk and -ctv; a quantized V needs flash attention (-fa)",
        source=_LLAMACPP_CACHES,
    ),
    _Line(
        engine="llama.cpp",
        formats=("fp8", "int8"),
        status=Status.UNSUPPORTED,
        text="its 8-bit KV cache is q8_0: 8.5 bits per element",
        source=_LLAMACPP_CACHES,
    ),
    _Line(
        engine="llama.cpp",
        formats=("int4", "nvfp4"),
        status=Status.UNSUPPORTED,
        text="its 4-bit KV cache is q4_0: 4.5 bits per element",
        source=_LLAMACPP_CACHES,
    ),
    _Line(
        engine="llama.cpp",
        formats=("fp8_ds_mla", "nvfp4_ds_mla"),
        status=Status.UNSUPPORTED,
        text="a cache of vLLM's sparse MLA",
        source=_LLAMACPP_CACHES,
    ),
    *(
        _Line(
            engine=engine,
            formats=_GGUF_CACHES,
            status=Status.UNSUPPORTED,
            text="a type of llama.cpp",
            source=_LLAMACPP_CACHES,
        )
        for engine in ("vllm", "sglang", "tensorrt-llm")
    ),
)

_WEIGHT_ONLY = (
    "weight-only: read at a quarter of the bytes, multiplied at 16 bits, so decode gains up to batch 16 to 64 and "
    "prefill gains nothing"
)
_KERNEL_RATIOS = "TRT-LLM W4A16 kernels measured against bf16 (AIConfigurator tables)"

_WEIGHTS: tuple[_Line, ...] = (
    *(
        _Line(
            engine=engine,
            formats=("bf16",),
            generations=_PRE_AMPERE,
            status=Status.UNSUPPORTED,
            text="bf16 needs compute capability 8.0: use fp16, of the same size",
            source=_CUDA_TYPES,
        )
        for engine in ("vllm", "sglang", "tensorrt-llm")
    ),
    *(
        _Line(
            engine=engine,
            formats=("bf16", "fp16", "fp32"),
            status=Status.SUPPORTED,
            text="no quantization",
            source="every version",
        )
        for engine in ("vllm", "sglang", "tensorrt-llm", "llama.cpp")
    ),
    # vLLM
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.AMPERE,),
        since=(0, 5),
        status=Status.MEMORY_ONLY,
        text="W8A16 through Marlin: half the memory and traffic, multiplied at 16 bits, for Ampere has no fp8 unit",
        source=f"vLLM, docs/features/quantization/llm_compressor/fp8.md; {_VLLM_HARDWARE}",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.TURING,),
        since=(0, 32),
        status=Status.MEMORY_ONLY,
        text="W8A16 through Marlin: half the memory and traffic, multiplied at 16 bits",
        source="vLLM 0.32, docs/features/quantization/llm_compressor/fp8.md",
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=_PRE_AMPERE,
        until=(0, 15),
        status=Status.UNSUPPORTED,
        text="neither fp8 units nor Marlin kernels",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(Generation.VOLTA,),
        status=Status.UNSUPPORTED,
        text="neither fp8 units nor Marlin kernels",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("fp8",),
        generations=(*_FP8_UNITS, Generation.CDNA3, Generation.CDNA4),
        since=(0, 4),
        status=Status.SUPPORTED,
        text="W8A8: multiplied in fp8",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("int8",),
        generations=(Generation.TURING, Generation.AMPERE, Generation.ADA, Generation.HOPPER),
        since=(0, 5),
        status=Status.SUPPORTED,
        text="W8A8: multiplied in int8",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("int8",),
        generations=(Generation.VOLTA,),
        status=Status.UNSUPPORTED,
        text="no int8 tensor cores",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("awq",),
        generations=(Generation.VOLTA,),
        status=Status.UNSUPPORTED,
        text="AWQ kernels begin with Turing",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("awq", "gptq", "int4"),
        generations=_PRE_AMPERE,
        status=Status.SUPPORTED,
        text="weight-only, without Marlin (which begins with Ampere): expect little speed",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("awq", "gptq", "int4"),
        generations=_NVIDIA,
        status=Status.SUPPORTED,
        text=_WEIGHT_ONLY,
        source=f"{_VLLM_HARDWARE} (Marlin); {_KERNEL_RATIOS}",
    ),
    _Line(
        engine="vllm",
        formats=("mxfp4",),
        until=(0, 10, 1),
        status=Status.UNSUPPORTED,
        text="came with gpt-oss in 0.10.1",
        source="https://github.com/vllm-project/vllm/releases/tag/v0.10.1",
    ),
    _Line(
        engine="vllm",
        formats=("nvfp4",),
        until=(0, 8),
        status=Status.UNSUPPORTED,
        text="came in 2025, with 0.8 and 0.9",
        source=f"{_VLLM_PULL}18000",
    ),
    _Line(
        engine="vllm",
        formats=("mxfp4", "nvfp4"),
        generations=_NO_FP4_UNITS,
        status=Status.MEMORY_ONLY,
        text="weight-only through Marlin or Triton: a quarter of the memory, multiplied at 16 bits (no fp4 unit)",
        source=f"{_VLLM_PULL}18000; {_CUDA_TYPES}",
    ),
    _Line(
        engine="vllm",
        formats=("mxfp4", "nvfp4"),
        generations=(Generation.BLACKWELL,),
        status=Status.SUPPORTED,
        text="multiplied in fp4 where the checkpoint quantizes activations too",
        source=f"{_VLLM_PULL}48199",
    ),
    _Line(
        engine="vllm",
        formats=("mxfp4", "nvfp4"),
        generations=(Generation.BLACKWELL_SM12,),
        status=Status.SUPPORTED,
        text="multiplied in fp4 where a kernel exists; mixed and weight-only checkpoints go through Marlin at 16 bits",
        source=f"{_VLLM_ISSUE}47749; {_VLLM_PULL}48199",
    ),
    _Line(
        engine="vllm",
        formats=("mxfp4",),
        generations=(Generation.CDNA4,),
        status=Status.SUPPORTED,
        text="MX formats are native on CDNA4",
        source="AMD CDNA4 architecture; vLLM quark and mxfp4 methods",
    ),
    _Line(
        engine="vllm",
        formats=("gguf",),
        until=(0, 5, 5),
        status=Status.UNSUPPORTED,
        text="GGUF files came with 0.5.5",
        source=f"{_VLLM_PULL}5191",
    ),
    _Line(
        engine="vllm",
        formats=("gguf",),
        until=(0, 24),
        status=Status.MEMORY_ONLY,
        text="read by a built-in loader and unpacked to 16 bits to multiply",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("gguf",),
        status=Status.MEMORY_ONLY,
        text="from 0.24 through the separate vllm-gguf-plugin; unpacked to 16 bits to multiply",
        source=f"{_VLLM_PULL}39612",
    ),
    _Line(
        engine="vllm",
        formats=("nf4",),
        until=(0, 28),
        generations=(*_PRE_AMPERE, *_NVIDIA),
        status=Status.MEMORY_ONLY,
        text="bitsandbytes: unpacked to 16 bits to multiply",
        source=_VLLM_HARDWARE,
    ),
    _Line(
        engine="vllm",
        formats=("nf4",),
        generations=(*_PRE_AMPERE, *_NVIDIA),
        status=Status.MEMORY_ONLY,
        text="bitsandbytes: from 0.28 through the separate vllm-bnb-plugin",
        source=f"{_VLLM_PULL}43529",
    ),
    # SGLang
    _Line(
        engine="sglang",
        formats=("fp8",),
        generations=(Generation.AMPERE,),
        status=Status.MEMORY_ONLY,
        text="W8A16 through Marlin: half the memory and traffic, multiplied at 16 bits, for Ampere has no fp8 unit",
        source=_SGLANG_METHODS,
    ),
    _Line(
        engine="sglang",
        formats=("fp8",),
        generations=(*_FP8_UNITS, Generation.CDNA3, Generation.CDNA4),
        status=Status.SUPPORTED,
        text="W8A8: multiplied in fp8",
        source=_SGLANG_METHODS,
    ),
    _Line(
        engine="sglang",
        formats=("int8",),
        generations=(Generation.AMPERE, Generation.ADA, Generation.HOPPER),
        status=Status.SUPPORTED,
        text="w8a8_int8: multiplied in int8",
        source=_SGLANG_METHODS,
    ),
    _Line(
        engine="sglang",
        formats=("awq", "gptq", "int4"),
        generations=_NVIDIA,
        status=Status.SUPPORTED,
        text=_WEIGHT_ONLY,
        source=f"{_SGLANG_METHODS}; {_KERNEL_RATIOS}",
    ),
    _Line(
        engine="sglang",
        formats=("mxfp4",),
        generations=(Generation.HOPPER,),
        status=Status.MEMORY_ONLY,
        text="unpacked to 16 bits in Triton kernels: no fp4 unit",
        source=f"{_SGLANG_METHODS}; {_CUDA_TYPES}",
    ),
    _Line(
        engine="sglang",
        formats=("mxfp4", "nvfp4"),
        generations=_FP4_UNITS,
        status=Status.SUPPORTED,
        text="mxfp4 and modelopt_fp4",
        source=_SGLANG_METHODS,
    ),
    _Line(
        engine="sglang",
        formats=("gguf",),
        generations=_NVIDIA,
        status=Status.MEMORY_ONLY,
        text="unpacked to 16 bits to multiply",
        source=_SGLANG_METHODS,
    ),
    # TensorRT-LLM
    _Line(
        engine="tensorrt-llm",
        formats=("fp8",),
        generations=_FP8_UNITS,
        status=Status.SUPPORTED,
        text="W8A8: multiplied in fp8",
        source=_TRT_HARDWARE,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("fp8",),
        status=Status.UNSUPPORTED,
        text="fp8 begins with Ada",
        source=_TRT_HARDWARE,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("awq", "gptq", "int4"),
        generations=_NO_FP4_UNITS,
        status=Status.SUPPORTED,
        text=_WEIGHT_ONLY,
        source=f"{_TRT_HARDWARE}; {_KERNEL_RATIOS}",
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("awq", "gptq", "int4"),
        generations=_FP4_UNITS,
        status=Status.UNKNOWN,
        text="W4A16 is not ticked for Blackwell",
        source=_TRT_HARDWARE,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("mxfp4", "nvfp4"),
        generations=_FP4_UNITS,
        status=Status.SUPPORTED,
        text="multiplied in fp4",
        source=_TRT_HARDWARE,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("nvfp4",),
        status=Status.UNSUPPORTED,
        text="nvfp4 weights need Blackwell",
        source=_TRT_HARDWARE,
    ),
    _Line(
        engine="tensorrt-llm",
        formats=("gguf",),
        status=Status.UNSUPPORTED,
        text="reads no GGUF files",
        source=_TRT_HARDWARE,
    ),
    # llama.cpp
    _Line(
        engine="llama.cpp",
        formats=("gguf", "mxfp4"),
        status=Status.SUPPORTED,
        text="its own format",
        source="llama.cpp GGUF tensor types",
    ),
    _Line(
        engine="llama.cpp",
        formats=("fp8", "int8", "int4", "awq", "gptq", "nvfp4", "nf4"),
        status=Status.UNSUPPORTED,
        text="reads GGUF files only: convert to q8_0 or a q4 type",
        source="llama.cpp GGUF tensor types",
    ),
)


def verdict(
    engine: str,
    version: str,
    gpu: Gpu,
    kv: str,
    weights: str | None = None,
    *,
    cache: CacheKind = CacheKind.GROUPED,
) -> Verdict:
    """Return what ``engine`` at ``version`` makes of KV format ``kv`` and, where given, of ``weights`` on ``gpu``.

    The two together are as good as the worse, whose sentence is given. Names are those of ``--kv-dtype`` and
    ``--weights``.
    """
    found = kv_verdict(engine, version, gpu, kv, cache=cache)
    if weights is None:
        return found
    other = weights_verdict(engine, version, gpu, weights)
    return max((found, other), key=lambda one: _SEVERITY.index(one.status))


def kv_verdict(engine: str, version: str, gpu: Gpu, kv: str, *, cache: CacheKind = CacheKind.GROUPED) -> Verdict:
    """Return whether ``engine`` at ``version`` can keep a KV cache in ``kv`` on ``gpu``."""
    return _look_up(_KV, engine, version, gpu, kv, cache=cache, what=f"a KV cache in {kv}")


def weights_verdict(engine: str, version: str, gpu: Gpu, weights: str) -> Verdict:
    """Return whether ``engine`` at ``version`` can compute with ``weights`` (a format or its family) on ``gpu``."""
    return _look_up(_WEIGHTS, engine, version, gpu, weight_family(weights), cache=None, what=f"weights in {weights}")


def cache_kind(model: Model) -> CacheKind:
    """Return what ``model`` caches: latents if any layer does, sparse ones if an indexer chooses among them."""
    found = CacheKind.GROUPED
    for run in model.layers:
        match run.layer.mixer:
            case CompressedAttention():
                return CacheKind.SPARSE_LATENT
            case LatentAttention(indexer=indexer):
                if indexer is not None:
                    return CacheKind.SPARSE_LATENT
                found = CacheKind.LATENT
            case _:
                pass
    return found


def weight_family(weights: str) -> str:
    """Return the family of a weight format: ``fp8`` for ``fp8_block``, ``gguf`` for ``q4_k_m``.

    >>> weight_family("fp8_block"), weight_family("Q4_K_M"), weight_family("iq2_xs"), weight_family("mxfp4_a8")
    ('fp8', 'gguf', 'gguf', 'mxfp4')
    """
    family = weights.strip().lower().replace("-", "_").partition("_")[0]
    if family[:1] in {"q", "i", "t"} and family.lstrip("itq")[:1].isdigit():
        return "gguf"
    return {"w8a8": "int8", "w4a16": "int4", "float16": "fp16", "bfloat16": "bf16"}.get(family, family)


def generation(gpu: Gpu) -> Generation:
    """Return the generation of ``gpu`` by its compute capability."""
    capability = gpu.compute_capability
    if capability is None:
        return Generation.OTHER
    if capability in _CDNA:
        return _CDNA[capability]
    try:
        at = parse_version(capability)
    except UsageError:
        return Generation.OTHER
    if gpu.vendor != "NVIDIA":
        return Generation.OTHER
    return next((name for low, high, name in _CAPABILITIES if low <= at < high), Generation.OTHER)


_CDNA = {"gfx90a": Generation.CDNA2, "gfx942": Generation.CDNA3, "gfx950": Generation.CDNA4}
_CAPABILITIES: tuple[tuple[tuple[int, ...], tuple[int, ...], Generation], ...] = (
    ((7, 0), (7, 5), Generation.VOLTA),
    ((7, 5), (8, 0), Generation.TURING),
    ((8, 0), (8, 9), Generation.AMPERE),
    ((8, 9), (9, 0), Generation.ADA),
    ((9, 0), (10, 0), Generation.HOPPER),
    ((10, 0), (11, 0), Generation.BLACKWELL),
    ((12, 0), (13, 0), Generation.BLACKWELL_SM12),
)


def _look_up(
    lines: tuple[_Line, ...],
    engine: str,
    version: str,
    gpu: Gpu,
    form: str,
    *,
    cache: CacheKind | None,
    what: str,
) -> Verdict:
    here = generation(gpu)
    # llama.cpp's lines hold for every version, and its versions are build names.
    at = () if engine == "llama.cpp" else parse_version(version)
    for line in lines:
        if (
            line.engine == engine
            and form in line.formats
            and (not line.generations or here in line.generations)
            and (not line.caches or cache in line.caches)
            and at >= line.since
            and (not line.until or at < line.until)
        ):
            return Verdict(status=line.status, text=line.text, source=line.source)
    where = gpu.architecture if here is Generation.OTHER else here.value
    return Verdict(
        status=Status.UNKNOWN,
        text=f"nothing on record for {what} with {engine} {version} on {where}: check before relying on it",
        source="",
    )
