"""Checkpoint folders: safetensors headers and the shard index, checked against the model read from ``config.json``.

Pure functions on bytes and mappings; whoever calls them opens the files. Only the head of a safetensors file is needed.
Layout: 8 bytes little-endian header length N, N bytes of JSON ``{tensor: {dtype, shape, data_offsets}}``, then data.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import replace

from infcalc.catalog.architectures.reader import shown
from infcalc.catalog.huggingface import from_config
from infcalc.catalog.lenient_json import parse_json_object
from infcalc.catalog.module_names import NO_LAYER, select
from infcalc.catalog.quantization import read_quantization
from infcalc.errors import FileProblem
from infcalc.frozen import frozen
from infcalc.lowering.tensors import inventory
from infcalc.spec.model import Model
from infcalc.spec.weights import LINEAR_ROLES, TensorRole, WeightQuantization, weight_format

LENGTH_BYTES = 8
MAX_HEADER_BYTES = 100_000_000
"""The limit that the safetensors library itself sets."""
TOLERANCE_FRACTION = 0.01
"""Differences of totals above this are worth a warning."""

_DTYPE_BITS = {
    "F64": 64,
    "F32": 32,
    "F16": 16,
    "BF16": 16,
    "F8_E4M3": 8,
    "F8_E5M2": 8,
    "F8_E8M0": 8,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F4": 4,
    "C64": 64,
    "U64": 64,
    "I64": 64,
    "U32": 32,
    "I32": 32,
    "U16": 16,
    "I16": 16,
    "U8": 8,
    "I8": 8,
    "BOOL": 8,
}
_MAX_ELEMENTS = 2**50
_MAX_DIMENSIONS = 8
_MAX_TENSORS = 2_000_000
_WORD_BITS = 32
_BYTE_BITS = 8
_OFFSETS = 2
_NAMED = 4

# What a quantized module stores beside its elements.
_BOOKKEEPING = re.compile(
    r"(^|[._])(scales?|weight_scale\w*|weight_global_scale|weight_zero_point|weight_g_idx|weight_shape|input_scale|"
    r"input_global_scale|input_zero_point|[qkv]_scale|output_scale|prob_output_scale|qzeros|g_idx|absmax|nested_absmax|"
    r"quant_map|nested_quant_map|SCB|weight_format|inv_freq|masked_bias|weight_scale_inv|activation_scale|"
    r"(?:gate_up_proj|down_proj|gate_proj|up_proj)_scales)$|quant_state\."
)
_UNMODELLED = re.compile(
    r"(?:^|\.)(vision_tower|vision_model|vision_encoder|vision_embed_tokens|visual|multi_modal_projector|mm_projector|"
    r"vision_projector|vision|image_newline|audio_tower|audio_encoder|audio_projector|audio|embed_audio|embed_vision|"
    r"img_projector|img_processor|resampler|vpm|apm|sam_model|vit|patch_merger|mm_input_projection_weight|talker|"
    r"code2wav|token2wav|speech_\w+|sound_\w+)(?:\.|$)"
)


@frozen
class StoredTensor:
    """One tensor as a safetensors header lists it. ``num_bytes`` is what it occupies in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    num_bytes: int

    @property
    def num_elements(self) -> int:
        """Elements of the stored shape: packed words count as one."""
        return math.prod(self.shape)


@frozen
class ShardIndex:
    """``model.safetensors.index.json``: what it says of the total, and which file holds each tensor."""

    num_bytes: int | None
    """Bytes, or by some tools' mistake the number of parameters; None where absent."""
    total_parameters: int | None
    weight_map: Mapping[str, str]

    @property
    def shards(self) -> tuple[str, ...]:
        """File names of the shards, each once, in order of name."""
        return tuple(sorted(set(self.weight_map.values())))


@frozen
class CheckpointCount:
    """Totals of a checkpoint's headers. Parameters are elements: packed words are unpacked, scales left out."""

    parameters: int
    num_bytes: int
    unmodelled_parameters: int
    """Parameters of vision and audio towers and their projectors."""
    unmodelled_bytes: int
    unmodelled_parts: tuple[str, ...]


