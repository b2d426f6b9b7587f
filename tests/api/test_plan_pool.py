"""Work over the cores: in order, and quiet when it is interrupted."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from infcalc.api.plan_search import Field

from infcalc.api.plan_pool import over_cores

FIELD = cast("Field", None)


def told(_: Field, item: int) -> tuple[int, int, bool]:
    return item, os.getpid(), signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_answers_come_in_order_whoever_gave_them() -> None:
    done: list[int] = []
    found = over_cores(FIELD, told, range(40), num_workers=2, few=1, done=done.append)
    assert [item for item, _, _ in found] == list(range(40))
    assert done == list(range(1, 41))


def test_only_the_process_that_waits_is_interrupted() -> None:
    many = over_cores(FIELD, told, range(40), num_workers=2, few=1)
    alone = over_cores(FIELD, told, range(4), num_workers=1)
    assert all(pid != os.getpid() and deaf for _, pid, deaf in many)
    assert all(pid == os.getpid() and not deaf for _, pid, deaf in alone)
