"""Catalog files laid over the shipped catalog, key by key, each value remembering the file and line it came from.

Later overlays win over earlier ones. Inside an entry each top-level key is replaced as a whole, except ``aliases``,
which add up. An entry whose name the catalog knows (as name or alias) changes that entry; ``like: NAME`` starts a new
entry from a known one, all keys but its names taken over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from infcalc.catalog.codec import Fault, KeyPath, describe, format_fault, read_mapping
from infcalc.catalog.document import Document
from infcalc.catalog.lookup import SECTIONS, SHIPPED, Catalog, Index, check_entries, find, fold, nearest, spellings
from infcalc.frozen import frozen

_NAMES_OF_ONE_ENTRY = ("aliases", "hf_id", "title", "published_parameters")
"""Keys that ``like`` does not take over, because they belong to one model or accelerator only."""


@frozen
class Overlay:
    """One catalog file: what messages call it, and its content with lines."""

    place: str
    document: Document


@frozen
class _Source:
    """Where the value of a key of a merged entry is written: the overlay, and the key path there."""

    overlay: Overlay
    path: KeyPath

    @property
    def place(self) -> str:
        return f"{self.overlay.place}:{self.overlay.document.line(self.path)}"


@dataclass(slots=True, kw_only=True)
class _Merged:
    """An entry under construction: its values, the source of each key, and the entry that touched it last."""

    values: dict[str, Any]
    sources: dict[str, _Source]
    last: _Source


def catalog_sections(document: Document, faults: list[Fault]) -> dict[str, dict[str, Mapping[str, Any]]]:
    """Return the sections of a catalog file: entries that are mappings, by name; the rest is appended as faults."""
    faults.extend(document.faults)
    top = read_mapping(document.value, (), faults)
    sections: dict[str, dict[str, Mapping[str, Any]]] = {section: {} for section in SECTIONS}
    for key, value in (top or {}).items():
        if key not in SECTIONS:
            faults.append(((key,), f"unknown section; known are {', '.join(SECTIONS)}"))
            continue
        if value is None:
            continue
        entries = read_mapping(value, (key,), faults)
        for name, entry in (entries or {}).items():
            mapping = read_mapping(entry, (key, name), faults)
            if not fold(name):
                faults.append(((key, name), "a name needs letters or digits"))
            elif mapping is not None:
                sections[key][name] = cast("Mapping[str, Any]", mapping)
    return sections


def located(place: str, document: Document, faults: Sequence[Fault]) -> tuple[str, ...]:
    """Return the faults of one file as lines ``file:line: key.path: what is wrong``."""
    return tuple(f"{place}:{document.line(path)}: {format_fault((path, message))}" for path, message in faults)


def lay_over(catalog: Catalog, overlays: Sequence[Overlay]) -> tuple[Catalog, tuple[str, ...]]:
    """Return ``catalog`` with ``overlays`` merged in, later ones winning, and every fault as a line with its place."""
    merger = _Merger(catalog)
    for overlay in overlays:
        merger.merge(overlay)
    return merger.finish()


class _Merger:
    """Merges overlays one by one; mutable, lives for one load."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._indexes: dict[str, Index] = {section: dict(catalog.index(section)) for section in SECTIONS}
        self._merged: dict[tuple[str, str], _Merged] = {}
        self._faults: list[str] = []
        self._names = {section: {fold(name): name for name in catalog.names(section)} for section in SECTIONS}
        self._claimed: dict[tuple[str, str], str] = {}
        """Spellings that the overlay being merged has entered so far."""

    def merge(self, overlay: Overlay) -> None:
        """Merge one overlay."""
        faults: list[Fault] = []
        self._claimed = {}
        for section, entries in catalog_sections(overlay.document, faults).items():
            for written, entry in entries.items():
                name = self._entry(overlay, section, written, entry, faults)
                if name is not None:
                    faults += self._claim_names(section, name, written, entry)
        self._faults += located(overlay.place, overlay.document, faults)

    def _entry(
        self, overlay: Overlay, section: str, written: str, entry: Mapping[str, Any], faults: list[Fault]
    ) -> str | None:
        """Merge one entry and return its exact name, or None after a fault."""
        source = _Source(overlay=overlay, path=(section, written))
        known = find(written, self._indexes[section])
        if "like" in entry:
            base = self._base(section, written, entry["like"], known, faults)
            if base is None:
                return None
            values, sources = base
            merged = _Merged(values=values, sources=sources, last=source)
            name = written
        elif known is not None:
            name = known
            merged = self._merged.get((section, name)) or _Merged(
                values=dict(self._catalog.mapping(section, name)), sources={}, last=source
            )
            merged.last = source
        else:
            name = written
            merged = _Merged(values={}, sources={}, last=source)
        for key in _stale(section, entry):
            merged.values.pop(key, None)
            merged.sources.pop(key, None)
        for key, value in entry.items():
            if key == "like":
                continue
            merged.sources[key] = _Source(overlay=overlay, path=(section, written, key))
            merged.values[key] = _joined(merged.values.get(key), value) if key == "aliases" else value
        self._merged[section, name] = merged
        return name

    def _base(
        self, section: str, written: str, like: object, known: str | None, faults: list[Fault]
    ) -> tuple[dict[str, Any], dict[str, _Source]] | None:
        """Return values and sources of the entry that ``like`` names, without what only that entry can have."""
        path = (section, written, "like")
        if known is not None:
            faults.append((path, f"{written!r} is already known as {known!r}; leave out like, or choose another name"))
            return None
        if not isinstance(like, str):
            faults.append((path, f"expected the name of an entry, found {describe(like)}"))
            return None
        base = find(like, self._indexes[section])
        if base is None:
            near = nearest(like, self._indexes[section])
            faults.append((path, f"unknown entry {like!r}" + (f"; did you mean {', '.join(near)}?" if near else "")))
            return None
        merged = self._merged.get((section, base))
        values = merged.values if merged else self._catalog.mapping(section, base)
        kept = {key: value for key, value in values.items() if key not in _NAMES_OF_ONE_ENTRY}
        return kept, dict(merged.sources) if merged else {}

    def _claim_names(self, section: str, name: str, written: str, entry: Mapping[str, Any]) -> list[Fault]:
        """Enter the spellings of an entry: they win over lower layers, but not over names, nor within one file."""
        index = self._indexes[section]
        faults: list[Fault] = []
        self._names[section].setdefault(fold(name), name)
        for text, own in spellings(name, entry):
            key = fold(text)
            if not own:
                index.setdefault(key, name)
                continue
            taken = self._claimed.get((section, key)) or self._names[section].get(key)
            if taken is not None and taken != name:
                faults.append(((section, written, "aliases"), f"{text!r} is already a name of {taken!r}"))
                continue
            self._claimed[section, key] = name
            index[key] = name
        return faults

    def finish(self) -> tuple[Catalog, tuple[str, ...]]:
        """Return the merged catalog and the faults of all overlays."""
        entries: dict[str, dict[str, str | Mapping[str, Any]]] = {
            section: {name: self._catalog.entry(section, name) for name in self._catalog.names(section)}
            for section in SECTIONS
        }
        places: dict[tuple[str, str], dict[str, str]] = {}
        for (section, name), merged in self._merged.items():
            entries[section][name] = merged.values
            places[section, name] = {key: source.place for key, source in merged.sources.items()}
        catalog = Catalog(entries, self._indexes, self._catalog.cuda_ratios, places)
        faults: list[Fault] = []
        check_entries(catalog, self._merged, faults)
        return catalog, (*self._faults, *(self._locate(fault) for fault in faults))

    def _locate(self, fault: Fault) -> str:
        """Return a fault of a merged entry with the place of the key, or of the entry where no file sets the key."""
        (section, name, *keys), _ = fault
        merged = self._merged[section, name]
        if keys and keys[0] in merged.values and keys[0] not in merged.sources:
            return f"{SHIPPED[section]}: {format_fault(fault)}"
        source = merged.sources.get(keys[0], merged.last) if keys else merged.last
        line = source.overlay.document.line((*source.path, *keys[1:]))
        return f"{source.overlay.place}:{line}: {format_fault(fault)}"


def _stale(section: str, entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the inherited keys that no longer hold: what a driver reports of one memory says nothing of another."""
    if section != "gpus" or "memory" not in entry:
        return ()
    return tuple(key for key in ("driver_total", "cuda_total") if key not in entry)


def _joined(before: object, after: object) -> object:
    """Return both lists of aliases, or ``after`` as it is where it is no list (its reader reports that)."""
    if isinstance(after, str):
        after = [after]
    if not isinstance(before, list) or not isinstance(after, list):
        return after
    return [*before, *(alias for alias in after if alias not in before)]
