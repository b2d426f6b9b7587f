"""The head of a GGUF file: metadata and tensor table, without the tensor data.

Layout (little-endian): magic ``GGUF``, version u32, tensor count u64, key count u64, the keys (name, type, value), the
tensor table (name, dimensions, type, offset). Only as much is read as the head has; counts and lengths are bounded, so
that a damaged file ends in an error and not in memory.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from infcalc.errors import FileProblem
from infcalc.spec.weights import GGUF_BLOCKS

MAGIC = b"GGUF"
VERSIONS = frozenset({2, 3})
MAX_HEAD_BYTES = 256 * 2**20
MAX_KEYS = 100_000
MAX_TENSORS = 500_000
MAX_STRING_BYTES = 64 * 2**20
MAX_KEPT_ITEMS = 4096
"""Longer arrays (vocabularies) are walked over, only their length is kept."""
_MAX_NAME_BYTES = 65_535
_MAX_DIMENSIONS = 4
_MAX_ELEMENTS = 2**50
_MAX_ARRAY_ITEMS = 2**24
_MAX_NESTING = 3
_CHUNK_BYTES = 2**18
_BYTE_BITS = 8

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9

# Unblocked tensor types: name of the weight format, bits per element.
_PLAIN = {
    0: ("fp32", 32),
    1: ("fp16", 16),
    24: ("int8_plain", 8),
    25: ("fp16", 16),
    26: ("fp32", 32),
    27: ("fp64", 64),
    28: ("fp64", 64),
    30: ("bf16", 16),
}
_BLOCKED = {number: name for name, (number, _, _) in GGUF_BLOCKS.items()}


class ByteSource(Protocol):
    """Whatever hands out bytes in order: an open binary file, a range reader of a remote one."""

    def read(self, size: int, /) -> bytes:
        """Return the next ``size`` bytes, fewer only at the end."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufTensor:
    """One tensor of the table. ``shape`` is (columns, rows, ...) as GGUF writes it: the fastest dimension first."""

    name: str
    shape: tuple[int, ...]
    format: str
    """Name of the weight format."""
    num_bytes: int

    @property
    def num_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHeader:
    """Metadata and tensors of one GGUF file (one shard of a split model)."""

    architecture: str
    metadata: Mapping[str, object]
    """Scalars, strings, and arrays of at most 4,096 items as tuples; of longer arrays only ``array_items`` knows."""
    tensors: tuple[GgufTensor, ...]
    array_items: Mapping[str, int] = field(default_factory=dict)
    head_bytes: int = 0
    """Bytes that metadata and table take in the file."""

    @property
    def tensor_bytes(self) -> int:
        """Bytes of all tensors, without padding between them."""
        return sum(tensor.num_bytes for tensor in self.tensors)


def read_gguf(source: bytes | ByteSource, *, place: str) -> GgufHeader:
    """Return the head of a GGUF file (version 2 or 3, little-endian).

    ``source`` is the start of the file as bytes, or an object whose ``read`` yields it.

    Raises:
        FileProblem: no GGUF file, another version or byte order, cut short, or damaged.

    """
    cursor = _Cursor(_Bytes(source) if isinstance(source, (bytes, bytearray, memoryview)) else source, place)
    magic = cursor.take(4, "the magic number")
    if magic != MAGIC:
        pointer = magic == b"vers"
        raise FileProblem(
            "this is a Git LFS pointer, not the file itself" if pointer else "not a GGUF file: it starts otherwise",
            place=place,
            hint="run `git lfs pull`" if pointer else "name a .gguf file, a config.json or a checkpoint folder",
        )
    version = cursor.number("I", "the version")
    if version not in VERSIONS:
        swapped = int.from_bytes(int(version).to_bytes(4, "little"), "big") in VERSIONS
        raise FileProblem(
            "big-endian GGUF files are not read" if swapped else f"GGUF version {version} is not read",
            place=place,
            hint="versions 2 and 3, little-endian, are; convert the file again with a current llama.cpp",
        )
    num_tensors, num_keys = cursor.number("Q", "the tensor count"), cursor.number("Q", "the key count")
    if num_tensors > MAX_TENSORS or num_keys > MAX_KEYS:
        raise cursor.damaged(f"{num_tensors:,} tensors and {num_keys:,} keys")
    metadata: dict[str, object] = {}
    array_items: dict[str, int] = {}
    for _ in range(int(num_keys)):
        name = cursor.name("the name of a key")
        value = cursor.value(int(cursor.number("I", name)), name)
        if isinstance(value, _Skipped):
            array_items[name] = value.items
        else:
            metadata[name] = value
            if isinstance(value, tuple):
                array_items[name] = len(value)
    tensors = tuple(_tensor(cursor) for _ in range(int(num_tensors)))
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise FileProblem(
            "key general.architecture is missing",
            place=place,
            hint="is this a model file? Vocabularies, adapters and importance matrices are GGUF files too",
        )
    return GgufHeader(
        architecture=architecture,
        metadata=metadata,
        tensors=tensors,
        array_items=array_items,
        head_bytes=cursor.position,
    )


