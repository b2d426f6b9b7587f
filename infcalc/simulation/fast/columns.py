"""Requests as columns, and the content that they share as a tree: a million of them are a handful of arrays."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen
from infcalc.simulation.fast.content import NOTHING, content_of
from infcalc.simulation.fast.gate import Gate
from infcalc.simulation.request import Request

Ints: TypeAlias = NDArray[np.int64]
Row: TypeAlias = tuple[int, int, int, int, int, int, bool]
"""Index, arrival, prompt, answer and allowed tokens, content, and whether it is let in."""
_ROWS_AT_ONCE = 8192


@frozen
class Load:
    """The requests of a run, in any order of arrival.

    ``contents`` names for each the deepest node of ``parents`` and ``sizes_tokens`` that its prompt and answer pass,
    -1 for none: beyond it, its tokens are its own. A node holds the tokens after its parent's, and a parent has a
    smaller number than its children. ``allowed_tokens``: what engines are told to expect of an answer; None: the truth.

    Raises:
        ValueError: columns that no run can have.

    """

    arrival_ps: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    allowed_tokens: Ints | None = None
    contents: Ints | None = None
    parents: Sequence[int] = ()
    sizes_tokens: Sequence[int] = ()

    def __post_init__(self) -> None:
        """Check what a reader of files has checked before."""
        count = len(self.arrival_ps)
        columns = [self.prompt_tokens, self.output_tokens, self.allowed_tokens, self.contents]
        lengths = [len(column) for column in columns if column is not None]
        if any(length != count for length in lengths):
            raise ValueError(f"columns of {lengths} entries for {count} arrivals")
        if count and (self.arrival_ps.min() < 0 or self.prompt_tokens.min() < 1 or self.output_tokens.min() < 1):
            raise ValueError("a request comes at 0 or later, with at least one token of prompt and one of answer")
        if self.allowed_tokens is not None and (self.allowed_tokens < self.output_tokens).any():
            raise ValueError("an answer is longer than what is allowed")
        self._check_contents()

    def _check_contents(self) -> None:
        if len(self.parents) != len(self.sizes_tokens) or any(size < 1 for size in self.sizes_tokens):
            raise ValueError(
                f"{len(self.parents)} nodes with {len(self.sizes_tokens)} sizes, each of one token at least"
            )
        if any(not NOTHING <= parent < node for node, parent in enumerate(self.parents)):
            raise ValueError("a parent comes before its children")
        contents = self.contents
        if contents is None or not len(contents):
            return
        if not NOTHING <= contents.min() <= contents.max() < len(self.parents):
            raise ValueError("a content that is not in the tree")
        depths: list[int] = []
        for parent, size in zip(self.parents, self.sizes_tokens, strict=True):
            depths.append(size + (depths[parent] if parent >= 0 else 0))
        # The last entry stands for a request that shares nothing.
        shared = np.array([*depths, 0], dtype=np.int64)[contents]
        if (shared > self.prompt_tokens + self.output_tokens).any():
            raise ValueError("a request shares more tokens than it has")

    def __len__(self) -> int:
        """Return the number of requests."""
        return len(self.arrival_ps)

    def told(self) -> Ints:
        """Return how many tokens of answer the engine is told to allow, of each request."""
        return self.output_tokens if self.allowed_tokens is None else self.allowed_tokens

    def told_tokens(self, index: int) -> int:
        """Return how many tokens of answer the engine is told to allow."""
        return int(self.told()[index])

    def rows(self, gate: Gate) -> Iterator[Row]:
        """Yield the requests by arrival, those of one moment in the order given."""
        order = None
        if (np.diff(self.arrival_ps) < 0).any():
            order = np.argsort(self.arrival_ps, kind="stable")
        for start in range(0, len(self), _ROWS_AT_ONCE):
            end = min(start + _ROWS_AT_ONCE, len(self))
            chosen = np.arange(start, end) if order is None else order[start:end]
            prompt, output = self.prompt_tokens[chosen], self.output_tokens[chosen]
            told = output if self.allowed_tokens is None else self.allowed_tokens[chosen]
            answer, allowed, enters = gate(prompt, output, told)
            contents = np.full(len(chosen), NOTHING) if self.contents is None else self.contents[chosen]
            columns = (chosen, self.arrival_ps[chosen], prompt, answer, allowed, contents, enters)
            yield from zip(*(column.tolist() for column in columns), strict=True)


def load_of(requests: Sequence[Request]) -> Load:
    """Return requests as columns."""
    content = content_of(requests)

    def column(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)

    return Load(
        arrival_ps=column([one.arrival_ps for one in requests]),
        prompt_tokens=column([one.prompt_tokens for one in requests]),
        output_tokens=column([one.output_tokens for one in requests]),
        allowed_tokens=column([one.allowed_tokens for one in requests]),
        contents=column(content.ends),
        parents=content.parents,
        sizes_tokens=content.sizes_tokens,
    )
