"""Where keys and values of a sequence lie: nowhere, in one contiguous array, or in blocks of a pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from infcalc.errors import CacheOverflow
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import DTypeLike, NDArray


@frozen
class CacheShape:
    """What a model caches of one token: in each layer a key of ``key_dim`` and a value of ``value_dim`` per KV head.

    With a ``latent_dim`` no values are stored (``value_dim`` 0): they are the first ``latent_dim`` elements of the
    keys, for the latent of MLA is read as both.
    """

    num_layers: int
    num_kv_heads: int
    key_dim: int
    value_dim: int
    latent_dim: int = 0

    def elements_per_token(self) -> int:
        """Return the elements that one token adds over all layers."""
        return self.num_layers * self.num_kv_heads * (self.key_dim + self.value_dim)


class Store(Protocol):
    """Keys and values of one sequence during one step.

    ``extend`` takes those of the step's n tokens in one layer, ``keys`` (n, num_kv_heads, key_dim) and ``values`` (n,
    num_kv_heads, value_dim), and returns all of the sequence so far, (num_kv_heads, T, key_dim) and (num_kv_heads, T,
    value dimension).
    """

    def extend(
        self, layer: int, keys: NDArray[np.float64], values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Take the step's keys and values of ``layer``; return those of every token so far."""
        ...