def safetensors_head_bytes(first: bytes, *, place: str, file_size: int | None = None) -> int:
    """Return how many bytes from the start of a safetensors file hold its header, given its first 8 bytes.

    Raises:
        FileProblem: too short, or a header length that the file cannot have.

    """
    if len(first) < LENGTH_BYTES:
        raise FileProblem(
            f"{len(first)} bytes are too few for a safetensors file", place=place, hint="an interrupted download?"
        )
    (length,) = struct.unpack_from("<Q", first)
    if first.startswith(b"version "):
        raise FileProblem("this is a Git LFS pointer, not the file itself", place=place, hint="run `git lfs pull`")
    if not _OFFSETS <= length <= MAX_HEADER_BYTES:
        raise FileProblem(
            f"header length {length:,} is not that of a safetensors file (2 to {MAX_HEADER_BYTES:,} bytes)",
            place=place,
            hint="is it a pickle (.bin) or a GGUF file under another name?",
        )
    if file_size is not None and LENGTH_BYTES + length > file_size:
        raise FileProblem(
            f"the header should have {length:,} bytes but the file has {file_size:,}",
            place=place,
            hint="an interrupted download?",
        )
    return LENGTH_BYTES + int(length)


def read_safetensors_header(head: bytes, *, place: str, file_size: int | None = None) -> tuple[StoredTensor, ...]:
    """Return the tensors that the head of a safetensors file lists, in order of their data.

    ``head`` holds at least the first 8 + N bytes (:func:`safetensors_head_bytes`); ``file_size`` in bytes, where known,
    is checked against the header.

    Raises:
        FileProblem: damaged: lengths, offsets, shapes or types that contradict each other.

    """
    end = safetensors_head_bytes(head[:LENGTH_BYTES], place=place, file_size=file_size)
    if len(head) < end:
        raise FileProblem(
            f"the header ends after {len(head):,} of {end:,} bytes", place=place, hint="an interrupted download?"
        )
    table = parse_json_object(head[LENGTH_BYTES:end], place=place)
    if len(table) > _MAX_TENSORS:
        raise FileProblem(f"{len(table):,} tensors in one file", place=place, hint="the header is damaged")
    found = [
        (*_offsets(entry, name, place), _stored(entry, name, place))
        for name, entry in table.items()
        if name != "__metadata__"
    ]
    found.sort(key=lambda item: (item[0], item[1]))
    last = 0
    for begin, stop, tensor in found:
        if begin < last:
            raise _damaged(tensor.name, f"its data starts at {begin:,}, inside the tensor before it", place)
        if stop - begin != tensor.num_bytes:
            raise _damaged(
                tensor.name,
                f"data_offsets span {stop - begin:,} bytes, its {tensor.dtype} elements {tensor.num_bytes:,}",
                place,
            )
        last = stop
    if file_size is not None and end + last > file_size:
        raise FileProblem(
            f"the header lists {end + last:,} bytes but the file has {file_size:,}",
            place=place,
            hint="an interrupted download?",
        )
    return tuple(tensor for _, _, tensor in found)


def read_index(index: Mapping[str, object], *, place: str = "model.safetensors.index.json") -> ShardIndex:
    """Return what a shard index says.

    Raises:
        FileProblem: no ``weight_map`` of names to file names.

    """
    weights = index.get("weight_map")
    if not isinstance(weights, Mapping) or not all(isinstance(file, str) for file in weights.values()):
        raise FileProblem(
            "no weight_map of tensor names to file names", place=place, hint="is this a model.safetensors.index.json?"
        )
    found = index.get("metadata")
    metadata: Mapping[object, object] = found if isinstance(found, Mapping) else {}
    return ShardIndex(
        num_bytes=_whole(metadata.get("total_size")),
        total_parameters=_whole(metadata.get("total_parameters")),
        weight_map={str(name): str(file) for name, file in weights.items()},
    )


