"""How far a prompt is cached: the rule of each kind of layer, in blocks of a chain that is cached here and there.

Source: vLLM 0.33 ``single_type_kv_cache_manager.py`` (``find_longest_cache_hit``) and ``kv_cache_coordinator.py``.
Each rule takes ``is_cached(index)`` and a bound, and returns the blocks of the longest usable hit within it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

IsCached: TypeAlias = Callable[[int], bool]
Rule: TypeAlias = Callable[[int], int]
"""The longest usable hit, in blocks, that is no longer than the given one."""


def most_hit_blocks(num_tokens: int, block_tokens: int) -> int:
    """Return the blocks that a hit may have: the last token is always computed, for its output is what is asked for.

    >>> most_hit_blocks(64, 16), most_hit_blocks(65, 16), most_hit_blocks(0, 16)
    (3, 4, 0)
    """
    return max(0, num_tokens - 1) // block_tokens


def full_hit(is_cached: IsCached, most_blocks: int) -> int:
    """Return the hit of full attention: all blocks from the first on, up to the first that is missing.

    >>> full_hit({0, 1, 3}.__contains__, 4)
    2
    """
    return next((index for index in range(most_blocks) if not is_cached(index)), most_blocks)


def window_hit(
    is_cached: IsCached, most_blocks: int, *, window_tokens: int, block_tokens: int, num_dropped_blocks: int = 0
) -> int:
    """Return the hit of a sliding window: only what the next token sees must be there, searched from the end.

    ``ceil((window_tokens - 1) / block_tokens)`` blocks in a row, or, near the beginning, all there are.
    ``num_dropped_blocks`` of the end will be computed again: the window before them must be there as well.

    >>> window_hit({2, 3, 5}.__contains__, 6, window_tokens=33, block_tokens=16)
    4
    >>> window_hit({0, 4}.__contains__, 6, window_tokens=33, block_tokens=16)
    1
    """
    needed = -(-(window_tokens - 1) // block_tokens) + num_dropped_blocks
    row = 0
    for index in reversed(range(most_blocks)):
        row = row + 1 if is_cached(index) else 0
        if row == needed:
            return index + needed
    return row


def state_hit(is_cached: IsCached, most_blocks: int) -> int:
    """Return the hit of recurrent layers: the state after exactly that block must be there, whatever lies before.

    >>> state_hit({0, 2}.__contains__, 5)
    3
    """
    return next((index + 1 for index in reversed(range(most_blocks)) if is_cached(index)), 0)


def common_hit(rules: Sequence[Rule], most_blocks: int) -> int:
    """Return the hit on which layers of several kinds agree: each shortens it until none does.

    >>> first = lambda most: full_hit({0, 1, 2, 3}.__contains__, most)
    >>> common_hit([first, lambda most: state_hit({1, 5}.__contains__, most)], 8)
    2
    """
    hit = most_blocks
    while True:
        shortened = hit
        for rule in rules:
            shortened = rule(shortened)
        if shortened == hit:
            return hit
        hit = shortened
