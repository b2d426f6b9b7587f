"""What one token (or entry) of one layer puts into the cache of one rank: the one place that knows these widths.

``memory.kv`` sums them over a sequence, ``lowering.ops`` moves them through memory. Source: the KV specs of vLLM
(``get_num_kv_heads``), its ``fp8_ds_mla`` and DeepSeek-V4 records, and its indexer cache.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.spec.layers import CompressedAttention, GroupedAttention, LatentAttention, RecurrentMixer

if TYPE_CHECKING:
    from infcalc.spec.kv import KvFormat
    from infcalc.spec.layers import Indexer, Mixer

_BYTE_BITS = 8
_INDEXER_SCALE_BYTES = 4
"""One fp32 scale per fp8 key of the indexer: 128 + 4 = 132 bytes."""
_COMPRESSED_SCALE_BYTES = 8
"""Scales of a compressed entry, padded: 448 fp8 + 64 bf16 + 8 = 584 bytes."""


def kv_heads_on_rank(num_kv_heads: int, tp: int) -> int:
    """Return the KV heads of one rank; with fewer heads than ranks each is replicated and a rank still holds one.

    >>> [kv_heads_on_rank(8, tp) for tp in (1, 8, 16)]
    [8, 1, 1]
    """
    return max(1, -(-num_kv_heads // tp))


def grouped_entry_bytes(mixer: GroupedAttention, kv: KvFormat, *, tp: int = 1) -> int:
    """Return the bytes of one token's keys and values on one rank."""
    value_dim = mixer.value_head_dim or mixer.head_dim
    return kv_heads_on_rank(mixer.num_kv_heads, tp) * (kv.vector_bytes(mixer.head_dim) + kv.vector_bytes(value_dim))


def ungrouped_entry_bytes(mixer: Mixer | None, kv: KvFormat) -> int:
    """Return the bytes of one token if every query head kept a key and a value of its own (MHA); 0 without a cache.

    For MLA a head's key is ``qk_nope + qk_rope`` wide and its value ``value_head_dim``; compressed attention would keep
    an entry twice.
    """
    match mixer:
        case None | RecurrentMixer() | GroupedAttention(shares_kv=True):
            return 0
        case GroupedAttention():
            widths = mixer.head_dim, mixer.value_head_dim or mixer.head_dim
        case LatentAttention():
            widths = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim, mixer.value_head_dim
        case CompressedAttention():
            widths = mixer.entry_dim, mixer.entry_dim
        case _:
            assert_never(mixer)
    return mixer.num_heads * sum(kv.vector_bytes(width) for width in widths)


def latent_entry_bytes(mixer: LatentAttention, kv: KvFormat) -> int:
    """Return the bytes of one token's latent, which every rank holds in full: 1,152 for 512 + 64 in bf16."""
    if kv.latent_rope_bits is None:
        return kv.vector_bytes(mixer.kv_lora_rank + mixer.qk_rope_head_dim)
    return kv.vector_bytes(mixer.kv_lora_rank) + mixer.qk_rope_head_dim * kv.latent_rope_bits // _BYTE_BITS


def compressed_entry_bytes(mixer: CompressedAttention, kv: KvFormat) -> int:
    """Return the bytes of one entry, raw or compressed, which serves as key and value of every head."""
    if kv.latent_rope_bits is None:
        return kv.vector_bytes(mixer.entry_dim)
    bits = (mixer.entry_dim - mixer.rope_dim) * kv.element_bits + mixer.rope_dim * kv.latent_rope_bits
    return bits // _BYTE_BITS + _COMPRESSED_SCALE_BYTES


def indexer_entry_bytes(indexer: Indexer) -> int:
    """Return the bytes of one indexer key, which keeps its own width whatever the KV format is."""
    scale_bytes = _INDEXER_SCALE_BYTES if indexer.key_bits == _BYTE_BITS else 0
    return indexer.head_dim * indexer.key_bits // _BYTE_BITS + scale_bytes


def recurrent_state_bytes(mixer: RecurrentMixer, *, tp: int = 1) -> int:
    """Return the bytes of one request's state in one layer on one rank; TP divides it by heads."""
    bits = mixer.state_elements * mixer.state_bits + mixer.conv_elements * mixer.conv_bits
    return -(-bits // (_BYTE_BITS * tp))
