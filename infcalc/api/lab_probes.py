"""The kernels of the numpy engine one by one, each ready to be timed by itself: what efficiency curves are made of.

None of them is a step of a model. Matrices come from a stretch of memory larger than the last-level cache, one after
the other, so that each is read from memory as the weights of a large model are; attention and what works element by
element run the very functions of the engine, on noise in place of projections.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, cast

import numpy as np

from infcalc.api.lab_models import grouped_attention
from infcalc.frozen import frozen
from infcalc.lowering.ops import Decode, ElementwiseIo, Extent, OpKind, Prefill, StepShape, operations
from infcalc.reference.arithmetic import BATCHED, Arithmetic
from infcalc.reference.cache import KVCache, NoCache, PagedCache, PagedStore
from infcalc.reference.elementwise import rms_norm, rope_table, swiglu
from infcalc.reference.mixers import AttentionStep, Segment, cache_shape, mixed, rope_width
from infcalc.spec.kv import KV_FORMATS
from infcalc.spec.layers import DenseFeedForward
from infcalc.units import KIB, MIB

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from infcalc.reference.cache import Store
    from infcalc.spec.model import Model

    Array = NDArray[np.float64]

ELEMENT_BYTES = 4
"""Single precision."""
BLOCK_TOKENS = 16
_ROW_ELEMENTS = 1024
_STREAM_BYTES = (256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
_GEMM_ROWS = (2, 4, 8, 16, 32, 64, 128, 256, 512)
_GEMM_OUTPUTS = 4096
_RUN_BYTES = 8 * MIB
"""Small matrices are timed in runs of so much: a clock has its own grain."""
_SQUARE = 1536
_QUICK_SQUARE = 768
_QUICK_TOKENS = 64
_TINY = 16
_SHORT_TOKENS, _LONG_TOKENS = 16, 1024
_MANY_SEQUENCES = 8
_PREFILL_TOKENS = (16, 64, 256)
_ELEMENTWISE_TOKENS = (1, 256)


class Family(StrEnum):
    """What a probe times."""

    STREAM = "matrix times vector"
    PEAK = "square matrices"
    CALL = "smallest product"
    GEMM = "rows times matrix"
    DECODE = "decode attention, contiguous cache"
    PAGED = "decode attention, through block tables"
    PREFILL = "prefill attention"
    ELEMENTWISE = "norms, activation and additions"


@frozen
class Probe:
    """One run of ``num_kernels`` equal kernels, each with ``flop`` and ``num_bytes`` as THE list of ops counts them.

    ``tokens`` are what the curve of such kernels goes by: rows of a product, sequences in decode attention, new tokens
    of a sequence in prefill; ``context_tokens`` lie in the cache before.
    """

    family: Family
    tokens: int
    flop: float
    num_bytes: float
    num_kernels: int
    run: Callable[[], object]
    context_tokens: int = 0


class _Pool:
    """Memory that matrices are taken from, one behind the other and all probes in turn, from the start when it ends.

    What was read once comes back when the whole rest was read: no cache holds it by then.
    """

    def __init__(self, num_bytes: int) -> None:
        noise = np.random.default_rng(0).standard_normal(MIB, dtype=np.float32)
        self.elements = cast("Array", np.resize(noise, num_bytes // ELEMENT_BYTES))
        self.position = 0

    def next(self, size: int) -> Array:
        """Return the next ``size`` elements."""
        if self.position + size > len(self.elements):
            self.position = 0
        start, self.position = self.position, self.position + size
        return self.elements[start : start + size]


def probes(model: Model, pool_bytes: int, *, quick: bool = False) -> tuple[Probe, ...]:
    """Return the probes of kernels as ``model`` has them, with matrices from ``pool_bytes`` of memory.

    Those that are ``quick`` leave out what takes longest: many rows, long prompts, large squares.
    """
    most = _QUICK_TOKENS if quick else _GEMM_ROWS[-1]
    pool = _Pool(pool_bytes)
    lone = ((1, _SHORT_TOKENS), (1, _LONG_TOKENS), (_MANY_SEQUENCES, _SHORT_TOKENS))
    return (
        _square(_QUICK_SQUARE if quick else _SQUARE),
        _call(),
        *(_stream(pool, size) for size in _STREAM_BYTES if size <= pool_bytes),
        *(_gemm(pool, rows) for rows in _GEMM_ROWS if rows <= most),
        *(_decode(model, Family.DECODE, num, context) for num, context in lone),
        *(_decode(model, Family.PAGED, num, context) for num, context in lone),
        *(_prefill(model, tokens) for tokens in (1, *_PREFILL_TOKENS) if tokens <= most),
        *(_elementwise(model, tokens) for tokens in _ELEMENTWISE_TOKENS),
    )


def _square(size: int) -> Probe:
    one = np.random.default_rng(0).standard_normal((size, size), dtype=np.float32)
    return Probe(
        family=Family.PEAK,
        tokens=size,
        flop=2 * size**3,
        num_bytes=2 * size**2 * ELEMENT_BYTES,
        num_kernels=1,
        run=lambda: one @ one.T,
    )


def _call() -> Probe:
    one = np.ones((_TINY, _TINY), dtype=np.float32)
    num = 200

    def run() -> None:
        for _ in range(num):
            one @ one

    return Probe(family=Family.CALL, tokens=_TINY, flop=0, num_bytes=0, num_kernels=num, run=run)


def _stream(pool: _Pool, num_bytes: int) -> Probe:
    return _products(Family.STREAM, pool, 1, num_bytes // ELEMENT_BYTES // _ROW_ELEMENTS)


def _gemm(pool: _Pool, rows: int) -> Probe:
    return _products(Family.GEMM, pool, rows, _GEMM_OUTPUTS)


def _products(family: Family, pool: _Pool, rows: int, outputs: int) -> Probe:
    """Multiply ``rows`` rows with matrices that lie one after the other in the pool, each run with the next of them."""
    inputs = np.ones((rows, _ROW_ELEMENTS), dtype=np.float32)
    size = outputs * _ROW_ELEMENTS
    num = max(1, _RUN_BYTES // (size * ELEMENT_BYTES))

    def run() -> None:
        for _ in range(num):
            BATCHED.project(cast("Array", inputs), pool.next(size).reshape(outputs, _ROW_ELEMENTS))

    return Probe(
        family=family,
        tokens=rows,
        flop=2 * rows * size,
        num_bytes=size * ELEMENT_BYTES,
        num_kernels=num,
        run=run,
    )


def _decode(model: Model, family: Family, num_sequences: int, context_tokens: int) -> Probe:
    stores = [_store(model, family, context_tokens) for _ in range(num_sequences)]
    shape = StepShape(decodes=(Decode(context_tokens=context_tokens, num_sequences=num_sequences),))
    flop, num_bytes = _counted(model, shape, OpKind.ATTENTION_DECODE)
    return Probe(
        family=family,
        tokens=num_sequences,
        context_tokens=context_tokens,
        flop=flop,
        num_bytes=num_bytes,
        num_kernels=model.num_layers,
        run=_attention(model, stores, new_tokens=1, cached_tokens=context_tokens),
    )


def _prefill(model: Model, new_tokens: int) -> Probe:
    stores: list[Store] = [NoCache(cache_shape(grouped_attention(model), model.num_layers))]
    shape = StepShape(prefills=(Prefill(new_tokens=new_tokens),))
    flop, num_bytes = _counted(model, shape, OpKind.ATTENTION_PREFILL)
    return Probe(
        family=Family.PREFILL,
        tokens=new_tokens,
        flop=flop,
        num_bytes=num_bytes,
        num_kernels=model.num_layers,
        run=_attention(model, stores, new_tokens=new_tokens, cached_tokens=0),
    )


def _elementwise(model: Model, tokens: int) -> Probe:
    """Two norms, two additions and one activation: what a layer does beside products and attention."""
    block = model.layers[0].layer.feed_forward
    inner = block.width if isinstance(block, DenseFeedForward) else 0
    noise = np.random.default_rng(0)
    state, mixed_in, gate, up = (
        cast("Array", noise.standard_normal((tokens, width), dtype=np.float32))
        for width in (model.hidden_size, model.hidden_size, inner, inner)
    )
    weight = cast("Array", np.ones(model.hidden_size, dtype=np.float32))

    def run() -> None:
        for _ in range(model.num_layers):
            rms_norm(state, weight)
            rms_norm(state + mixed_in, weight)
            swiglu(gate, up)
            state + mixed_in

    shape = StepShape(prefills=(Prefill(new_tokens=tokens),))
    parts = [_counted(model, shape, kind) for kind in (OpKind.NORM, OpKind.ACTIVATION)]
    return Probe(
        family=Family.ELEMENTWISE,
        tokens=tokens,
        flop=0,
        num_bytes=sum(num_bytes for _, num_bytes in parts) / _ELEMENTWISE_KERNELS,
        num_kernels=_ELEMENTWISE_KERNELS * model.num_layers,
        run=run,
    )


_ELEMENTWISE_KERNELS = 3
"""As THE list of ops counts them: each norm takes the addition before it along."""


def _store(model: Model, family: Family, context_tokens: int) -> Store:
    shape = cache_shape(grouped_attention(model), model.num_layers)
    if family is Family.DECODE:
        cache = KVCache(shape, context_tokens + 1, np.float32)
        cache.position = context_tokens
        return _Rewound(cache, context_tokens)
    num_blocks = -(-(context_tokens + 1) // BLOCK_TOKENS)
    paged = PagedCache(shape, num_blocks, BLOCK_TOKENS, np.float32)
    paged.keys[:] = paged.values[:] = 0
    return PagedStore(paged, tuple(range(num_blocks)), context_tokens)


class _Rewound:
    """A contiguous cache that forgets what a step wrote, once its last layer has written."""

    def __init__(self, cache: KVCache, context_tokens: int) -> None:
        self.cache = cache
        self.context_tokens = context_tokens

    def extend(self, layer: int, keys: Array, values: Array) -> tuple[Array, Array]:
        """Write the step's keys and values of ``layer``; return those of every token so far."""
        held = self.cache.extend(layer, keys, values)
        if layer == self.cache.shape.num_layers - 1:
            self.cache.advance()
            self.cache.position = self.context_tokens
        return held


