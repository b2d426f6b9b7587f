"""The only module that opens files: catalog files, models on disk or on the hub, and whatever a command writes.

Catalog files in order of rising priority: the shipped ``models.yaml``, ``gpus.yaml`` and ``efficiency.yaml``,
``$XDG_CONFIG_HOME/infcalc/*.yaml`` by name, ``./infcalc.yaml``, and each ``--catalog FILE`` in the order given, so that
the last one wins.
"""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING, Any, Final

from infcalc import __version__
from infcalc.catalog.lookup import SECTIONS, Catalog, ModelEntry, catalog_from_compiled
from infcalc.errors import CatalogError, FileProblem, InfcalcError, UnknownName, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import yaml

    from infcalc.catalog.checkpoint import StoredTensor
    from infcalc.catalog.document import Document
    from infcalc.catalog.overlay import Overlay
    from infcalc.spec.model import Model

MAX_TEXT_BYTES: Final = 64 * 2**20
"""No catalog, config or benchmark file that a person would name is larger."""
_MAX_TRACE_BYTES = 2**30
"""A week of a busy service is some ten million requests."""
_MAX_CATALOG_BYTES = 8 * 2**20
_PROJECT_OVERLAY = "infcalc.yaml"
_SOURCES = ("models.yaml", "gpus.yaml", "efficiency.yaml")
_COMPILED = "catalog.json"
_SKILL = "skill-inference-optimization.md"
_HERE = os.path.dirname(__file__)
_HUB_EXTRA = "`pip install 'infcalc[hub]'` (in a checkout: `pip install '.[hub]'`)"
_CONFIG, _SIDECAR, _INDEX = "config.json", "hf_quant_config.json", "model.safetensors.index.json"


def load_catalog(paths: tuple[str, ...] = ()) -> Catalog:
    """Return the shipped catalog with the user's, the project's and the given overlays laid over it.

    ``paths`` are the files of ``--catalog``; later ones win over earlier ones.

    Raises:
        FileProblem: a file that is missing, no text, too large or not readable.
        CatalogError: faults in catalog files, all of them with file, line and key path.

    """
    catalog = _shipped_catalog()
    found = _found_overlays()
    if not found and not paths:
        return catalog
    from infcalc.catalog.overlay import Overlay  # noqa: PLC0415  only where overlays exist

    overlays = []
    for path in found:
        document = _read_document(path, path)
        # A file of nothing but comments is fine where nobody asked for it by name.
        if document.value is not None or document.faults:
            overlays.append(Overlay(place=path, document=document))
    for path in paths:
        document = _read_document(path, path)
        if document.value is None and not document.faults:
            raise FileProblem("the file holds no entry", place=path, hint="write models: or gpus: with entries below")
        overlays.append(Overlay(place=path, document=document))
    return _laid_over(catalog, overlays)


def _laid_over(catalog: Catalog, overlays: Sequence[Overlay]) -> Catalog:
    from infcalc.catalog.overlay import lay_over  # noqa: PLC0415  only where overlays exist

    merged, faults = lay_over(catalog, overlays)
    if faults:
        raise CatalogError(faults)
    return merged


def _found_overlays() -> list[str]:
    """Return the overlays that exist without being named, lowest priority first."""
    config = _user_directory("XDG_CONFIG_HOME", ".config")
    found: list[str] = []
    if config is not None:
        try:
            names = sorted(name for name in os.listdir(config) if name.endswith((".yaml", ".yml")))
        except OSError:
            names = []
        found += [os.path.join(config, name) for name in names]
    if os.path.exists(_PROJECT_OVERLAY):
        found.append(_PROJECT_OVERLAY)
    return found


def _user_directory(variable: str, fallback: str) -> str | None:
    """Return infcalc's directory below ``$variable`` or ``~/fallback``, or None where there is no home."""
    base = os.environ.get(variable) or os.path.join(os.path.expanduser("~"), fallback)
    return os.path.join(base, "infcalc") if os.path.isabs(base) else None


