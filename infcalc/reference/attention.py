"""Causal attention four ways: textbook, one query at a time, in tiles (FlashAttention), and through a block table.

All take the last n tokens of a sequence of T as queries: ``queries`` (n, num_heads, key_dim), ``keys``
(num_kv_heads, T, key_dim), ``values`` (num_kv_heads, T, value_dim), and return (n, num_heads, value_dim). Head h reads
KV head h // (num_heads / num_kv_heads). ``first_visible`` names the first position that a query's position can see.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, assert_never

import numpy as np

from infcalc.spec.layers import Reach

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    Visible: TypeAlias = Callable[[int], int]
    """First visible position of a query's position."""
    Attend: TypeAlias = Callable[
        [NDArray[np.float64], NDArray[np.float64], NDArray[np.float64], float, Visible], NDArray[np.float64]
    ]
    """Queries, keys, values, scale of the scores, and what is visible, to outputs."""
    Tile: TypeAlias = tuple[int, NDArray[np.float64], NDArray[np.float64]]
    """Position of the first token of a tile, its keys and its values."""

TILE_TOKENS = 64


def first_visible(reach: Reach, window_tokens: int | None) -> Visible:
    """Return what a query's position sees: everything, the last ``window_tokens`` with itself, or its chunk.

    >>> [first_visible(reach, 4)(9) for reach in Reach]
    [0, 6, 8]
    """
    window = window_tokens or 0
    match reach:
        case Reach.FULL:
            return lambda _: 0
        case Reach.SLIDING:
            return lambda position: max(0, position - window + 1)
        case Reach.CHUNKED:
            return lambda position: position // window * window
        case _:
            assert_never(reach)


def dense(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    scale: float,
    visible: Visible,
) -> NDArray[np.float64]:
    """Return softmax(Q K^T scale) V with the whole n x T matrix of scores in memory (Vaswani et al., section 3.2.1)."""
    num_queries, num_tokens = len(queries), keys.shape[1]
    grouped = _by_kv_head(queries, len(keys)).transpose(1, 2, 0, 3)
    scores = np.matmul(grouped, keys[:, None].swapaxes(-1, -2)) * scale
    np.copyto(scores, -np.inf, where=~_mask(num_queries, 0, num_tokens, num_tokens, visible))
    return _ungrouped(np.matmul(_softmax(scores), values[:, None]).transpose(2, 0, 1, 3))


def row_by_row(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    scale: float,
    visible: Visible,
) -> NDArray[np.float64]:
    """Return the same, each head of each query by itself over exactly the tokens that it sees.

    Nothing is masked: shapes, and with them the order of every sum, depend on the query's position alone. Cut a prompt
    into chunks, cache it or compute it anew, and the bits stay.
    """
    start = keys.shape[1] - len(queries)
    grouped = _by_kv_head(queries, len(keys))
    outputs = np.empty((*grouped.shape[:-1], values.shape[2]), queries.dtype)
    for row, query in enumerate(grouped):
        position = start + row
        seen = slice(visible(position), position + 1)
        scores = np.matmul(query[:, :, None, :], keys[:, None, seen].swapaxes(-1, -2)) * scale
        outputs[row] = np.matmul(_softmax(scores), values[:, None, seen])[:, :, 0]
    return _ungrouped(outputs)


