from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from infcalc.errors import CacheOverflow
from infcalc.memory.kv import kv_components, slope_bytes_per_token
from infcalc.reference.cache import CacheShape, KVCache, NoCache, PagedCache, PagedStore
from infcalc.spec.kv import KV_FORMATS
from tests.reference.models import MODELS, transformer

SHAPE = CacheShape(num_layers=3, num_kv_heads=2, key_dim=4, value_dim=5)
Tokens = tuple[NDArray[np.float64], NDArray[np.float64]]


def tokens(num: int, seed: int = 0, shape: CacheShape = SHAPE) -> Tokens:
    generator = np.random.default_rng(seed)
    heads = (num, shape.num_kv_heads)
    return generator.standard_normal((*heads, shape.key_dim)), generator.standard_normal((*heads, shape.value_dim))


def test_the_cache_has_its_shape_at_once_and_grows_into_it() -> None:
    cache = KVCache(SHAPE, max_tokens=16)
    assert cache.keys.shape == (3, 2, 16, 4)
    assert cache.values.shape == (3, 2, 16, 5)
    grown: list[tuple[int, int, int, int]] = []
    for num in (5, 1, 1):
        for layer in range(3):
            cache.extend(layer, *tokens(num))
            # All layers of a step write at one position: it moves after the last.
            assert cache.position == (grown[-1][2] if grown else 0)
        cache.advance()
        grown.append(cache.filled_shape)
    assert grown == [(3, 2, 5, 4), (3, 2, 6, 4), (3, 2, 7, 4)]
    assert cache.filled_bytes == 7 * 3 * 2 * (4 + 5) * 8
    assert cache.reserved_bytes == 16 * 3 * 2 * (4 + 5) * 8


def test_an_overflow_says_what_does_not_fit_and_changes_nothing() -> None:
    cache = KVCache(SHAPE, max_tokens=4)
    for layer in range(3):
        cache.extend(layer, *tokens(3))
    cache.advance()
    before = cache.keys.copy()
    with pytest.raises(CacheOverflow, match="2 tokens at position 3 do not fit into a KV cache of 4") as raised:
        cache.extend(0, *tokens(2))
    assert raised.value.exit_code == 3
    assert "at least 5" in str(raised.value)
    assert np.array_equal(cache.keys, before)


def test_a_step_writes_the_same_tokens_in_every_layer_once() -> None:
    cache = KVCache(SHAPE, max_tokens=8)
    cache.extend(0, *tokens(2))
    with pytest.raises(ValueError, match="already written"):
        cache.extend(0, *tokens(2))
    with pytest.raises(ValueError, match="1 of 3 layers"):
        cache.advance()
    cache.extend(1, *tokens(2))
    cache.extend(2, *tokens(1))
    with pytest.raises(ValueError, match=r"tokens \[1, 2\]"):
        cache.advance()


@given(steps=st.lists(st.integers(1, 5), min_size=1, max_size=6), block_tokens=st.integers(1, 6), data=st.data())
def test_paged_contiguous_and_none_hold_the_same(steps: list[int], block_tokens: int, data: st.DataObject) -> None:
    total = sum(steps)
    num_blocks = -(-total // block_tokens)
    table = tuple(data.draw(st.permutations(range(num_blocks + 2)))[:num_blocks])
    paged, contiguous = PagedCache(SHAPE, num_blocks + 2, block_tokens), KVCache(SHAPE, total)
    everything = tokens(total)
    start = 0
    for num in steps:
        end = start + num
        part = everything[0][start:end], everything[1][start:end]
        so_far = everything[0][:end], everything[1][:end]
        for layer in range(3):
            expected = NoCache(SHAPE).extend(layer, *so_far)
            for got in (contiguous.extend(layer, *part), PagedStore(paged, table, start).extend(layer, *part)):
                for one, other in zip(got, expected, strict=True):
                    assert np.array_equal(one, other)
        contiguous.advance()
        start = end


def test_what_was_never_written_spoils_what_reads_it() -> None:
    cache = PagedCache(SHAPE, 4, 2)
    keys, _ = cache.gather(0, (1, 2), 3)
    assert np.isnan(keys).all()


def test_a_block_table_that_is_too_short_is_refused() -> None:
    with pytest.raises(CacheOverflow, match="position 4 lies beyond the 2 blocks of 2"):
        PagedCache(SHAPE, 4, 2).write(0, (1, 2), 2, *tokens(3))


def test_a_copy_takes_the_filled_part_in_every_layer() -> None:
    cache = PagedCache(SHAPE, 4, 3)
    for layer in range(3):
        cache.write(layer, (1,), 0, *tokens(3, seed=layer))
    cache.copy(1, 2, num_tokens=2)
    assert np.array_equal(cache.keys[:, 2, :, :2], cache.keys[:, 1, :, :2])
    assert np.array_equal(cache.values[:, 2, :, :2], cache.values[:, 1, :, :2])
    assert np.isnan(cache.keys[:, 2, :, 2]).all()
    assert cache.num_blocks == 4


def test_a_latent_is_stored_once_and_read_as_both() -> None:
    shape = CacheShape(num_layers=1, num_kv_heads=1, key_dim=7, value_dim=0, latent_dim=5)
    keys, values = KVCache(shape, 4).extend(0, *tokens(3, shape=shape))
    assert values.shape == (1, 3, 5)
    assert np.array_equal(values, keys[..., :5])


@pytest.mark.parametrize("name", [name for name in MODELS if name not in {"sliding", "chunked"}])
def test_a_token_takes_what_the_calculator_says(name: str) -> None:
    kv = KV_FORMATS["bf16"]
    expected = slope_bytes_per_token(kv_components(MODELS[name], kv))
    elements = transformer(name).cache_shape.elements_per_token()
    assert elements * kv.element_bits // 8 == expected
    assert KVCache(transformer(name).cache_shape, 10).reserved_bytes == 10 * elements * 8