def count_checkpoint(tensors: Iterable[StoredTensor], quantization: WeightQuantization | None) -> CheckpointCount:
    """Return parameters and bytes of a checkpoint, its vision and audio parts apart.

    A packed int32 word holds 32 / bits elements and a packed byte 8 / bits, by the format that ``quantization`` gives
    to its module; scales, zero points, ``g_idx`` and the like are bytes but no parameters.
    """
    widths = _Widths(quantization)
    parameters = num_bytes = apart_parameters = apart_bytes = 0
    parts: dict[str, None] = {}
    for tensor in tensors:
        elements = _parameters(tensor, widths)
        if match := _UNMODELLED.search(tensor.name):
            parts.setdefault(match[1])
            apart_parameters += elements
            apart_bytes += tensor.num_bytes
        else:
            parameters += elements
            num_bytes += tensor.num_bytes
    return CheckpointCount(
        parameters=parameters,
        num_bytes=num_bytes,
        unmodelled_parameters=apart_parameters,
        unmodelled_bytes=apart_bytes,
        unmodelled_parts=tuple(parts),
    )


def cross_check(
    model: Model, *, tensors: tuple[StoredTensor, ...] | None = None, index: ShardIndex | None = None
) -> tuple[str, ...]:
    """Return warnings where the checkpoint's totals differ by more than 1 % from the inventory of ``model``.

    With headers, parameters and bytes are compared; with an index alone its ``total_size`` (which is left unjudged when
    it is a parameter count, or when vision or audio parts are in it).
    """
    expected = _Expected(model)
    if tensors:
        return _check_headers(model, expected, tensors, index)
    if index is None:
        return ()
    warnings: list[str] = []
    apart = any(_UNMODELLED.search(name) for name in index.weight_map)
    stated = index.total_parameters
    if stated and not apart and not expected.packed and _differs(stated, expected.parameters):
        warnings.append(_difference("the index states", stated, "parameters", expected.parameters))
    size = index.num_bytes
    if size and _differs(size, expected.num_bytes):
        if not _differs(size, expected.parameters):
            warnings.append(
                f"total_size {size:,} in the index is the number of parameters, not of bytes: it was passed over"
            )
        elif not apart or size < expected.num_bytes * (1 - TOLERANCE_FRACTION):
            warnings.append(_difference("the index states", size, "bytes", expected.num_bytes))
    return tuple(warnings)


def model_from_parts(
    *,
    config: Mapping[str, object],
    sidecar: Mapping[str, object] | None = None,
    headers: tuple[StoredTensor, ...] | None = None,
    index: Mapping[str, object] | None = None,
    name: str,
    place: str,
) -> tuple[Model, tuple[str, ...]]:
    """Return the model of a checkpoint and what is worth a warning.

    ``config`` is the content of ``config.json``, ``sidecar`` of ``hf_quant_config.json``, ``index`` of
    ``model.safetensors.index.json``; ``headers`` are the tensors of all shards together. Vision and audio parameters
    are counted from the headers, or from the excess of the index's total.

    Raises:
        FileProblem: a damaged file.
        UnsupportedArchitecture: an architecture or quantization method that is not understood.

    """
    reading = read_quantization(config, sidecar=sidecar)
    model = from_config(config, name=name, quantization=reading.quantization, kv_dtype=reading.kv_dtype)
    shards = read_index(index, place=f"{place}: model.safetensors.index.json") if index is not None else None
    warnings = [*reading.notes, *cross_check(model, tensors=headers, index=shards)]
    if headers:
        count = count_checkpoint(headers, model.quantization)
        if count.unmodelled_parameters:
            model = replace(
                model,
                unmodelled=model.unmodelled or count.unmodelled_parts,
                unmodelled_parameters=count.unmodelled_parameters,
            )
    elif shards is not None and shards.num_bytes:
        parts = dict.fromkeys(match[1] for part in shards.weight_map if (match := _UNMODELLED.search(part)))
        excess = shards.num_bytes - _Expected(model).num_bytes
        if parts and excess > 0:
            # Towers are stored in the checkpoint's own type: quantizers leave them alone.
            model = replace(
                model,
                unmodelled=model.unmodelled or tuple(parts),
                unmodelled_parameters=int(excess * _BYTE_BITS / weight_format(model.dtype).element_bits),
            )
    return model, tuple(f"{place}: {warning}" for warning in warnings)


