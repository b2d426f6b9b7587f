from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infcalc.kvcache.eviction import (
    EvictionPolicy,
    FirstInFirstOut,
    LargestFirst,
    LeastFrequentlyUsed,
    LeastRecentlyUsed,
)
from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.radix_node import RadixNode
from infcalc.kvcache.radix_tree import RadixTree
from infcalc.kvcache.tokens import packed, shared_bytes
from tests.kvcache.naive import NaiveTree, Tokens

POLICIES: dict[str, EvictionPolicy] = {
    "lru": LeastRecentlyUsed(),
    "lfu": LeastFrequentlyUsed(),
    "fifo": FirstInFirstOut(),
    "largest": LargestFirst(),
}


def runs(tree: RadixTree) -> list[int]:
    return sorted(node.num_tokens for node in tree)


# Matching


def test_a_match_is_exact_to_the_token_and_splits_a_run() -> None:
    tree = RadixTree()
    tree.insert(range(10), range(100, 110))
    match = tree.match([0, 1, 2, 3, 99])
    assert (match.num_tokens, list(match.pages), match.node.num_tokens) == (4, [100, 101, 102, 103], 4)
    assert runs(tree) == [4, 6]
    assert tree.match(range(12)).num_tokens == 10


def test_with_pages_a_match_is_cut_to_whole_pages() -> None:
    tree = RadixTree(page_tokens=4)
    assert tree.insert(range(11), [7, 8]).num_added_tokens == 8
    assert [tree.match(range(length)).num_tokens for length in (3, 4, 7, 8, 11)] == [0, 4, 4, 8, 8]
    assert list(tree.match(range(7)).pages) == [7]
    # Two runs that part inside a page share nothing of it.
    tree.insert([0, 1, 2, 9], [10])
    assert tree.match([0, 1, 2, 9, 5]).num_tokens == 4


def test_a_peek_changes_nothing() -> None:
    tree = RadixTree()
    tree.insert(range(10), range(100, 110))
    before = [(node.run, node.last_use, node.num_hits) for node in tree]
    assert (tree.peek(range(4)).num_tokens, list(tree.peek(range(4)).pages)) == (4, [100, 101, 102, 103])
    assert [(node.run, node.last_use, node.num_hits) for node in tree] == before


def test_what_is_there_keeps_its_pages() -> None:
    tree = RadixTree()
    tree.insert([1, 2, 3], [11, 12, 13])
    inserted = tree.insert([1, 2, 3, 4], [21, 22, 23, 24])
    assert (inserted.num_present_tokens, inserted.num_added_tokens) == (3, 1)
    assert list(tree.match([1, 2, 3, 4]).pages) == [11, 12, 13, 24]


def test_namespaces_do_not_share() -> None:
    tree = RadixTree()
    tree.insert(range(5), namespace="lora-1")
    assert tree.match(range(5)).num_tokens == 0
    assert tree.match(range(5), namespace="lora-1").num_tokens == 5
    tree.check_invariants()


def test_pages_come_one_per_page() -> None:
    with pytest.raises(ValueError, match="3 pages for 4 tokens"):
        RadixTree().insert(range(4), range(3))
    with pytest.raises(ValueError, match="pages of 0"):
        RadixTree(page_tokens=0)


@pytest.mark.parametrize("at", [0, 1, 2, 499, 998, 999, 1000])
def test_the_first_difference_is_found_wherever_it_is(at: int) -> None:
    one, other = list(range(1000)), list(range(1000))
    if at < 1000:
        other[at] = -5
    assert shared_bytes(packed(one), packed(other)) // 4 == at


def test_hits_are_counted_by_request_and_by_token() -> None:
    tree = RadixTree()
    tree.insert(range(6))
    tree.match(range(3), counted=True)
    tree.match([9, 9, 9], counted=True)
    tree.match(range(3))
    assert (tree.hits.request_fraction, tree.hits.token_fraction) == (0.5, 0.5)


# Eviction


@pytest.mark.parametrize(
    ("policy", "order"),
    [("lru", [20, 30, 10]), ("lfu", [30, 20, 10]), ("fifo", [10, 20, 30]), ("largest", [30, 20, 10])],
)
def test_each_policy_has_its_order(policy: str, order: list[int]) -> None:
    tree = RadixTree(policy=POLICIES[policy])
    for size in (10, 20, 30):
        tree.insert([size] * size, [size] * size)
    for size in (20, 20, 30, 10, 10, 10):
        tree.match([size] * size)
    assert [tree.evict(1)[0] for _ in order] == order
    assert (tree.num_tokens, tree.num_evictions, tree.num_evicted_tokens) == (0, 3, 60)


def test_leaves_go_before_what_they_hang_on() -> None:
    tree = RadixTree()
    tree.insert([1, 2, 3], [1, 2, 3])
    tree.insert([1, 2, 4], [1, 2, 4])
    assert [list(tree.evict(1)) for _ in range(4)] == [[3], [4], [1, 2], []]