def _shipped_catalog() -> Catalog:
    """Return the shipped catalog: from the wheel's compiled copy, the cached one, or compiled now."""
    packed = os.path.join(_HERE, "data")
    catalog = _read_compiled(os.path.join(packed, _COMPILED), __version__)
    if catalog is not None:
        return catalog
    folder = next((place for place in (packed, os.path.dirname(_HERE)) if _has_sources(place)), None)
    if folder is None:
        raise FileProblem("the shipped catalog is missing", place=packed, hint="install infcalc again")
    key = _source_key(folder)
    cache = _user_directory("XDG_CACHE_HOME", ".cache")
    copy = None if cache is None else os.path.join(cache, f"catalog-{_checksum(folder)}.json")
    if copy is not None:
        catalog = _read_compiled(copy, key)
    if catalog is None:
        catalog, text = _compile(folder, key)
        if copy is not None:
            _store_quietly(copy, text)
    return catalog


def _has_sources(folder: str) -> bool:
    return all(os.path.isfile(os.path.join(folder, name)) for name in _SOURCES)


def _source_key(folder: str) -> str:
    """Return what identifies the sources and the code that compiles them: a change of either changes it."""
    code = (
        "files.py",
        "catalog/codec.py",
        "catalog/efficiency.py",
        "catalog/gpus.py",
        "catalog/lookup.py",
        "catalog/models.py",
    )
    paths = [*(os.path.join(folder, name) for name in _SOURCES), *(os.path.join(_HERE, name) for name in code)]
    states = [os.stat(path) if os.path.exists(path) else None for path in paths]
    parts = [f"{state.st_mtime_ns}.{state.st_size}" if state else "" for state in states]
    return f"{__version__} {folder} {' '.join(parts)}"


def _checksum(text: str) -> str:
    from zlib import crc32  # noqa: PLC0415  not needed from a wheel

    return f"{crc32(text.encode()):08x}"


def _read_compiled(path: str, key: str) -> Catalog | None:
    try:
        with open(path, encoding="utf-8", newline="\n") as file:
            return catalog_from_compiled(file.read(), key)
    except (OSError, UnicodeDecodeError):
        return None


def _store_quietly(path: str, text: str) -> None:
    """Write the cached copy; a directory that cannot be written costs speed, nothing else."""
    try:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        _replace(path, text)
    except OSError:
        return


def _compile(folder: str, key: str) -> tuple[Catalog, str]:
    """Return the catalog of the sources in ``folder``, and its compiled text.

    Raises:
        CatalogError: the sources have faults.

    """
    from infcalc.catalog.lookup import catalog_of, compiled_text  # noqa: PLC0415  once per change of the sources
    from infcalc.catalog.overlay import catalog_sections, located  # noqa: PLC0415

    sections: dict[str, dict[str, Mapping[str, Any]]] = {section: {} for section in SECTIONS}
    homes: dict[tuple[str, str], tuple[str, Document]] = {}
    lines: list[str] = []
    for name in _SOURCES:
        document = _read_document(os.path.join(folder, name), name)
        faults: list[tuple[tuple[str, ...], str]] = []
        for section, entries in catalog_sections(document, faults).items():
            for entry in entries:
                homes[section, entry] = (name, document)
            sections[section] |= entries
        lines += located(name, document, faults)
    catalog, found = catalog_of(sections)
    for fault in found:
        name, document = homes[fault[0][0], fault[0][1]]
        lines += located(name, document, [fault])
    if lines:
        raise CatalogError(tuple(lines))
    # Entries as text, so that a catalog just compiled and one read from its copy behave alike.
    text = compiled_text(catalog, key)
    loaded = catalog_from_compiled(text, key)
    return (catalog if loaded is None else loaded), text


def compile_shipped(folder: str, target: str) -> None:
    """Write the compiled copy of the catalog files in ``folder`` to ``target``, as a wheel carries it.

    Raises:
        CatalogError: the sources have faults.
        FileProblem: ``target`` cannot be written.

    """
    write_text(target, _compile(folder, __version__)[1])


