"""Names to catalog entries: spelling, aliases, fine-tunes and near misses.

A :class:`Catalog` holds entries as text or mappings and turns one into a noun only when it is asked for: a command that
needs one model of two hundred pays for one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from infcalc.errors import FileProblem, UnknownName
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.catalog.codec import Fault
    from infcalc.spec.draft import Draft
    from infcalc.spec.efficiency import GpuEfficiency
    from infcalc.spec.hardware import Gpu
    from infcalc.spec.model import Model

SECTIONS: Final = ("models", "gpus", "drafts", "efficiencies")
"""Top-level keys of a catalog file."""

SHIPPED: Final = {
    "models": "models.yaml (shipped)",
    "gpus": "gpus.yaml (shipped)",
    "drafts": "models.yaml (shipped)",
    "efficiencies": "efficiency.yaml (shipped)",
}
"""What an origin calls the shipped file of each section."""

_KINDS = {"models": "model", "gpus": "GPU", "drafts": "draft head", "efficiencies": "efficiency"}
_SEPARATORS = re.compile(r"[\s_./:-]+")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])[\s_./:-]+(?=[0-9])")
_MAX_NEAREST = 5
_MAX_NAME_TEXT = 200
_VENDOR_PREFIXES = ("nvidia", "amd", "intel", "google", "aws", "huawei")

Index: TypeAlias = dict[str, str]
"""Entry name by folded spelling (see :func:`fold`)."""


@frozen
class ModelEntry:
    """A model of the catalog; ``origins`` names the place of each key of its entry.

    ``assumptions`` say what was taken from the name alone, ``warnings`` what is doubtful about the figures.
    """

    model: Model
    origins: Mapping[str, str]
    assumptions: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


@frozen
class GpuEntry:
    """An accelerator of the catalog; ``origins`` names the place of each key of its entry."""

    gpu: Gpu
    origins: Mapping[str, str]
    warnings: tuple[str, ...] = ()


def fold(name: str) -> str:
    """Return ``name`` as it is compared: lower case, without separators.

    A separator between two digits stays, as ``-``: it tells Qwen2.5-7B from Qwen2-57B.

    >>> fold("RTX 4090") == fold("rtx-4090") == fold("rtx4090")
    True
    >>> fold("Llama-3.1_8B"), fold("Qwen2-57B"), fold("Qwen2.5-7B"), fold("llama3:70b")
    ('llama3-1-8b', 'qwen2-57b', 'qwen2-5-7b', 'llama3-70b')
    """
    parts = _BETWEEN_DIGITS.split(name.strip().lower())
    return "-".join(_SEPARATORS.sub("", part) for part in parts)


def spellings(name: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    """Yield the texts by which an entry is found, and whether each is its own (else it gives way to any other entry).

    Own are the name, the aliases and the Hugging Face id; the title and the ids without their organisation are weak.
    """
    yield name, True
    aliases = entry.get("aliases")
    # Entries are indexed before they are checked: aliases may be anything.
    listed = aliases if isinstance(aliases, list | tuple) else [aliases]
    own = [alias for alias in listed if isinstance(alias, str)]
    hub_id = entry.get("hf_id")
    if isinstance(hub_id, str):
        own.append(hub_id)
    for alias in own:
        yield alias, True
    for alias in own:
        if "/" in alias:
            yield alias.rpartition("/")[2], False
    if isinstance(entry.get("title"), str):
        yield entry["title"], False


def build_index(section: str, entries: Mapping[str, Mapping[str, Any]]) -> tuple[Index, list[Fault]]:
    """Return the names of all entries by folded spelling, and a fault for each spelling that two entries claim."""
    index: Index = {}
    weak: dict[str, set[str]] = {}
    faults: list[Fault] = []
    for name, entry in entries.items():
        for text, own in spellings(name, entry):
            key = fold(text)
            if not own:
                weak.setdefault(key, set()).add(name)
            elif index.setdefault(key, name) != name:
                faults.append(((section, name, "aliases"), f"{text!r} is already a name of {index[key]!r}"))
    for key, names in weak.items():
        if len(names) == 1:
            index.setdefault(key, next(iter(names)))
    return index, faults


def find(name: str, index: Mapping[str, str]) -> str | None:
    """Return the entry that ``name`` spells, or None; a vendor's name in front is not needed."""
    key = fold(name)
    found = index.get(key)
    if found is None and "/" not in name:
        # What stands before a slash is an organisation, whose checkpoints are its own.
        bare = next((key.removeprefix(vendor) for vendor in _VENDOR_PREFIXES if key.startswith(vendor)), key)
        found = index.get(bare)
    return found


