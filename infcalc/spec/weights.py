"""How weight elements are stored: the width of an element plus the scales and zero points that go with it."""

from __future__ import annotations

import re
from dataclasses import replace
from enum import StrEnum

from infcalc.errors import UsageError
from infcalc.frozen import frozen


class TensorRole(StrEnum):
    """What a weight tensor is for; quantization rules and sharding speak in roles."""

    EMBEDDING = "embedding"
    LM_HEAD = "lm_head"
    POSITION = "position"
    NORM = "norm"
    ATTENTION = "attention"
    RECURRENT = "recurrent"
    RECURRENT_STATE = "recurrent_state"
    """Vectors and convolutions of a recurrent mixer (A_log, dt_bias, D, conv1d): small, kept at full width."""
    INDEXER = "indexer"
    FEED_FORWARD = "feed_forward"
    EXPERT = "expert"
    SHARED_EXPERT = "shared_expert"
    ROUTER = "router"
    ROUTER_BIAS = "router_bias"
    """Score correction of a router (``e_score_correction_bias``): stored in 32 bits whatever the model's type."""
    BIAS = "bias"
    OTHER = "other"


LINEAR_ROLES = frozenset(
    {
        TensorRole.ATTENTION,
        TensorRole.RECURRENT,
        TensorRole.INDEXER,
        TensorRole.FEED_FORWARD,
        TensorRole.EXPERT,
        TensorRole.SHARED_EXPERT,
    }
)
"""Roles that a checkpoint's quantization covers unless it says otherwise; the others keep their own width."""


@frozen
class WeightFormat:
    """Storage of one weight matrix.

    ``element_bits`` per element; one scale of ``scale_bits`` (and one zero point of ``zero_point_bits``) per group of
    ``group_rows`` x ``group_columns`` elements, where 0 means the whole extent (``0 x 0``: one scale per tensor,
    ``1 x 0``: one per output channel, ``1 x 128``: groups of 128 along the input, ``128 x 128``: blocks).
    ``tensor_scale_bits`` is a further scale per tensor; ``index_bits`` one index per input column (GPTQ's ``g_idx``).
    ``compute_bits`` is the width the matrix multiplication runs at when the GPU supports it (weight-only formats: 16).
    """

    name: str
    element_bits: float
    group_rows: int = 0
    group_columns: int = 0
    scale_bits: float = 0
    zero_point_bits: float = 0
    tensor_scale_bits: int = 0
    index_bits: int = 0
    compute_bits: int = 16
    source: str = ""

    @property
    def bits(self) -> float:
        """Bits per element with the scales and zero points of fixed-size groups (those of whole rows vanish in it)."""
        group_elements = self.group_rows * self.group_columns
        return self.element_bits + ((self.scale_bits + self.zero_point_bits) / group_elements if group_elements else 0)


@frozen
class WeightRule:
    """One exception to a model's weight format: these roles (empty: all linear roles) of these layers (None: all)."""

    roles: tuple[TensorRole, ...] = ()
    names: tuple[str, ...] = ()
    """Tensor names within the role, such as ``q`` or ``down``; empty means all of them."""
    layers: tuple[int, ...] | None = None
    format: str = "bf16"
    """Name of the :class:`WeightFormat`."""


@frozen
class WeightQuantization:
    """Which format each weight tensor has: the first rule that matches, else ``format`` for linear roles.

    Roles outside :data:`LINEAR_ROLES` keep the model's own 16-bit (or 32-bit) type unless a rule names them; score
    corrections of routers stay in 32 bits.
    """

    format: str
    rules: tuple[WeightRule, ...] = ()
    method: str = ""
    """The checkpoint's own word for it: ``awq``, ``fp8``, ``compressed-tensors`` ..."""


_AWQ = "AutoAWQ GEMM layout: qweight int32, scales fp16, qzeros packed to the element width"
_GPTQ = "GPTQ v1 layout: qweight int32, scales fp16, qzeros packed to the element width, g_idx int32 per input column"
_PACKED = "compressed-tensors pack-quantized: weight_packed int32, 16-bit weight_scale per group (zero point packed)"
_OCP_MX = "OCP Microscaling formats v1.0: one E8M0 scale per 32 elements"
_NVFP4 = "NVFP4: one E4M3 scale per 16 elements and one fp32 scale per tensor"
_BNB = "bitsandbytes 4-bit: absmax fp32 per block of 64"
_GGUF = "ggml type sizes: bytes per block of elements"

