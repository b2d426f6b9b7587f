"""A YAML document as plain values with the line of every key, built from the events of a parser.

One pass over the events gives what an ordinary loader does not: lines for faults, duplicate keys, a bound on depth and
on what aliases expand to, and a reading of plain scalars in which ``no`` and ``010`` stay text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from infcalc.catalog.codec import Fault, KeyPath
from infcalc.frozen import frozen

MAX_DEPTH: Final = 32
MAX_VALUES: Final = 500_000
"""Values of one document, those that aliases repeat counted again: a bound on what a few aliases can expand to."""

_MAX_NUMBER_TEXT = 40
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)")
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, object] = {
    "": None,
    "~": None,
    **dict.fromkeys(("null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), math.nan),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf"), math.inf),
    "-.inf": -math.inf,
}
_TEXT_TAG = "tag:yaml.org,2002:str"
_MERGE_KEY = "<<"
_NO_KEY: Final = object()


@frozen
class Document:
    """The value of a YAML document, the line of each key path in it (from 1), and its faults."""

    value: object
    lines: dict[KeyPath, int]
    faults: tuple[Fault, ...]

    def line(self, path: KeyPath) -> int:
        """Return the line of a key path, or of its nearest parent that the document has."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines.get(path, 1)


@dataclass(slots=True, kw_only=True)
class _Open:
    """A mapping or sequence whose end has not come yet."""

    value: dict[object, object] | list[object]
    path: KeyPath
    anchor: str | None
    key: object = _NO_KEY
    num_values: int = 1
    merged: list[object] = field(default_factory=list)


class DocumentTooLargeError(ValueError):
    """The document nests too deeply or its aliases expand to too much; reading it stopped."""


def read_document(events: Iterable[Any]) -> Document:
    """Return the document of a stream of YAML parser events; an empty stream gives None.

    Raises:
        DocumentTooLargeError: depth above :data:`MAX_DEPTH` or more than :data:`MAX_VALUES` values.

    """
    builder = _Builder()
    for event in events:
        builder.take(event)
    return Document(value=builder.root, lines=builder.lines, faults=tuple(builder.faults))