def read_skill() -> str:
    """Return the skill document: that of the wheel, or of the checkout.

    Raises:
        FileProblem: neither is there.

    """
    packed = os.path.join(_HERE, "data", _SKILL)
    checkout = os.path.join(os.path.dirname(_HERE), "outputs", _SKILL)
    path = next((place for place in (packed, checkout) if os.path.isfile(place)), None)
    if path is None:
        raise FileProblem("the skill document is missing", place=packed, hint="install infcalc again")
    return _read_limited(path, MAX_TEXT_BYTES)


def _read_document(path: str, place: str) -> Document:
    """Return a YAML file as values with lines; syntax faults are among its faults."""
    return _parse_document(_read_limited(path, _MAX_CATALOG_BYTES), place)


def read_yaml(path: str) -> object:
    """Return the value of a YAML file (``-``: standard input).

    Raises:
        FileProblem: missing, too large, no text, or no YAML; the first fault is named with its line.

    """
    named = "standard input" if path == "-" else path
    text = _decoded(_read_standard_input(MAX_TEXT_BYTES), named) if path == "-" else _read_limited(path, MAX_TEXT_BYTES)
    return parse_yaml(text, named)


def parse_yaml(text: str, place: str) -> object:
    """Return the value of a YAML text that errors call ``place``.

    Raises:
        FileProblem: it is no YAML; the first fault is named with its line.

    """
    document = _parse_document(text, place)
    if document.faults:
        (path, message), *_ = document.faults
        raise FileProblem(message, place=f"{place}:{document.line(path)}", hint="write valid YAML")
    return document.value


def _parse_document(text: str, place: str) -> Document:
    import yaml  # noqa: PLC0415  slow to import, and only changed or foreign catalogs need it

    from infcalc.catalog.document import Document, DocumentTooLargeError, read_document  # noqa: PLC0415

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return read_document(yaml.parse(text, Loader=loader))
    except yaml.MarkedYAMLError as problem:
        mark = problem.problem_mark or problem.context_mark
        message = ", ".join(part for part in (problem.context, problem.problem) if part)
        line = mark.line + 1 if mark else 1
        return Document(value={}, lines={(): line}, faults=(((), f"not valid YAML: {message}"),))
    except yaml.YAMLError as problem:
        raise FileProblem(f"not a YAML text: {str(problem).splitlines()[0]}", place=place) from problem
    except DocumentTooLargeError as problem:
        raise FileProblem(str(problem), place=place, hint="no catalog needs that; write it plainly") from problem


def yaml_text(value: object) -> str:
    """Return ``value`` (mappings, lists, texts and numbers) as YAML, keys in their order."""
    import yaml  # noqa: PLC0415  only commands that print YAML need it

    text: str = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, width=110, default_flow_style=None)
    return text


def manifest_text(values: Sequence[object]) -> str:
    """Return ``values`` as YAML documents one after the other, a key on each line, keys in their order."""
    import yaml  # noqa: PLC0415  only commands that print YAML need it

    text: str = yaml.dump_all(
        values, Dumper=_plain_dumper(), sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False
    )
    return text


def _plain_dumper() -> type[yaml.SafeDumper]:
    """Return a dumper that writes shared mappings out each time, and texts of several lines as such."""
    import yaml  # noqa: PLC0415

    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            del data
            return True

    def text_node(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)

    Plain.add_representer(str, text_node)
    return Plain


def full_path(path: str) -> str:
    """Return ``path`` with the user's home folder written out: where it is quoted, no shell does that."""
    return os.path.expanduser(path)


def make_folder(path: str) -> None:
    """Make the folder ``path`` where there is none.

    Raises:
        FileProblem: it cannot be made, or a file has its name.

    """
    try:
        os.makedirs(path, exist_ok=True)
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise FileProblem(f"the folder cannot be made: {reason}", place=path, hint="name another folder") from problem


