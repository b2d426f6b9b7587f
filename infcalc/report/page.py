"""A document as one page of HTML that needs nothing else: no network, no script, no font of its own."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, assert_never

from infcalc.report.document import Commands, Passage, Picture, Points, Tiles
from infcalc.report.page_style import style_sheet
from infcalc.report.svg.element import Element, element, escaped, to_text
from infcalc.report.svg.frame import Sheet
from infcalc.report.table import Table, cells

if TYPE_CHECKING:
    from infcalc.report.document import Block, Command, Document, Section, Tile
    from infcalc.report.svg.element import Child

_WIDTHS = {"wide": 760.0, "narrow": 344.0}
"""That pictures are drawn for: a screen or sheet of paper, and a phone; a style sheet shows one of them."""
_BROKEN = (("some", 24), ("long", 42))
"""Characters from which on a cell may be broken into lines, and from which on it is."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
"""Nothing is loaded, whatever a name or source in the document may hold."""
_LINK = re.compile(r"https?://[^\s<>\"'()]+[^\s<>\"'().,;:]")


def page(document: Document) -> str:
    """Return the page as text that ends in a newline."""
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8"/>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escaped(_POLICY)}"/>\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        '<meta name="color-scheme" content="light dark"/>\n'
        '<link rel="icon" href="data:,"/>\n'
        f"<title>{escaped(document.title)}</title>\n<style>{style_sheet()}</style>\n</head>\n<body>\n"
    )
    body = "\n".join(to_text(part) for part in (_header(document), _main(document)))
    return f"{head}{body}\n</body>\n</html>\n"


def _header(document: Document) -> Element:
    facts = [
        part
        for name, value in document.facts
        if value
        for part in (element("dt", name), element("dd", *_linked(value)))
    ]
    links = [element("li", element("a", section.title, href=f"#{section.anchor}")) for section in document.sections]
    return element(
        "header",
        element("h1", document.title),
        element("dl", *facts, class_="facts"),
        element(
            "p",
            *(element("span", status.text, class_="good" if status.good else "bad") for status in document.statuses),
            class_="status",
        ),
        element("nav", element("ul", *links), aria_label="Sections"),
    )


def _main(document: Document) -> Element:
    return element("main", *(_section(section) for section in document.sections))


def _section(section: Section) -> Element:
    parts = [part for block in section.blocks for part in _block(block)]
    return element(
        "section",
        element("h2", section.title, id=f"{section.anchor}-heading"),
        *parts,
        id=section.anchor,
        aria_labelledby=f"{section.anchor}-heading",
    )


def _block(block: Block) -> list[Element]:
    match block:
        case Passage():
            return [element("p", *_linked(block.text))]
        case Points():
            return [element("ul", *(element("li", *_linked(text)) for text in block.texts))]
        case Tiles():
            return [element("div", *map(_tile, block.tiles), class_="tiles")]
        case Picture():
            return [_picture(block)]
        case Commands():
            return [element("div", *(part for one in block.commands for part in _command(one)), class_="lines")]
        case Table():
            return [_table(block)] if block.rows else []
        case _:
            assert_never(block)


def _tile(tile: Tile) -> Element:
    return element(
        "dl",
        element("dt", tile.name),
        element("dd", tile.value, class_="value"),
        element("dd", tile.note, class_="note"),
        class_="tile",
    )


def _picture(block: Picture) -> Element:
    """Return the picture twice, of which a screen shows the one that fits it."""
    return element(
        "figure",
        element("h3", block.title),
        *(element("div", block.draw(_sheet(block, width, kind)), class_=kind) for kind, width in _WIDTHS.items()),
        element("figcaption", block.caption),
    )


def _sheet(block: Picture, width: float, kind: str) -> Sheet:
    return Sheet(width=width, title=block.title, description=block.description, name=f"{block.name}-{kind}")


def _command(command: Command) -> list[Element]:
    return [element("p", command.purpose), element("pre", element("code", command.line))]


def _table(table: Table) -> Element:
    heads = [
        element("th", column.heading, scope="col", **({"class_": "text"} if column.left else {}))
        for column in table.columns
    ]
    rows = [
        element(
            "tr",
            *(
                element("td", *_linked(text), **_look(text, left=column.left))
                for text, column in zip(row, table.columns, strict=True)
            ),
        )
        for row in cells(table)
    ]
    whole = element(
        "table",
        element("thead", element("tr", *heads)),
        element("tbody", *rows),
        aria_label=table.title,
    )
    # What scrolls can be reached with the keyboard.
    return element(
        "div",
        element("h3", table.title),
        element("div", whole, class_="scroll", tabindex="0", role="region", aria_label=f"table: {table.title}"),
        class_="table",
    )


def _look(text: str, *, left: bool) -> dict[str, str]:
    lengths = [name for name, most in _BROKEN if len(text) > most]
    classes = [*(["text"] if left else []), *lengths[-1:]]
    return {"class_": " ".join(classes)} if classes else {}


def _linked(text: str) -> list[Child]:
    """Return text with its web addresses as links, which nothing follows by itself."""
    found: list[Child] = []
    reached = 0
    for match in _LINK.finditer(text):
        found += [text[reached : match.start()], element("a", match[0], href=match[0], rel="noopener noreferrer")]
        reached = match.end()
    return [*found, text[reached:]]