class _Expected:
    """Parameters and bytes that the inventory says a checkpoint of ``model`` has, its MTP layers included."""

    def __init__(self, model: Model) -> None:
        tensors = inventory(model, with_mtp=True)
        table = next(tensor for tensor in tensors if tensor.role is TensorRole.EMBEDDING)
        # A copy is an embedding table and a head.
        copies = 2 * model.mtp.embedding_copies * model.mtp.num_layers if model.mtp else 0
        self.parameters = sum(tensor.parameters for tensor in tensors) + copies * table.parameters
        self.num_bytes = sum(tensor.bytes_total for tensor in tensors) + copies * table.bytes_total
        self.table_parameters = table.parameters
        self.table_bytes = table.bytes_total
        self.packed = any(tensor.format.element_bits < _BYTE_BITS for tensor in tensors)


class _Widths:
    """Bits of an element by module, for tensors that are packed into words or bytes."""

    def __init__(self, quantization: WeightQuantization | None) -> None:
        self.quantization = quantization
        widths: set[int] = set()
        if quantization is not None:
            names = {quantization.format, *(rule.format for rule in quantization.rules)}
            widths = {int(weight_format(name).element_bits) for name in names}
        self.narrow = {bits for bits in widths if bits < _BYTE_BITS}
        self.packable = {bits for bits in widths if bits <= _BYTE_BITS}

    def of_word(self, module: str) -> int:
        """Return the bits of an element in the int32 words of ``module``."""
        if len(self.packable) == 1:
            return next(iter(self.packable))
        return self._by_rule(module) or _NAMED

    def of_byte(self, module: str) -> int:
        """Return the bits of an element in the bytes of ``module``."""
        if not self.narrow:
            return _BYTE_BITS
        if self.packable == self.narrow and len(self.narrow) == 1:
            return next(iter(self.narrow))
        return self._by_rule(module) or _BYTE_BITS

    def _by_rule(self, module: str) -> int | None:
        """Return the bits that rules, else the base, give to ``module``; None where they are not an integer packing."""
        if self.quantization is None:
            return None
        # Of all experts the first stands for all.
        chosen = select(re.sub(r"experts\.\d+", "experts.0", module), num_layers=_layer_count(module))
        form = self.quantization.format
        for rule in reversed(self.quantization.rules):
            for (role, name), layers in chosen.items():
                covers = role in (rule.roles or LINEAR_ROLES) and (not rule.names or name in rule.names)
                if covers and (rule.layers is None or layers & {*rule.layers, NO_LAYER}):
                    form = rule.format
        bits = int(weight_format(form).element_bits)
        return bits if bits <= _BYTE_BITS else None


def _layer_count(module: str) -> int:
    """Return a layer count that makes the layer named in ``module`` exist."""
    match = re.search(r"\.(?:layers|h|blocks)\.(\d{1,4})\.", module)
    return int(match[1]) + 1 if match else 0


def _parameters(tensor: StoredTensor, widths: _Widths) -> int:
    """Return how many elements of the model ``tensor`` holds."""
    if _BOOKKEEPING.search(tensor.name):
        return 0
    if tensor.dtype in {"I32", "U32"}:
        if tensor.name.endswith((".qweight", ".weight_packed", "_packed", ".weight")):
            return tensor.num_elements * _WORD_BITS // widths.of_word(tensor.name.rpartition(".")[0])
        return 0
    if tensor.dtype in {"U8", "I8"}:
        if tensor.name.endswith("_blocks"):
            return tensor.num_elements * 2
        return tensor.num_elements * _BYTE_BITS // widths.of_byte(tensor.name.rpartition(".")[0])
    return 0 if tensor.dtype in {"I64", "U64", "BOOL", "I16", "U16"} else tensor.num_elements


