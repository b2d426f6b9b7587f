"""What blocks and prefixes cost: operations per second of pool, managers and radix tree. Recorded, never asserted."""

from __future__ import annotations

import random
import time
from array import array
from typing import TYPE_CHECKING

from infcalc.kvcache.block_pool import BlockPool
from infcalc.kvcache.contiguous import buddy, reserve_exact
from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.kvcache.radix_tree import RadixTree

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.kvcache.contiguous import ContiguousAllocator

REPEATS = 5
VOCABULARY = 128_000
PROMPT_TOKENS = 10_000
TREE_TOKENS = 1_000_000
BLOCK_TOKENS = 16


def best_seconds(work: Callable[[], object]) -> float:
    """Return the least CPU time of a few runs."""
    times = []
    for _ in range(REPEATS):
        start = time.process_time()
        work()
        times.append(time.process_time() - start)
    return min(times)


def drawn(chance: random.Random, num_tokens: int) -> array[int]:
    """Return random tokens."""
    return array("i", (chance.randrange(VOCABULARY) for _ in range(num_tokens)))


def full_tree(chance: random.Random, prefix: array[int]) -> RadixTree:
    """Return a tree of a million tokens: prompts that share more and more of one prefix, and others that share none."""
    tree = RadixTree()
    for share in range(10, 100, 10):
        tree.insert(prefix[: len(prefix) * share // 100] + drawn(chance, 500))
    tree.insert(prefix)
    while tree.num_tokens < TREE_TOKENS:
        tree.insert(drawn(chance, 500))
    return tree


def pool_rows() -> list[tuple[str, int, Callable[[], object]]]:
    """Return what the block pool and the managers do."""
    pool = BlockPool(28_001)

    def hand_out() -> None:
        for _ in range(100):
            pool.release(reversed(pool.allocate(100)))

    plain = KvCacheManager(28_001, BLOCK_TOKENS, prefix_caching=False)
    cached = KvCacheManager(28_001, BLOCK_TOKENS)
    radix = RadixCacheManager(448_001)
    prompt = array("i", range(500))
    names = iter(range(10**9))

    def grow(manager: KvCacheManager | RadixCacheManager) -> None:
        name = next(names)
        manager.allocate(name, prompt)
        manager.commit(name, prompt[manager.num_committed_tokens(name) :])
        for token in range(1000):
            manager.append(name)
            manager.commit(name, (token,))
        manager.free(name)

    def serve(manager: KvCacheManager | RadixCacheManager) -> None:
        for _ in range(20):
            name = next(names)
            manager.allocate(name, prompt)
            manager.commit(name, prompt[manager.num_committed_tokens(name) :])
            manager.free(name)

    held = next(names)
    plain.allocate(held, prompt)

    def append_alone() -> None:
        plain.rewind(held)
        for _ in range(1000):
            plain.append(held)

    plain.append(held, 2000)
    plain.commit(held, prompt)

    return [
        ("block handed out and given back", 10_000, hand_out),
        ("append of a token, room there", 1000, append_alone),
        ("token appended and committed, no prefix cache", 1000, lambda: grow(plain)),
        ("token appended and committed, hash chain", 1000, lambda: grow(cached)),
        ("token appended and committed, radix tree", 1000, lambda: grow(radix)),
        ("prompt of 500 admitted, computed, freed; no cache", 20, lambda: serve(plain)),
        ("the same, found by hash chain", 20, lambda: serve(cached)),
        ("the same, found by radix tree", 20, lambda: serve(radix)),
    ]


def tree_rows() -> list[tuple[str, int, Callable[[], object]]]:
    """Return what prefix indexes do."""
    chance = random.Random(0)  # noqa: S311 - no secrets
    prefix = drawn(chance, PROMPT_TOKENS)
    tree = full_tree(chance, prefix)
    miss = drawn(chance, PROMPT_TOKENS)
    listed = prefix.tolist()
    others = [drawn(chance, 500) for _ in range(500)]
    chain = KvCacheManager(70_000, BLOCK_TOKENS)
    chain.allocate(0, prefix)
    chain.commit(0, prefix)
    limited = RadixTree(max_tokens=100_000)

    def churn() -> None:
        for other in others:
            limited.match(other)
            limited.insert(other)

    print(f"a tree of {tree.num_tokens:,} tokens in {tree.num_entries:,} entries")
    return [
        ("match of 10,000 tokens in it, all there", 1, lambda: tree.match(prefix)),
        ("the same from a list of integers", 1, lambda: tree.match(listed)),
        ("match of 10,000 tokens in it, none there", 1, lambda: tree.match(miss)),
        ("match of 10,000 tokens in blocks of 16, hash chain", 1, lambda: chain.match_prefix(prefix)),
        ("match, insert and evict 500 tokens", len(others), churn),
    ]


def contiguous_rows() -> list[tuple[str, int, Callable[[], object]]]:
    """Return what the contiguous baselines do, in a memory of 400,000 tokens with 500 sequences."""
    chance = random.Random(0)  # noqa: S311
    sizes = [chance.randint(1, 800) for _ in range(500)]

    def fill(made: Callable[[int], ContiguousAllocator]) -> Callable[[], object]:
        def work() -> None:
            allocator = made(400_000)
            for name, size in enumerate(sizes):
                allocator.allocate(name, size, size)
            for name in range(0, len(sizes), 2):
                allocator.free(name)

        return work

    return [
        ("run reserved and given back, exact length", len(sizes), fill(reserve_exact)),
        ("run reserved and given back, buddy", len(sizes), fill(buddy)),
    ]


def main() -> None:
    """Print what each operation costs."""
    rows = [*pool_rows(), *tree_rows(), *contiguous_rows()]
    print(f"{'operation':52} {'us each':>9} {'per second':>12}")
    for what, number, work in rows:
        each = best_seconds(work) / number
        print(f"{what:52} {each * 1e6:9.2f} {1 / each:12,.0f}")


if __name__ == "__main__":
    main()
