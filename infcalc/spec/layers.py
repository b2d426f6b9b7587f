"""The layers of a decoder: what mixes tokens, what transforms each token, and any other weights they own."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

from infcalc.frozen import frozen
from infcalc.spec.weights import TensorRole


class Shard(StrEnum):
    """How tensor parallelism splits one weight tensor of shape (rows = output, columns = input)."""

    REPLICATED = "replicated"
    ROWS = "rows"
    """Output features are divided (column-parallel linear)."""
    COLUMNS = "columns"
    """Input features are divided (row-parallel linear)."""
    VOCABULARY = "vocabulary"
    """Rows are padded to a multiple of 64 and divided."""
    KV_HEADS = "kv_heads"
    """Rows are divided by KV heads; a head is replicated when there are fewer heads than ranks."""
    EXPERTS = "experts"
    """Whole experts are divided under expert parallelism, else each expert's inner width is."""


@frozen
class Matrix:
    """One weight tensor that no formula derives: its name, shape, role and split.

    The shape is rows x columns; vectors have columns 1.
    """

    name: str
    rows: int
    columns: int = 1
    role: TensorRole = TensorRole.OTHER
    shard: Shard = Shard.REPLICATED
    copies: int = 1
    """Number of such tensors in the layer."""


class Reach(StrEnum):
    """Which earlier tokens attention can see, hence how its cache grows."""

    FULL = "full"
    SLIDING = "sliding"
    """The last ``window_tokens`` tokens."""
    CHUNKED = "chunked"
    """The tokens of the current chunk of ``window_tokens``."""


class QkNorm(StrEnum):
    """Normalisation of queries and keys, which decides its number of weights."""

    NONE = "none"
    PER_HEAD = "per_head"
    """One weight vector of head_dim for Q and one for K, shared by all heads."""
    FULL = "full"
    """One weight vector over all heads of Q and one over all heads of K."""


@frozen
class GroupedAttention:
    """Attention with ``num_heads`` query heads sharing ``num_kv_heads`` key/value heads (MHA, GQA and MQA)."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    value_head_dim: int | None = None
    """Width of a value head where it differs from ``head_dim``."""
    reach: Reach = Reach.FULL
    window_tokens: int | None = None
    qkv_bias: bool = False
    output_bias: bool = False
    qk_norm: QkNorm = QkNorm.NONE
    output_gate: bool = False
    """The query projection also yields a gate of the same width."""
    query_rank: int | None = None
    """The query projection goes through this low rank, with a norm there (multi-matrix factorisation attention)."""
    value_from_key: bool = False
    """There is no value projection: V is the key projection's output (the cache still holds both)."""
    shares_kv: bool = False
    """Reads the cache of an earlier layer: no K/V projections and no cache of its own."""
    indexer: Indexer | None = None
    """Block-sparse attention that picks what to read by its own small key cache."""
    extras: tuple[Matrix, ...] = ()


@frozen
class Indexer:
    """The lightning indexer of sparse attention: its own small key cache, and how many tokens it selects."""

    num_heads: int
    head_dim: int
    topk_tokens: int
    shared: bool = False
    """Uses the selection of an earlier layer: no weights and no key cache of its own."""
    pool_tokens: int = 1
    """One key entry per this many tokens (under compressed attention, its compression)."""
    key_bits: int = 8
    """Width of a key element; 8 means fp8 with one fp32 scale per entry, as vLLM and SGLang store it."""
    matrices: tuple[Matrix, ...] = ()
    """Weights of the indexer (query, key, weight projections and its norm)."""


@frozen
class LatentAttention:
    """Multi-head latent attention (MLA): one latent of ``kv_lora_rank + qk_rope_head_dim`` per token is cached."""

    num_heads: int
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    value_head_dim: int
    q_lora_rank: int | None = None
    indexer: Indexer | None = None
    extras: tuple[Matrix, ...] = ()


@frozen
class CompressedAttention:
    """Attention over compressed entries (DeepSeek V4): a raw window plus one entry per ``compression`` tokens.

    Each entry has ``entry_dim`` elements and serves as both key and value of every head. ``compression`` 0 means the
    layer keeps only its window.
    """

    num_heads: int
    entry_dim: int
    rope_dim: int
    window_tokens: int
    compression: int
    indexer: Indexer | None = None
    matrices: tuple[Matrix, ...] = ()


class RecurrentKind(StrEnum):
    """Families of recurrent (linear-attention and state-space) mixers."""

    MAMBA1 = "mamba1"
    MAMBA2 = "mamba2"
    GATED_DELTA_NET = "gated_delta_net"
    KIMI_DELTA = "kimi_delta"
    LIGHTNING = "lightning"


@frozen
class RecurrentMixer:
    """A mixer with constant state per request: ``state_elements`` plus the tail of a short convolution."""

    recurrent: RecurrentKind
    state_elements: int
    conv_elements: int = 0
    state_bits: int = 32
    conv_bits: int = 16
    matrices: tuple[Matrix, ...] = ()


Mixer: TypeAlias = GroupedAttention | LatentAttention | CompressedAttention | RecurrentMixer


@frozen
class DenseFeedForward:
    """A feed-forward block of inner width ``width``; gated means gate, up and down (three matrices), else two."""

    width: int
    gated: bool = True
    bias: bool = False
    extras: tuple[Matrix, ...] = ()


@frozen
class MoeFeedForward:
    """Routed experts: each token uses ``experts_per_token`` of ``num_experts``, plus always the shared experts."""

    num_experts: int
    experts_per_token: int
    expert_width: int
    gated: bool = True
    expert_bias: bool = False
    shared_width: int = 0
    """Summed inner width of the shared experts; 0 without any."""
    shared_gate: bool = False
    router_bias: bool = False
    """A bias or score-correction vector of num_experts elements."""
    expert_input_dim: int | None = None
    """Width of an expert's input where tokens are first projected down (latent MoE)."""
    extras: tuple[Matrix, ...] = ()


FeedForward: TypeAlias = DenseFeedForward | MoeFeedForward


@frozen
class Layer:
    """One decoder layer: a mixer, a feed-forward block (either may be absent), its norms and any further weights."""

    mixer: Mixer | None = None
    feed_forward: FeedForward | None = None
    num_norms: int = 2
    """Norms over the hidden dimension in this layer."""
    norm_bias: bool = False
    extras: tuple[Matrix, ...] = ()


@frozen
class LayerRun:
    """``num_layers`` consecutive layers that are alike."""

    num_layers: int
    layer: Layer
