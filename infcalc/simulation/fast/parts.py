"""Runs of cached blocks and the order in which they are forgotten.

A block that can be found is never thought of alone: blocks in a row that have the same copies, with the same holders,
are one part. The queue of free blocks that can be found is a ring of runs; within a run the last block goes first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from infcalc.simulation.fast.flight import Flight


class Run:
    """Consecutive blocks that were given back together; in the ring while nobody holds them."""

    __slots__ = ("after", "before")

    def __init__(self) -> None:
        self.before: Run | None = None
        self.after: Run | None = None


class PrivateRun(Run):
    """Blocks that only the flight that filled them can find; nobody, where it has ended (``wanted`` is false)."""

    __slots__ = ("num_blocks", "wanted")

    def __init__(self, num_blocks: int, *, wanted: bool) -> None:
        super().__init__()
        self.num_blocks = num_blocks
        self.wanted = wanted


class Copy(Run):
    """What one admission (``owner``) computed of a part: ``references`` hold it."""

    __slots__ = ("owner", "part", "references")

    def __init__(self, part: Part, owner: int, references: int) -> None:
        super().__init__()
        self.part = part
        self.owner = owner
        self.references = references


class Part:
    """Blocks from ``low`` to ``high`` of a chain that have the same copies, the oldest first: that one is found."""

    __slots__ = ("copies", "high", "low", "node")

    def __init__(self, node: Node, low: int, high: int) -> None:
        self.node = node
        self.low = low
        self.high = high
        self.copies: list[Copy] = []

    def copy_of(self, owner: int) -> Copy:
        """Return the copy of an owner that has one."""
        return next(copy for copy in self.copies if copy.owner == owner)


class Node:
    """A run of content that prompts share, in blocks of its chain; ``parts`` are what is cached of it, in order."""

    __slots__ = ("high", "low", "open", "parts")

    def __init__(self, low: int, high: int) -> None:
        self.low = low
        self.high = high
        self.parts: list[Part] = []
        self.open: dict[int, Flight] = {}
        """Who decodes in it, by serial: what they have filled may not be among the parts yet."""


Holding: TypeAlias = tuple[int, int, Node, int]
"""First block, end, node and owner of the copies that a flight holds."""


class Ring:
    """Runs in the order in which they are forgotten."""

    __slots__ = ("_end",)

    def __init__(self) -> None:
        end = self._end = Run()
        end.before = end.after = end

    @property
    def first(self) -> Run | None:
        """The run that is forgotten next."""
        first = self._end.after
        return None if first is self._end else first

    @property
    def last(self) -> Run | None:
        """The run that was given back last."""
        last = self._end.before
        return None if last is self._end else last

    def put_last(self, run: Run) -> None:
        """Put a run behind all others."""
        self.put_before(self._end, run)

    @staticmethod
    def put_before(other: Run, run: Run) -> None:
        """Put a run before another that is in the ring."""
        before = other.before
        run.before, run.after = before, other
        other.before = run
        before.after = run  # type: ignore[union-attr] # in the ring, everyone has neighbours

    @staticmethod
    def take(run: Run) -> None:
        """Take a run out."""
        before, after = run.before, run.after
        before.after, after.before = after, before  # type: ignore[union-attr]
        run.before = run.after = None


def split(part: Part, at: int) -> None:
    """Make two parts of one: blocks from ``at`` on become a part of their own."""
    upper = Part(part.node, at, part.high)
    for copy in part.copies:
        twin = Copy(upper, copy.owner, copy.references)
        upper.copies.append(twin)
        if copy.after is not None:
            # The tail of what was given back together is forgotten first.
            Ring.put_before(copy, twin)
    part.high = at
    parts = part.node.parts
    parts.insert(parts.index(part) + 1, upper)
