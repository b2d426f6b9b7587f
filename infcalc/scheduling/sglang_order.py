"""The order in which SGLang considers waiting sequences under longest prefix match.

Source: SGLang 0.5.23 ``srt/managers/schedule_policy.py`` (``_compute_prefix_matches``, ``_sort_by_longest_prefix``).
"""

from __future__ import annotations

from collections.abc import Sequence as Items

from infcalc.kvcache.radix_tree import RadixTree
from infcalc.scheduling.sequence import Sequence

IN_BATCH_PREFIX_TOKENS = 32
"""``IN_BATCH_PREFIX_CACHING_CHECK_THRESHOLD`` and ``IN_BATCH_PREFIX_CACHING_DEPRIORITIZE_THRESHOLD``."""


def by_longest_prefix(waiting: Items[tuple[Sequence, int]]) -> list[Sequence]:
    """Return sequences, each given with the tokens that are cached of it, the longest cached prefix first.

    Where little is cached but another that waits begins alike, one of them goes before: the others come last, so that
    they find what it has computed.
    """
    tree = RadixTree(page_tokens=1)
    postponed = set()
    for sequence, num_cached in waiting:
        if num_cached > IN_BATCH_PREFIX_TOKENS:
            continue
        if tree.peek(sequence.tokens).num_tokens >= IN_BATCH_PREFIX_TOKENS:
            postponed.add(sequence.sequence_id)
        else:
            tree.insert(sequence.tokens, range(sequence.num_tokens))
    ordered = sorted(waiting, key=lambda item: (item[0].sequence_id in postponed, -item[1]))
    return [sequence for sequence, _ in ordered]