def test_what_is_locked_stays_with_all_above_it() -> None:
    tree = RadixTree()
    tree.insert([1, 2, 3], [1, 2, 3])
    node = tree.match([1, 2, 3]).node
    tree.lock(node)
    # A later split leaves the lock on both parts.
    tree.insert([1, 5], [1, 5])
    assert (tree.num_evictable_tokens, list(tree.evict(9))) == (1, [5])
    tree.unlock(node)
    assert list(tree.evict(9)) == [2, 3, 1]


def test_limits_bound_entries_and_tokens() -> None:
    tree = RadixTree(max_entries=2, max_tokens=10)
    for first in (1, 2, 3):
        tree.insert([first] * 4, [first] * 4)
    assert (tree.num_entries, tree.num_tokens) == (2, 8)
    inserted = tree.insert([4] * 7, [4] * 7)
    assert list(inserted.evicted_pages) == [2] * 4 + [3] * 4
    assert tree.insert([5] * 11, [5] * 11).num_added_tokens == 0
    assert tree.match([4] * 7).num_tokens == 7


def test_nothing_is_evicted_for_what_finds_no_room_all_the_same() -> None:
    tree = RadixTree(max_entries=2, max_tokens=10)
    tree.insert([1] * 5)
    tree.insert([2] * 5)
    tree.lock(tree.match([1] * 5).node)
    assert tree.insert([3] * 6).num_added_tokens == 0
    tree.lock(tree.match([2] * 5).node)
    assert tree.insert([3]).num_added_tokens == 0
    assert tree.num_evictions == 0


def test_nothing_is_evicted_where_splits_in_use_fill_the_limit() -> None:
    tree = RadixTree(max_entries=2)
    tree.insert([1] * 5)
    tree.insert([2] * 5)
    tree.match([1] * 2)
    tree.lock(tree.match([1] * 5).node)
    assert (tree.num_entries, tree.num_locked_entries) == (3, 2)
    assert tree.insert([3]).num_added_tokens == 0
    assert tree.num_evictions == 0


def test_a_lock_alone_keeps_an_entry_that_is_next_in_the_queue() -> None:
    tree = RadixTree()
    tree.insert([1], [1])
    tree.insert([2], [2])
    node = tree.match([1]).node
    # This puts the entry back into the queue with the time of its match, which the lock does not change.
    assert list(tree.evict(1)) == [2]
    tree.lock(node)
    assert list(tree.evict(1)) == []
    tree.unlock(node)
    assert list(tree.evict(1)) == [1]


def test_a_prefix_is_not_evicted_to_make_room_for_what_follows_it() -> None:
    tree = RadixTree(max_tokens=6)
    tree.insert([1] * 4)
    tree.insert([2] * 2)
    assert tree.insert([1] * 4 + [3] * 2).num_added_tokens == 2
    assert tree.match([1] * 4 + [3] * 2).num_tokens == 6


# What no correct caller does


def test_a_lock_is_taken_back_once() -> None:
    tree = RadixTree()
    tree.insert([1, 2])
    node = tree.match([1, 2]).node
    tree.lock(node)
    tree.unlock(node)
    with pytest.raises(Misuse, match="nobody locked"):
        tree.unlock(node)


def test_an_evicted_entry_is_not_used() -> None:
    tree = RadixTree()
    tree.insert([1, 2])
    node = tree.match([1, 2]).node
    tree.evict(2)
    with pytest.raises(Misuse, match="evicted"):
        tree.lock(node)
    with pytest.raises(Misuse, match="evicted"):
        tree.unlock(node)


# Against the naive model