class NoCache:
    """A store that remembers nothing between steps: the step itself must bring every token of the sequence."""

    def __init__(self, shape: CacheShape) -> None:
        self.shape = shape

    def extend(
        self, layer: int, keys: NDArray[np.float64], values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the step's own keys and values, heads first."""
        del layer
        held = np.ascontiguousarray(keys.swapaxes(0, 1))
        return held, as_values(self.shape, held, np.ascontiguousarray(values.swapaxes(0, 1)))


class KVCache:
    """The contiguous cache of one sequence: keys (num_layers, num_kv_heads, max_tokens, key_dim), values alike.

    Memory for ``max_tokens`` is taken at once. All layers of a step write at the same position, which ``advance`` moves
    once per step, after the last layer.

    >>> cache = KVCache(CacheShape(num_layers=2, num_kv_heads=1, key_dim=4, value_dim=4), max_tokens=8)
    >>> for layer in range(2):
    ...     held, _ = cache.extend(layer, np.ones((3, 1, 4)), np.ones((3, 1, 4)))
    >>> held.shape, cache.filled_shape, cache.filled_bytes
    ((1, 3, 4), (2, 1, 0, 4), 0)
    >>> cache.advance()
    >>> cache.filled_shape, cache.filled_bytes, cache.reserved_bytes
    ((2, 1, 3, 4), 384, 1024)
    """

    def __init__(self, shape: CacheShape, max_tokens: int, dtype: DTypeLike = np.float64) -> None:
        self.shape = shape
        self.max_tokens = max_tokens
        self.position = 0
        room = (shape.num_layers, shape.num_kv_heads, max_tokens)
        self.keys: NDArray[np.float64] = np.zeros((*room, shape.key_dim), dtype)
        self.values: NDArray[np.float64] = np.zeros((*room, shape.value_dim), dtype)
        self._pending: dict[int, int] = {}

    @property
    def filled_shape(self) -> tuple[int, int, int, int]:
        """Shape of the keys that hold tokens: it grows along the third axis by the tokens of each step."""
        return (self.shape.num_layers, self.shape.num_kv_heads, self.position, self.shape.key_dim)

    @property
    def filled_bytes(self) -> int:
        """Bytes of keys and values that hold tokens."""
        return self.position * self.shape.elements_per_token() * self.keys.itemsize

    @property
    def reserved_bytes(self) -> int:
        """Bytes taken, filled or not."""
        return self.keys.nbytes + self.values.nbytes

    def extend(
        self, layer: int, keys: NDArray[np.float64], values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Write the step's keys and values of ``layer`` at the write position; return views of all so far.

        Raises:
            CacheOverflow: they do not fit.
            ValueError: the layer has written in this step already.

        """
        end = self.position + len(keys)
        if end > self.max_tokens:
            raise CacheOverflow(
                f"{len(keys)} tokens at position {self.position} do not fit into a KV cache of {self.max_tokens}",
                hint=f"reserve at least {end} tokens, or finish the sequence at {self.max_tokens}",
            )
        if layer in self._pending:
            raise ValueError(f"layer {layer} has already written in this step: advance first")
        self._pending[layer] = len(keys)
        self.keys[layer, :, self.position : end] = keys.swapaxes(0, 1)
        self.values[layer, :, self.position : end] = values.swapaxes(0, 1)
        held = self.keys[layer, :, :end]
        return held, as_values(self.shape, held, self.values[layer, :, :end])

    def advance(self) -> None:
        """Move the write position past the step's tokens, once for all layers.

        Raises:
            ValueError: a layer has not written, or layers wrote different numbers of tokens.

        """
        written = set(self._pending.values())
        if len(self._pending) != self.shape.num_layers or len(written) != 1:
            raise ValueError(
                f"{len(self._pending)} of {self.shape.num_layers} layers have written, tokens {sorted(written)}: "
                "a step writes the same tokens in every layer"
            )
        self.position += written.pop()
        self._pending.clear()


class PagedCache:
    """The pool of an engine: keys (num_layers, num_blocks, num_kv_heads, block_tokens, key_dim), values alike.

    It knows blocks only; which sequence owns which is in the block tables that come with each step.
    """

    def __init__(self, shape: CacheShape, num_blocks: int, block_tokens: int, dtype: DTypeLike = np.float64) -> None:
        self.shape = shape
        self.block_tokens = block_tokens
        blocks = (shape.num_layers, num_blocks, shape.num_kv_heads, block_tokens)
        # Not a number until written: a block read before it was filled spoils the output instead of passing as zeros.
        self.keys: NDArray[np.float64] = np.full((*blocks, shape.key_dim), np.nan, dtype)
        self.values: NDArray[np.float64] = np.full((*blocks, shape.value_dim), np.nan, dtype)

    @property
    def num_blocks(self) -> int:
        """Number of blocks in the pool."""
        return int(self.keys.shape[1])

    def copy(self, source: int, target: int, num_tokens: int) -> None:
        """Copy the first ``num_tokens`` of block ``source`` to ``target`` in every layer: copy on write."""
        for pool in (self.keys, self.values):
            pool[:, target, :, :num_tokens] = pool[:, source, :, :num_tokens]

    def write(
        self, layer: int, table: tuple[int, ...], start: int, keys: NDArray[np.float64], values: NDArray[np.float64]
    ) -> None:
        """Write ``keys`` and ``values`` (n, num_kv_heads, dim) of the tokens from position ``start`` on.

        Raises:
            CacheOverflow: the block table is too short for them.

        """
        positions = np.arange(start, start + len(keys))
        if len(positions) and positions[-1] // self.block_tokens >= len(table):
            raise CacheOverflow(
                f"position {positions[-1]} lies beyond the {len(table)} blocks of {self.block_tokens} tokens in the "
                "block table",
                hint="allocate blocks before the step that fills them",
            )
        blocks = np.array(table, dtype=np.intp)[positions // self.block_tokens]
        slots = positions % self.block_tokens
        self.keys[layer, blocks, :, slots] = keys
        self.values[layer, blocks, :, slots] = values

    def move(self, table: tuple[int, ...], sources: Sequence[int], start: int) -> None:
        """Move the tokens at positions ``sources`` to ``start`` and behind, in every layer.

        Thus the accepted path of a tree of drafts comes to lie behind what was there before it.
        """
        blocks = np.array(table, dtype=np.intp)
        source, target = np.array(sources, dtype=np.intp), np.arange(start, start + len(sources))
        for pool in (self.keys, self.values):
            moved = pool[:, blocks[source // self.block_tokens], :, source % self.block_tokens]
            pool[:, blocks[target // self.block_tokens], :, target % self.block_tokens] = moved

    def gather(
        self, layer: int, table: tuple[int, ...], num_tokens: int
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return keys and values of the first ``num_tokens`` of a sequence, copied together as (heads, T, dim)."""
        used = list(table[: -(-num_tokens // self.block_tokens)])
        room = len(used) * self.block_tokens
        keys, values = (
            pool[layer, used].swapaxes(0, 1).reshape(len(pool[0, 0]), room, pool.shape[-1])[:, :num_tokens]
            for pool in (self.keys, self.values)
        )
        return keys, as_values(self.shape, keys, values)


class PagedStore:
    """One sequence in a :class:`PagedCache` during one step that starts at position ``start``."""

    def __init__(self, cache: PagedCache, table: tuple[int, ...], start: int) -> None:
        self.cache = cache
        self.table = table
        self.start = start

    def extend(
        self, layer: int, keys: NDArray[np.float64], values: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Write through the block table, then read the whole sequence back through it."""
        self.cache.write(layer, self.table, self.start, keys, values)
        return self.cache.gather(layer, self.table, self.start + len(keys))


def as_values(shape: CacheShape, keys: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the values, or the part of the keys that stands for them."""
    return keys[..., : shape.latent_dim] if shape.latent_dim else values
