from __future__ import annotations

import gc
import random
import tracemalloc

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infcalc.kvcache.manager import KvCacheManager
from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.surface import NO_HIT, BlockCopy, KvManager
from tests.kvcache.memory import Memory
from tests.kvcache.naive import NaiveManager, Tokens


def computed(manager: KvManager, name: int, tokens: range | Tokens) -> None:
    """Admit a sequence and compute all of it."""
    assert manager.allocate(name, tokens) is not None
    manager.commit(name, tokens[manager.num_committed_tokens(name) :])


# Blocks (vLLM: ceil((computed + new + lookahead) / B) - held)


def test_a_chunk_takes_the_blocks_of_its_tokens_and_its_lookahead() -> None:
    manager = KvCacheManager(20, 4)
    assert manager.allocate(1, range(40), 9) == (1, 2, 3)
    assert manager.append(1, 3) == ()
    assert manager.append(1, 4, num_lookahead_tokens=1) == (4, 5)
    assert manager.append(1, 4) == ()
    assert manager.num_tokens(1) == 20


def test_what_does_not_fit_changes_nothing() -> None:
    manager = KvCacheManager(5, 4)
    computed(manager, 1, range(12))
    assert manager.allocate(2, range(100, 105)) is None
    assert manager.append(1, 5) is None
    assert manager.hits.num_requests == 1
    assert (manager.num_free_blocks, manager.num_tokens(1), manager.sequence_ids) == (1, 12, (1,))
    assert manager.append(1, 4) == (4,)


def test_a_hit_on_free_blocks_takes_them_from_the_free_ones() -> None:
    manager = KvCacheManager(5, 4)
    computed(manager, 1, range(9))
    manager.free(1)
    hit = manager.match_prefix(range(17))
    assert hit.num_tokens == 8
    assert manager.num_free_blocks == 4
    assert manager.can_allocate(16, hit=hit)
    assert not manager.can_allocate(16, hit=hit, num_spare_blocks=1)
    assert not manager.can_allocate(17, hit=hit)
    computed(manager, 2, range(9))
    # Held by somebody, they no longer count as free.
    assert manager.can_allocate(12, hit=hit)
    assert not manager.can_allocate(13, hit=hit)


def test_a_freed_sequence_is_evicted_from_its_tail() -> None:
    manager = KvCacheManager(6, 4)
    computed(manager, 1, range(18))
    manager.free(1)
    assert manager.pool.free_order() == (5, 4, 3, 2, 1)
    computed(manager, 2, range(100, 108))
    assert manager.match_prefix(range(18)).num_tokens == 12


# Prefixes (reference: only full blocks, at most all tokens but one, published when computed)


@pytest.mark.parametrize(("num_tokens", "hit"), [(1, 0), (4, 0), (5, 4), (8, 4), (9, 8), (16, 12), (17, 16)])
def test_at_least_one_token_is_computed_and_at_most_a_block(num_tokens: int, hit: int) -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(16))
    assert manager.match_prefix(range(num_tokens)).num_tokens == hit
    assert 1 <= num_tokens - hit <= 4


def test_only_full_blocks_are_found() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(7))
    assert manager.match_prefix(range(20)).num_tokens == 4
    manager.append(1)
    manager.commit(1, (7,))
    assert manager.match_prefix(range(20)).num_tokens == 8


def test_generated_tokens_are_found_too() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(3))
    for token in range(3, 9):
        assert manager.append(1) is not None
        manager.commit(1, (token,))
    manager.free(1)
    assert manager.match_prefix(range(9)).num_tokens == 8


def test_requests_of_one_step_do_not_share() -> None:
    manager = KvCacheManager(20, 4)
    manager.allocate(1, range(9))
    assert manager.match_prefix(range(9)).num_tokens == 0
    manager.commit(1, range(9))
    assert manager.match_prefix(range(9)).num_tokens == 8


def test_a_block_is_known_by_all_tokens_before_it() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, (0, 0, 0, 0, 1, 1, 1, 1))
    assert manager.match_prefix((1, 1, 1, 1, 2)).num_tokens == 0
    assert manager.match_prefix((2, 2, 2, 2, 1, 1, 1, 1, 3)).num_tokens == 0
    assert manager.match_prefix((0, 0, 0, 0, 1, 1, 1, 1, 3)).num_tokens == 8


