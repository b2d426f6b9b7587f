"""How KV-cache elements are stored."""

from __future__ import annotations

from infcalc.frozen import frozen


@frozen
class KvFormat:
    """Storage of cached keys and values.

    ``element_bits`` per element and one scale of ``scale_bits`` per ``group_elements`` elements of a cached vector
    (0: scales are constants of the whole tensor and cost nothing). Formats with ``latent_rope_bits`` exist only for
    latent caches (MLA and compressed attention): the rotary part of the entry keeps that width and has no scales.
    """

    name: str
    element_bits: int
    group_elements: int = 0
    scale_bits: int = 0
    latent_rope_bits: int | None = None
    note: str = ""

    def vector_bytes(self, num_elements: int) -> int:
        """Return the bytes of one cached vector of ``num_elements``, its scales included."""
        groups = -(-num_elements // self.group_elements) if self.group_elements else 0
        return -(-(num_elements * self.element_bits + groups * self.scale_bits) // 8)


KV_FORMATS: dict[str, KvFormat] = {
    kv.name: kv
    for kv in (
        KvFormat(name="bf16", element_bits=16, note="2 bytes per element"),
        KvFormat(name="fp16", element_bits=16, note="2 bytes per element"),
        KvFormat(name="fp32", element_bits=32, note="4 bytes per element"),
        KvFormat(name="fp8", element_bits=8, note="1 byte per element; per-tensor or per-head scales cost nothing"),
        KvFormat(name="int8", element_bits=8, note="1 byte per element; per-tensor scales cost nothing"),
        KvFormat(
            name="int4",
            element_bits=4,
            group_elements=64,
            scale_bits=16,
            note="4 bits per element and one 16-bit scale per 64 elements: 4.25 bits",
        ),
        KvFormat(
            name="nvfp4",
            element_bits=4,
            group_elements=16,
            scale_bits=8,
            note="4 bits per element and one fp8 scale per 16 elements: 4.5 bits",
        ),
        KvFormat(
            name="fp8_ds_mla",
            element_bits=8,
            group_elements=128,
            scale_bits=32,
            latent_rope_bits=16,
            note="latent in fp8 with an fp32 scale per 128 elements, rotary part in bf16: 656 bytes for 512 + 64",
        ),
        KvFormat(
            name="nvfp4_ds_mla",
            element_bits=4,
            group_elements=16,
            scale_bits=8,
            latent_rope_bits=8,
            note="latent in nvfp4 with an fp8 scale per 16 elements, rotary part in fp8: 352 bytes for 512 + 64",
        ),
        KvFormat(name="q8_0", element_bits=8, group_elements=32, scale_bits=16, note="GGUF: 34 bytes per 32 elements"),
        KvFormat(name="q4_0", element_bits=4, group_elements=32, scale_bits=16, note="GGUF: 18 bytes per 32 elements"),
    )
}
"""Every KV-cache format by its name on the command line."""

KV_ALIASES = {
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "f32": "fp32",
}
"""Other spellings that engines accept."""
