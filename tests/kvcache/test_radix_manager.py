from __future__ import annotations

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.radix_manager import RadixCacheManager
from infcalc.kvcache.surface import NO_HIT, BlockCopy
from tests.kvcache.memory import Memory
from tests.kvcache.naive import Tokens
from tests.kvcache.test_manager import computed

# Rules of SGLang, as examples


def test_hits_are_exact_to_the_token_and_leave_one_to_compute() -> None:
    manager = RadixCacheManager(50)
    computed(manager, 1, range(10))
    assert [manager.match_prefix(range(length)).num_tokens for length in (1, 5, 10, 11, 20)] == [0, 4, 9, 10, 10]
    assert manager.match_prefix((0, 1, 2, 99)).num_tokens == 3


def test_with_pages_hits_are_cut_to_whole_pages() -> None:
    manager = RadixCacheManager(50, 4)
    computed(manager, 1, range(10))
    assert [manager.match_prefix(range(length)).num_tokens for length in (4, 5, 8, 9, 20)] == [0, 4, 4, 8, 8]


def test_each_chunk_of_a_prompt_is_found_and_the_answer_only_at_the_end() -> None:
    manager = RadixCacheManager(50)
    manager.allocate(1, range(10), 6)
    manager.commit(1, range(6))
    assert manager.match_prefix(range(30)).num_tokens == 6
    manager.append(1, 4)
    manager.commit(1, range(6, 10))
    for token in range(10, 14):
        manager.append(1)
        manager.commit(1, (token,))
    assert manager.match_prefix(range(30)).num_tokens == 10
    manager.free(1)
    assert manager.match_prefix(range(30)).num_tokens == 14
    manager.check_invariants()


def test_a_retracted_sequence_loses_what_it_had_not_published() -> None:
    manager = RadixCacheManager(50)
    computed(manager, 1, range(10))
    manager.append(1, 3)
    manager.commit(1, (10, 11, 12))
    assert manager.preempt(1) == 13
    assert manager.match_prefix(range(30)).num_tokens == 10
    assert (manager.num_free_blocks, manager.pool.num_used, manager.num_preemptions) == (49, 10, 1)


def test_what_is_computed_twice_is_kept_once() -> None:
    manager = RadixCacheManager(50)
    manager.allocate(1, range(6))
    manager.allocate(2, range(6))
    assert list(manager.block_table(2)) == [7, 8, 9, 10, 11, 12]
    manager.commit(1, range(6))
    manager.commit(2, range(6))
    assert list(manager.block_table(2)) == [1, 2, 3, 4, 5, 6]
    assert manager.pool.num_used == 6
    manager.check_invariants()


def test_cached_pages_are_room_until_they_are_in_use() -> None:
    manager = RadixCacheManager(11)
    computed(manager, 1, range(8))
    assert (manager.num_free_blocks, manager.usage_fraction) == (2, 0.8)
    manager.free(1)
    assert (manager.num_free_blocks, manager.usage_fraction) == (10, 0)
    hit = manager.match_prefix(range(5))
    assert hit.num_tokens == 4
    assert manager.can_allocate(10, hit=hit)
    assert not manager.can_allocate(11, hit=hit)
    assert not manager.can_allocate(10, hit=hit, num_spare_blocks=1)
    assert manager.allocate(2, range(5)) is not None
    assert manager.can_allocate(9, hit=hit)
    assert not manager.can_allocate(10, hit=hit)


def test_the_oldest_leaf_is_evicted_to_make_room() -> None:
    manager = RadixCacheManager(11)
    computed(manager, 1, range(4))
    computed(manager, 2, range(100, 104))
    manager.free(1)
    manager.free(2)
    computed(manager, 3, range(200, 205))
    assert manager.match_prefix(range(5)).num_tokens == 0
    assert manager.match_prefix(range(100, 105)).num_tokens == 4
    assert manager.tree.num_evicted_tokens == 4


