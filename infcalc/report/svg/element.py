"""One element of a drawing or a page as data, and as text in which every character is escaped that must be."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Iterator

Value: TypeAlias = "str | float"
Child: TypeAlias = "Element | str"

_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"})
_DIGITS = 2


@frozen
class Element:
    """A name, attributes in their order, and what is inside: elements and plain text."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    children: tuple[Child, ...]


def element(name: str, *children: Child, **attributes: Value) -> Element:
    """Return an element; ``text_anchor`` is the attribute text-anchor, ``class_`` is class, numbers are rounded.

    >>> to_text(element("text", "a < b", x=1.5, class_="note"))
    '<text x="1.5" class="note">a &lt; b</text>'
    """
    pairs = tuple((key.rstrip("_").replace("_", "-"), _plain(value)) for key, value in attributes.items())
    return Element(name=name, attributes=pairs, children=children)


def _plain(value: Value) -> str:
    """Return a number to a hundredth of a unit, which no screen shows more of."""
    if isinstance(value, str):
        return value
    text = f"{value:.{_DIGITS}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def escaped(text: str) -> str:
    """Return text that means itself inside an element and inside quotes; what no document may hold is replaced.

    >>> escaped('<script>"&')
    '&lt;script&gt;&quot;&amp;'
    """
    return "".join(char if _allowed(char) else "\N{REPLACEMENT CHARACTER}" for char in text).translate(_ESCAPES)


def _allowed(char: str) -> bool:
    return char in "\t\n\r" or not any(first <= ord(char) <= last for first, last in _FORBIDDEN)


_FORBIDDEN = ((0x00, 0x1F), (0x7F, 0x9F), (0xD800, 0xDFFF), (0xFFFE, 0xFFFF))
"""Characters that XML 1.0 has no place for or advises against (section 2.2); HTML calls them errors too."""
_EMPTY = frozenset({"meta", "link", "br", "hr", "col", "line", "rect", "circle", "path", "polyline", "polygon"})
"""Elements of HTML and SVG with nothing inside, which end themselves."""


def to_text(node: Element) -> str:
    """Return the element as text, on one line."""
    return "".join(_pieces(node))


def _pieces(node: Child) -> Iterator[str]:
    if isinstance(node, str):
        yield escaped(node)
        return
    attributes = "".join(f' {key}="{escaped(value)}"' for key, value in node.attributes)
    if not node.children and node.name in _EMPTY:
        yield f"<{node.name}{attributes}/>"
        return
    yield f"<{node.name}{attributes}>"
    for child in node.children:
        yield from _pieces(child)
    yield f"</{node.name}>"