def test_namespaces_do_not_share() -> None:
    manager = KvCacheManager(20, 4)
    manager.allocate(1, range(9), namespace="lora-1")
    manager.commit(1, range(9))
    assert manager.match_prefix(range(9)).num_tokens == 0
    assert manager.match_prefix(range(9), namespace="lora-2").num_tokens == 0
    assert manager.match_prefix(range(9), namespace="lora-1").num_tokens == 8


def test_a_draft_head_computes_the_last_matched_block_again() -> None:
    manager = KvCacheManager(20, 4, drop_last_hit=True)
    computed(manager, 1, range(16))
    assert manager.match_prefix(range(17)).num_tokens == 12
    assert manager.match_prefix(range(5)).num_tokens == 0


def test_without_prefix_caching_nothing_is_found_or_hashed() -> None:
    manager = KvCacheManager(20, 4, prefix_caching=False)
    computed(manager, 1, range(16))
    assert manager.match_prefix(range(16)) == NO_HIT
    assert manager.pool.num_cached == 0


def test_hits_count_a_request_once_and_readmissions_apart() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(10))
    assert manager.preempt(1) == 10
    manager.allocate(1, range(10), readmitted=True)
    computed(manager, 2, range(10))
    assert (manager.hits.num_requests, manager.hits.num_tokens, manager.hits.num_hit_tokens) == (2, 20, 8)
    assert (manager.readmission_hits.num_requests, manager.readmission_hits.num_hit_tokens) == (1, 8)
    assert manager.num_preemptions == 1


# A window


def test_blocks_behind_the_window_are_given_back_while_running() -> None:
    manager = KvCacheManager(20, 4, window_tokens=9)
    computed(manager, 1, range(16))
    # Token 16 sees 8 to 16: blocks 0 and 1 are behind.
    assert manager.append(1) == (5,)
    assert list(manager.block_table(1)) == [0, 0, 3, 4, 5]
    manager.check_invariants()


def test_a_window_hit_needs_only_the_blocks_that_it_sees() -> None:
    manager = KvCacheManager(6, 4, window_tokens=9)
    computed(manager, 1, range(17))
    assert manager.append(1) == ()
    assert manager.match_prefix(range(17)).block_ids == (0, 0, 3, 4)
    assert manager.allocate(2, range(17), 1) == (0, 0, 3, 4, 2)
    manager.check_invariants()


# Copy on write


def test_who_writes_first_into_a_shared_block_gets_a_copy_and_the_last_writes_in_place() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(10))
    manager.fork(1, 2)
    manager.fork(1, 3)
    assert manager.pool.num_used == 3
    assert (manager.append(1), manager.append(2), manager.append(3)) == ((4,), (5,), ())
    assert [list(manager.block_table(name)) for name in (1, 2, 3)] == [[1, 2, 4], [1, 2, 5], [1, 2, 3]]
    assert manager.take_copies() == [
        BlockCopy(source_block=3, target_block=4, num_tokens=2),
        BlockCopy(source_block=3, target_block=5, num_tokens=2),
    ]
    assert (manager.take_copies(), manager.num_copies) == ([], 2)


def test_a_fork_at_the_end_of_a_block_copies_nothing() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(8))
    manager.fork(1, 2)
    assert (manager.append(1), manager.append(2), manager.take_copies()) == ((3,), (4,), [])


def test_a_copy_that_finds_no_block_changes_nothing() -> None:
    manager = KvCacheManager(3, 4)
    computed(manager, 1, range(6))
    manager.fork(1, 2)
    assert manager.append(2) is None
    assert (manager.num_tokens(2), manager.take_copies()) == (6, [])
    manager.free(1)
    assert manager.append(2) == ()


def test_fifty_answers_to_one_prompt_store_its_blocks_once() -> None:
    manager = KvCacheManager(400, 16)
    computed(manager, 0, range(500))
    for name in range(1, 50):
        manager.fork(0, name)
    assert manager.pool.num_used == 32
    for name in range(50):
        assert manager.append(name) is not None
    # 31 full blocks are shared; the open one exists once per answer.
    assert (manager.pool.num_used, manager.num_copies) == (31 + 50, 49)


# Drafts


def test_rejected_drafts_are_written_over_in_the_blocks_they_had() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(6))
    assert manager.append(1, 5) == (3,)
    manager.commit(1, (6, 7, 8))
    manager.rewind(1)
    assert (manager.num_tokens(1), manager.append(1, 3)) == (9, ())
    assert manager.match_prefix(range(12)).num_tokens == 8


