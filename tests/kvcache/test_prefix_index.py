"""Streams against prefix caches: hit rates, the bound, and a cache that is too small against brute force."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.kvcache.eviction import FirstInFirstOut, LargestFirst, LeastFrequentlyUsed, LeastRecentlyUsed
from infcalc.kvcache.prefix_index import BlockIndex, Policy, TreeIndex, policy_of, serve_all
from infcalc.workload.shared_prefixes import SharedStream, prompts_of
from tests.kvcache.naive import NaiveTree

Pairs = list[tuple[Sequence[int], Sequence[int]]]


def pairs(num_requests: int = 1000, *, answer: int = 8, own: int = 20, prefix: int = 64, seed: int = 0) -> Pairs:
    stream = SharedStream(
        num_sharing=num_requests * 6 // 10,
        num_prefixes=5,
        prefix_tokens=prefix,
        own_tokens=(own,) * num_requests,
        answer_tokens=(answer,) * num_requests,
    )
    return [(prompt.tokens, prompt.answer) for prompt in prompts_of(stream, np.random.default_rng(seed))]


@pytest.mark.parametrize("seed", range(5))
def test_six_hundred_of_a_thousand_share_five_prefixes(seed: int) -> None:
    served = serve_all(pairs(seed=seed), TreeIndex(max_entries=500, max_tokens=None))
    # The first request of each of the five computes it: (600 - 5) / 1000 is the bound.
    assert 0.55 < served.counts.request_fraction <= 0.595
    assert served.counts.num_requests == 1000
    # 1,005 entries are made in all.
    assert served.num_evictions >= 505


@dataclass
class BruteLru:
    """The blocks of a cache by what they hold up to their end, least recently used first; nothing clever."""

    size: int
    capacity: int
    kept: list[tuple[int, ...]] = field(default_factory=list)
    evictions: int = 0

    def serve(self, tokens: Sequence[int], answer: Sequence[int]) -> int:
        whole = (*tokens, *answer)
        prompt = range(self.size, len(tokens), self.size)
        hit = 0
        for end in prompt:
            if whole[:end] not in self.kept:
                break
            hit = end
        if -(-len(tokens) // self.size) > self.capacity:
            return 0
        fits = -(-len(whole) // self.size) <= self.capacity
        held = whole if fits else tuple(tokens)
        mine = [held[:end] for end in range(self.size, len(held) + 1, self.size)]
        others = [key for key in self.kept if key not in mine]
        # The last block that is not full takes room while it runs, and keeps nothing.
        needed = -(-len(held) // self.size)
        gone = max(0, len(others) + needed - self.capacity)
        self.evictions += gone
        self.kept = others[gone:] + mine[::-1]
        return hit


def test_by_how_much_a_small_tree_finds_less() -> None:
    requests = pairs(200, prefix=8, own=3, answer=2, seed=3)
    rates = []
    for entries in (1, 2, 5, 10, 20, 40, 300):
        served = serve_all(requests, TreeIndex(max_entries=entries, max_tokens=None))
        naive = NaiveTree(1, "lru", max_entries=entries)
        found = []
        for tokens, answer in requests:
            found.append(naive.match(tuple(tokens[:-1]))[0])
            naive.insert((*tokens, *answer), ())
        assert [hit for _, hit in served.found] == found
        assert served.num_evictions == naive.evictions
        rates.append(served.counts.request_fraction)
    assert rates == sorted(rates)
    # 120 share. With one entry only those are found that come directly after one of the same prefix; all but five with
    # room for everything.
    assert rates[0] < 0.12 < rates[3] < 0.5 < rates[-1] == 115 / 200


@pytest.mark.parametrize("policy", Policy)
@pytest.mark.parametrize(("page", "tokens"), [(1, 60), (1, 150), (4, 100), (3, 1000)])
def test_every_policy_finds_what_brute_force_finds(policy: Policy, page: int, tokens: int) -> None:
    requests = pairs(120, prefix=8, own=3, answer=2, seed=7)
    served = serve_all(requests, TreeIndex(page_tokens=page, policy=policy, max_entries=None, max_tokens=tokens))
    naive = NaiveTree(page, "largest" if policy is Policy.SIZE_AWARE else policy.value, max_tokens=tokens)
    found = []
    for prompt, answer in requests:
        found.append(naive.match(tuple(prompt[:-1]))[0])
        naive.insert((*prompt, *answer), ())
    assert [hit for _, hit in served.found] == found
    assert served.num_evictions == naive.evictions


@given(
    size=st.sampled_from([1, 4, 16]),
    capacity=st.integers(0, 120),
    requests=st.builds(
        pairs,
        st.just(40),
        prefix=st.integers(1, 20),
        own=st.integers(1, 9),
        answer=st.integers(0, 9),
        seed=st.integers(0, 5),
    ),
)
def test_blocks_find_what_brute_force_finds(size: int, capacity: int, requests: Pairs) -> None:
    served = serve_all(requests, BlockIndex(block_tokens=size, max_tokens=capacity * size + size - 1))
    brute = BruteLru(size, capacity)
    assert [hit for _, hit in served.found] == [brute.serve(tokens, given) for tokens, given in requests]
    assert served.num_evictions == brute.evictions


@pytest.mark.parametrize(("page", "whole"), [(1, 50), (16, 48), (64, 0)])
def test_a_prefix_is_found_in_whole_pages(page: int, whole: int) -> None:
    requests = pairs(100, prefix=50)
    tree = serve_all(requests, TreeIndex(page_tokens=page, max_entries=None, max_tokens=None))
    blocks = serve_all(requests, BlockIndex(block_tokens=page, max_tokens=10**5))
    for served in (tree, blocks):
        assert {hit for _, hit in served.found} == ({0, whole} if whole else {0})
        assert served.counts.num_hit_tokens == 55 * whole
        assert served.num_evictions == 0


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    same: Pairs = [(list(range(32)), [])] * 2
    tree = serve_all(same, TreeIndex(max_entries=None, max_tokens=None))
    blocks = serve_all(same, BlockIndex(block_tokens=16, max_tokens=1000))
    assert [hit for _, hit in tree.found] == [0, 31]
    assert [hit for _, hit in blocks.found] == [0, 16]


def test_answers_are_kept_too() -> None:
    turns: Pairs = [([1, 2, 3, 4], [5, 6]), ([1, 2, 3, 4, 5, 6, 7], [])]
    assert serve_all(turns, TreeIndex(max_entries=None, max_tokens=None)).found[1] == (7, 6)
    assert serve_all(turns, BlockIndex(block_tokens=2, max_tokens=100)).found[1] == (7, 6)


def test_policies_go_by_their_names() -> None:
    kinds = {Policy.LRU: LeastRecentlyUsed, Policy.LFU: LeastFrequentlyUsed}
    kinds |= {Policy.FIFO: FirstInFirstOut, Policy.SIZE_AWARE: LargestFirst}
    assert {policy: type(policy_of(policy)) for policy in Policy} == kinds