class TreeMachine(RuleBasedStateMachine):
    tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)
    picks = st.integers(0, 2**16)

    @initialize(
        page=st.integers(1, 3),
        policy=st.sampled_from(sorted(POLICIES)),
        max_entries=st.none() | st.integers(0, 8),
        max_tokens=st.none() | st.integers(0, 30),
    )
    def begin(self, page: int, policy: str, max_entries: int | None, max_tokens: int | None) -> None:
        self.real = RadixTree(page_tokens=page, policy=POLICIES[policy], max_entries=max_entries, max_tokens=max_tokens)
        self.naive = NaiveTree(page=page, policy=policy, max_entries=max_entries, max_tokens=max_tokens)
        self.locked: list[tuple[RadixNode, Tokens]] = []
        self.pages = 0

    @rule(tokens=tokens)
    def peek(self, tokens: Tokens) -> None:
        assert self.real.peek(tokens).num_tokens == self.naive.longest(tokens)

    @rule(tokens=tokens)
    def match(self, tokens: Tokens) -> None:
        expected = self.real.peek(tokens)
        found = self.real.match(tokens)
        assert (found.num_tokens, tuple(found.pages)) == self.naive.match(tokens)
        assert (expected.num_tokens, list(expected.pages)) == (found.num_tokens, list(found.pages))

    @rule(tokens=tokens)
    def insert(self, tokens: Tokens) -> None:
        pages = tuple(range(self.pages, self.pages + len(tokens) // self.naive.page))
        self.pages += len(pages)
        done = self.real.insert(tokens, pages)
        found = (done.num_present_tokens, done.num_added_tokens, list(done.evicted_pages))
        assert found == self.naive.insert(tokens, pages)

    @rule(tokens=tokens)
    def lock(self, tokens: Tokens) -> None:
        found = self.real.match(tokens)
        length, _ = self.naive.match(tokens)
        self.real.lock(found.node)
        for entry in self.naive.above(tokens[:length]):
            entry.locks += 1
        self.locked.append((found.node, tokens[:length]))

    @precondition(lambda self: self.locked)
    @rule(pick=picks)
    def unlock(self, pick: int) -> None:
        node, path = self.locked.pop(pick % len(self.locked))
        self.real.unlock(node)
        for entry in self.naive.above(path):
            entry.locks -= 1

    @rule(tokens=st.integers(0, 12))
    def evict(self, tokens: int) -> None:
        assert list(self.real.evict(tokens)) == self.naive.evict(tokens)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "real"):
            return
        self.real.check_invariants()
        assert sorted(len(path) - entry.start for path, entry in self.naive.entries.items()) == runs(self.real)
        assert sorted(entry.locks for entry in self.naive.entries.values()) == sorted(n.locks for n in self.real)
        assert self.real.num_evictions == self.naive.evictions


TestTreeMachine = TreeMachine.TestCase
TestTreeMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("limits", [(None, None), (12, None), (None, 60)])
def test_a_long_life_agrees_with_the_naive_model(policy: str, limits: tuple[int | None, int | None]) -> None:
    chance = random.Random(policy)  # noqa: S311 - a test needs no secrets
    machine = TreeMachine()
    machine.begin(1 + len(policy) % 2, policy, *limits)
    for _ in range(500):
        tokens = tuple(chance.choices((0, 1), (3, 1), k=chance.randint(1, 14)))
        action = chance.choice(["match", "insert", "insert", "lock", "unlock", "evict"])
        if action == "evict":
            machine.evict(chance.randint(0, 8))
        elif action == "unlock":
            if machine.locked:
                machine.unlock(chance.randint(0, 99))
        elif action != "lock" or len(machine.locked) < 4:
            getattr(machine, action)(tokens)
        machine.agrees()
    assert machine.real.num_evictions > 50
    while machine.locked:
        machine.unlock(0)
    machine.evict(machine.real.num_tokens)
    assert machine.real.num_entries == machine.real.num_locked_entries == 0


# The exercise: 1,000 requests, exactly 600 of them share 5 prefixes


def requests(seed: int = 0) -> list[Tokens]:
    """Return prompts of 300 tokens: 600 begin with one of 5 prefixes of 200, 400 are like no other; in any order."""
    chance = random.Random(seed)  # noqa: S311
    prefixes = [tuple(1_000_000 * (one + 1) + at for at in range(200)) for one in range(5)]
    shared = [prefixes[index % 5] + tuple(10_000 + index for _ in range(100)) for index in range(600)]
    alone = [tuple(100_000 + index for _ in range(300)) for index in range(400)]
    everything = shared + alone
    chance.shuffle(everything)
    return everything


def served(tree: RadixTree, prompts: Sequence[Tokens]) -> RadixTree:
    for prompt in prompts:
        tree.match(prompt, counted=True)
        tree.insert(prompt)
    return tree


def brute_force_hits(prompts: Sequence[Tokens], max_entries: int) -> tuple[int, int]:
    tree = NaiveTree(page=1, policy="lru", max_entries=max_entries)
    found = []
    for prompt in prompts:
        found.append(tree.match(prompt)[0])
        tree.insert(prompt, ())
    return sum(hit > 0 for hit in found), sum(found)


@pytest.mark.parametrize("seed", range(3))
def test_five_hundred_entries_find_all_but_the_first_of_each_prefix(seed: int) -> None:
    tree = served(RadixTree(max_entries=500), requests(seed))
    assert (tree.hits.num_requests, tree.hits.num_hit_requests) == (1000, 595)
    assert tree.hits.request_fraction > 0.55
    assert tree.hits.token_fraction == 595 * 200 / 300_000
    assert tree.num_entries <= 500
    assert tree.num_evictions > 400


@pytest.mark.parametrize("max_entries", [1, 3, 6, 12])
def test_too_small_a_cache_finds_less_by_as_much_as_brute_force_says(max_entries: int) -> None:
    prompts = requests()
    tree = served(RadixTree(max_entries=max_entries), prompts)
    assert (tree.hits.num_hit_requests, tree.hits.num_hit_tokens) == brute_force_hits(prompts, max_entries)
    assert tree.hits.num_hit_requests < 595


def test_the_hit_rate_falls_with_the_cache() -> None:
    prompts = requests()
    rates = [served(RadixTree(max_entries=most), prompts).hits.request_fraction for most in (1, 3, 6, 12, 24, 500)]
    assert rates == sorted(rates)
    assert rates[0] < 0.15 < rates[-1]
