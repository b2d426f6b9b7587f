"""Attention of one layer for the rows of a batch: grouped heads (MHA, GQA, MQA) or one latent for all (MLA)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, assert_never

import numpy as np

from infcalc.frozen import frozen
from infcalc.reference.attention import by_mask, first_visible
from infcalc.reference.cache import CacheShape
from infcalc.reference.elementwise import rms_norm, rotate
from infcalc.spec.layers import GroupedAttention, LatentAttention, QkNorm, Reach

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypeAlias

    from numpy.typing import NDArray

    from infcalc.reference.arithmetic import Arithmetic
    from infcalc.reference.attention import Visible
    from infcalc.reference.cache import Store

    Attention: TypeAlias = GroupedAttention | LatentAttention
    Arrays: TypeAlias = Mapping[str, NDArray[np.float64]]


@frozen
class Segment:
    """The rows of a batch that belong to one sequence, and where its keys and values lie.

    Rows stand at consecutive positions and see what is before them; those of a tree of drafts see what ``seen`` (rows,
    tokens of the store) says.
    """

    rows: slice
    store: Store
    seen: NDArray[np.bool_] | None = None


@frozen
class AttentionStep:
    """What attention in one layer needs beside the rows: their positions (n), and which of them are whose."""

    layer: int
    positions: NDArray[np.intp]
    segments: tuple[Segment, ...]
    rope: NDArray[np.float64]
    arithmetic: Arithmetic


def cache_shape(mixer: Attention, num_layers: int) -> CacheShape:
    """Return what ``num_layers`` such layers cache of one token."""
    match mixer:
        case GroupedAttention():
            value_dim = mixer.value_head_dim or mixer.head_dim
            return CacheShape(
                num_layers=num_layers, num_kv_heads=mixer.num_kv_heads, key_dim=mixer.head_dim, value_dim=value_dim
            )
        case LatentAttention():
            width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
            return CacheShape(
                num_layers=num_layers, num_kv_heads=1, key_dim=width, value_dim=0, latent_dim=mixer.kv_lora_rank
            )
        case _:
            assert_never(mixer)


def rope_width(mixer: Attention) -> int:
    """Return how many elements of a head carry the position."""
    return mixer.head_dim if isinstance(mixer, GroupedAttention) else mixer.qk_rope_head_dim


def mixed(
    mixer: Attention,
    weights: Arrays,
    rows: NDArray[np.float64],
    step: AttentionStep,
) -> NDArray[np.float64]:
    """Return the attention output (n, hidden_size) of normed ``rows`` (n, hidden_size).

    Projections run over all rows of the batch, attention over each sequence by itself: the selective batching of Orca
    (Yu et al., OSDI 2022, section 4.2).
    """
    match mixer:
        case GroupedAttention():
            heads = _grouped(mixer, weights, rows, step)
        case LatentAttention():
            heads = _latent(mixer, weights, rows, step)
        case _:
            assert_never(mixer)
    return step.arithmetic.project(heads.reshape(len(rows), -1), weights["o"])


def _grouped(
    mixer: GroupedAttention,
    weights: Arrays,
    rows: NDArray[np.float64],
    step: AttentionStep,
) -> NDArray[np.float64]:
    queries, keys, values = (
        step.arithmetic.project(rows, weights[name]).reshape(len(rows), heads, -1)
        for name, heads in (("q", mixer.num_heads), ("k", mixer.num_kv_heads), ("v", mixer.num_kv_heads))
    )
    if mixer.qk_norm is QkNorm.PER_HEAD:
        queries, keys = rms_norm(queries, weights["q_norm"]), rms_norm(keys, weights["k_norm"])
    queries, keys = rotate(queries, step.positions, step.rope), rotate(keys, step.positions, step.rope)
    visible = first_visible(mixer.reach, mixer.window_tokens)
    return _attended(queries, keys, values, step, scale=1.0 / math.sqrt(mixer.head_dim), visible=visible)


def _latent(
    mixer: LatentAttention,
    weights: Arrays,
    rows: NDArray[np.float64],
    step: AttentionStep,
) -> NDArray[np.float64]:
    """Return the heads of MLA in absorbed form: queries are taken into the latent's space, and outputs out of it.

    Source: DeepSeek-AI, "DeepSeek-V2", section 2.1 (the up-projections of keys and values are absorbed).
    """
    rank, nope = mixer.kv_lora_rank, mixer.qk_nope_head_dim
    if mixer.q_lora_rank is None:
        queries = step.arithmetic.project(rows, weights["q"])
    else:
        queries = step.arithmetic.project(
            rms_norm(step.arithmetic.project(rows, weights["q_a"]), weights["q_a_norm"]), weights["q_b"]
        )
    queries = queries.reshape(len(rows), mixer.num_heads, -1)
    up = weights["kv_b"].reshape(mixer.num_heads, nope + mixer.value_head_dim, rank)
    # One small product per row and head: shapes do not depend on the batch.
    absorbed = np.matmul(queries[:, :, None, :nope], up[:, :nope])[:, :, 0]
    queries = np.concatenate([absorbed, rotate(queries[:, :, nope:], step.positions, step.rope)], axis=-1)
    compressed = step.arithmetic.project(rows, weights["kv_a"])[:, None, :]
    latent = rms_norm(compressed[..., :rank], weights["kv_a_norm"])
    keys = np.concatenate([latent, rotate(compressed[..., rank:], step.positions, step.rope)], axis=-1)
    values = np.empty((len(rows), 1, 0), rows.dtype)
    scale = 1.0 / math.sqrt(nope + mixer.qk_rope_head_dim)
    visible = first_visible(Reach.FULL, None)
    outputs = _attended(queries, keys, values, step, scale=scale, visible=visible)
    heads: NDArray[np.float64] = np.matmul(outputs[:, :, None, :], up[:, nope:].swapaxes(-1, -2))[:, :, 0]
    return heads


def _attended(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    step: AttentionStep,
    *,
    scale: float,
    visible: Visible,
) -> NDArray[np.float64]:
    outputs = []
    for segment in step.segments:
        held_keys, held_values = segment.store.extend(step.layer, keys[segment.rows], values[segment.rows])
        if segment.seen is None:
            outputs.append(step.arithmetic.attend(queries[segment.rows], held_keys, held_values, scale, visible))
        else:
            outputs.append(by_mask(queries[segment.rows], held_keys, held_values, scale, visible, seen=segment.seen))
    return np.concatenate(outputs)
