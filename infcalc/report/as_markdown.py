"""A document as Markdown: the words and tables of the page, pictures as drawings in letters where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, assert_never

from infcalc.report.document import Commands, Passage, Picture, Points, Tiles
from infcalc.report.table import Table
from infcalc.report.text import inline, markdown_table

if TYPE_CHECKING:
    from infcalc.report.document import Block, Document, Section


def as_markdown(document: Document) -> str:
    """Return the document as Markdown that ends in a newline."""
    blocks = [f"# {inline(document.title)}"]
    blocks.append("\n".join(f"- **{inline(name)}**: {inline(value)}" for name, value in document.facts))
    blocks.append(" · ".join(f"**{inline(status.text)}**" for status in document.statuses))
    for section in document.sections:
        blocks += _section(section)
    return "\n\n".join(block for block in blocks if block) + "\n"


def _section(section: Section) -> list[str]:
    return [f"## {inline(section.title)}", *(text for block in section.blocks if (text := _block(block)))]


def _block(block: Block) -> str:
    match block:
        case Passage():
            return inline(block.text)
        case Points():
            return "\n".join(f"- {inline(text)}" for text in block.texts)
        case Tiles():
            rows = [f"- {inline(tile.name)}: **{inline(tile.value)}** ({inline(tile.note)})" for tile in block.tiles]
            return "\n".join(row.removesuffix(" ()") for row in rows)
        case Picture():
            return _picture(block)
        case Commands():
            lines = "\n".join(f"# {one.purpose}\n{one.line}" for one in block.commands)
            return _fenced(lines, "sh")
        case Table():
            return markdown_table(block) if block.rows else ""
        case _:
            assert_never(block)


def _picture(block: Picture) -> str:
    if not block.text:
        return f"**{inline(block.title)}**: drawn in the HTML form; its points are in the table below."
    return f"**{inline(block.title)}**\n\n{_fenced(block.text, '')}\n\n{inline(block.caption)}"


def _fenced(text: str, language: str) -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