def by_mask(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    scale: float,
    visible: Visible,
    *,
    seen: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Return the same for the rows of a tree: each query over the tokens that its row of ``seen`` (n, T) names.

    Those are its path, itself at the end, so that there are as many of them as its position says. They are taken
    together: the bits are those of the path as a sequence of its own by :func:`row_by_row`.
    """
    outputs = []
    for query, row in zip(queries, seen, strict=True):
        path = np.flatnonzero(row)
        held_keys, held_values = np.take(keys, path, axis=1), np.take(values, path, axis=1)
        outputs.append(row_by_row(query[None], held_keys, held_values, scale, visible))
    return np.concatenate(outputs)


def tiled(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    scale: float,
    visible: Visible,
    *,
    tile_tokens: int = TILE_TOKENS,
) -> NDArray[np.float64]:
    """Return the same with at most ``tile_tokens`` squared scores per head at a time: FlashAttention's online softmax.

    Source: Dao, "FlashAttention-2", algorithm 1. Queries go in tiles too, and tiles that none of them sees are skipped.
    """
    num_tokens = keys.shape[1]

    def tiles() -> Iterator[Tile]:
        for begin in range(0, num_tokens, tile_tokens):
            part = slice(begin, begin + tile_tokens)
            yield begin, keys[:, part], values[:, part]

    parts = [
        _online(queries[begin : begin + tile_tokens], num_tokens - len(queries) + begin, tiles(), scale, visible)
        for begin in range(0, len(queries), tile_tokens)
    ]
    return np.concatenate(parts)


def through_table(
    queries: NDArray[np.float64],
    blocks: tuple[NDArray[np.float64], NDArray[np.float64]],
    table: tuple[int, ...],
    num_tokens: int,
    *,
    scale: float,
    visible: Visible,
) -> NDArray[np.float64]:
    """Return the same from blocks scattered over a pool, visited in the order of ``table`` and never copied together.

    ``blocks`` are those of keys and of values, (num_blocks, num_kv_heads, block_tokens, dim) each; the sequence has
    ``num_tokens`` tokens. Source: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
    PagedAttention", equation 4.
    """
    key_blocks, value_blocks = blocks
    block_tokens = key_blocks.shape[2]

    def tiles() -> Iterator[Tile]:
        for index, begin in enumerate(range(0, num_tokens, block_tokens)):
            filled = slice(0, min(block_tokens, num_tokens - begin))
            yield begin, key_blocks[table[index], :, filled], value_blocks[table[index], :, filled]

    return _online(queries, num_tokens - len(queries), tiles(), scale, visible)


def _online(
    queries: NDArray[np.float64], start: int, tiles: Iterator[Tile], scale: float, visible: Visible
) -> NDArray[np.float64]:
    """Fold tiles of keys into running maxima, sums and outputs, rescaling what was summed when a maximum rises."""
    end = start + len(queries)
    lowest = min(visible(position) for position in range(start, end))
    best = total = np.zeros(0)
    output: NDArray[np.float64] | None = None
    grouped = queries
    for begin, keys, values in tiles:
        if begin >= end or begin + keys.shape[1] <= lowest:
            continue
        if output is None:
            grouped = _by_kv_head(queries, len(keys)).transpose(1, 2, 0, 3)
            best = np.full(grouped.shape[:3], -np.inf, queries.dtype)
            total = np.zeros(grouped.shape[:3], queries.dtype)
            output = np.zeros((*grouped.shape[:3], values.shape[2]), queries.dtype)
        scores = np.matmul(grouped, keys[:, None].swapaxes(-1, -2)) * scale
        mask = _mask(len(queries), begin, begin + keys.shape[1], end, visible)
        scores = np.where(mask, scores, -np.inf)
        risen = np.maximum(best, scores.max(axis=-1))
        # A query that has seen nothing yet has no maximum to subtract: minus infinity from itself is not a number.
        shift = np.where(np.isneginf(risen), 0.0, risen)
        shares = np.exp(scores - shift[..., None])
        faded = np.exp(best - shift)
        total = total * faded + shares.sum(axis=-1)
        output = output * faded[..., None] + np.matmul(shares, values[:, None])
        best = risen
    if output is None:
        raise ValueError("there is no token to attend to")
    return _ungrouped((output / total[..., None]).transpose(2, 0, 1, 3))


def _by_kv_head(queries: NDArray[np.float64], num_kv_heads: int) -> NDArray[np.float64]:
    num_queries, num_heads, width = queries.shape
    return queries.reshape(num_queries, num_kv_heads, num_heads // num_kv_heads, width)


def _ungrouped(outputs: NDArray[np.float64]) -> NDArray[np.float64]:
    num_queries, num_kv_heads, group, width = outputs.shape
    return outputs.reshape(num_queries, num_kv_heads * group, width)


def _mask(num_queries: int, begin: int, end: int, num_tokens: int, visible: Visible) -> NDArray[np.bool_]:
    """Return which of the tokens ``begin`` to ``end`` the last queries of ``num_tokens`` see: (num_queries, tokens)."""
    positions = np.arange(num_tokens - num_queries, num_tokens)
    lowest = np.array([visible(int(position)) for position in positions], dtype=np.intp)
    tokens = np.arange(begin, end)
    seen: NDArray[np.bool_] = (tokens <= positions[:, None]) & (tokens >= lowest[:, None])
    return seen


def _softmax(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    shares = np.exp(scores - scores.max(axis=-1, keepdims=True))
    normed: NDArray[np.float64] = shares / shares.sum(axis=-1, keepdims=True)
    return normed