def test_forks_share_and_diverge_in_the_open_page() -> None:
    manager = RadixCacheManager(50, 4)
    computed(manager, 1, range(10))
    manager.fork(1, 2)
    assert (manager.append(1), manager.append(2)) == ((4,), ())
    assert manager.take_copies() == [BlockCopy(source_block=3, target_block=4, num_tokens=2)]
    assert (manager.pool.num_used, manager.num_copies) == (4, 1)
    manager.free(1)
    manager.free(2)
    manager.check_invariants()


def test_what_does_not_fit_changes_nothing() -> None:
    manager = RadixCacheManager(8)
    computed(manager, 1, range(5))
    assert manager.append(1, 3) is None
    assert manager.allocate(2, range(100, 103)) is None
    assert (manager.num_tokens(1), manager.sequence_ids, manager.hits.num_requests) == (5, (1,), 1)


def test_without_prefix_caching_nothing_is_found() -> None:
    manager = RadixCacheManager(50, prefix_caching=False)
    computed(manager, 1, range(10))
    manager.free(1)
    assert (manager.match_prefix(range(10)), manager.num_free_blocks) == (NO_HIT, 49)


def test_misuse_raises() -> None:
    manager = RadixCacheManager(12)
    manager.allocate(1, range(6), 4)
    with pytest.raises(Misuse, match="room for 4"):
        manager.commit(1, range(5))
    with pytest.raises(Misuse, match="on their way"):
        manager.fork(1, 2)
    with pytest.raises(Misuse, match="admitted twice"):
        manager.allocate(1, range(6))
    manager.commit(1, range(4))
    manager.free(1)
    for use in (manager.free, manager.preempt, manager.append, manager.rewind, manager.block_table):
        with pytest.raises(Misuse, match="holds nothing"):
            use(1)
    hit = manager.match_prefix(range(6))
    computed(manager, 3, range(100, 111))
    manager.free(3)
    with pytest.raises(Misuse, match="stale"):
        manager.allocate(4, range(6), hit=hit)


# Any sequence of operations, with an executor that shows what every sequence reads


