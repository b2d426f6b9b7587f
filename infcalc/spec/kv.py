"""How KV-cache elements are stored."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class KvFormat:
    """Storage of cached keys and values.

    ``element_bits`` per element and ``scale_bits`` (scale and zero point together) per ``group_elements`` elements
    (0: scales are constants and cost nothing). ``latent_record_bytes`` replaces the per-element rule for formats that
    exist only for MLA latents of 512 + 64 elements.
    """

    name: str
    element_bits: float
    group_elements: int = 0
    scale_bits: float = 0
    latent_record_bytes: int | None = None
    source: str = ""

    @property
    def nominal_bits(self) -> float:
        """Bits per element without scales: what the name promises."""
        return self.element_bits

    @property
    def bits(self) -> float:
        """Bits per element with scales: what memory pays."""
        return self.element_bits + (self.scale_bits / self.group_elements if self.group_elements else 0)


_FP16_SCALE = 16
KV_FORMATS: dict[str, KvFormat] = {
    kv.name: kv
    for kv in (
        KvFormat(name="bf16", element_bits=16),
        KvFormat(name="fp16", element_bits=16),
        KvFormat(name="fp32", element_bits=32),
        KvFormat(name="fp8", element_bits=8, source="per-tensor or per-head scales are constants of negligible size"),
        KvFormat(name="int8", element_bits=8, source="per-tensor scales; per-token-head formats add a scale per head"),
        KvFormat(
            name="int4",
            element_bits=4,
            group_elements=64,
            scale_bits=2 * _FP16_SCALE,
            source="group of 64 with an fp16 scale and an fp16 zero point",
        ),
        KvFormat(name="nvfp4", element_bits=4, group_elements=16, scale_bits=8, source="fp8 scale per 16 elements"),
        KvFormat(
            name="fp8_ds_mla", element_bits=8, latent_record_bytes=656, source="512 fp8 + 4 fp32 scales + 64 bf16"
        ),
        KvFormat(name="nvfp4_ds_mla", element_bits=4, latent_record_bytes=352, source="vLLM"),
        KvFormat(
            name="q8_0", element_bits=8, group_elements=32, scale_bits=_FP16_SCALE, source="GGUF: 34 bytes per 32"
        ),
        KvFormat(
            name="q4_0", element_bits=4, group_elements=32, scale_bits=_FP16_SCALE, source="GGUF: 18 bytes per 32"
        ),
    )
}
"""Every KV-cache format by its name on the command line."""
