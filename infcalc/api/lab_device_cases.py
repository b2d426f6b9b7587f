"""Which kernels of a device are timed, at which sizes: data alone.

FLOP and bytes are counted as ``scripts/fit_efficiency.py`` counts them for the curves of the catalog: a product reads
its weights once and moves 16-bit activations in and out, prefill attention computes the causal half of its pairs,
decode attention reads the cache once.
"""

from __future__ import annotations

from infcalc.api.lab_device_nouns import Case, Family
from infcalc.frozen import frozen
from infcalc.units import KIB, MIB

PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
BYTES_OF = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
_ACTIVATION_BYTES = 2
NUM_HEADS, NUM_KV_HEADS, HEAD_DIM = 32, 8, 128
"""Attention is in the shape of Llama 3.1 8B."""
_CACHED_BYTES = 2
_TINY = 64
_CROSSING_BYTES = 64 * MIB
_STREAM_ROWS = 16
"""The fewest that fill a tile of tensor cores."""


@frozen
class Extent:
    """How large cases are: sides of square matrices that few rows meet, rows that meet a large one, and so on."""

    num_square_rows: tuple[int, ...]
    num_rows: tuple[int, ...]
    width: int
    num_held_out_elements: tuple[tuple[int, int], ...]
    """Outputs and inputs of matrices that no curve is made of."""
    num_held_out_rows: tuple[int, ...]
    prompt_tokens: tuple[int, ...]
    context_tokens: tuple[int, ...]
    num_sequences: tuple[int, ...]
    copies_bytes: tuple[int, ...]
    messages_bytes: tuple[int, ...]


_GPU = Extent(
    num_square_rows=(1024, 4096, 8192, 16384),
    num_rows=(32, 64, 128, 256, 512, 1024, 2048, 4096, 8192),
    width=8192,
    # Gate and up projections, and queries, keys and values of Llama 3.1 8B.
    num_held_out_elements=((28672, 4096), (6144, 4096)),
    num_held_out_rows=(16, 512, 4096),
    prompt_tokens=(256, 1024, 4096, 16384),
    context_tokens=(1024, 8192),
    num_sequences=(1, 16, 64),
    copies_bytes=(64 * KIB, MIB, 16 * MIB, 256 * MIB, 1024 * MIB),
    messages_bytes=(8 * KIB, 64 * KIB, 512 * KIB, 4 * MIB, 32 * MIB, 256 * MIB),
)
_QUICK_GPU = Extent(
    num_square_rows=(1024, 8192),
    num_rows=(64, 512, 4096),
    width=8192,
    num_held_out_elements=((6144, 4096),),
    num_held_out_rows=(16, 512),
    prompt_tokens=(1024, 4096),
    context_tokens=(1024, 4096),
    num_sequences=(1, 16),
    copies_bytes=(MIB, 256 * MIB),
    messages_bytes=(64 * KIB, MIB, 32 * MIB),
)
_CPU = Extent(
    num_square_rows=(256, 1024, 2048),
    num_rows=(32, 64, 128, 256, 512),
    width=1024,
    num_held_out_elements=((1536, 1024),),
    num_held_out_rows=(16, 256),
    prompt_tokens=(64, 256, 512),
    context_tokens=(256, 1024),
    num_sequences=(1, 4),
    copies_bytes=(64 * KIB, 4 * MIB, 64 * MIB),
    messages_bytes=(8 * KIB, 256 * KIB, 4 * MIB),
)
_QUICK_CPU = Extent(
    num_square_rows=(256, 1024),
    num_rows=(64, 256),
    width=512,
    num_held_out_elements=((768, 512),),
    num_held_out_rows=(64,),
    prompt_tokens=(64, 128),
    context_tokens=(64, 256),
    num_sequences=(1, 2),
    copies_bytes=(64 * KIB, 16 * MIB),
    messages_bytes=(64 * KIB, MIB),
)


def extent_of(device: str, *, quick: bool) -> Extent:
    """Return how large the cases of a kind of device are."""
    if device == "cpu":
        return _QUICK_CPU if quick else _CPU
    return _QUICK_GPU if quick else _GPU


def cases_of(device: str, *, quick: bool) -> tuple[Case, ...]:
    """Return the cases of one device, in the order in which they are timed."""
    extent = extent_of(device, quick=quick)
    copies = [Case(family=Family.COPY, num_bytes=2 * size) for size in extent.copies_bytes]
    if device != "cpu":
        copies += [Case(family=way, num_bytes=_CROSSING_BYTES) for way in (Family.UPLOAD, Family.DOWNLOAD)]
    products = [one for precision in PRECISIONS for one in _products(extent, precision)]
    prefills = [prefill(tokens) for tokens in (16, *extent.prompt_tokens)]
    decodes = [decode(num, context) for num in extent.num_sequences for context in extent.context_tokens]
    return (*copies, *products, *prefills, *decodes)


def _products(extent: Extent, precision: str) -> tuple[Case, ...]:
    side = extent.width
    return (
        product(Family.CALL, precision, _TINY, _TINY, _TINY),
        *(product(Family.STREAM, precision, _STREAM_ROWS, size, size) for size in extent.num_square_rows),
        *(product(Family.GEMM, precision, rows, side, side) for rows in extent.num_rows),
        *(
            product(Family.GEMM, precision, rows, columns, inner, held_out=True)
            for columns, inner in extent.num_held_out_elements
            for rows in extent.num_held_out_rows
        ),
    )


def product(
    family: Family, precision: str, rows: int, num_columns: int, num_inner: int, *, held_out: bool = False
) -> Case:
    """Return the product of rows with a matrix whose elements have ``precision``.

    >>> product(Family.GEMM, "fp8", 2, 8, 4).num_bytes
    80
    """
    moved = num_columns * num_inner * BYTES_OF[precision] + _ACTIVATION_BYTES * rows * (num_columns + num_inner)
    return Case(
        family=family,
        precision=precision,
        tokens=rows,
        num_columns=num_columns,
        num_inner=num_inner,
        flop=2 * rows * num_columns * num_inner,
        num_bytes=moved,
        held_out=held_out,
    )


def prefill(tokens: int, precision: str = "bf16") -> Case:
    """Return the attention of one prompt."""
    width = NUM_HEADS * HEAD_DIM
    kept = 2 * NUM_KV_HEADS * HEAD_DIM * (_CACHED_BYTES + _ACTIVATION_BYTES)
    return Case(
        family=Family.PREFILL,
        precision=precision,
        tokens=tokens,
        num_sequences=1,
        context_tokens=tokens,
        flop=2 * width * tokens * (tokens + 1),
        num_bytes=tokens * (kept + 4 * width),
    )


def decode(num_sequences: int, context_tokens: int, precision: str = "bf16") -> Case:
    """Return the attention of one new token of each sequence over its cache."""
    width = NUM_HEADS * HEAD_DIM
    cached = 2 * NUM_KV_HEADS * HEAD_DIM * context_tokens * BYTES_OF[precision]
    return Case(
        family=Family.DECODE,
        precision=precision,
        tokens=1,
        num_sequences=num_sequences,
        context_tokens=context_tokens,
        flop=4 * num_sequences * width * context_tokens,
        num_bytes=num_sequences * (cached + 4 * width),
    )


def messages_of(device: str, num_ranks: int, *, quick: bool) -> tuple[Case, ...]:
    """Return the all-reduces between so many ranks; ``num_bytes`` is the buffer of one rank."""
    return tuple(
        Case(family=Family.ALL_REDUCE, num_ranks=num_ranks, num_bytes=size)
        for size in extent_of(device, quick=quick).messages_bytes
    )