class ManagerMachine(RuleBasedStateMachine):
    tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)
    few = st.lists(st.integers(0, 1), min_size=1, max_size=4).map(tuple)
    picks = st.integers(0, 2**16)

    @initialize(num_blocks=st.integers(2, 40), size=st.integers(1, 4), caching=st.booleans() | st.just(True))
    def begin(self, num_blocks: int, size: int, caching: bool) -> None:
        self.real = RadixCacheManager(num_blocks, size, prefix_caching=caching)
        self.memory = Memory(size)
        self.known: dict[int, Tokens] = {}
        self.room: dict[int, int] = {}
        self.work: dict[int, Tokens] = {}
        self.next = 0
        self.copied = True

    def one_of(self, pick: int) -> int:
        return sorted(self.known)[pick % len(self.known)]

    @rule(tokens=tokens, share=st.floats(0, 1), ahead=st.integers(0, 3), given=st.booleans())
    def admit(self, tokens: Tokens, share: float, ahead: int, given: bool) -> None:
        hit = self.real.match_prefix(tokens)
        size = self.real.block_tokens
        assert hit.num_tokens < len(tokens)
        assert hit.num_tokens % size == 0
        if self.copied:
            assert self.memory.read(hit.block_ids, hit.num_tokens) == list(tokens[: hit.num_tokens])
        number = round(share * (len(tokens) - hit.num_tokens))
        before = self.real.num_free_blocks
        fits = self.real.can_allocate(hit.num_tokens + number + ahead, hit=hit)
        blocks = self.real.allocate(self.next, tokens, number, hit=hit if given else None, num_lookahead_tokens=ahead)
        assert (blocks is not None) == fits
        if blocks is None:
            assert self.real.num_free_blocks == before
            return
        self.known[self.next] = tokens[: hit.num_tokens]
        self.room[self.next] = hit.num_tokens + number
        self.work[self.next] = tokens[hit.num_tokens : hit.num_tokens + number]
        self.next += 1

    @precondition(lambda self: self.known)
    @rule(pick=picks, tokens=few, ahead=st.integers(0, 3))
    def grow(self, pick: int, tokens: Tokens, ahead: int) -> None:
        name = self.one_of(pick)
        before = self.real.num_free_blocks
        copies = self.real.num_copies
        taken = self.real.append(name, len(tokens), num_lookahead_tokens=ahead)
        if taken is None:
            assert self.real.num_free_blocks == before
            return
        assert self.real.num_free_blocks == before - len(taken)
        self.copied = self.copied and self.real.num_copies == copies
        self.room[name] += len(tokens)
        self.work[name] = self.work.get(name, ()) + tokens

    @precondition(lambda self: self.known)
    @rule(pick=picks)
    def fork(self, pick: int) -> None:
        parent = self.one_of(pick)
        if self.room[parent] > len(self.known[parent]):
            return
        before = self.real.num_free_blocks
        self.real.fork(parent, self.next)
        # Publishing may find pages that are there already and give its own back.
        assert self.real.num_free_blocks >= before
        self.known[self.next], self.room[self.next] = self.known[parent], self.room[parent]
        self.next += 1

    @precondition(lambda self: self.known)
    @rule(pick=picks, preempt=st.booleans())
    def leave(self, pick: int, preempt: bool) -> None:
        name = self.one_of(pick)
        if preempt:
            assert self.real.preempt(name) == len(self.known[name])
        else:
            self.real.free(name)
            if self.real.prefix_caching:
                whole = len(self.known[name]) // self.real.block_tokens * self.real.block_tokens
                assert self.real.match_prefix((*self.known[name], 9)).num_tokens == whole
        del self.known[name], self.room[name]
        self.work.pop(name, None)
        with pytest.raises(Misuse):
            self.real.free(name)

    @rule(seed=picks)
    def step(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - a test needs no secrets
        order = chance.sample(sorted(self.work), len(self.work))
        self.memory.copy(self.real.take_copies())
        self.copied = True
        for name in order:
            self.memory.write(self.real.block_table(name), len(self.known[name]), self.work[name])
        for name in order:
            accepted = self.work[name][: chance.choice([None, None, None, chance.randint(0, len(self.work[name]))])]
            self.real.commit(name, accepted)
            self.real.rewind(name)
            self.known[name] += accepted
            self.room[name] = len(self.known[name])
        self.work = {}

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "real"):
            return
        self.real.check_invariants()
        assert self.real.sequence_ids == tuple(self.known)
        for name, tokens in self.known.items():
            assert (self.real.num_tokens(name), self.real.num_committed_tokens(name)) == (self.room[name], len(tokens))
            if self.copied:
                assert self.memory.read(self.real.block_table(name), len(tokens)) == list(tokens)

    def teardown(self) -> None:
        if hasattr(self, "real"):
            for name in self.real.sequence_ids:
                self.real.free(name)
            assert self.real.usage_fraction == 0
            self.real.pool.release(self.real.tree.evict(self.real.tree.num_tokens))
            assert self.real.pool.num_used == 0


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("seed", range(8))
def test_a_long_life_reads_only_its_own_tokens(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    machine = ManagerMachine()
    machine.begin(60, 1 + seed % 4, seed != 5)
    for _ in range(800):
        tokens = tuple(chance.choices((0, 1), (3, 1), k=chance.randint(1, 14)))
        action = chance.choice(["admit", "admit", "grow", "grow", "fork", "leave", "leave", "step", "step"])
        if action == "admit" or not machine.known:
            machine.admit(tokens, chance.random(), chance.randint(0, 3), chance.random() < 0.5)
        elif action == "grow":
            machine.grow(chance.randint(0, 99), tokens[:3], chance.randint(0, 1))
        elif action == "fork":
            machine.fork(chance.randint(0, 99))
        elif action == "leave":
            machine.leave(chance.randint(0, 99), chance.random() < 0.5)
        else:
            machine.step(chance.randint(0, 99))
        machine.agrees()
    assert machine.real.num_copies >= (5 if machine.real.block_tokens > 1 else 0)
    if machine.real.prefix_caching:
        assert machine.real.tree.num_evictions >= 10
        assert machine.real.hits.num_hit_requests >= 10
    machine.teardown()