def read_text(path: str) -> str:
    """Return the content of a UTF-8 text file of at most 64 MiB.

    Raises:
        FileProblem: missing, a directory, not readable, too large, or no text.

    """
    return _read_limited(path, MAX_TEXT_BYTES)


_GZIP = b"\x1f\x8b"
_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def read_log_text(path: str) -> str:
    """Return the content of a log of at most 64 MiB (``-``: standard input); stray bytes become replacement marks.

    Logs hold progress bars cut in the middle of a character; a shell on Windows writes UTF-16.

    Raises:
        FileProblem: missing, a directory, not readable, too large, or binary.

    """
    place = "standard input" if path == "-" else path
    content = _read_standard_input(MAX_TEXT_BYTES) if path == "-" else _read_bytes(path, MAX_TEXT_BYTES)
    if content.startswith(_GZIP):
        raise FileProblem("a compressed file", place=place, hint="unpack it first: gunzip -c FILE | infcalc ... -")
    if content.startswith(_WIDE_MARKS):
        return content.decode("utf-16", errors="replace").replace("\0", "")
    if b"\0" in content:
        raise FileProblem("not a text file (it holds zero bytes)", place=place, hint="this looks like a binary file")
    return content.decode("utf-8-sig", errors="replace")


def read_trace_text(path: str) -> str:
    """Return the content of a trace of at most 1 GiB (``-``: standard input).

    Raises:
        FileProblem: missing, a directory, not readable, too large, compressed, or no text.

    """
    place = "standard input" if path == "-" else path
    content = _read_standard_input(_MAX_TRACE_BYTES) if path == "-" else _read_bytes(path, _MAX_TRACE_BYTES)
    if content.startswith(_GZIP):
        raise FileProblem("a compressed file", place=place, hint="unpack it first: gunzip -c FILE | infcalc workload -")
    return _decoded(content, place)


def _read_standard_input(max_bytes: int) -> bytes:
    import sys  # noqa: PLC0415  only where it is read

    stream = getattr(sys.stdin, "buffer", None)
    if stream is None:
        raise FileProblem("standard input is closed", hint="name a file")
    content: bytes = stream.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise FileProblem(
            f"larger than {max_bytes // 2**20} MiB", place="standard input", hint="cut it to the start-up"
        )
    return content


def _read_limited(path: str, max_bytes: int) -> str:
    return _decoded(_read_bytes(path, max_bytes), path)


def _decoded(content: bytes, path: str) -> str:
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise FileProblem(
            f"not a UTF-8 text file ({problem.reason} at byte {problem.start})",
            place=path,
            hint="this looks like a binary file",
        ) from problem
    if "\0" in text:
        raise FileProblem("not a text file (it holds zero bytes)", place=path, hint="this looks like a binary file")
    return text


def _read_bytes(path: str, max_bytes: int) -> bytes:
    try:
        with open(path, "rb") as file:
            # One byte more than allowed tells a file at the limit from one above it.
            content = file.read(max_bytes + 1)
    except (OSError, ValueError) as problem:
        raise _unreadable(path, problem) from problem
    if len(content) > max_bytes:
        raise FileProblem(f"larger than {max_bytes // 2**20} MiB", place=path, hint="is this the right file?")
    return content


def _unreadable(path: str, problem: OSError | ValueError) -> FileProblem:
    """Return what to tell about a path that cannot be opened."""
    if isinstance(problem, FileNotFoundError | NotADirectoryError):
        return FileProblem(
            "no such file", place=path, hint="check the path; relative paths start at the working directory"
        )
    if isinstance(problem, IsADirectoryError):
        return FileProblem("this is a directory, not a file", place=path, hint="name a file inside it")
    reason = problem.strerror if isinstance(problem, OSError) else str(problem)
    return FileProblem(
        f"cannot be opened: {(reason or 'unknown reason').lower()}", place=repr(path)[1:-1], hint="check the path"
    )