# ggml tensor type: (elements, bytes) of a block; the ids are those of the file format.
GGUF_BLOCKS: dict[str, tuple[int, int, int]] = {
    "q4_0": (2, 32, 18),
    "q4_1": (3, 32, 20),
    "q5_0": (6, 32, 22),
    "q5_1": (7, 32, 24),
    "q8_0": (8, 32, 34),
    "q2_k": (10, 256, 84),
    "q3_k": (11, 256, 110),
    "q4_k": (12, 256, 144),
    "q5_k": (13, 256, 176),
    "q6_k": (14, 256, 210),
    "q8_k": (15, 256, 292),
    "iq2_xxs": (16, 256, 66),
    "iq2_xs": (17, 256, 74),
    "iq3_xxs": (18, 256, 98),
    "iq1_s": (19, 256, 50),
    "iq4_nl": (20, 32, 18),
    "iq3_s": (21, 256, 110),
    "iq2_s": (22, 256, 82),
    "iq4_xs": (23, 256, 136),
    "iq1_m": (29, 256, 56),
    "tq1_0": (34, 256, 54),
    "tq2_0": (35, 256, 66),
    "gguf_mxfp4": (39, 32, 17),
    "gguf_nvfp4": (40, 64, 36),
    "q1_0": (41, 128, 18),
}
"""Block-quantized GGUF tensor types by name: type id in the file, elements per block, bytes per block."""


WEIGHT_FORMATS: dict[str, WeightFormat] = {
    weight.name: weight
    for weight in (
        WeightFormat(name="bf16", element_bits=16),
        WeightFormat(name="fp16", element_bits=16),
        WeightFormat(name="fp32", element_bits=32, compute_bits=32),
        WeightFormat(name="fp8", element_bits=8, scale_bits=32, compute_bits=8, source="one fp32 scale per tensor"),
        WeightFormat(
            name="fp8_channel",
            element_bits=8,
            group_rows=1,
            scale_bits=16,
            compute_bits=8,
            source="compressed-tensors float-quantized: 16-bit weight_scale per output channel",
        ),
        WeightFormat(
            name="fp8_channel_fp32",
            element_bits=8,
            group_rows=1,
            scale_bits=32,
            compute_bits=8,
            source="fbgemm_fp8 and ptpc: fp32 scale per output channel",
        ),
        WeightFormat(
            name="fp8_block",
            element_bits=8,
            group_rows=128,
            group_columns=128,
            scale_bits=32,
            compute_bits=8,
            source="weight_scale_inv: fp32 per 128 x 128 block",
        ),
        WeightFormat(
            name="fp8_block_ue8m0",
            element_bits=8,
            group_rows=128,
            group_columns=128,
            scale_bits=8,
            compute_bits=8,
            source="block scales stored as E8M0",
        ),
        WeightFormat(
            name="int8",
            element_bits=8,
            group_rows=1,
            scale_bits=16,
            compute_bits=8,
            source="W8A8: 16-bit scale per output channel, activations quantized to int8",
        ),
        WeightFormat(
            name="int8_bnb",
            element_bits=8,
            group_rows=1,
            scale_bits=32,
            compute_bits=8,
            source="bitsandbytes LLM.int8(): fp32 SCB per output row",
        ),
        WeightFormat(
            name="int4", element_bits=4, group_rows=1, group_columns=128, scale_bits=16, source=f"{_PACKED} of 128"
        ),
        WeightFormat(
            name="awq",
            element_bits=4,
            group_rows=1,
            group_columns=128,
            scale_bits=16,
            zero_point_bits=4,
            source=f"{_AWQ}; group of 128",
        ),
        WeightFormat(
            name="gptq",
            element_bits=4,
            group_rows=1,
            group_columns=128,
            scale_bits=16,
            zero_point_bits=4,
            index_bits=32,
            source=f"{_GPTQ}; group of 128",
        ),
        WeightFormat(
            name="mxfp4",
            element_bits=4,
            group_rows=1,
            group_columns=32,
            scale_bits=8,
            compute_bits=4,
            source=_OCP_MX,
        ),
        WeightFormat(
            name="mxfp6", element_bits=6, group_rows=1, group_columns=32, scale_bits=8, compute_bits=8, source=_OCP_MX
        ),
        WeightFormat(
            name="mxfp8", element_bits=8, group_rows=1, group_columns=32, scale_bits=8, compute_bits=8, source=_OCP_MX
        ),
        WeightFormat(
            name="nvfp4",
            element_bits=4,
            group_rows=1,
            group_columns=16,
            scale_bits=8,
            tensor_scale_bits=32,
            compute_bits=4,
            source=_NVFP4,
        ),
        WeightFormat(name="nf4", element_bits=4, group_rows=1, group_columns=64, scale_bits=32, source=_BNB),
        WeightFormat(
            name="nf4_dq",
            element_bits=4,
            group_rows=1,
            group_columns=64,
            # The 8-bit absmax of a block, and an fp32 one for each 256 of them.
            scale_bits=8 + 32 / 256,
            tensor_scale_bits=32,
            source=f"{_BNB}, itself quantized to 8 bits with an fp32 scale per 256 blocks (double quantization)",
        ),
        *(
            WeightFormat(
                name=name,
                element_bits=num_bytes * 8 / elements,
                group_rows=1,
                group_columns=elements,
                source=f"{_GGUF}: {num_bytes} per {elements}",
            )
            for name, (_, elements, num_bytes) in GGUF_BLOCKS.items()
        ),
    )
}
"""Weight formats by name. Elements of a GGUF block include its scales; all others state scales apart."""