def _check_headers(
    model: Model, expected: _Expected, tensors: tuple[StoredTensor, ...], index: ShardIndex | None
) -> tuple[str, ...]:
    """Return warnings of a checkpoint whose headers are at hand."""
    if index is not None:
        listed = {tensor.name for tensor in tensors}
        missing = [name for name in index.weight_map if name not in listed]
        if missing:
            of = f"{len(missing):,} of {len(index.weight_map):,} tensors of the index"
            return (f"{of} are in shards that are not here, such as {index.weight_map[missing[0]]}: no totals checked",)
    count = count_checkpoint(tensors, model.quantization)
    parameters, num_bytes = count.parameters, count.num_bytes
    heads = [tensor for tensor in tensors if tensor.name.endswith("lm_head.weight")]
    if model.tied_embeddings and heads and any("embed" in tensor.name for tensor in tensors):
        # Some tools store the tied head a second time.
        parameters -= expected.table_parameters
        num_bytes -= expected.table_bytes
    warnings = []
    if _differs(parameters, expected.parameters):
        warnings.append(_difference("the headers list", parameters, "parameters", expected.parameters))
    if _differs(num_bytes, expected.num_bytes):
        warnings.append(_difference("the headers list", num_bytes, "bytes", expected.num_bytes))
    return tuple(warnings)


def _differs(value: int, expected: int) -> bool:
    return abs(value - expected) > TOLERANCE_FRACTION * expected


def _difference(source: str, value: int, unit: str, expected: int) -> str:
    share = (value - expected) / expected
    return f"{source} {value:,} {unit}, the layers add up to {expected:,} ({share:+.1%}): a part is not as modelled"


def _offsets(entry: object, name: str, place: str) -> tuple[int, int]:
    """Return the data offsets of a header entry."""
    offsets = entry.get("data_offsets") if isinstance(entry, dict) else None
    if not isinstance(offsets, list) or len(offsets) != _OFFSETS:
        raise _damaged(name, "no data_offsets [begin, end]", place)
    begin, end = (_whole(value) for value in offsets)
    if begin is None or end is None or begin > end:
        raise _damaged(name, "data_offsets are no byte range", place)
    return begin, end


def _stored(entry: object, name: str, place: str) -> StoredTensor:
    """Return the tensor of a header entry."""
    fields: Mapping[str, object] = entry if isinstance(entry, dict) else {}
    dtype, shape = fields.get("dtype"), fields.get("shape")
    bits = _DTYPE_BITS.get(dtype) if isinstance(dtype, str) else None
    if not isinstance(dtype, str) or bits is None:
        raise _damaged(name, f"dtype {shown(dtype)} is unknown", place)
    if not isinstance(shape, list) or len(shape) > _MAX_DIMENSIONS:
        raise _damaged(name, "no shape", place)
    sides = tuple(side for side in (_whole(value) for value in shape) if side is not None)
    if len(sides) != len(shape) or math.prod(sides) > _MAX_ELEMENTS:
        raise _damaged(name, "a shape that no tensor can have", place)
    return StoredTensor(name=name, dtype=dtype, shape=sides, num_bytes=-(-math.prod(sides) * bits // _BYTE_BITS))


def _damaged(name: str, what: str, place: str) -> FileProblem:
    return FileProblem(f"tensor {shown(name)}: {what}", place=place, hint="the safetensors header is damaged")


def _whole(value: object) -> int | None:
    """Return a non-negative whole number, also one written as 1.5e10; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    if not math.isfinite(value) or value < 0 or value != int(value) or value > _MAX_ELEMENTS:
        return None
    return int(value)