# What no correct caller does


def test_a_sequence_is_freed_once_and_not_used_afterwards() -> None:
    manager = KvCacheManager(20, 4)
    computed(manager, 1, range(6))
    with pytest.raises(Misuse, match="admitted twice"):
        manager.allocate(1, range(6))
    with pytest.raises(Misuse, match="admitted twice"):
        manager.fork(1, 1)
    manager.free(1)
    for use in (manager.free, manager.preempt, manager.append, manager.rewind, manager.block_table):
        with pytest.raises(Misuse, match="sequence 1 holds nothing"):
            use(1)
    with pytest.raises(Misuse, match="sequence 1 holds nothing"):
        manager.commit(1, (1,))


def test_only_what_has_room_is_committed() -> None:
    manager = KvCacheManager(20, 4)
    manager.allocate(1, range(9), 5)
    with pytest.raises(Misuse, match="there was room for 5"):
        manager.commit(1, range(6))
    with pytest.raises(Misuse, match="9 are left after the hit"):
        manager.allocate(2, range(9), 10)


def test_a_stale_hit_is_noticed() -> None:
    manager = KvCacheManager(4, 4)
    computed(manager, 1, range(9))
    manager.free(1)
    hit = manager.match_prefix(range(9))
    computed(manager, 2, range(100, 112))
    manager.free(2)
    with pytest.raises(Misuse, match="stale"):
        manager.allocate(3, range(9), hit=hit)


def test_sizes_are_sensible() -> None:
    with pytest.raises(ValueError, match="0 tokens"):
        KvCacheManager(4, 0)
    with pytest.raises(ValueError, match="window"):
        KvCacheManager(4, 4, window_tokens=1)


# Speed that can be asserted: what is not allocated


def test_a_token_without_a_new_block_allocates_nothing() -> None:
    manager = KvCacheManager(200, 1024, prefix_caching=False)
    computed(manager, 1, range(1000))
    manager.append(1)
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.take_snapshot()
    for _ in range(20):
        assert manager.append(1) == ()
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    grown = [one for one in after.compare_to(before, "lineno") if "kvcache/manager.py" in str(one.traceback)]
    # One integer, the new count of tokens, stands where the old one was.
    assert sum(one.size_diff for one in grown) <= 64
    assert manager.pool.num_used == 1


# Against the naive model, with an executor that shows what every sequence reads