def nearest(name: str, index: Mapping[str, str], *, far: bool = False) -> tuple[str, ...]:
    """Return up to five entries whose spelling is close to ``name``, the closest first.

    ``far`` takes the nearest even where none is close.
    """
    import difflib  # noqa: PLC0415  slow to import, and only a failure needs it

    key = fold(name)[:_MAX_NAME_TEXT]
    close = difflib.get_close_matches(key, index, n=4 * _MAX_NEAREST, cutoff=0.6)
    if not close and far:
        # Far from all of them; still, those that share most of its pairs of letters say how such names look.
        pairs = _pairs(key)
        close = sorted(index, key=lambda spelling: -len(pairs & _pairs(spelling)) / (len(pairs) + len(spelling)))
    longer = sorted((spelling for spelling in index if key and spelling.startswith(key)), key=len)
    return tuple(dict.fromkeys(index[spelling] for spelling in (*longer[:2], *close, *longer)))[:_MAX_NEAREST]


def _pairs(spelling: str) -> set[str]:
    return {spelling[place : place + 2] for place in range(len(spelling) - 1)}


class Catalog:
    """All models and accelerators, each decoded when asked for.

    ``entries`` hold per section the entries in order, as JSON text (shipped) or as mapping (touched by an overlay);
    ``places`` the file of each key that an overlay set.
    """

    __slots__ = ("_efficiencies", "_entries", "_indexes", "_places", "_ratios")

    def __init__(
        self,
        entries: Mapping[str, Mapping[str, str | Mapping[str, Any]]],
        indexes: Mapping[str, Index],
        ratios: Mapping[str, float],
        places: Mapping[tuple[str, str], Mapping[str, str]] | None = None,
    ) -> None:
        self._entries = entries
        self._indexes = indexes
        self._ratios = ratios
        self._places = places or {}
        # Decoding curves takes longer than all else that is made of them: those that were asked for are kept.
        self._efficiencies: dict[Gpu, GpuEfficiency] = {}

    @property
    def cuda_ratios(self) -> Mapping[str, float]:
        """CUDA total as a fraction of other totals, by family (see :func:`infcalc.catalog.gpus.cuda_ratios`)."""
        return self._ratios

    def names(self, section: str) -> tuple[str, ...]:
        """Return the names of all entries of a section, in the order of the files."""
        return tuple(self._entries[section])

    def index(self, section: str) -> Index:
        """Return the entries of a section by folded spelling; not to be changed."""
        return self._indexes[section]

    def entry(self, section: str, name: str) -> str | Mapping[str, Any]:
        """Return an entry as it is held: JSON text (shipped) or a mapping."""
        return self._entries[section][name]

    def mapping(self, section: str, name: str) -> Mapping[str, Any]:
        """Return an entry as its mapping of plain values; ``name`` is exact.

        Raises:
            FileProblem: the compiled copy of the catalog is damaged.

        """
        entry = self.entry(section, name)
        if not isinstance(entry, str):
            return entry
        try:
            return cast("Mapping[str, Any]", json.loads(entry))
        except ValueError as problem:
            hint = "delete infcalc's cache folder (~/.cache/infcalc), or install infcalc again"
            raise FileProblem(
                f"the compiled entry {name!r} is damaged", place="compiled catalog", hint=hint
            ) from problem

    def resolve(self, section: str, name: str) -> str:
        """Return the exact name of the entry that ``name`` spells.

        Raises:
            UnknownName: no entry has that name; lists the nearest.

        """
        found = find(name, self._indexes[section])
        if found is None:
            raise self._unknown(section, name)
        return found

    def origin(self, section: str, name: str, key: str) -> str:
        """Return where the value of a key came from: ``infcalc.yaml:12`` or ``models.yaml (shipped)``."""
        return self._places.get((section, name), {}).get(key, SHIPPED[section])

    def origins(self, section: str, name: str, keys: Iterable[str]) -> dict[str, str]:
        """Return the origin of each of ``keys`` (see :meth:`origin`)."""
        return {key: self.origin(section, name, key) for key in keys}

    def model_names(self) -> tuple[str, ...]:
        """Return the names of all models."""
        return self.names("models")

    def gpu_names(self) -> tuple[str, ...]:
        """Return the names of all accelerators."""
        return self.names("gpus")

    def draft_names(self) -> tuple[str, ...]:
        """Return the names of all draft heads."""
        return self.names("drafts")

    def model(self, name: str) -> ModelEntry:
        """Return the model called ``name``: a catalog name, an alias, a hub id, or a derivative of one of them.

        A fine-tune or quantized derivative has the shape of its base, and the precision that its name states; the
        assumption is returned with it.

        Raises:
            UnknownName: neither the catalog nor the rules for derivatives know the name.
            CatalogError: the entry has faults.

        """
        found = find(name, self._indexes["models"])
        if found is None:
            return self._derivative(name)
        return self._model_entry(found)

    def gpu(self, name: str) -> GpuEntry:
        """Return the accelerator called ``name``: a catalog name, an alias, or what the driver calls it.

        Raises:
            UnknownName: the catalog does not know the name.
            CatalogError: the entry has faults.

        """
        from infcalc.catalog.gpus import gpu_from_mapping  # noqa: PLC0415  commands without GPU need not pay for it

        found = self.resolve("gpus", name)
        mapping = self.mapping("gpus", found)
        gpu = gpu_from_mapping(found, mapping, self._ratios)
        warnings = tuple(f"{found}: {doubt}" for doubt in gpu.doubts)
        origins = self.origins("gpus", found, mapping)
        if gpu.cuda_total_estimated:
            origins["cuda_total"] = "estimated from parts of its family"
        return GpuEntry(gpu=gpu, origins=origins, warnings=warnings)

    def draft(self, name: str) -> Draft:
        """Return the draft head called ``name``.

        Raises:
            UnknownName: the catalog does not know the name.
            CatalogError: the entry has faults.

        """
        from infcalc.catalog.codec import draft_from_mapping  # noqa: PLC0415  commands without drafts need not pay

        found = self.resolve("drafts", name)
        return draft_from_mapping(found, self.mapping("drafts", found))

    def efficiency_entry(self, name: str) -> GpuEfficiency:
        """Return the efficiency curves of an entry as they are written; ``name`` is exact.

        Raises:
            CatalogError: the entry has faults.

        """
        from infcalc.catalog.efficiency import efficiency_from_mapping  # noqa: PLC0415  few commands need it

        return efficiency_from_mapping(name, self.mapping("efficiencies", name))

    def efficiency(self, gpu: Gpu) -> GpuEfficiency:
        """Return the efficiency curves of ``gpu``: its own, else those of its nearest measured relative.

        Relatives share the architecture, then its first word, then the vendor; collectives are those of the link. Every
        curve says what it rests on. A block ``efficiency`` of the accelerator's own entry replaces what it states.

        Raises:
            CatalogError: the entry has faults.

        """
        found = self._efficiencies.get(gpu)
        if found is None:
            found = self._efficiencies[gpu] = self._efficiency(gpu)
        return found

    def _efficiency(self, gpu: Gpu) -> GpuEfficiency:
        from infcalc.catalog.efficiency import DEFAULT_CURVES, efficiency_for  # noqa: PLC0415  few commands need it

        index = self._indexes["efficiencies"]
        read: dict[str, GpuEfficiency] = {}

        def nearest_of(*relatives: str) -> GpuEfficiency | None:
            found = next((name for name in (index.get(fold(relative)) for relative in relatives) if name), None)
            if found is not None and found not in read:
                read[found] = self.efficiency_entry(found)
            return None if found is None else read[found]

        return efficiency_for(
            gpu,
            base=nearest_of(gpu.name, gpu.architecture, gpu.architecture.partition(" ")[0], gpu.vendor, DEFAULT_CURVES),
            link_of=nearest_of,
            default=nearest_of(DEFAULT_CURVES),
        )

    def _model_entry(self, name: str) -> ModelEntry:
        from infcalc.catalog.codec import model_from_mapping  # noqa: PLC0415  commands without model need not pay

        mapping = self.mapping("models", name)
        model = model_from_mapping(name, mapping)
        warnings = tuple(f"{name}: {doubt}" for doubt in model.doubts)
        return ModelEntry(model=model, origins=self.origins("models", name, mapping), warnings=warnings)

    def _derivative(self, name: str) -> ModelEntry:
        from infcalc.catalog.derivatives import apply_derivative, resolve_derivative  # noqa: PLC0415  seldom needed

        derivative = resolve_derivative(name, self._indexes["models"])
        if derivative is None:
            raise self._unknown("models", name)
        base = self._model_entry(derivative.base)
        model = replace(apply_derivative(derivative, base.model), name=name.strip(), hf_id=None, aliases=())
        stated = {"name": name, "quantization": derivative.format, "kv_dtype": derivative.kv_dtype}
        origins = dict(base.origins) | {key: f"the name {name.strip()!r}" for key, value in stated.items() if value}
        return ModelEntry(model=model, origins=origins, assumptions=(derivative.assumption,), warnings=base.warnings)

    def _unknown(self, section: str, name: str) -> UnknownName:
        near = nearest(name, self._indexes[section], far=True)
        listing = f"`infcalc {section}` lists all" if section in ("models", "gpus") else None
        return UnknownName(_KINDS[section], name[:_MAX_NAME_TEXT], near, hint=listing)


