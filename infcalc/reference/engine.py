"""Engines that carry out step plans with real tokens: without a cache, with one array per sequence, and with blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from typing import TYPE_CHECKING

import numpy as np

from infcalc.frozen import frozen
from infcalc.reference.cache import KVCache, NoCache, PagedCache, PagedStore
from infcalc.reference.mixers import Segment

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from infcalc.reference.cache import Store
    from infcalc.reference.transformer import Transformer
    from infcalc.scheduling.step_plan import Chunk, StepPlan


@frozen
class Sampler:
    """How the next token is chosen: the best one, or by chance in proportion to its probability.

    Chance depends on ``seed``, sequence and position alone, hence not on the schedule. Temperature 0 takes the best.
    """

    temperature_fraction: float = 0.0
    seed: int = 0

    def choose(self, logits: NDArray[np.float64], sequence_id: int, position: int) -> int:
        """Return the token of ``logits`` (vocab_size) for ``position`` of a sequence.

        The largest logit plus Gumbel noise is a draw from the softmax (Gumbel-max).
        """
        if self.temperature_fraction:
            noise = np.random.default_rng((self.seed, sequence_id, position)).gumbel(size=logits.shape)
            logits = logits / self.temperature_fraction + noise
        return int(np.argmax(logits))


GREEDY = Sampler()


class Engine(ABC):
    """Computes the chunks of a plan as one batch and returns the tokens that they produce."""

    def __init__(self, transformer: Transformer, sampler: Sampler = GREEDY) -> None:
        self.transformer = transformer
        self.sampler = sampler
        self.num_projected: defaultdict[int, list[int]] = defaultdict(list)
        """How often each position of each sequence went through the layers: counted as rows are computed."""
        self.logits: dict[int, NDArray[np.float64]] = {}
        """Scores behind the tokens of the last step, by sequence."""

    def execute(self, plan: StepPlan) -> dict[int, int]:
        """Carry out ``plan`` and return the token that each producing sequence gained, by sequence."""
        self._prepare(plan)
        self.logits = {}
        if not plan.chunks:
            return {}
        segments: list[Segment] = []
        tokens: list[int] = []
        positions: list[int] = []
        last_rows: list[int] = []
        begin = 0
        for chunk in plan.chunks:
            start, row_tokens, store = self._rows(chunk)
            segments.append(Segment(rows=slice(begin, begin + len(row_tokens)), store=store))
            begin += len(row_tokens)
            tokens += row_tokens
            positions += range(start, start + len(row_tokens))
            last_rows.append(begin - 1)
            self._count(chunk.sequence_id, start, len(row_tokens))
        hidden = self.transformer.hidden(np.array(tokens), np.array(positions), tuple(segments))
        self._conclude(plan)
        producing = [(chunk, row) for chunk, row in zip(plan.chunks, last_rows, strict=True) if chunk.produces]
        if not producing:
            return {}
        scores = self.transformer.logits(hidden[[row for _, row in producing]])
        produced = {}
        for (chunk, _), row in zip(producing, scores, strict=True):
            self.logits[chunk.sequence_id] = row
            position = chunk.cached_tokens + chunk.num_tokens
            produced[chunk.sequence_id] = self.sampler.choose(row, chunk.sequence_id, position)
        return produced

    def _count(self, sequence_id: int, start: int, num_tokens: int) -> None:
        counts = self.num_projected[sequence_id]
        counts.extend([0] * (start + num_tokens - len(counts)))
        for position in range(start, start + num_tokens):
            counts[position] += 1

    def _prepare(self, plan: StepPlan) -> None:  # noqa: B027 - not every engine has something to do
        """Do what must be done before anything is computed."""

    def _conclude(self, plan: StepPlan) -> None:  # noqa: B027
        """Do what must be done after the last layer."""

    @abstractmethod
    def _rows(self, chunk: Chunk) -> tuple[int, list[int], Store]:
        """Return the first position to compute, the tokens from there on, and where keys and values lie."""


class UncachedEngine(Engine):
    """Computes every token of a sequence anew in each step, as inference without a KV cache does."""

    def __init__(self, transformer: Transformer, sampler: Sampler = GREEDY) -> None:
        super().__init__(transformer, sampler)
        self._tokens: dict[int, list[int]] = {}

    def _prepare(self, plan: StepPlan) -> None:
        for sequence_id in plan.released:
            self._tokens.pop(sequence_id, None)

    def _rows(self, chunk: Chunk) -> tuple[int, list[int], Store]:
        known = self._tokens.setdefault(chunk.sequence_id, [])
        _refuse_gap(chunk, len(known))
        known += chunk.tokens
        return 0, known, NoCache(self.transformer.cache_shape)


class ContiguousEngine(Engine):
    """Keeps one :class:`KVCache` of ``max_tokens`` per sequence. It cannot share prefixes: turn prefix caching off."""

    def __init__(self, transformer: Transformer, max_tokens: int, sampler: Sampler = GREEDY) -> None:
        super().__init__(transformer, sampler)
        self.max_tokens = max_tokens
        self.caches: dict[int, KVCache] = {}

    def _prepare(self, plan: StepPlan) -> None:
        for sequence_id in plan.released:
            self.caches.pop(sequence_id, None)

    def _rows(self, chunk: Chunk) -> tuple[int, list[int], Store]:
        cache = self.caches.get(chunk.sequence_id)
        if cache is None:
            cache = self.caches[chunk.sequence_id] = KVCache(
                self.transformer.cache_shape, self.max_tokens, self.transformer.dtype
            )
        _refuse_gap(chunk, cache.position)
        return chunk.cached_tokens, list(chunk.tokens), cache

    def _conclude(self, plan: StepPlan) -> None:
        for chunk in plan.chunks:
            self.caches[chunk.sequence_id].advance()


class PagedEngine(Engine):
    """Keeps all keys and values in one pool of blocks and finds them through the block tables of the plan."""

    def __init__(self, transformer: Transformer, num_blocks: int, block_tokens: int, sampler: Sampler = GREEDY) -> None:
        super().__init__(transformer, sampler)
        self.cache = PagedCache(transformer.cache_shape, num_blocks, block_tokens, transformer.dtype)

    def _prepare(self, plan: StepPlan) -> None:
        for copy in plan.copies:
            self.cache.copy(copy.source_block, copy.target_block, copy.num_tokens)

    def _rows(self, chunk: Chunk) -> tuple[int, list[int], Store]:
        return chunk.cached_tokens, list(chunk.tokens), PagedStore(self.cache, chunk.block_table, chunk.cached_tokens)


def _refuse_gap(chunk: Chunk, held_tokens: int) -> None:
    if chunk.cached_tokens != held_tokens:
        raise ValueError(
            f"sequence {chunk.sequence_id} continues at position {chunk.cached_tokens}, but its own cache holds "
            f"{held_tokens} tokens: prefixes are shared by an engine with blocks only"
        )
