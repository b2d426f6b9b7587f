"""Catalog mappings to model nouns and back: the schema of ``models.yaml``.

The keys of a mapping are the field names of the nouns in ``spec``; the codec reads names, types and defaults from the
dataclasses themselves, so the schema cannot drift from them. Three things are written differently because people
read and write them: ``layers`` is a pattern over named ``blocks`` (see ``catalog.models``), collections of matrices are
mappings from name to shape, and mixers and feed-forward blocks carry a ``kind``.

Reading never stops at the first fault: every reader appends to a list of faults, each with its key path.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar, cast

from infcalc.catalog.models import (
    MAX_LAYERS,
    broken_layer_laws,
    broken_model_laws,
    compress_layers,
    expand_layers,
    name_blocks,
)
from infcalc.errors import CatalogError
from infcalc.spec.layers import (
    CompressedAttention,
    DenseFeedForward,
    GroupedAttention,
    Indexer,
    LatentAttention,
    Layer,
    LayerRun,
    Matrix,
    MoeFeedForward,
    QkNorm,
    Reach,
    RecurrentKind,
    RecurrentMixer,
    Shard,
)
from infcalc.spec.model import Model, MultiTokenPrediction
from infcalc.spec.weights import TensorRole, WeightQuantization, WeightRule

if TYPE_CHECKING:
    from infcalc.spec.draft import Draft

KeyPath: TypeAlias = tuple[str, ...]
Fault: TypeAlias = tuple[KeyPath, str]
"""Where in the mapping, and what is wrong there."""
Reader: TypeAlias = Callable[[object, KeyPath, list[Fault]], object]
"""Reads one value; on a fault it appends to the list and returns :data:`INVALID`."""

INVALID: Final = object()
"""What a reader returns in place of a value that has a fault."""

_Noun = TypeVar("_Noun")
_Choice = TypeVar("_Choice", bound=StrEnum)

_MAX_COUNT = 2**31 - 1
_MAX_TOTAL = 2**50
_MAX_TEXT = 10_000
_MAX_QUOTED = 40
_MAX_LISTED = 8
"""Lists of layer numbers longer than this are written as ranges."""

_TOTALS = ("_parameters", "_elements")
"""Endings of fields that sum over a whole model or state, hence may exceed :data:`_MAX_COUNT`."""
_MAY_BE_ZERO = frozenset({"compression", "num_norms", "qk_rope_head_dim"})
"""Fields without a default of 0 that may be 0 all the same."""
_LAYER_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")
_SHORT_MATRIX = ("rows", "columns")
_MATRIX_COLLECTION = "tuple[Matrix, ...]"

_MIXERS: dict[str, type] = {
    "grouped": GroupedAttention,
    "latent": LatentAttention,
    "compressed": CompressedAttention,
    "recurrent": RecurrentMixer,
}
_FEED_FORWARDS: dict[str, type] = {"dense": DenseFeedForward, "moe": MoeFeedForward}
_KIND_OF: dict[type, str] = {noun: kind for kinds in (_MIXERS, _FEED_FORWARDS) for kind, noun in kinds.items()}
_DEFAULT_KINDS = frozenset({"grouped", "dense"})


def model_from_mapping(name: str, mapping: object) -> Model:
    """Return the model that an entry ``mapping`` of the section ``models`` describes.

    Raises:
        CatalogError: the mapping has faults; all of them are listed with their key paths.

    """
    faults: list[Fault] = []
    model = read_model(name, mapping, ("models", name), faults)
    if model is None:
        raise CatalogError(tuple(format_fault(fault) for fault in faults))
    return model


def model_to_mapping(model: Model) -> dict[str, Any]:
    """Return the entry of the section ``models`` that describes ``model``: plain values, defaults left out.

    :func:`model_from_mapping` with the model's name gives the same model back (adjacent runs of equal layers joined).

    Raises:
        ValueError: two matrices of one collection share a name, which a mapping cannot hold.

    """
    blocks = name_blocks(tuple(dict.fromkeys(run.layer for run in model.layers)))
    names = {layer: name for name, layer in blocks.items()}
    written = _write_fields(model, skip=("name", "layers", "mtp"))
    layers = compress_layers([names[run.layer] for run in model.layers for _ in range(run.num_layers)])
    mapping: dict[str, Any] = {}
    for key, value in written.items():
        mapping[key] = value
        if key == "vocab_size":
            mapping["layers"] = layers
            mapping["blocks"] = {name: _write_fields(layer) for name, layer in blocks.items()}
    if model.mtp is not None:
        mtp = _write_fields(model.mtp)
        mapping["mtp"] = mtp | {"layer": names.get(model.mtp.layer, mtp["layer"])}
    return mapping


def format_fault(fault: Fault) -> str:
    """Return a fault as one line: its key path and what is wrong.

    >>> format_fault((("gpus", "a100", "memory"), "missing"))
    'gpus.a100.memory: missing'
    """
    path, message = fault
    return f"{'.'.join(path)}: {message}" if path else message


def read_model(name: str, mapping: object, path: KeyPath, faults: list[Fault]) -> Model | None:
    """Return the model of an entry, or None after appending all its faults to ``faults``."""
    entry = read_mapping(mapping, path, faults)
    if entry is None:
        return None
    before = len(faults)
    blocks = _read_blocks(entry.get("blocks", INVALID), (*path, "blocks"), faults)

    def read_layers(value: object, where: KeyPath, found: list[Fault]) -> object:
        return _read_layers(value, blocks, where, found)

    def read_mtp(value: object, where: KeyPath, found: list[Fault]) -> object:
        return None if value is None else _read_mtp(value, blocks, where, found)

    fields = dict(_fields_of(Model))
    del fields["name"]
    fields["layers"] = read_layers
    fields["mtp"] = read_mtp
    required = _required_of(Model) - {"name"}
    plain = {key: value for key, value in entry.items() if key != "blocks"}
    values = read_fields(plain, fields, required, path, faults, further_keys=("blocks",))
    if values is None or len(faults) > before:
        return None
    model = Model(name=name, **cast("dict[str, Any]", values))
    faults.extend(((*path, *where), message) for where, message in broken_model_laws(model))
    return model if len(faults) == before else None


def draft_from_mapping(name: str, mapping: object) -> Draft:
    """Return the draft head that an entry ``mapping`` of the section ``drafts`` describes.

    Raises:
        CatalogError: the mapping has faults; all of them are listed with their key paths.

    """
    faults: list[Fault] = []
    draft = read_draft(name, mapping, ("drafts", name), faults)
    if draft is None:
        raise CatalogError(tuple(format_fault(fault) for fault in faults))
    return draft


def read_draft(name: str, mapping: object, path: KeyPath, faults: list[Fault]) -> Draft | None:
    """Return the draft head of an entry, or None after appending all its faults to ``faults``."""
    from infcalc.spec.draft import Draft  # noqa: PLC0415  few commands need draft heads

    entry = read_mapping(mapping, path, faults)
    if entry is None:
        return None
    fields = {key: reader for key, reader in _fields_of(Draft).items() if key != "name"}
    values = read_fields(entry, fields, _required_of(Draft) - {"name"}, path, faults)
    return None if values is None else Draft(name=name, **cast("dict[str, Any]", values))


def read_mapping(value: object, path: KeyPath, faults: list[Fault]) -> Mapping[str, object] | None:
    """Return ``value`` if it is a mapping with text keys, else None after appending the fault."""
    if not isinstance(value, Mapping):
        faults.append((path, f"expected a mapping, found {describe(value)}"))
        return None
    wrong = [key for key in value if not isinstance(key, str)]
    faults.extend((path, f"key {describe(key)} is not text; put it in quotes") for key in wrong)
    return None if wrong else value


def read_fields(
    mapping: Mapping[str, object],
    readers: Mapping[str, Reader],
    required: Iterable[str],
    path: KeyPath,
    faults: list[Fault],
    *,
    further_keys: tuple[str, ...] = (),
) -> dict[str, object] | None:
    """Return the values of ``mapping`` read by ``readers``, or None after appending every fault.

    A key without reader and a required key that is absent are faults; ``further_keys`` are named among the known ones.
    """
    before = len(faults)
    values: dict[str, object] = {}
    for key, value in mapping.items():
        reader = readers.get(key)
        if reader is None:
            faults.append(((*path, key), f"unknown key{_nearest_hint(key, (*readers, *further_keys))}"))
        else:
            values[key] = reader(value, (*path, key), faults)
    faults.extend(((*path, key), "missing") for key in sorted(required) if key not in mapping)
    return values if len(faults) == before else None


def _nearest_hint(key: str, known: Iterable[str]) -> str:
    import difflib  # noqa: PLC0415  only a fault needs it

    names = list(known)
    near = difflib.get_close_matches(key, names, n=1)
    return f"; did you mean {near[0]}?" if near else f"; known are {', '.join(names)}"


def describe(value: object) -> str:
    """Return a short description of a value of the wrong kind, for a message.

    >>> describe(None), describe([1]), describe("x" * 50), describe(True)
    ('nothing', 'a list', "'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'", 'true')
    """
    match value:
        case None:
            text = "nothing"
        case bool():
            text = str(value).lower()
        case int() | float():
            text = (
                str(value)
                if abs(value) < _MAX_TOTAL
                else f"{value:.3g}"
                if isinstance(value, float)
                else "a huge number"
            )
        case str():
            text = repr(value if len(value) <= _MAX_QUOTED else value[:30] + "...")
        case Mapping():
            text = "a mapping"
        case list() | tuple():
            text = "a list"
        case _:
            text = type(value).__name__
    return text


def read_text(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read text; dates that a YAML reader has already converted become text again."""
    match value:
        case str() if len(value) <= _MAX_TEXT:
            return value
        case str():
            faults.append((path, f"text of {len(value)} characters is too long"))
        case _:
            faults.append((path, f"expected text, found {describe(value)}"))
    return INVALID