def check_entries(catalog: Catalog, touched: Iterable[tuple[str, str]], faults: list[Fault]) -> None:
    """Decode the ``touched`` entries (section, name) and append every fault with its key path."""
    from infcalc.catalog.codec import read_draft, read_model  # noqa: PLC0415  only where files are checked
    from infcalc.catalog.gpus import read_gpu  # noqa: PLC0415

    for section, name in touched:
        mapping = catalog.mapping(section, name)
        match section:
            case "models":
                read_model(name, mapping, (section, name), faults)
            case "gpus":
                read_gpu(name, mapping, catalog.cuda_ratios, (section, name), faults)
            case "efficiencies":
                from infcalc.catalog.efficiency import read_efficiency  # noqa: PLC0415  only where files are checked

                read_efficiency(name, mapping, (section, name), faults)
            case _:
                draft = read_draft(name, mapping, (section, name), faults)
                targets = draft.targets if draft else ()
                unknown = [target for target in targets if find(target, catalog.index("models")) is None]
                faults.extend(((section, name, "targets"), f"no model is called {target!r}") for target in unknown)


_ROW_END = ",\n"
COMPILED_LAYOUT: Final = 2
"""Number of the layout that :func:`compiled_text` writes; raised when it changes."""


def catalog_of(sections: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> tuple[Catalog, list[Fault]]:
    """Return the catalog of the shipped ``sections`` and all faults of its entries."""
    from infcalc.catalog.gpus import cuda_ratios  # noqa: PLC0415  only where files are checked

    indexes: dict[str, Index] = {}
    faults: list[Fault] = []
    for section in SECTIONS:
        indexes[section], found = build_index(section, sections.get(section, {}))
        faults += found
    entries = {section: sections.get(section, {}) for section in SECTIONS}
    catalog = Catalog(entries, indexes, cuda_ratios(entries["gpus"].values()))
    check_entries(catalog, ((section, name) for section in SECTIONS for name in catalog.names(section)), faults)
    return catalog, faults


def compiled_text(catalog: Catalog, key: str) -> str:
    """Return a catalog as text that loads fast: a JSON array with a header and one entry per line.

    The header holds the alias indexes and the order of the names; ``key`` identifies the source files.
    """
    header = {
        "layout": COMPILED_LAYOUT,
        "key": key,
        "ratios": catalog.cuda_ratios,
        "names": {section: catalog.names(section) for section in SECTIONS},
        "indexes": {section: catalog.index(section) for section in SECTIONS},
    }
    rows = [header, *(catalog.mapping(section, name) for section in SECTIONS for name in catalog.names(section))]
    lines = (json.dumps(row, ensure_ascii=False, separators=(",", ":")) for row in rows)
    return f"[{_ROW_END.join(lines)}]\n"


def catalog_from_compiled(text: str, key: str) -> Catalog | None:
    """Return the catalog that :func:`compiled_text` wrote, or None where it is not that of the source files ``key``."""
    if not text.endswith("]\n"):
        return None
    # JSON escapes line breaks inside texts, so a raw one only ever ends a row.
    head, *rows = text[1:-2].split(_ROW_END)
    try:
        header = json.loads(head)
        if header["layout"] != COMPILED_LAYOUT or header["key"] != key:
            return None
        names = header["names"]
        if len(rows) != sum(len(names[section]) for section in SECTIONS):
            return None
        lines = iter(rows)
        entries = {section: {name: next(lines) for name in names[section]} for section in SECTIONS}
        return Catalog(entries, header["indexes"], header["ratios"])
    except (ValueError, LookupError, TypeError):
        # Written by another program or damaged: as good as none.
        return None
