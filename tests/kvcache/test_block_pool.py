from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from infcalc.kvcache.block_pool import NULL_BLOCK, BlockPool, blocks_for
from infcalc.kvcache.misuse import Misuse
from tests.kvcache.naive import NaivePool

# Rules of vLLM, as examples


def test_the_null_block_is_never_handed_out() -> None:
    pool = BlockPool(4)
    assert pool.num_free == 3
    assert pool.allocate(3) == [1, 2, 3]
    with pytest.raises(Misuse, match="1 blocks asked for, 0 are free"):
        pool.allocate(1)
    pool.release([NULL_BLOCK])
    pool.share([NULL_BLOCK])
    assert pool.free_order() == ()
    pool.check_invariants()


def test_hashed_blocks_go_to_the_back_and_others_to_the_front() -> None:
    pool = BlockPool(7)
    taken = pool.allocate(4)
    pool.publish(1, b"head")
    pool.publish(2, b"next")
    pool.release(reversed(taken))
    # The tail without hash is used first; of the cached ones the tail is evicted before the head.
    assert pool.free_order() == (4, 3, 5, 6, 2, 1)


def test_without_prefix_caching_all_go_to_the_back() -> None:
    pool = BlockPool(6, prefix_caching=False)
    pool.release(reversed(pool.allocate(3)))
    assert pool.free_order() == (4, 5, 3, 2, 1)


def test_a_cached_block_is_found_until_it_is_handed_out() -> None:
    pool = BlockPool(3)
    pool.allocate(1)
    pool.publish(1, b"one")
    pool.release([1])
    assert pool.find(b"one") == 1
    assert pool.allocate(1) == [2]
    assert pool.find(b"one") == 1
    assert pool.allocate(1) == [1]
    assert (pool.find(b"one"), pool.num_evictions) == (None, 1)


def test_a_hit_takes_a_free_block_out_of_the_queue() -> None:
    pool = BlockPool(5)
    pool.release(pool.allocate(4)[:1])
    pool.publish(2, b"two")
    pool.publish(3, b"three")
    pool.release([2, 3])
    pool.share([2])
    assert pool.free_order() == (1, 3)
    assert pool.references(2) == 1
    pool.share([2])
    assert pool.references(2) == 2


def test_the_oldest_of_equal_blocks_is_found_and_the_next_takes_its_place() -> None:
    pool = BlockPool(4)
    for block in pool.allocate(3):
        pool.publish(block, b"same")
    assert (pool.find(b"same"), pool.num_cached) == (1, 1)
    pool.release([2])
    pool.allocate(1)
    assert pool.find(b"same") == 1
    pool.release([1])
    pool.allocate(1)
    assert pool.find(b"same") == 3
    pool.check_invariants()


# What no correct caller does


def test_a_double_free_raises() -> None:
    pool = BlockPool(3)
    pool.release(pool.allocate(1))
    with pytest.raises(Misuse, match="block 1 is freed twice"):
        pool.release([1])


def test_a_use_after_free_raises() -> None:
    pool = BlockPool(3)
    pool.release(pool.allocate(1))
    with pytest.raises(Misuse, match="shared after it was freed"):
        pool.share([1])
    with pytest.raises(Misuse, match="nobody holds it"):
        pool.publish(1, b"late")


def test_a_block_is_published_once() -> None:
    pool = BlockPool(3)
    pool.allocate(1)
    pool.publish(1, b"one")
    with pytest.raises(Misuse, match="published twice"):
        pool.publish(1, b"two")


def test_a_pool_has_its_null_block() -> None:
    with pytest.raises(ValueError, match="null block"):
        BlockPool(0)
    assert BlockPool(1).usage_fraction == 0


def test_usage_is_of_what_can_be_handed_out() -> None:
    pool = BlockPool(5)
    pool.allocate(1)
    assert pool.usage_fraction == 0.25
    assert blocks_for(33, 16) == 3


# Against the naive model


class PoolMachine(RuleBasedStateMachine):
    @initialize(num_blocks=st.integers(1, 24), caching=st.booleans())
    def begin(self, num_blocks: int, caching: bool) -> None:
        self.pool = BlockPool(num_blocks, prefix_caching=caching)
        self.naive = NaivePool(num_blocks, prefix_caching=caching)
        self.held: list[int] = []

    @rule(share=st.floats(0, 1))
    def allocate(self, share: float) -> None:
        number = round(share * len(self.naive.free))
        taken = self.pool.allocate(number)
        assert taken == self.naive.allocate(number)
        self.held += taken

    @rule(key=st.sampled_from([b"a", b"b", b"c"]))
    def hit(self, key: bytes) -> None:
        found = self.pool.find(key)
        assert found == self.naive.find(key)
        if found is not None:
            self.pool.share([found])
            self.naive.share([found])
            self.held.append(found)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def share(self, data: st.DataObject) -> None:
        block = data.draw(st.sampled_from(self.held))
        self.pool.share([block])
        self.naive.share([block])
        self.held.append(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        order = data.draw(st.permutations(self.held))
        leaving = order[: data.draw(st.integers(1, len(order)))]
        self.pool.release(leaving)
        self.naive.release(leaving)
        for block in leaving:
            self.held.remove(block)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), key=st.sampled_from([b"a", b"b", b"c"]))
    def publish(self, data: st.DataObject, key: bytes) -> None:
        block = data.draw(st.sampled_from(self.held))
        if self.pool.hash_of(block) is None:
            self.pool.publish(block, key)
            self.naive.published.append((key, block))

    @rule(data=st.data())
    def double_free(self, data: st.DataObject) -> None:
        if self.naive.free:
            with pytest.raises(Misuse):
                self.pool.release([data.draw(st.sampled_from(self.naive.free))])

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "pool"):
            return
        self.pool.check_invariants()
        assert list(self.pool.free_order()) == self.naive.free
        assert all(self.pool.references(block) == count for block, count in self.naive.counts.items())
        assert all(self.held.count(block) == count for block, count in self.naive.counts.items())
        assert self.pool.num_evictions == self.naive.evictions


TestPoolMachine = PoolMachine.TestCase
TestPoolMachine.settings = settings(max_examples=60, stateful_step_count=50, deadline=None)
