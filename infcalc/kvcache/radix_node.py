"""One entry of the radix tree: a run of tokens that follows its parent's, with the pages that hold it."""

from __future__ import annotations

from array import array

from infcalc.kvcache.tokens import TOKEN_BYTES


class RadixNode:
    """``run`` are the packed tokens of the entry alone, ``children`` are keyed by the first page of theirs.

    ``locks`` counts the users of the entry and of all below it. ``in_queue``: it stands in the queue of eviction.
    """

    __slots__ = (
        "children",
        "first_use",
        "in_queue",
        "last_use",
        "locks",
        "num_hits",
        "pages",
        "parent",
        "run",
        "serial",
    )

    def __init__(self, run: bytes, pages: array[int], parent: RadixNode | None, *, serial: int, now: int) -> None:
        self.run = run
        self.pages = pages
        self.parent = parent
        self.serial = serial
        self.children: dict[bytes, RadixNode] = {}
        self.locks = 0
        self.first_use = self.last_use = now
        self.num_hits = 0
        self.in_queue = False

    @property
    def num_tokens(self) -> int:
        """Tokens of this entry alone."""
        return len(self.run) // TOKEN_BYTES