def _attention(model: Model, stores: list[Store], *, new_tokens: int, cached_tokens: int) -> Callable[[], object]:
    """Return attention of all layers with what goes with it (rotation, writing to the cache), without projections."""
    mixer = grouped_attention(model)
    num_tokens = new_tokens * len(stores)
    outputs = {"q": mixer.num_heads, "k": mixer.num_kv_heads, "v": mixer.num_kv_heads}
    weights = {
        name: cast("Array", np.empty((heads * mixer.head_dim, 0), np.float32)) for name, heads in outputs.items()
    }
    weights["o"] = cast("Array", np.empty((model.hidden_size, 0), np.float32))
    widest = max(len(weight) for weight in weights.values())
    noise = np.random.default_rng(0).standard_normal(num_tokens * widest, dtype=np.float32)

    def project(rows: Array, weight: Array) -> Array:
        return cast("Array", noise[: len(rows) * len(weight)].reshape(len(rows), len(weight)))

    table = cast("Array", rope_table(cached_tokens + new_tokens, rope_width(mixer)).astype(np.float32))
    positions = np.tile(np.arange(cached_tokens, cached_tokens + new_tokens), len(stores))
    segments = tuple(
        Segment(rows=slice(index * new_tokens, (index + 1) * new_tokens), store=store)
        for index, store in enumerate(stores)
    )
    arithmetic = Arithmetic(project=project, attend=BATCHED.attend)
    rows = cast("Array", np.zeros((num_tokens, model.hidden_size), np.float32))

    def steps() -> Iterator[AttentionStep]:
        for layer in range(model.num_layers):
            yield AttentionStep(layer=layer, positions=positions, segments=segments, rope=table, arithmetic=arithmetic)

    def run() -> None:
        for step in steps():
            mixed(mixer, weights, rows, step)

    return run


def _counted(model: Model, shape: StepShape, kind: OpKind) -> tuple[float, float]:
    """Return FLOP and bytes of the ops of ``kind`` in one layer, as the prediction of a step will count them."""
    ops = [
        op
        for op in operations(
            model,
            shape,
            kv=KV_FORMATS["fp32"],
            elementwise_io=ElementwiseIo.SEPARATE,
            extent=Extent.ENGINE,
        )
        if op.kind is kind and op.num_layers == model.num_layers and op.name != "final_norm"
    ]
    layers = model.num_layers
    return sum(op.flop for op in ops) / layers, sum(op.total_bytes for op in ops) / layers
