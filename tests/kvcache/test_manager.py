from __future__ import annotations

from infcalc.kvcache.manager import KvCacheManager


def test_a_fork_writes_into_a_copy() -> None:
    manager = KvCacheManager(20, 4)
    manager.allocate(1, range(10))
    manager.commit(1, range(10))
    manager.fork(1, 2)
    assert manager.append(1) == (4,)
    assert manager.append(2) == ()
    assert (list(manager.block_table(1)), list(manager.block_table(2))) == ([1, 2, 4], [1, 2, 3])
    manager.check_invariants()