def _tensor(cursor: _Cursor) -> GgufTensor:
    """Return the next entry of the tensor table."""
    name = cursor.name("the name of a tensor")
    num_dimensions = int(cursor.number("I", name))
    if num_dimensions > _MAX_DIMENSIONS:
        raise cursor.damaged(f"tensor {name[:80]!r} has {num_dimensions:,} dimensions")
    shape = tuple(int(cursor.number("Q", name)) for _ in range(num_dimensions))
    number = int(cursor.number("I", name))
    cursor.number("Q", name)
    elements = math.prod(shape)
    if elements > _MAX_ELEMENTS:
        raise cursor.damaged(f"tensor {name[:80]!r} has more elements than any tensor can")
    if number in _PLAIN:
        form, bits = _PLAIN[number]
        return GgufTensor(name=name, shape=shape, format=form, num_bytes=elements * bits // _BYTE_BITS)
    form = _BLOCKED.get(number, "")
    if not form:
        raise FileProblem(
            f"tensor {name[:80]!r} has type {number}, which this version does not know",
            place=cursor.place,
            hint="a tensor type newer than this release, or one that llama.cpp removed",
        )
    _, block, block_bytes = GGUF_BLOCKS[form]
    if not shape or shape[0] % block:
        raise cursor.damaged(f"rows of tensor {name[:80]!r} are no multiple of the {block} elements of {form}")
    return GgufTensor(name=name, shape=shape, format=form, num_bytes=elements // block * block_bytes)


@dataclass(frozen=True, slots=True)
class _Skipped:
    """An array that was walked over."""

    items: int


class _Bytes:
    """Bytes as a source."""

    def __init__(self, data: bytes | bytearray | memoryview) -> None:
        self.data = memoryview(data)
        self.position = 0

    def read(self, size: int, /) -> bytes:
        part = bytes(self.data[self.position : self.position + size])
        self.position += len(part)
        return part


class _Cursor:
    """Reads the source in chunks and hands out typed values."""

    def __init__(self, source: ByteSource, place: str) -> None:
        self.source = source
        self.place = place
        self.position = 0
        self._chunk = b""
        self._start = 0

    def take(self, size: int, what: str) -> bytes:
        """Return the next ``size`` bytes."""
        if self.position + size > MAX_HEAD_BYTES:
            raise self.damaged(f"{what}: the head is longer than {MAX_HEAD_BYTES:,} bytes")
        missing = size - (len(self._chunk) - self._start)
        if missing > 0:
            more = self.source.read(max(missing, _CHUNK_BYTES))
            if len(more) < missing:
                raise FileProblem(
                    f"the file ends at byte {self.position + size - missing + len(more):,}, inside {what[:80]!r}",
                    place=self.place,
                    hint=f"at least {missing - len(more):,} more bytes are needed: an interrupted download?",
                )
            self._chunk = self._chunk[self._start :] + more
            self._start = 0
        part = self._chunk[self._start : self._start + size]
        self._start += size
        self.position += size
        return part

    def number(self, code: str, what: str) -> int | float | bool:
        """Return the next scalar of a struct code."""
        layout = f"<{code}"
        (value,) = struct.unpack(layout, self.take(struct.calcsize(layout), what))
        return value  # type: ignore[no-any-return]

    def name(self, what: str) -> str:
        """Return the next string as a name."""
        length = int(self.number("Q", what))
        if length > _MAX_NAME_BYTES:
            raise self.damaged(f"{what} has {length:,} bytes")
        return self.take(length, what).decode("utf-8", errors="replace")

    def text(self, what: str) -> str:
        """Return the next string as a value."""
        length = int(self.number("Q", what))
        if length > MAX_STRING_BYTES:
            raise self.damaged(f"a string of {length:,} bytes in {what[:80]!r}")
        return self.take(length, what).decode("utf-8", errors="replace")

    def value(self, kind: int, what: str, depth: int = 0) -> object:
        """Return the next value of a metadata type."""
        if kind in _SCALARS:
            return self.number(_SCALARS[kind], what)
        if kind == _STRING:
            return self.text(what)
        if kind != _ARRAY or depth >= _MAX_NESTING:
            raise self.damaged(f"key {what[:80]!r} has value type {kind}")
        inner, length = int(self.number("I", what)), int(self.number("Q", what))
        if length > _MAX_ARRAY_ITEMS:
            raise self.damaged(f"key {what[:80]!r} has {length:,} items")
        if length <= MAX_KEPT_ITEMS:
            return tuple(self.value(inner, what, depth + 1) for _ in range(length))
        if inner in _SCALARS:
            width = struct.calcsize(f"<{_SCALARS[inner]}")
            left = length * width
            while left:
                left -= len(self.take(min(left, _CHUNK_BYTES), what))
        elif inner == _STRING:
            self._skip_strings(length, what)
        else:
            for _ in range(length):
                self.value(inner, what, depth + 1)
        return _Skipped(length)

    def _skip_strings(self, count: int, what: str) -> None:
        """Walk over ``count`` strings; vocabularies have hundreds of thousands, so no call per string."""
        length_at = struct.Struct("<Q").unpack_from
        width = struct.calcsize("<Q")
        for _ in range(count):
            end = self._start + width
            if end <= len(self._chunk):
                end += length_at(self._chunk, self._start)[0]
                if end <= len(self._chunk):
                    self.position += end - self._start
                    self._start = end
                    continue
            self.text(what)

    def damaged(self, what: str) -> FileProblem:
        """Return the error of a file that contradicts itself."""
        return FileProblem(what, place=self.place, hint=f"the GGUF file is damaged near byte {self.position:,}")
