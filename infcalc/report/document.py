"""A document before it has a look: sections of text, figures, tables, pictures and commands."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from infcalc.frozen import frozen
from infcalc.report.table import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.report.svg.element import Element
    from infcalc.report.svg.frame import Sheet


@frozen
class Passage:
    """A paragraph."""

    text: str


@frozen
class Points:
    """A list of statements."""

    texts: tuple[str, ...]


@frozen
class Tile:
    """A figure to be seen first: what it is, the value with its unit, and its band or what it is of."""

    name: str
    value: str
    note: str = ""


@frozen
class Tiles:
    """The figures that a section begins with."""

    tiles: tuple[Tile, ...]


@frozen
class Picture:
    """A picture: ``draw`` makes it for a sheet, ``text`` is the same in letters; both tell what is seen.

    ``caption`` stands below it, ``description`` is for those who do not see it.
    """

    name: str
    title: str
    caption: str
    description: str
    draw: Callable[[Sheet], Element]
    text: str = ""


@frozen
class Command:
    """A line for a shell, and what it gives."""

    purpose: str
    line: str


@frozen
class Commands:
    """Lines for a shell."""

    commands: tuple[Command, ...]


Block: TypeAlias = Passage | Points | Tiles | Picture | Commands | Table


@frozen
class Section:
    """A heading and what stands under it; ``anchor`` is what links name it by."""

    title: str
    anchor: str
    blocks: tuple[Block, ...]


@frozen
class Status:
    """A finding in a few words: good, or not."""

    text: str
    good: bool


@frozen
class Document:
    """Title, facts about the document itself, findings in a few words, and the sections in their order."""

    title: str
    facts: tuple[tuple[str, str], ...]
    statuses: tuple[Status, ...]
    sections: tuple[Section, ...]
