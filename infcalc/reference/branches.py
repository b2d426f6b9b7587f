"""One sequence of a transformer in blocks of a KV manager, with a tree of drafts behind it that is kept in part."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.errors import CacheOverflow
from infcalc.reference.cache import PagedStore
from infcalc.reference.mixers import Segment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from infcalc.kvcache.surface import KvManager
    from infcalc.reference.cache import PagedCache
    from infcalc.reference.transformer import Transformer

END = -1
"""The parent of a draft right behind the committed tokens."""


class Branches:
    """The sequence ``sequence_id``: committed tokens, and drafts behind them.

    Drafts take the slots behind the committed tokens in the order in which they are computed, whatever their depth in
    the tree. What is kept of them moves together and is committed; the manager rewinds the rest.
    """

    def __init__(
        self, transformer: Transformer, manager: KvManager, cache: PagedCache, *, sequence_id: int = 0
    ) -> None:
        self.transformer = transformer
        self.num_passes = 0
        """Steps of the transformer so far."""
        self.num_rows = 0
        """Tokens that went through it."""
        self._manager = manager
        self._cache = cache
        self._sequence_id = sequence_id
        self._tokens: list[int] = []
        # Slots on the way to each draft, itself at the end.
        self._paths: list[tuple[int, ...]] = []

    def begin(self, prompt: Sequence[int]) -> None:
        """Admit the sequence; cached blocks of ``prompt`` are committed at once.

        Raises:
            CacheOverflow: not even they fit.

        """
        if self._manager.allocate(self._sequence_id, prompt, 0) is None:
            raise CacheOverflow(f"no room for the cached prefix of {len(prompt)} tokens", hint="give more blocks")

    def end(self) -> None:
        """Give the blocks back."""
        self._manager.free(self._sequence_id)
        self._tokens, self._paths = [], []

    @property
    def num_committed_tokens(self) -> int:
        """Tokens whose keys and values are there to stay."""
        return self._manager.num_committed_tokens(self._sequence_id)

    def grow(self, tokens: Sequence[int], parents: Sequence[int]) -> NDArray[np.float64]:
        """Compute drafts in one step and return the logits (n, vocab_size) behind each.

        ``parents`` are drafts by number, those of this step among them, or ``END``.

        Raises:
            CacheOverflow: there is no room for them.

        """
        first, committed = len(self._tokens), self.num_committed_tokens
        if self._manager.append(self._sequence_id, len(tokens)) is None:
            raise CacheOverflow(f"no room for {len(tokens)} drafts", hint="give more blocks, or draft fewer tokens")
        for copy in self._manager.take_copies():
            self._cache.copy(copy.source_block, copy.target_block, copy.num_tokens)
        self._tokens += tokens
        for slot, parent in enumerate(parents, start=first):
            self._paths.append((*(() if parent == END else self._paths[parent]), slot))
        paths = self._paths[first:]
        seen = np.zeros((len(tokens), committed + len(self._tokens)), dtype=bool)
        seen[:, :committed] = True
        for row, path in enumerate(paths):
            seen[row, committed + np.array(path)] = True
        table = tuple(self._manager.block_table(self._sequence_id))
        store = PagedStore(self._cache, table, committed + first)
        positions = np.array([committed + len(path) - 1 for path in paths])
        segment = Segment(rows=slice(0, len(tokens)), store=store, seen=seen)
        hidden = self.transformer.hidden(np.array(tokens), positions, (segment,))
        self.num_passes += 1
        self.num_rows += len(tokens)
        return self.transformer.logits(hidden)

    def keep(self, drafts: Sequence[int]) -> None:
        """Commit the path of ``drafts``, from right behind the committed tokens down, and forget all others.

        Raises:
            ValueError: they are not a path.

        """
        if any(self._paths[draft] != tuple(drafts[: depth + 1]) for depth, draft in enumerate(drafts)):
            raise ValueError(f"drafts {tuple(drafts)} are not a path from the committed tokens")
        committed = self.num_committed_tokens
        table = tuple(self._manager.block_table(self._sequence_id))
        self._cache.move(table, [committed + draft for draft in drafts], committed)
        self._manager.commit(self._sequence_id, [self._tokens[draft] for draft in drafts])
        self._manager.rewind(self._sequence_id)
        self._tokens, self._paths = [], []

    def feed(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Compute and commit ``tokens`` that are certain; return the logits (vocab_size) behind the last."""
        scores = self.grow(tokens, range(END, len(tokens) - 1))
        self.keep(range(len(tokens)))
        last: NDArray[np.float64] = scores[-1]
        return last