class ManagerMachine(RuleBasedStateMachine):
    tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14).map(tuple)
    few = st.lists(st.integers(0, 1), min_size=1, max_size=4).map(tuple)
    picks = st.integers(0, 2**16)

    @initialize(
        num_blocks=st.integers(2, 40),
        size=st.integers(1, 4),
        window=st.none() | st.integers(2, 9),
        drop=st.booleans(),
        caching=st.booleans() | st.just(True),
    )
    def begin(self, num_blocks: int, size: int, window: int | None, drop: bool, caching: bool) -> None:
        self.real = KvCacheManager(num_blocks, size, prefix_caching=caching, window_tokens=window, drop_last_hit=drop)
        self.naive = NaiveManager(num_blocks, size, window=window, drop=drop, caching=caching)
        self.memory = Memory(size)
        self.work: dict[int, Tokens] = {}
        self.next = 0

    def one_of(self, pick: int) -> int:
        return sorted(self.naive.sequences)[pick % len(self.naive.sequences)]

    @rule(tokens=tokens, share=st.floats(0, 1), ahead=st.integers(0, 3), given=st.booleans())
    def admit(self, tokens: Tokens, share: float, ahead: int, given: bool) -> None:
        hit = self.real.match_prefix(tokens)
        assert (hit.num_tokens, list(hit.block_ids)) == self.naive.hit(tokens)
        number = round(share * (len(tokens) - hit.num_tokens))
        blocks = self.real.allocate(self.next, tokens, number, hit=hit if given else None, num_lookahead_tokens=ahead)
        assert (blocks is not None) == self.naive.allocate(self.next, tokens, number, ahead)
        if blocks is not None:
            self.work[self.next] = tokens[hit.num_tokens : hit.num_tokens + number]
            self.next += 1

    @precondition(lambda self: self.naive.sequences)
    @rule(pick=picks, tokens=few, ahead=st.integers(0, 3))
    def grow(self, pick: int, tokens: Tokens, ahead: int) -> None:
        name = self.one_of(pick)
        taken = self.real.append(name, len(tokens), num_lookahead_tokens=ahead)
        assert (taken is not None) == self.naive.append(name, len(tokens), ahead)
        if taken is not None:
            self.work[name] = self.work.get(name, ()) + tokens

    @precondition(lambda self: self.naive.sequences)
    @rule(pick=picks)
    def fork(self, pick: int) -> None:
        parent = self.one_of(pick)
        if self.naive.sequences[parent].room > len(self.naive.sequences[parent].tokens):
            with pytest.raises(Misuse, match="on their way"):
                self.real.fork(parent, self.next)
            return
        self.real.fork(parent, self.next)
        self.naive.fork(parent, self.next)
        self.next += 1

    @precondition(lambda self: self.naive.sequences)
    @rule(pick=picks, preempt=st.booleans())
    def leave(self, pick: int, preempt: bool) -> None:
        name = self.one_of(pick)
        tokens = self.naive.sequences[name].tokens
        if preempt:
            assert self.real.preempt(name) == len(tokens)
        else:
            self.real.free(name)
        self.naive.free(name)
        self.work.pop(name, None)
        with pytest.raises(Misuse):
            self.real.free(name)

    @rule(seed=picks)
    def step(self, seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311 - a test needs no secrets
        order = chance.sample(sorted(self.work), len(self.work))
        copies, self.naive.copies = self.naive.copies, []
        due = self.real.take_copies()
        assert [(one.source_block, one.target_block, one.num_tokens) for one in due] == copies
        self.memory.copy(due)
        for name in order:
            self.memory.write(self.real.block_table(name), self.real.num_committed_tokens(name), self.work[name])
        for name in order:
            # Mostly all is accepted; the rest are drafts that were rejected.
            accepted = self.work[name][: chance.choice([None, None, None, chance.randint(0, len(self.work[name]))])]
            self.real.commit(name, accepted)
            self.naive.commit(name, accepted)
            self.real.rewind(name)
            self.naive.sequences[name].room = len(self.naive.sequences[name].tokens)
        self.work = {}

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "real"):
            return
        self.real.check_invariants()
        assert list(self.real.pool.free_order()) == self.naive.pool.free
        assert self.real.sequence_ids == tuple(self.naive.sequences)
        for name, one in self.naive.sequences.items():
            assert list(self.real.block_table(name)) == one.blocks
            assert (self.real.num_tokens(name), self.real.num_committed_tokens(name)) == (one.room, len(one.tokens))

    @invariant()
    def every_sequence_reads_its_own_tokens(self) -> None:
        # Copies that are due have not happened yet.
        if not hasattr(self, "real") or self.naive.copies:
            return
        for name, one in self.naive.sequences.items():
            table = self.real.block_table(name)
            read = self.memory.read(table, len(one.tokens))
            kept = [table[index // self.naive.size] != 0 for index in range(len(one.tokens))]
            assert read == [token if held else None for token, held in zip(one.tokens, kept, strict=True)]

    def teardown(self) -> None:
        if hasattr(self, "real"):
            for name in self.real.sequence_ids:
                self.real.free(name)
            assert self.real.pool.num_used == 0
            self.real.check_invariants()


TestManagerMachine = ManagerMachine.TestCase
TestManagerMachine.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


@pytest.mark.parametrize("seed", range(10))
def test_a_long_life_agrees_with_the_naive_model(seed: int) -> None:
    chance = random.Random(seed)  # noqa: S311
    machine = ManagerMachine()
    machine.begin(60, 2 + seed % 4, [None, 7][seed % 5 == 4], seed % 7 == 6, seed != 5)
    for _ in range(1000):
        tokens = tuple(chance.choices((0, 1), (6, 1), k=chance.randint(1, 14)))
        action = chance.choice(["admit", "admit", "grow", "grow", "fork", "leave", "leave", "step", "step"])
        if action == "admit" or not machine.naive.sequences:
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
        machine.every_sequence_reads_its_own_tokens()
    assert machine.real.num_copies >= 10
    assert machine.real.hits.num_hit_requests >= (5 if machine.naive.caching else 0)
    assert machine.real.pool.num_evictions >= (10 if machine.naive.caching else 0)
    machine.teardown()
