from __future__ import annotations

import tracemalloc
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from infcalc.reference.attention import dense, first_visible, row_by_row, through_table, tiled
from infcalc.spec.layers import Reach

Arrays = tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]


def arrays(num_queries: int, num_tokens: int, heads: tuple[int, int] = (6, 2), seed: int = 0) -> Arrays:
    generator = np.random.default_rng(seed)
    num_heads, num_kv_heads = heads
    queries = generator.standard_normal((num_queries, num_heads, 8))
    keys = generator.standard_normal((num_kv_heads, num_tokens, 8))
    return queries, keys, generator.standard_normal((num_kv_heads, num_tokens, 5))


def naive(
    queries: NDArray[np.float64],
    keys: NDArray[np.float64],
    values: NDArray[np.float64],
    scale: float,
    lowest: list[int],
) -> NDArray[np.float64]:
    """Attend by definition, one number at a time."""
    num_queries, num_heads, _ = queries.shape
    start = keys.shape[1] - num_queries
    output = np.zeros((num_queries, num_heads, values.shape[2]))
    for row in range(num_queries):
        for head in range(num_heads):
            kv = head * len(keys) // num_heads
            seen = range(lowest[row], start + row + 1)
            scores = [float(queries[row, head] @ keys[kv, at]) * scale for at in seen]
            shares = np.exp(scores) / np.sum(np.exp(scores))
            for at, share in zip(seen, shares, strict=True):
                output[row, head] += share * values[kv, at]
    return output


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.tuples(st.integers(1, 20), st.integers(0, 25)),
    sight=st.tuples(st.sampled_from(Reach), st.integers(1, 12)),
    heads=st.sampled_from([(1, 1), (4, 4), (6, 2), (5, 1)]),
    tile=st.integers(1, 17),
    seed=st.integers(0, 10),
)
def test_four_ways_and_the_definition_agree(
    lengths: tuple[int, int], sight: tuple[Reach, int], heads: tuple[int, int], tile: int, seed: int
) -> None:
    num_queries, num_before = lengths
    num_tokens = num_before + num_queries
    queries, keys, values = arrays(num_queries, num_tokens, heads, seed)
    visible = first_visible(*sight)
    expected = naive(queries, keys, values, 0.3, [visible(num_before + row) for row in range(num_queries)])
    num_blocks = -(-num_tokens // tile)
    table = tuple(np.random.default_rng(seed).permutation(num_blocks + 3)[:num_blocks].tolist())
    pools = []
    for held in (keys, values):
        pool = np.full((num_blocks + 3, len(held), tile, held.shape[2]), np.nan)
        for position in range(num_tokens):
            pool[table[position // tile], :, position % tile] = held[:, position]
        pools.append(pool)
    ways = {
        "dense": dense(queries, keys, values, 0.3, visible),
        "row by row": row_by_row(queries, keys, values, 0.3, visible),
        "tiled": tiled(queries, keys, values, 0.3, visible, tile_tokens=tile),
        "paged": through_table(queries, (pools[0], pools[1]), table, num_tokens, scale=0.3, visible=visible),
    }
    for way, got in ways.items():
        np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10, err_msg=way)


@settings(max_examples=40, deadline=None)
@given(cuts=st.sets(st.integers(1, 39)), reach=st.sampled_from(Reach))
def test_row_by_row_has_the_same_bits_however_a_prompt_is_cut(cuts: set[int], reach: Reach) -> None:
    queries, keys, values = arrays(40, 40)
    visible = first_visible(reach, 6)
    whole = row_by_row(queries, keys, values, 0.3, visible)
    for begin, end in pairwise([0, *sorted(cuts), 40]):
        part = row_by_row(queries[begin:end], keys[:, :end], values[:, :end], 0.3, visible)
        assert np.array_equal(part, whole[begin:end])


def test_large_scores_do_not_overflow() -> None:
    queries, keys, values = arrays(4, 9)
    visible = first_visible(Reach.FULL, None)
    expected = row_by_row(queries * 1e3, keys, values, 1.0, visible)
    assert np.isfinite(expected).all()
    got = tiled(queries * 1e3, keys, values, 1.0, visible, tile_tokens=2)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)


def test_tiles_never_hold_the_matrix_of_scores() -> None:
    num_tokens = 1024
    queries, keys, values = arrays(num_tokens, num_tokens, (1, 1))
    visible = first_visible(Reach.FULL, None)
    peaks = []
    for way in (dense, tiled):
        tracemalloc.start()
        way(queries, keys, values, 1.0, visible)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    matrix_bytes = num_tokens * num_tokens * 8
    assert peaks[0] > matrix_bytes
    assert peaks[1] < matrix_bytes / 8


def test_blocks_behind_the_window_are_never_read() -> None:
    queries, keys, values = arrays(1, 16)
    visible = first_visible(Reach.SLIDING, 6)
    expected = row_by_row(queries, keys, values, 0.3, visible)
    blocks = [held.reshape(2, 4, 4, -1).swapaxes(0, 1).copy() for held in (keys, values)]
    # The query at 15 sees from 10 on: two blocks of four are behind it.
    for pool in blocks:
        pool[:2] = np.nan
    got = through_table(queries, (blocks[0], blocks[1]), (0, 1, 2, 3), 16, scale=0.3, visible=visible)
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-10)


def test_there_must_be_something_to_see() -> None:
    queries, keys, values = arrays(1, 4)
    with pytest.raises(ValueError, match="no token"):
        through_table(queries, (keys[None], values[None]), (), 0, scale=1.0, visible=lambda _: 0)
