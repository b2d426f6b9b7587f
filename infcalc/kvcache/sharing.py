"""Requests that begin with one prompt, in blocks: each on its own, forked from the first, or found by full blocks.

Source: Kwon et al. 2023 (PagedAttention), section 4.4: shared blocks are stored once, and a sequence that writes into a
shared block that is not full gets a copy; the last to write has it to itself. Engines that find prefixes by their hash
share full blocks alone, and compute the rest of the prompt anew in a block of each request's own.
"""

from __future__ import annotations

from collections.abc import Sequence

from infcalc.frozen import frozen
from infcalc.kvcache.block_pool import blocks_for
from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.misuse import Misuse


@frozen
class Shared:
    """Blocks that all requests hold together at their end, in three ways."""

    num_blocks_apart: int
    """Each request holds the prompt itself."""
    num_blocks_forked: int
    """Forked after the prompt was computed, copied on the first write into a shared block."""
    num_blocks_found: int
    """The prompt found by its full blocks."""
    num_copies: int
    """Of the forks."""
    num_prompt_blocks: int
    """Of the prompt, its last block not full perhaps."""


def share(prompt_tokens: int, own_tokens: Sequence[int], block_tokens: int) -> Shared:
    """Return what requests hold that have one prompt of ``prompt_tokens`` and then ``own_tokens`` each.

    The managers carry it out: allocation, forks, copies and hits are theirs.

    >>> shared = share(20, (16, 16, 16), 16)  # the second block has 4 tokens of the prompt
    >>> shared.num_blocks_apart, shared.num_blocks_forked, shared.num_blocks_found, shared.num_copies
    (9, 7, 7, 2)
    """
    apart = sum(blocks_for(prompt_tokens + own, block_tokens) for own in own_tokens)
    return Shared(
        num_blocks_apart=_held_apart(prompt_tokens, own_tokens, block_tokens, apart),
        num_blocks_forked=(forked := _forked(prompt_tokens, own_tokens, block_tokens, apart)).pool.num_used,
        num_blocks_found=_held_found(prompt_tokens, own_tokens, block_tokens, apart),
        num_copies=forked.num_copies,
        num_prompt_blocks=blocks_for(prompt_tokens, block_tokens),
    )


def _held_apart(prompt_tokens: int, own_tokens: Sequence[int], block_tokens: int, num_blocks: int) -> int:
    manager = KvCacheManager(num_blocks + 1, block_tokens, prefix_caching=False)
    for name, own in enumerate(own_tokens):
        _given(manager.allocate(name, range(prompt_tokens + own)))
    return manager.pool.num_used


def _forked(prompt_tokens: int, own_tokens: Sequence[int], block_tokens: int, num_blocks: int) -> KvCacheManager:
    manager = KvCacheManager(num_blocks + 1, block_tokens, prefix_caching=False)
    _given(manager.allocate(0, range(prompt_tokens)))
    manager.commit(0, range(prompt_tokens))
    for name in range(1, len(own_tokens)):
        manager.fork(0, name)
    for name, own in enumerate(own_tokens):
        _given(manager.append(name, own))
        manager.commit(name, range(own))
    manager.check_invariants()
    return manager


def _held_found(prompt_tokens: int, own_tokens: Sequence[int], block_tokens: int, num_blocks: int) -> int:
    manager = KvCacheManager(num_blocks + 1, block_tokens)
    next_token = prompt_tokens
    for name, own in enumerate(own_tokens):
        tokens = [*range(prompt_tokens), *range(next_token, next_token + own)]
        next_token += own
        _given(manager.allocate(name, tokens))
        manager.commit(name, tokens[manager.num_committed_tokens(name) :])
    return manager.pool.num_used


def _given(blocks: tuple[int, ...] | None) -> None:
    if blocks is None:
        raise Misuse("a pool for every request apart is too small for requests that share")
