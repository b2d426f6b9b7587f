"""Which precisions engines store and compute with, on which GPU generation, from which version: the record, as data.

Rows of one engine stand in the order in which they are looked up, first match first. A row holds for versions from
``since`` to before ``until``, on the generations ``on`` and for the kinds of cache ``caches``; what is left out holds
for all.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from typing import Protocol

    class _Row(Protocol):
        def __call__(
            self,
            formats: str,
            text: str,
            source: str,
            *,
            on: tuple[Generation, ...] = (),
            caches: tuple[CacheKind, ...] = (),
            since: tuple[int, ...] = (),
            until: tuple[int, ...] = (),
        ) -> Line: ...


class Status(StrEnum):
    """What an engine makes of a precision."""

    SUPPORTED = "supported"
    MEMORY_ONLY = "memory_only"
    UNKNOWN = "unknown"
    UNSUPPORTED = "unsupported"


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
class Line:
    """One row of the record; empty tuples mean any."""

    formats: tuple[str, ...]
    status: Status
    text: str
    source: str
    generations: tuple[Generation, ...]
    caches: tuple[CacheKind, ...]
    since: tuple[int, ...]
    until: tuple[int, ...]


def _row(status: Status) -> _Row:
    """Return what makes a row of that status; ``formats`` are words."""

    def row(
        formats: str,
        text: str,
        source: str,
        *,
        on: tuple[Generation, ...] = (),
        caches: tuple[CacheKind, ...] = (),
        since: tuple[int, ...] = (),
        until: tuple[int, ...] = (),
    ) -> Line:
        return Line(
            formats=tuple(formats.split()),
            status=status,
            text=text,
            source=source,
            generations=on,
            caches=caches,
            since=since,
            until=until,
        )

    return row


_runs, _saves, _unsure, _fails = (_row(status) for status in Status)

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
_WEIGHT_ONLY = (
    "weight-only: read at a quarter of the bytes, multiplied at 16 bits, so decode gains up to batch 16 to 64 and "
    "prefill gains nothing"
)
_KERNEL_RATIOS = "TRT-LLM W4A16 kernels measured against bf16 (AIConfigurator tables)"

_OF_LLAMACPP = _fails("q8_0 q4_0", "a type of llama.cpp", _LLAMACPP_CACHES)
_BF16_TOO_NEW = _fails(
    "bf16", "bf16 needs compute capability 8.0: use fp16, of the same size", _CUDA_TYPES, on=_PRE_AMPERE
)
_WHOLE = _runs("bf16 fp16 fp32", "no quantization", "every version")

KV: dict[str, tuple[Line, ...]] = {
    "vllm": (
        _BF16_TOO_NEW,
        _runs("bf16 fp16", "16 bits, every attention backend", _VLLM_BACKENDS),
        _fails(
            "fp8",
            "an fp8 KV cache came with 0.3",
            "https://github.com/vllm-project/vllm/releases/tag/v0.3.0",
            until=(0, 3),
        ),
        _unsure(
            "fp8",
            "Triton MLA is the only MLA backend here, and Triton has no fp8 (e4m3) conversion below SM 8.9",
            f"{_VLLM_BACKENDS}; {_VLLM_PULL}49077",
            on=(Generation.AMPERE,),
            caches=_LATENTS,
        ),
        _saves(
            "fp8",
            (
                "capacity doubles, speed does not: there is no fp8 unit, FlashInfer converts to 16 bits on the way "
                "(FlashAttention 2 and Triton cannot); Qwen3-8B on A100 measured 1.00 to 1.03x end to end, prefill "
                "2.5 to 5 % slower"
            ),
            f"{_VLLM_ISSUE}42058; {_VLLM_BACKENDS}",
            on=(Generation.AMPERE,),
        ),
        _saves(
            "fp8",
            "capacity doubles, speed does not: FlashInfer converts to 16 bits on the way",
            _VLLM_BACKENDS,
            on=(Generation.TURING,),
            until=(0, 24),
        ),
        _fails(
            "fp8",
            "FlashInfer is no longer offered on Turing from 0.24, and no other backend there reads fp8",
            f"{_VLLM_ISSUE}47549",
            on=(Generation.TURING,),
        ),
        _runs(
            "fp8",
            (
                "FlashInfer or Triton; capacity doubles, decode reads half the bytes (Qwen3-4B on L4: +1 % at 2k "
                "tokens, +21 % at 32k)"
            ),
            "vLLM, docs/features/quantization/quantized_kvcache.md, measured with 0.25.1",
            on=(Generation.ADA,),
        ),
        _runs(
            "fp8",
            (
                "FlashAttention 3 attends in fp8, MLA through FlashMLA; capacity doubles, decode gains from some 7k "
                "tokens on (Llama 3.1 8B on H100: 0.54x the time per context token)"
            ),
            f"vLLM blog 2026-04-22 on fp8 KV cache; {_VLLM_BACKENDS}",
            on=(Generation.HOPPER,),
        ),
        _runs(
            "fp8",
            "FlashInfer (TRT-LLM kernels on SM 10.x); capacity doubles, decode reads half the bytes",
            _VLLM_BACKENDS,
            on=_FP4_UNITS,
        ),
        _runs("fp8", "ROCm attention and AITER backends", _VLLM_BACKENDS, on=(Generation.CDNA3, Generation.CDNA4)),
        _fails(
            "int8",
            "no int8 KV cache up to 0.18",
            "vLLM 0.18.1, supported_kv_cache_dtypes of its attention backends",
            until=(0, 19),
        ),
        _saves(
            "int8",
            (
                "as int8_per_token_head, Triton backend only, multiplied at 16 bits; its 4-byte scale per token and "
                "head takes 3 % more at head size 128 than is counted here"
            ),
            f"vLLM 0.21.0, supported_kv_cache_dtypes of TRITON_ATTN; {_VLLM_PULL}36893",
            on=_NVIDIA,
            caches=(CacheKind.GROUPED,),
            since=(0, 21),
        ),
        _fails(
            "int4",
            "no int4 KV cache up to 0.21",
            "vLLM 0.21.0, supported_kv_cache_dtypes of its attention backends",
            until=(0, 22),
        ),
        _saves(
            "int4",
            (
                "only as int4_per_token_head, Triton backend, multiplied at 16 bits; with its 4-byte scale per token "
                "and head 4.25 bits at head size 128, as counted here"
            ),
            f"vLLM 0.26.0, supported_kv_cache_dtypes of TRITON_ATTN; {_VLLM_PULL}40835",
            on=_NVIDIA,
            caches=(CacheKind.GROUPED,),
            since=(0, 26),
        ),
        _fails(
            "int4 int8",
            "MLA backends store latents in 16 bits, fp8, fp8_ds_mla or nvfp4_ds_mla",
            f"{_VLLM_BACKENDS}; {_VLLM_CACHE_OPTION}",
            caches=_LATENTS,
        ),
        _fails(
            "nvfp4",
            "latents are stored in 4 bits as nvfp4_ds_mla only",
            f"{_VLLM_BACKENDS}; {_VLLM_CACHE_OPTION}",
            caches=_LATENTS,
        ),
        _fails("nvfp4", "an nvfp4 KV cache came with 0.21", f"{_VLLM_PULL}40177", until=(0, 21)),
        _runs("nvfp4", "FlashInfer with TRT-LLM kernels, SM 10.x", f"{_VLLM_PULL}40177", on=(Generation.BLACKWELL,)),
        _fails(
            "nvfp4",
            "releases admit nvfp4 KV on SM 10.x only; patched builds run it on SM 12.x",
            f"{_VLLM_ISSUE}49011; {_VLLM_PULL}46329",
            on=(Generation.BLACKWELL_SM12,),
        ),
        _fails(
            "nvfp4",
            "the TRT-LLM kernels that read it exist for Blackwell SM 10.x only",
            f"{_VLLM_PULL}40177; {_VLLM_ISSUE}47684",
            on=(*_PRE_AMPERE, *_NO_FP4_UNITS),
        ),
        _fails(
            "fp8_ds_mla",
            "fp8_ds_mla is the cache of sparse MLA (DeepSeek V3.2 and V4): others take fp8",
            _VLLM_BACKENDS,
            caches=(CacheKind.GROUPED, CacheKind.LATENT),
        ),
        _runs(
            "fp8_ds_mla", "sparse FlashMLA", _VLLM_BACKENDS, on=(Generation.HOPPER, Generation.BLACKWELL), since=(0, 11)
        ),
        _runs(
            "fp8_ds_mla",
            "seen in start-up logs of 0.26 and later",
            "start-up logs of RTX PRO 6000 and DGX Spark servers",
            on=(Generation.BLACKWELL_SM12,),
            since=(0, 26),
        ),
        _fails(
            "fp8_ds_mla nvfp4_ds_mla",
            "sparse FlashMLA needs compute capability 9.0",
            _VLLM_BACKENDS,
            on=(*_PRE_AMPERE, Generation.AMPERE, Generation.ADA),
        ),
        _fails(
            "nvfp4_ds_mla",
            "nvfp4_ds_mla is a cache of sparse MLA",
            _VLLM_CACHE_OPTION,
            caches=(CacheKind.GROUPED, CacheKind.LATENT),
        ),
        _runs(
            "nvfp4_ds_mla",
            "a choice of 0.33; DGX Spark servers have run it",
            _VLLM_CACHE_OPTION,
            on=_FP4_UNITS,
            since=(0, 33),
        ),
        _OF_LLAMACPP,
    ),
    "sglang": (
        _BF16_TOO_NEW,
        _runs("bf16 fp16", "16 bits, every attention backend", _SGLANG_CACHES),
        _saves(
            "fp8",
            "capacity doubles, speed does not: converted to 16 bits on the way; slow where a backend cannot fuse that",
            _SGLANG_CACHES,
            on=(Generation.AMPERE,),
        ),
        _runs(
            "fp8", "fp8_e4m3 or fp8_e5m2; the attention backend must fuse the conversion", _SGLANG_CACHES, on=_FP8_UNITS
        ),
        _runs(
            "fp8", "fp8_e4m3 in the AITER and Triton backends", _SGLANG_CACHES, on=(Generation.CDNA3, Generation.CDNA4)
        ),
        _saves(
            "nvfp4",
            "4-bit floats with a scale per 16 elements, experimental: 1.78x the tokens of fp8",
            _SGLANG_CACHES,
            on=_FP4_UNITS,
        ),
        _unsure(
            "nvfp4", "experimental, and shown on Blackwell only", _SGLANG_CACHES, on=(*_PRE_AMPERE, *_NO_FP4_UNITS)
        ),
        _unsure(
            "int8",
            "not among the choices of 0.5.23; documented as an early feature (--int8-kv-cache, Triton, no MLA)",
            _SGLANG_CACHES,
        ),
        _runs(
            "fp8_ds_mla",
            "sparse MLA in fp8 is stored in this layout: 656 bytes per token and layer",
            "SGLang 0.5.23, NSA backend",
            on=(Generation.HOPPER, Generation.BLACKWELL),
            caches=(CacheKind.SPARSE_LATENT,),
        ),
        _fails(
            "int4 fp8_ds_mla nvfp4_ds_mla",
            "not among the KV types: bf16, fp8_e4m3, fp8_e5m2, mxfp8, nvfp4, fp4_mx_block16",
            _SGLANG_CACHES,
        ),
        _OF_LLAMACPP,
    ),
    "tensorrt-llm": (
        _runs("bf16 fp16", "16 bits", _TRT_CACHES, on=_NVIDIA),
        _saves("fp8", "capacity doubles, speed does not: there is no fp8 unit", _TRT_HARDWARE, on=(Generation.AMPERE,)),
        _runs("fp8", "fp8 KV cache", _TRT_HARDWARE, on=_FP8_UNITS),
        _runs(
            "nvfp4",
            "needs a checkpoint calibrated for it with ModelOpt",
            "TensorRT-LLM 1.3, docs/source/features/quantization.md, NVFP4 KV Cache",
            on=_FP4_UNITS,
            since=(1, 3),
        ),
        _fails(
            "nvfp4",
            "Blackwell only",
            "TensorRT-LLM 1.3, docs/source/features/quantization.md, NVFP4 KV Cache",
            on=(*_PRE_AMPERE, *_NO_FP4_UNITS),
        ),
        _runs(
            "fp8_ds_mla",
            "a choice of kv_cache_config.dtype",
            _TRT_CACHES,
            on=(Generation.HOPPER, Generation.BLACKWELL),
            caches=(CacheKind.SPARSE_LATENT,),
        ),
        _saves(
            "int8",
            "in engines built with an int8 KV cache (TensorRT backend); the PyTorch backend has none",
            "TensorRT-LLM 0.x, precision support of the TensorRT backend",
            on=_NVIDIA,
            until=(1,),
        ),
        _fails(
            "int8 int4 fp8_ds_mla nvfp4_ds_mla", "the PyTorch backend stores KV in 16 bits, fp8 or nvfp4", _TRT_CACHES
        ),
        _OF_LLAMACPP,
    ),
    "llama.cpp": (
        _runs("fp32 fp16 bf16", "-ctk and -ctv", _LLAMACPP_CACHES),
        _runs("q8_0 q4_0", "-ctk and -ctv; a quantized V needs flash attention (-fa)", _LLAMACPP_CACHES),
        _fails("fp8 int8", "its 8-bit KV cache is q8_0: 8.5 bits per element", _LLAMACPP_CACHES),
        _fails("int4 nvfp4", "its 4-bit KV cache is q4_0: 4.5 bits per element", _LLAMACPP_CACHES),
        _fails("fp8_ds_mla nvfp4_ds_mla", "a cache of vLLM's sparse MLA", _LLAMACPP_CACHES),
    ),
}

WEIGHTS: dict[str, tuple[Line, ...]] = {
    "vllm": (
        _BF16_TOO_NEW,
        _WHOLE,
        _saves(
            "fp8",
            "W8A16 through Marlin: half the memory and traffic, multiplied at 16 bits, for Ampere has no fp8 unit",
            f"vLLM, docs/features/quantization/llm_compressor/fp8.md; {_VLLM_HARDWARE}",
            on=(Generation.AMPERE,),
            since=(0, 5),
        ),
        _saves(
            "fp8",
            "W8A16 through Marlin: half the memory and traffic, multiplied at 16 bits",
            "vLLM 0.32, docs/features/quantization/llm_compressor/fp8.md",
            on=(Generation.TURING,),
            since=(0, 32),
        ),
        _fails("fp8", "neither fp8 units nor Marlin kernels", _VLLM_HARDWARE, on=_PRE_AMPERE, until=(0, 15)),
        _fails("fp8", "neither fp8 units nor Marlin kernels", _VLLM_HARDWARE, on=(Generation.VOLTA,)),
        _runs(
            "fp8",
            "W8A8: multiplied in fp8",
            _VLLM_HARDWARE,
            on=(*_FP8_UNITS, Generation.CDNA3, Generation.CDNA4),
            since=(0, 4),
        ),
        _runs(
            "int8",
            "W8A8: multiplied in int8",
            _VLLM_HARDWARE,
            on=(Generation.TURING, Generation.AMPERE, Generation.ADA, Generation.HOPPER),
            since=(0, 5),
        ),
        _fails("int8", "no int8 tensor cores", _VLLM_HARDWARE, on=(Generation.VOLTA,)),
        _fails("awq", "AWQ kernels begin with Turing", _VLLM_HARDWARE, on=(Generation.VOLTA,)),
        _runs(
            "awq gptq int4",
            "weight-only, without Marlin (which begins with Ampere): expect little speed",
            _VLLM_HARDWARE,
            on=_PRE_AMPERE,
        ),
        _runs("awq gptq int4", _WEIGHT_ONLY, f"{_VLLM_HARDWARE} (Marlin); {_KERNEL_RATIOS}", on=_NVIDIA),
        _fails(
            "mxfp4",
            "came with gpt-oss in 0.10.1",
            "https://github.com/vllm-project/vllm/releases/tag/v0.10.1",
            until=(0, 10, 1),
        ),
        _fails("nvfp4", "came in 2025, with 0.8 and 0.9", f"{_VLLM_PULL}18000", until=(0, 8)),
        _saves(
            "mxfp4 nvfp4",
            "weight-only through Marlin or Triton: a quarter of the memory, multiplied at 16 bits (no fp4 unit)",
            f"{_VLLM_PULL}18000; {_CUDA_TYPES}",
            on=_NO_FP4_UNITS,
        ),
        _runs(
            "mxfp4 nvfp4",
            "multiplied in fp4 where the checkpoint quantizes activations too",
            f"{_VLLM_PULL}48199",
            on=(Generation.BLACKWELL,),
        ),
        _runs(
            "mxfp4 nvfp4",
            "multiplied in fp4 where a kernel exists; mixed and weight-only checkpoints go through Marlin at 16 bits",
            f"{_VLLM_ISSUE}47749; {_VLLM_PULL}48199",
            on=(Generation.BLACKWELL_SM12,),
        ),
        _runs(
            "mxfp4",
            "MX formats are native on CDNA4",
            "AMD CDNA4 architecture; vLLM quark and mxfp4 methods",
            on=(Generation.CDNA4,),
        ),
        _fails("gguf", "GGUF files came with 0.5.5", f"{_VLLM_PULL}5191", until=(0, 5, 5)),
        _saves("gguf", "read by a built-in loader and unpacked to 16 bits to multiply", _VLLM_HARDWARE, until=(0, 24)),
        _saves(
            "gguf",
            "from 0.24 through the separate vllm-gguf-plugin; unpacked to 16 bits to multiply",
            f"{_VLLM_PULL}39612",
        ),
        _saves(
            "nf4",
            "bitsandbytes: unpacked to 16 bits to multiply",
            _VLLM_HARDWARE,
            on=(*_PRE_AMPERE, *_NVIDIA),
            until=(0, 28),
        ),
        _saves(
            "nf4",
            "bitsandbytes: from 0.28 through the separate vllm-bnb-plugin",
            f"{_VLLM_PULL}43529",
            on=(*_PRE_AMPERE, *_NVIDIA),
        ),
    ),
    "sglang": (
        _BF16_TOO_NEW,
        _WHOLE,
        _saves(
            "fp8",
            "W8A16 through Marlin: half the memory and traffic, multiplied at 16 bits, for Ampere has no fp8 unit",
            _SGLANG_METHODS,
            on=(Generation.AMPERE,),
        ),
        _runs("fp8", "W8A8: multiplied in fp8", _SGLANG_METHODS, on=(*_FP8_UNITS, Generation.CDNA3, Generation.CDNA4)),
        _runs(
            "int8",
            "w8a8_int8: multiplied in int8",
            _SGLANG_METHODS,
            on=(Generation.AMPERE, Generation.ADA, Generation.HOPPER),
        ),
        _runs("awq gptq int4", _WEIGHT_ONLY, f"{_SGLANG_METHODS}; {_KERNEL_RATIOS}", on=_NVIDIA),
        _saves(
            "mxfp4",
            "unpacked to 16 bits in Triton kernels: no fp4 unit",
            f"{_SGLANG_METHODS}; {_CUDA_TYPES}",
            on=(Generation.HOPPER,),
        ),
        _runs("mxfp4 nvfp4", "mxfp4 and modelopt_fp4", _SGLANG_METHODS, on=_FP4_UNITS),
        _saves("gguf", "unpacked to 16 bits to multiply", _SGLANG_METHODS, on=_NVIDIA),
    ),
    "tensorrt-llm": (
        _BF16_TOO_NEW,
        _WHOLE,
        _runs("fp8", "W8A8: multiplied in fp8", _TRT_HARDWARE, on=_FP8_UNITS),
        _fails("fp8", "fp8 begins with Ada", _TRT_HARDWARE),
        _runs("awq gptq int4", _WEIGHT_ONLY, f"{_TRT_HARDWARE}; {_KERNEL_RATIOS}", on=_NO_FP4_UNITS),
        _unsure("awq gptq int4", "W4A16 is not ticked for Blackwell", _TRT_HARDWARE, on=_FP4_UNITS),
        _runs("mxfp4 nvfp4", "multiplied in fp4", _TRT_HARDWARE, on=_FP4_UNITS),
        _fails("nvfp4", "nvfp4 weights need Blackwell", _TRT_HARDWARE),
        _fails("gguf", "reads no GGUF files", _TRT_HARDWARE),
    ),
    "llama.cpp": (
        _WHOLE,
        _runs("gguf mxfp4", "its own format", "llama.cpp GGUF tensor types"),
        _fails(
            "fp8 int8 int4 awq gptq nvfp4 nf4",
            "reads GGUF files only: convert to q8_0 or a q4 type",
            "llama.cpp GGUF tensor types",
        ),
    ),
}
