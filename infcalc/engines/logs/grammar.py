"""How to say what an engine's lines look like: data that one reader applies."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING

from infcalc.engines.logs.reading import FailureKind, Quantity
from infcalc.frozen import frozen
from infcalc.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping

NUMBER = r"-?[0-9][0-9,]{0,18}(?:\.[0-9]{1,9})?"
"""A number as engines print it. Bounded: longer runs of digits are no figure."""


class Keep(StrEnum):
    """Which of several lines about one quantity of one rank counts."""

    FIRST = "first"
    LAST = "last"
    LARGEST = "largest"
    SMALLEST = "smallest"
    SUM = "sum"
    FIRST_LINE = "sum of the first line"


@frozen
class Shape:
    """One line shape: a text that is in every such line, and the pattern around its numbers.

    Named groups are figures (by :class:`Quantity`) or settings. ``unit_bytes`` is what the line's memory unit means; of
    a number ``x`` whose line chooses its unit, the group ``x_unit`` holds it. ``times`` multiplies the line's figures.
    """

    clue: str
    pattern: re.Pattern[str]
    unit_bytes: int = GIB
    failure: FailureKind | None = None
    note: bool = False
    """The whole line is worth telling, besides its numbers."""


DEVICES_OUT_OF_MEMORY = r"(?:CUDA|HIP|XPU|NPU|MUSA) out of memory"
_SIZE_UNIT = "GiB|MiB|KiB|bytes"


@frozen
class ArgumentList:
    """A line that lists arguments: the text before the list, and whether it is a command line."""

    clue: str
    command_line: bool = False
    spaced: bool = False
    """``key=value`` pairs between blanks, anywhere in the line."""
    sure: bool = True
    """The engine's own resolved values win over what was asked of it."""


@frozen
class Grammar:
    """All that is known of the start-up log of one engine."""

    engine: str
    starts: tuple[str, ...]
    """Texts of lines with which a start begins."""
    shapes: tuple[Shape, ...]
    arguments: tuple[ArgumentList, ...]
    names: Mapping[str, str]
    """The engine's argument -> infcalc's setting."""
    keep: Mapping[Quantity, Keep]
    looked_for: tuple[str, ...]
    """Lines to look for, in words for an error."""
    second_model: str = ""
    """Text of the line with which each model of one start begins: the second is a draft."""


def shape(clue: str, pattern: str, *, unit: int = GIB, failure: FailureKind | None = None, note: bool = False) -> Shape:
    """Return a line shape; ``<name>`` in the pattern is a number called ``name``.

    >>> shape("took", "took <weights_bytes> GiB").pattern.search("took 1,5.25 GiB")["weights_bytes"]
    '1,5.25'
    """
    numbered = re.sub(r"(?<!\?P)<(\w+)>", lambda match: f"(?P<{match[1]}>{NUMBER})", pattern)
    return Shape(clue=clue, pattern=re.compile(numbered), unit_bytes=unit, failure=failure, note=note)


def out_of_memory_shapes() -> tuple[Shape, ...]:
    """Return the lines in which PyTorch, and the drivers below it, say that a device ran out of memory.

    PyTorch chooses the unit by the size, and leaves the size out where an engine words the error anew.
    """
    needed = rf"Tried to allocate <needed>\s?(?P<needed_unit>{_SIZE_UNIT})"
    total = rf"(?:total capacity of <total>\s?(?P<total_unit>{_SIZE_UNIT}))"
    worded = (
        rf"(?:[Ee]rror|[Ff]ailed|[Ee]xception):\s*{DEVICES_OUT_OF_MEMORY}(?!\. Tried| occurred)",
        rf"{DEVICES_OUT_OF_MEMORY} occurred[\w ]{{0,60}}?(?:with <dummy_requests> dummy requests)?(?=[.,;]|$)",
        r"(?:CUDA|HIP) error: out of memory",
        r"[Cc](?:UDA|uda) (?:runtime error|Runtime) ?(?:in .{1,200}?: |\()out of memory",
    )
    kind = FailureKind.OUT_OF_MEMORY
    return (
        shape("Tried to allocate", rf"out of memory\. {needed}(?:.{{0,80}}?{total})?", failure=kind),
        shape("out of memory", "|".join(worded), failure=kind),
        shape("could not be allocated", r"GPU memory \(<needed> bytes\) could not be allocated", unit=1, failure=kind),
    )