_DEVICES = ("/dev/", "/proc/")


def check_target(path: str) -> None:
    """Refuse a path that no file can be written to, before the work for it is done.

    Raises:
        FileProblem: the folder does not exist or takes no files, or the path is a folder.

    """
    folder = os.path.dirname(path) or "."
    if not os.path.isdir(folder):
        raise FileProblem(f"the folder {folder!r} does not exist", place=path, hint="create it first")
    if os.path.isdir(path):
        raise FileProblem("this is a directory, not a file", place=path, hint="add a file name")
    if "\0" in path:
        raise FileProblem("cannot be written: embedded null byte", place=path, hint="name another file")
    real = os.path.realpath(path)
    if not _takes_text(real) and not os.access(os.path.dirname(real), os.W_OK):
        raise FileProblem(f"no file can be written to the folder {folder!r}", place=path, hint="name another folder")


def _takes_text(path: str) -> bool:
    """Return whether a path is a pipe or a device, which takes text itself."""
    special = os.path.exists(path) and not os.path.isfile(path)
    return special or os.path.abspath(path).startswith(_DEVICES)


def write_text(path: str, text: str) -> None:
    """Write ``text`` to ``path`` as UTF-8, replacing the file in one step.

    Raises:
        FileProblem: the folder does not exist, or the file cannot be written there.

    """
    check_target(path)
    try:
        if _takes_text(path):
            # A pipe or device takes the text itself; /dev/stdout may stand for a file that others write to as well.
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
        else:
            _replace(path, text)
    except (OSError, ValueError) as problem:
        raise FileProblem(
            f"cannot be written: {getattr(problem, 'strerror', None) or problem}",
            place=path,
            hint="make room there, or name another file",
        ) from problem


