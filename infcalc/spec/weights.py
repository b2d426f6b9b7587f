"""How weight elements are stored: the width of an element plus the scales and zero points that go with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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
"""Roles that a checkpoint's quantization covers unless it says otherwise; all others keep the checkpoint's own width."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
    scale_bits: int = 0
    zero_point_bits: float = 0
    tensor_scale_bits: int = 0
    index_bits: int = 0
    compute_bits: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightRule:
    """One exception to a model's weight format: these roles (empty: all linear roles) of these layers (None: all)."""

    roles: tuple[TensorRole, ...] = ()
    names: tuple[str, ...] = ()
    """Tensor names within the role, such as ``q`` or ``down``; empty means all of them."""
    layers: tuple[int, ...] | None = None
    format: str = "bf16"
    """Name of the :class:`WeightFormat`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightQuantization:
    """Which format each weight tensor has: the first rule that matches, else ``format`` for linear roles.

    Roles outside :data:`LINEAR_ROLES` keep the model's own 16-bit (or 32-bit) type unless a rule names them.
    """

    format: str
    rules: tuple[WeightRule, ...] = ()
    method: str = ""
    """The checkpoint's own word for it: ``awq``, ``fp8``, ``compressed-tensors`` ..."""
