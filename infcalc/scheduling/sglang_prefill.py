"""What one batch of prompts may still take under SGLang: of the cache, of the batch and of the chunk.

Source: SGLang 0.5.23 ``srt/managers/schedule_policy.py``, ``PrefillAdder``.
"""

from __future__ import annotations

from infcalc.frozen import frozen
from infcalc.kvcache.surface import KvManager, PrefixHit
from infcalc.scheduling.sequence import Sequence

CLIP_NEW_TOKENS = 4096
"""Nobody is expected to need more (``SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION``)."""


@frozen
class PrefillLimits:
    """Settings of prefill, by SGLang's defaults."""

    max_prefill_tokens: int = 16384
    """Prompt tokens of one batch; without chunks the first prompt may exceed it."""
    chunked_prefill_tokens: int | None = 8192
    """``chunked_prefill_size``; None computes every prompt whole."""


class PrefillBudget:
    """Budgets of one batch. ``expected_tokens`` of the cache are spoken for by answers under way.

    ``num_mixed`` decodes ride along in the batch. Sequences that it admits take their blocks at once; what they will
    need for their answers is added to what is spoken for.
    """

    def __init__(self, kv: KvManager, limits: PrefillLimits, *, expected_tokens: float, num_mixed: int) -> None:
        self._kv = kv
        self._spoken_for_tokens = expected_tokens + num_mixed * kv.block_tokens
        self._batch_tokens = limits.max_prefill_tokens - num_mixed
        chunk = limits.chunked_prefill_tokens
        self._chunk_tokens = None if chunk is None else chunk - num_mixed
        self._is_first = True
        self.is_out_of_cache = False
        """Whether the cache, not the size of the batch, has stopped it."""

    @property
    def is_spent(self) -> bool:
        """Whether the batch takes nothing more."""
        chunk_spent = self._chunk_tokens is not None and self._chunk_tokens <= 0
        return self.is_out_of_cache or self._batch_tokens <= 0 or chunk_spent

    def next_chunk(self, rest_tokens: int) -> int:
        """Return the next chunk of a prompt under way; it is never put off."""
        if self._chunk_tokens is None:
            return rest_tokens
        free = int(self._kv.num_free_blocks * self._kv.block_tokens - self._spoken_for_tokens)
        limit = min(self._chunk_tokens, free) if free >= self._kv.block_tokens else self._chunk_tokens
        return rest_tokens if rest_tokens <= limit else self._whole_pages(limit)

    def share(self, sequence: Sequence, hit: PrefixHit) -> int:
        """Return how many tokens of a waiting sequence the batch takes, 0 for none.

        It must have room in the cache for all that it lacks, for the rest of its answer and for one page more.
        """
        rest = sequence.num_tokens - hit.num_tokens
        page = self._kv.block_tokens
        total = rest + min(sequence.remaining_tokens, CLIP_NEW_TOKENS) + page + self._spoken_for_tokens
        # More must be free than that. Pages of the hit that nobody used cannot be evicted any more.
        if not self._kv.can_allocate(hit.num_tokens, hit=hit, num_spare_blocks=int(total // page) + 1):
            self.is_out_of_cache = True
            return 0
        if self._chunk_tokens is None:
            return rest if self._is_first or self._paged(rest) < self._batch_tokens else 0
        if self._paged(rest) <= self._chunk_tokens:
            return rest
        return max(0, self._whole_pages(self._chunk_tokens))

    def charge(self, sequence: Sequence, share: int, *, ends: bool) -> None:
        """Count an admitted chunk against all budgets; one that ends its prompt speaks for its answer too."""
        self._is_first = False
        self._batch_tokens -= self._paged(share)
        if self._chunk_tokens is not None:
            self._chunk_tokens -= self._paged(share)
        page = self._kv.block_tokens
        self._spoken_for_tokens += page + (min(sequence.max_new_tokens, CLIP_NEW_TOKENS) if ends else 0)
        if self._kv.num_free_blocks * page <= self._spoken_for_tokens:
            self.is_out_of_cache = True

    def _paged(self, num_tokens: int) -> int:
        page = self._kv.block_tokens
        return -(-num_tokens // page) * page

    def _whole_pages(self, num_tokens: int) -> int:
        return num_tokens // self._kv.block_tokens * self._kv.block_tokens