def _replace(path: str, text: str) -> None:
    """Write a file under a passing name, then give it its own, so that no reader sees half of it."""
    real = os.path.realpath(path)
    passing = f"{real}.{os.getpid()}.tmp"
    try:
        with open(passing, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        if os.path.exists(real):
            os.chmod(passing, stat.S_IMODE(os.stat(real).st_mode))
        os.replace(passing, real)
    except BaseException:
        if os.path.exists(passing):
            os.unlink(passing)
        raise


def load_model(catalog: Catalog, name: str) -> ModelEntry:
    """Return the model that a value of ``--model`` means.

    A value that ends in ``.json`` or ``.gguf`` or starts like a path is one. Anything else is looked up in the catalog,
    derivatives included; if it is unknown there and has a separator, it is a path if that exists, else a repository to
    ask where the ``hub`` extra is installed.

    Raises:
        FileProblem: a path that is missing or damaged, or a hub id that neither the catalog nor the hub answers.
        UnknownName: a name that the catalog does not know.
        UnsupportedArchitecture: an architecture that is not understood.

    """
    has_separator = "/" in name or os.sep in name
    plain_path = name.endswith((".json", ".gguf")) or name.startswith(("./", "../", "/", "~"))
    if plain_path:
        return _entry_from(name, *read_model(name))
    try:
        return catalog.model(name)
    except UnknownName as unknown:
        if not has_separator:
            raise
        if os.path.exists(name):
            return _entry_from(name, *read_model(name))
        if name.count("/") != 1 or not has_hub():
            near = f"did you mean {', '.join(unknown.nearest)}? " if unknown.nearest else ""
            hint = f"{near}hub ids beyond the catalog need the hub extra: {_HUB_EXTRA}"
            message = "no such file or folder, and the catalog knows no such hub id"
            raise FileProblem(message, place=name, hint=hint) from unknown
    return _entry_from(name, *read_hub_model(name))


def _entry_from(place: str, model: Model, warnings: tuple[str, ...]) -> ModelEntry:
    origins = dict.fromkeys(type(model).__dataclass_fields__, place)
    return ModelEntry(model=model, origins=origins, warnings=warnings)


def read_model(path: str) -> tuple[Model, tuple[str, ...]]:
    """Return the model of a config.json, a checkpoint folder or a .gguf file, and warnings about it.

    Raises:
        FileProblem: missing, damaged, or neither of these.
        UnsupportedArchitecture: an architecture that is not understood.

    """
    full = os.path.expanduser(path)
    if os.path.isdir(full):
        return _read_folder(full)
    if not os.path.exists(full):
        raise _unreadable(path, FileNotFoundError())
    if full.endswith(".gguf"):
        return _read_gguf(full)
    if full.endswith(".safetensors"):
        hint = "name the folder: the shape of the model is in its config.json"
        raise FileProblem("weights alone do not tell the model", place=path, hint=hint)
    config = _read_json(full)
    folder = os.path.dirname(full)
    name = _model_name(os.path.dirname(os.path.abspath(full)), os.path.basename(full))
    sidecar = os.path.join(folder, _SIDECAR)
    beside = os.path.basename(full) == _CONFIG and os.path.isfile(sidecar)
    return _from_parts(config, sidecar=_read_json(sidecar) if beside else None, name=name, place=full)


def _model_name(folder: str, file_name: str) -> str:
    """Return what to call a model read from disk: the file's name, or the folder's where the file is config.json."""
    stem = file_name.rpartition(".")[0] or file_name
    return os.path.basename(folder) or stem if stem == "config" else stem


def _read_json(path: str) -> Mapping[str, object]:
    from infcalc.catalog.lenient_json import MAX_JSON_BYTES, parse_json_object  # noqa: PLC0415  only for models on disk

    return parse_json_object(_read_bytes(path, MAX_JSON_BYTES), place=path)


def _from_parts(
    config: Mapping[str, object],
    *,
    name: str,
    place: str,
    sidecar: Mapping[str, object] | None = None,
    headers: tuple[StoredTensor, ...] | None = None,
    index: Mapping[str, object] | None = None,
) -> tuple[Model, tuple[str, ...]]:
    from infcalc.catalog.checkpoint import model_from_parts  # noqa: PLC0415  only for models on disk

    try:
        return model_from_parts(config=config, sidecar=sidecar, headers=headers, index=index, name=name, place=place)
    except InfcalcError as error:
        # Adapters know the key and not the file.
        if error.place is not None and error.place.startswith(_CONFIG):
            error.place = f"{place}{error.place.removeprefix(_CONFIG)}"
        raise


def _read_folder(folder: str) -> tuple[Model, tuple[str, ...]]:
    """Return the model of a checkpoint folder, from headers and index but no tensor data."""
    try:
        names = sorted(os.listdir(folder))
    except OSError as problem:
        raise _unreadable(folder, problem) from problem
    if _CONFIG not in names:
        ggufs = [name for name in names if name.endswith(".gguf")]
        hint = f"name one of {', '.join(ggufs[:3])}" if ggufs else "a checkpoint folder has a config.json"
        raise FileProblem("no config.json in this folder", place=folder, hint=hint)
    config = _read_json(os.path.join(folder, _CONFIG))
    sidecar = _read_json(os.path.join(folder, _SIDECAR)) if _SIDECAR in names else None
    index = _read_json(os.path.join(folder, _INDEX)) if _INDEX in names else None
    shards = _shards(names, index)
    headers = tuple(tensor for name in shards for tensor in _read_header(os.path.join(folder, name)))
    name = os.path.basename(os.path.abspath(folder))
    return _from_parts(config, sidecar=sidecar, headers=headers or None, index=index, name=name, place=folder)


def _shards(names: Sequence[str], index: Mapping[str, object] | None) -> list[str]:
    """Return the shards that are here: those of the index where there is one, else all safetensors files."""
    here = [name for name in names if name.endswith(".safetensors")]
    if index is None:
        # Some repositories hold the weights twice, the second time as one consolidated file.
        return [name for name in here if not name.startswith("consolidated")] or here
    weight_map = index.get("weight_map")
    # Reading the index refuses what is no file name; here it is only passed over.
    named = weight_map.values() if isinstance(weight_map, dict) else ()
    listed = {name for name in named if isinstance(name, str)}
    return [name for name in here if name in listed]


def _read_header(path: str) -> tuple[StoredTensor, ...]:
    from infcalc.catalog.checkpoint import LENGTH_BYTES, read_safetensors_header, safetensors_head_bytes  # noqa: PLC0415

    try:
        with open(path, "rb") as file:
            file_size = os.fstat(file.fileno()).st_size
            first = file.read(LENGTH_BYTES)
            head = first + file.read(safetensors_head_bytes(first, place=path, file_size=file_size) - len(first))
    except OSError as problem:
        raise _unreadable(path, problem) from problem
    return read_safetensors_header(head, place=path, file_size=file_size)


def _read_gguf(path: str) -> tuple[Model, tuple[str, ...]]:
    """Return the model of a GGUF file; of a split one, the first shard, which has the metadata."""
    from infcalc.catalog.gguf import model_from_gguf, read_gguf  # noqa: PLC0415  only for models on disk

    first = re.sub(r"-[0-9]{5}(-of-[0-9]{5}\.gguf)$", r"-00001\1", path)
    shard = first if os.path.isfile(first) else path
    try:
        with open(shard, "rb") as file:
            header = read_gguf(file, place=shard)
    except OSError as problem:
        raise _unreadable(shard, problem) from problem
    return model_from_gguf(header, os.path.basename(path).removesuffix(".gguf"), place=shard)


def read_hub_model(repo_id: str) -> tuple[Model, tuple[str, ...]]:
    """Return the model of a Hugging Face repository, from its config and shard index, and warnings about it.

    Raises:
        UsageError: the ``hub`` extra is not installed.
        FileProblem: the repository or its config.json cannot be fetched.
        UnsupportedArchitecture: an architecture that is not understood.

    """
    if not has_hub():
        hint = f"{_HUB_EXTRA}, or download config.json and name its path"
        raise UsageError(f"fetching {repo_id!r} needs the hub extra", hint=hint)
    config = _fetch_json(repo_id, _CONFIG)
    if config is None:
        raise FileProblem("the repository has no config.json", place=repo_id, hint="is it one of GGUF files only?")
    sidecar, index = _fetch_json(repo_id, _SIDECAR), _fetch_json(repo_id, _INDEX)
    name = repo_id.rpartition("/")[2]
    return _from_parts(config, sidecar=sidecar, index=index, name=name, place=repo_id)


def has_hub() -> bool:
    """Return whether the ``hub`` extra is installed."""
    from importlib.util import find_spec  # noqa: PLC0415  only for models beyond the catalog

    return find_spec("huggingface_hub") is not None


def _fetch_json(repo_id: str, name: str) -> Mapping[str, object] | None:
    """Return a JSON file of a hub repository, or None where the repository has no such file."""
    from importlib import import_module  # noqa: PLC0415  an optional extra, unknown to type checkers without it

    hub = import_module("huggingface_hub")
    try:
        path = hub.hf_hub_download(repo_id, name)
    except Exception as problem:
        # The library raises many kinds: network, authorisation, bad names. All are the user's to mend.
        kinds = {kind.__name__ for kind in type(problem).__mro__}
        # Of a file that is merely not in the local cache (no network), nothing is known.
        if "EntryNotFoundError" in kinds and "LocalEntryNotFoundError" not in kinds:
            return None
        raise _unfetched(repo_id, problem) from problem
    return _read_json(path)


def _unfetched(repo_id: str, problem: Exception) -> FileProblem:
    first = next(iter(str(problem).splitlines()), "") or type(problem).__name__
    hint = "check the name, the network, and for gated repositories HF_TOKEN; or name a local config.json"
    return FileProblem(f"cannot be fetched from the hub: {first}", place=repo_id, hint=hint)