class _Builder:
    """Turns events into values; mutable, lives for one document."""

    def __init__(self) -> None:
        self.root: object = None
        self.lines: dict[KeyPath, int] = {}
        self.faults: list[Fault] = []
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[object, int]] = {}
        self._num_documents = 0
        self._num_values = 0

    def take(self, event: Any) -> None:  # noqa: ANN401  any parser's events will do
        """Take the next event."""
        match type(event).__name__:
            case "ScalarEvent":
                self._scalar(event)
            case "AliasEvent":
                self._alias(event)
            case "MappingStartEvent":
                self._start({}, event)
            case "SequenceStartEvent":
                self._start([], event)
            case "MappingEndEvent" | "SequenceEndEvent":
                self._end()
            case "DocumentStartEvent":
                self._num_documents += 1
                if self._num_documents == 2:  # noqa: PLR2004  reported once
                    self.faults.append(((), "a second document starts here; a catalog file holds one"))
            case _:
                pass

    def _place(self) -> KeyPath:
        """Return the key path of the value that comes next."""
        if not self._open:
            return ()
        top = self._open[-1]
        if isinstance(top.value, list):
            return (*top.path, str(len(top.value)))
        return top.path if top.key is _NO_KEY else (*top.path, str(top.key))

    def _count(self, num_values: int) -> None:
        self._num_values += num_values
        if self._num_values > MAX_VALUES:
            raise DocumentTooLargeError(f"more than {MAX_VALUES:,} values, those that aliases repeat included")

    def _scalar(self, event: Any) -> None:  # noqa: ANN401
        self._count(1)
        value: object = event.value
        if event.implicit[0]:
            value = plain_value(event.value)
        elif event.tag not in {None, "!", _TEXT_TAG}:
            self.faults.append((self._place(), f"tag {event.tag!r} is not allowed"))
        if event.anchor:
            self._anchors[event.anchor] = (value, 1)
        self._add(value, 1, event)

    def _alias(self, event: Any) -> None:  # noqa: ANN401
        if any(item.anchor == event.anchor for item in self._open):
            self.faults.append((self._place(), f"alias *{event.anchor} contains itself"))
            self._add(None, 1, event)
        elif event.anchor not in self._anchors:
            self.faults.append((self._place(), f"alias *{event.anchor} has no anchor before it"))
            self._add(None, 1, event)
        else:
            value, num_values = self._anchors[event.anchor]
            self._count(num_values)
            self._add(value, num_values, event)

    def _start(self, value: dict[object, object] | list[object], event: Any) -> None:  # noqa: ANN401
        self._count(1)
        if len(self._open) >= MAX_DEPTH:
            raise DocumentTooLargeError(f"nested more than {MAX_DEPTH} deep, on line {event.start_mark.line + 1}")
        path = self._place()
        if event.tag is not None and not event.implicit:
            self.faults.append((path, f"tag {event.tag!r} is not allowed"))
        self.lines.setdefault(path, event.start_mark.line + 1)
        self._open.append(_Open(value=value, path=path, anchor=event.anchor))

    def _end(self) -> None:
        done = self._open.pop()
        if isinstance(done.value, dict):
            for merged in done.merged:
                self._merge(done, merged)
        if done.anchor:
            self._anchors[done.anchor] = (done.value, done.num_values)
        self._add(done.value, done.num_values, None)

    def _merge(self, target: _Open, merged: object) -> None:
        """Add the keys of a ``<<`` value that the mapping does not set itself."""
        for source in merged if isinstance(merged, list) else [merged]:
            if isinstance(source, dict) and isinstance(target.value, dict):
                for key, value in source.items():
                    target.value.setdefault(key, value)
            else:
                self.faults.append((target.path, "<< takes a mapping or a list of mappings"))

    def _add(self, value: object, num_values: int, event: Any) -> None:  # noqa: ANN401
        """Put a finished value where it belongs: as key, as value, as item, or as the document."""
        if not self._open:
            if self._num_documents <= 1:
                self.root = value
            return
        top = self._open[-1]
        top.num_values += num_values
        if isinstance(top.value, list):
            if event is not None:
                self.lines.setdefault(self._place(), event.start_mark.line + 1)
            top.value.append(value)
        elif top.key is _NO_KEY:
            self._key(top, value, event)
        else:
            if top.key == _MERGE_KEY:
                top.merged.append(value)
            else:
                top.value[top.key] = value
            top.key = _NO_KEY

    def _key(self, top: _Open, key: object, event: Any) -> None:  # noqa: ANN401
        if isinstance(key, dict | list):
            self.faults.append((top.path, "a mapping or list cannot be a key"))
            key = f"?{len(top.value)}"
        elif key in top.value:
            first = self.lines.get((*top.path, str(key)))
            line = event.start_mark.line + 1 if event is not None else first
            self.faults.append(((*top.path, str(key)), f"key given twice, on lines {first} and {line}"))
        top.key = key
        if event is not None:
            self.lines.setdefault((*top.path, str(key)), event.start_mark.line + 1)


def plain_value(text: str) -> object:
    """Return what an unquoted scalar stands for.

    Numbers, ``true``, ``false`` and ``null`` are read as in YAML 1.2; everything else, ``yes``, dates and numbers with
    leading zeros included, is text.

    >>> [plain_value(text) for text in ("8", "8.0", "1e3", "no", "010", "~")]
    [8, 8.0, 1000.0, 'no', '010', None]
    """
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if len(text) <= _MAX_NUMBER_TEXT:
        if _INTEGER.fullmatch(text):
            return int(text.replace("_", ""))
        if _FLOAT.fullmatch(text):
            return float(text.replace("_", ""))
    return text
