"""A bar drawn with characters: what fills one GPU, a letter for each part."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from infcalc.units import format_bytes

if TYPE_CHECKING:
    from collections.abc import Sequence

_WIDTH = 64
_UNBROKEN = "\N{NO-BREAK SPACE}"


def memory_bar(
    parts: Sequence[tuple[str, str, int]], total_bytes: int, *, width: int = _WIDTH, legend_width: int = _WIDTH
) -> str:
    """Return the bar and its legend; ``parts`` are (letter, name, bytes), drawn in order against ``total_bytes``.

    A part that is there has at least one letter. Where the parts are more than the total, what lies beyond it stands
    behind the bar's end.

    >>> print(memory_bar((("W", "weights", 3), ("K", "KV", 1)), 8, width=8))
    [WWWK....]
    W weights 3 B, K KV 1 B, . free 4 B
    """
    shown = [(letter, name, size) for letter, name, size in parts if size > 0]
    whole = max(total_bytes, 1)
    lengths: list[int] = []
    reached = 0
    for _, _, size in shown:
        reached += size
        # What lies far beyond the end is as good as twice the bar.
        lengths.append(max(1, min(round(reached / whole * width), 2 * width) - sum(lengths)))
    while reached <= whole and sum(lengths) > max(width, len(lengths)):
        # Small parts have pushed the others over the end, where nothing lies.
        lengths[lengths.index(max(lengths))] -= 1
    letters = "".join(letter * length for (letter, _, _), length in zip(shown, lengths, strict=True))
    inside, beyond = letters[:width].ljust(width, "."), letters[width:]
    free = max(0, total_bytes - reached)
    legend = [f"{letter} {name} {format_bytes(size)}" for letter, name, size in shown]
    if free:
        legend.append(f". free {format_bytes(free)}")
    if reached > total_bytes:
        legend.append(f"{format_bytes(reached - total_bytes)} beyond the end")
    # A letter stays on the line of its name.
    whole_items = ", ".join(item.replace(" ", _UNBROKEN) for item in legend)
    lines = (line.replace(_UNBROKEN, " ") for line in textwrap.wrap(whole_items, legend_width))
    return "\n".join([f"[{inside}]{beyond[:width]}", *lines])