def read_texts(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read a list of texts; a single text counts as a list of one."""
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list | tuple):
        faults.append((path, f"expected a list of texts, found {describe(value)}"))
        return INVALID
    return tuple(read_text(item, (*path, str(number)), faults) for number, item in enumerate(value))


def read_flag(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read true or false."""
    if isinstance(value, bool):
        return value
    faults.append((path, f"expected true or false, found {describe(value)}"))
    return INVALID


def integer_reader(minimum: int, maximum: int) -> Reader:
    """Return a reader of whole numbers from ``minimum`` to ``maximum``; true and false are no numbers."""

    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        if isinstance(value, float) and not math.isfinite(value):
            faults.append((path, f"expected a whole number, found {value}"))
        elif isinstance(value, bool) or not isinstance(value, int):
            faults.append((path, f"expected a whole number, found {describe(value)}"))
        elif not minimum <= value <= maximum:
            faults.append((path, f"must be from {minimum} to {maximum}, found {describe(value)}"))
        else:
            return value
        return INVALID

    return read


def optional(reader: Reader) -> Reader:
    """Return a reader that also accepts nothing (YAML ``null``)."""
    return lambda value, path, faults: None if value is None else reader(value, path, faults)


def choice_reader(choices: type[_Choice]) -> Reader:
    """Return a reader of one member of ``choices`` by its value."""
    by_value = {choice.value: choice for choice in choices}

    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        if isinstance(value, str) and value in by_value:
            return by_value[value]
        faults.append((path, f"{describe(value)} is none of {', '.join(by_value)}"))
        return INVALID

    return read


def _noun_reader(noun: type) -> Reader:
    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        return _read_noun(noun, value, path, faults)

    return read


def _read_noun(noun: Callable[..., _Noun], value: object, path: KeyPath, faults: list[Fault]) -> _Noun | object:
    mapping = read_mapping(value, path, faults)
    if mapping is None:
        return INVALID
    kind = cast("type", noun)
    values = read_fields(mapping, _fields_of(kind), _required_of(kind), path, faults)
    return INVALID if values is None else noun(**values)


def _kind_reader(kinds: Mapping[str, type], default: str) -> Reader:
    def read(value: object, path: KeyPath, faults: list[Fault]) -> object:
        mapping = read_mapping(value, path, faults)
        if mapping is None:
            return INVALID
        kind = mapping.get("kind", default)
        if not isinstance(kind, str) or kind not in kinds:
            faults.append(((*path, "kind"), f"{describe(kind)} is none of {', '.join(kinds)}"))
            return INVALID
        rest = {key: item for key, item in mapping.items() if key != "kind"}
        return _read_noun(kinds[kind], rest, path, faults)

    return read


def _read_matrices(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read a mapping from matrix name to ``rows``, ``[rows, columns]`` or a full mapping."""
    collection = read_mapping(value, path, faults)
    if collection is None:
        return INVALID
    matrices = []
    for name, shape in collection.items():
        match shape:
            case Mapping():
                fields: object = shape
            case list() | tuple() if len(shape) == len(_SHORT_MATRIX):
                fields = dict(zip(_SHORT_MATRIX, shape, strict=True))
            case int():
                fields = {"rows": shape}
            case _:
                faults.append(((*path, name), f"expected rows, [rows, columns] or a mapping, found {describe(shape)}"))
                continue
        mapping = read_mapping(fields, (*path, name), faults)
        if mapping is None:
            continue
        readers = {key: reader for key, reader in _fields_of(Matrix).items() if key != "name"}
        values = read_fields(mapping, readers, ("rows",), (*path, name), faults)
        if values is not None:
            matrices.append(Matrix(name=name, **cast("dict[str, Any]", values)))
    return tuple(matrices)


def _read_rules(value: object, path: KeyPath, faults: list[Fault]) -> object:
    if not isinstance(value, list | tuple):
        faults.append((path, f"expected a list of rules, found {describe(value)}"))
        return INVALID
    return tuple(_read_noun(WeightRule, item, (*path, str(number)), faults) for number, item in enumerate(value))


def _read_roles(value: object, path: KeyPath, faults: list[Fault]) -> object:
    items = [value] if isinstance(value, str) else value
    if not isinstance(items, list | tuple):
        faults.append((path, f"expected a list of roles, found {describe(value)}"))
        return INVALID
    read = choice_reader(TensorRole)
    return tuple(read(item, (*path, str(number)), faults) for number, item in enumerate(items))


def _read_layer_numbers(value: object, path: KeyPath, faults: list[Fault]) -> object:
    """Read layer numbers, counted from 0: a list, or text with ranges such as ``0-2 61``."""
    if isinstance(value, str):
        return _read_layer_ranges(value, path, faults)
    if not isinstance(value, list | tuple):
        faults.append((path, f"expected a list of layer numbers, found {describe(value)}"))
        return INVALID
    read = integer_reader(0, MAX_LAYERS)
    return tuple(read(item, (*path, str(number)), faults) for number, item in enumerate(value))


def _read_layer_ranges(text: str, path: KeyPath, faults: list[Fault]) -> object:
    numbers: list[int] = []
    for item in text.split():
        match = _LAYER_RANGE.fullmatch(item)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, MAX_LAYERS)
        if last >= MAX_LAYERS or len(numbers) > MAX_LAYERS:
            faults.append((path, f"{item!r} is no layer number below {MAX_LAYERS} and no range such as 0-2"))
            return INVALID
        numbers += range(first, last + 1)
    return tuple(numbers)


def _read_layer(value: object, path: KeyPath, faults: list[Fault]) -> object:
    layer = _read_noun(Layer, value, path, faults)
    if isinstance(layer, Layer):
        broken = [((*path, *where), message) for where, message in broken_layer_laws(layer)]
        faults.extend(broken)
        return INVALID if broken else layer
    return INVALID


def _read_blocks(value: object, path: KeyPath, faults: list[Fault]) -> dict[str, object]:
    """Return the layer of each block name, :data:`INVALID` for one with faults."""
    if value is INVALID:
        faults.append((path, "missing"))
        return {}
    mapping = read_mapping(value, path, faults)
    return {name: _read_layer(layer, (*path, name), faults) for name, layer in (mapping or {}).items()}


def _read_layers(value: object, blocks: Mapping[str, object], path: KeyPath, faults: list[Fault]) -> object:
    if not isinstance(value, str):
        faults.append((path, f"expected a pattern such as '3*dense 58*moe', found {describe(value)}"))
        return INVALID
    try:
        names = expand_layers(value)
    except ValueError as problem:
        faults.append((path, str(problem)))
        return INVALID
    distinct = dict.fromkeys(names)
    unknown = [name for name in distinct if name not in blocks]
    unused = [name for name in blocks if name not in distinct]
    faults.extend((path, f"block {name!r} is not defined in blocks") for name in unknown)
    faults.extend(((*path[:-1], "blocks", name), "this block is not used in layers") for name in unused)
    if unknown or any(blocks[name] is INVALID for name in distinct):
        return INVALID
    runs: list[tuple[object, int]] = []
    for name in names:
        layer = blocks[name]
        if runs and runs[-1][0] == layer:
            runs[-1] = (layer, runs[-1][1] + 1)
        else:
            runs.append((layer, 1))
    return tuple(LayerRun(num_layers=count, layer=cast("Layer", layer)) for layer, count in runs)


def _read_mtp(value: object, blocks: Mapping[str, object], path: KeyPath, faults: list[Fault]) -> object:
    mapping = read_mapping(value, path, faults)
    if mapping is None:
        return INVALID

    def read_layer(layer: object, where: KeyPath, found: list[Fault]) -> object:
        if not isinstance(layer, str):
            return _read_layer(layer, where, found)
        if layer not in blocks:
            found.append((where, f"block {layer!r} is not defined in blocks"))
        return blocks.get(layer, INVALID)

    readers = _fields_of(MultiTokenPrediction) | {"layer": read_layer}
    values = read_fields(mapping, readers, _required_of(MultiTokenPrediction), path, faults)
    if values is None or values["layer"] is INVALID:
        return INVALID
    return MultiTokenPrediction(**cast("dict[str, Any]", values))


_READERS: dict[str, Reader] = {
    "str": read_text,
    "str | None": optional(read_text),
    "bool": read_flag,
    "tuple[str, ...]": read_texts,
    _MATRIX_COLLECTION: _read_matrices,
    "Shard": choice_reader(Shard),
    "TensorRole": choice_reader(TensorRole),
    "tuple[TensorRole, ...]": _read_roles,
    "tuple[int, ...] | None": optional(_read_layer_numbers),
    "tuple[WeightRule, ...]": _read_rules,
    "Reach": choice_reader(Reach),
    "QkNorm": choice_reader(QkNorm),
    "RecurrentKind": choice_reader(RecurrentKind),
    "Indexer | None": optional(_noun_reader(Indexer)),
    "Mixer | None": optional(_kind_reader(_MIXERS, "grouped")),
    "FeedForward | None": optional(_kind_reader(_FEED_FORWARDS, "dense")),
    "WeightQuantization | None": optional(_noun_reader(WeightQuantization)),
    "Layer": _read_layer,
}
"""Readers by the annotation of the dataclass field."""

_BY_CONTEXT = frozenset({"tuple[LayerRun, ...]", "MultiTokenPrediction | None"})
"""Annotations of fields whose reading needs the blocks of the model."""

_fields_cache: dict[type, dict[str, Reader]] = {}


def _fields_of(noun: type) -> dict[str, Reader]:
    """Return the reader of each field of ``noun``; built once, from its dataclass."""
    readers = _fields_cache.get(noun)
    if readers is None:
        readers = {}
        for field in noun.__dataclass_fields__.values():  # type: ignore[attr-defined]
            match field.type:
                case "int" | "int | None":
                    minimum = 0 if field.default == 0 or field.name in _MAY_BE_ZERO else 1
                    reader = integer_reader(minimum, _MAX_TOTAL if field.name.endswith(_TOTALS) else _MAX_COUNT)
                    readers[field.name] = reader if field.type == "int" else optional(reader)
                case annotation if annotation in _BY_CONTEXT:
                    pass
                case annotation:
                    readers[field.name] = _READERS[annotation]
        _fields_cache[noun] = readers
    return readers


def _required_of(noun: type) -> frozenset[str]:
    fields = noun.__dataclass_fields__  # type: ignore[attr-defined]
    return frozenset(field.name for field in fields.values() if field.default is MISSING)


def _write_fields(noun: object, skip: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a noun that differ from their defaults, as plain values."""
    written: dict[str, Any] = {}
    kind = _KIND_OF.get(type(noun))
    if kind is not None and kind not in _DEFAULT_KINDS:
        written["kind"] = kind
    for field in noun.__dataclass_fields__.values():  # type: ignore[attr-defined]
        value = getattr(noun, field.name)
        if field.name in skip or (field.default is not MISSING and value == field.default):
            continue
        if field.type == _MATRIX_COLLECTION:
            written[field.name] = _write_matrices(value)
        elif field.type == "tuple[int, ...] | None":
            written[field.name] = _write_layer_numbers(value)
        else:
            written[field.name] = _write_value(value)
    return written


def _write_value(value: Any) -> Any:  # noqa: ANN401  a YAML value is of any type
    match value:
        case StrEnum():
            return value.value
        case bool() | int() | str() | None:
            return value
        case tuple():
            return [_write_value(item) for item in value]
        case _:
            return _write_fields(value)


def _write_matrices(matrices: tuple[Matrix, ...]) -> dict[str, Any]:
    written: dict[str, Any] = {}
    for matrix in matrices:
        if matrix.name in written:
            raise ValueError(f"two matrices of one collection are named {matrix.name!r}")
        fields = _write_fields(matrix, skip=("name",))
        if fields.keys() <= set(_SHORT_MATRIX):
            written[matrix.name] = [matrix.rows, matrix.columns] if "columns" in fields else matrix.rows
        else:
            written[matrix.name] = fields
    return written


def _write_layer_numbers(numbers: tuple[int, ...]) -> list[int] | str:
    """Return short lists as they are and long ones as ranges, which read back in the same order."""
    if len(numbers) <= _MAX_LISTED:
        return list(numbers)
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