_ALIASES = {
    "auto_awq": "awq",
    "bfloat16": "bf16",
    "float16": "fp16",
    "half": "fp16",
    "f16": "fp16",
    "f32": "fp32",
    "float32": "fp32",
    "fp8_e4m3": "fp8",
    "fp8_dynamic": "fp8_channel",
    "int8_channel": "int8",
    "w8a8": "int8",
    "w8a16": "int8_a16",
    "w4a16": "int4",
}
_PARAMETRIC = re.compile(
    r"(?P<family>int(?P<bits>[2-8])|awq(?P<awq_bits>[2-8])?|gptq(?P<gptq_bits>[2-8])?)"
    r"_g(?P<group>-1|[1-9][0-9]{0,5})(?P<asymmetric>_asym)?"
)
_BLOCK = re.compile(r"fp8_block_(?P<rows>[1-9][0-9]{0,4})x(?P<columns>[1-9][0-9]{0,4})(?P<ue8m0>_ue8m0)?")
_COMPUTE = re.compile(r"(?P<storage>.+)_a(?P<bits>4|8|16)")


def weight_format(name: str) -> WeightFormat:
    """Return the weight format called ``name``.

    Beside the names of :data:`WEIGHT_FORMATS` and common spellings of them (``f16``, ``w4a16``), these are understood:
    ``int<bits>_g<group>`` (16-bit scale per group; ``_asym`` adds a zero point), ``awq_g<group>``,
    ``gptq<bits>_g<group>`` where group -1 is the whole output channel, ``fp8_block_<rows>x<columns>``, and a suffix
    ``_a16``, ``_a8`` or ``_a4`` for the width of the activations the matrix is multiplied with.

    Raises:
        UsageError: no format has that name; the hint lists the nearest.

    >>> weight_format("awq").bits, weight_format("int4_g32").bits, weight_format("fp8_a16").compute_bits
    (4.15625, 4.5, 16)

    """
    word = name.strip().lower().replace("-", "_").replace("g_1", "g-1")
    word = _ALIASES.get(word, word)
    found = WEIGHT_FORMATS.get(word) or _parametric(word)
    if found is None:
        import difflib  # noqa: PLC0415 - only needed to explain a failure

        near = difflib.get_close_matches(word, [*WEIGHT_FORMATS, *_ALIASES], n=4, cutoff=0.5)
        known = "bf16, fp16, fp32, fp8, int8, int4, awq, gptq, mxfp4, nvfp4, q4_k, q6_k, q8_0"
        raise UsageError(
            f"unknown weight format {name!r}",
            hint=f"did you mean {', '.join(near)}?" if near else f"common formats are {known}",
        )
    return found


def _parametric(word: str) -> WeightFormat | None:
    """Return the format spelled out by ``word`` (bits, group, block, activations), or None."""
    if match := _COMPUTE.fullmatch(word):
        storage = WEIGHT_FORMATS.get(match["storage"]) or _parametric(match["storage"])
        return replace(storage, name=word, compute_bits=int(match["bits"])) if storage else None
    if match := _BLOCK.fullmatch(word):
        base = WEIGHT_FORMATS["fp8_block_ue8m0" if match["ue8m0"] else "fp8_block"]
        return replace(base, name=word, group_rows=int(match["rows"]), group_columns=int(match["columns"]))
    match = _PARAMETRIC.fullmatch(word)
    if match is None:
        return None
    bits = int(match["bits"] or match["awq_bits"] or match["gptq_bits"] or 4)
    is_int = match["family"].startswith("int")
    return WeightFormat(
        name=word,
        element_bits=bits,
        group_rows=1,
        # The whole output channel is one group when the group is -1.
        group_columns=max(0, int(match["group"])),
        scale_bits=16,
        zero_point_bits=bits if match["asymmetric"] or not is_int else 0,
        index_bits=32 if match["family"].startswith("gptq") else 0,
        source=_PACKED if is_int else _AWQ if match["family"].startswith("awq") else _GPTQ,
    )
