"""The queue of few against the exact queue of machines that break down, and its limits."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infcalc.serving.reflected import reflected


def repaired(machines: int, away_s: float, number: int = 60_000) -> tuple[float, float]:
    """Return wait and use of a server that takes 1 s of each of so many, who come ``away_s`` after on average."""
    chance = random.Random(3)  # noqa: S311 - a simulation
    coming = [chance.expovariate(1 / away_s) for _ in range(machines)]
    free = waited = 0.0
    heapq.heapify(coming)
    for _ in range(number):
        came = heapq.heappop(coming)
        begin = max(free, came)
        waited += begin - came
        free = begin + 1
        heapq.heappush(coming, free + chance.expovariate(1 / away_s))
    return waited / number, number / free


@pytest.mark.parametrize("machines", [5, 20, 100, 400])
@pytest.mark.parametrize("asked", [0.5, 0.8, 1.0, 1.2])
def test_a_queue_of_few_is_that_of_machines_under_repair(machines: int, asked: float) -> None:
    # Of work that takes 1 s each, as long as a server at random would make wait that is used as much (M/D/1).
    away_s = machines / asked
    wait_s, used = repaired(machines, away_s)
    mine = used * (machines - 1) / machines
    turn_s = away_s + 1 + wait_s
    found = reflected(0.5 * mine / (1 - mine), mine, turn_s)
    if used < 0.99:
        assert found.wait_s == pytest.approx(wait_s, rel=0.2, abs=0.15)
    else:
        # Then the rate is that of the server, and those wait who are nowhere else.
        assert found.wait_s < wait_s * 1.2


@given(used=st.floats(0.01, 0.999), wait_s=st.floats(1e-3, 1e3))
def test_many_who_come_seldom_wait_as_at_random(used: float, wait_s: float) -> None:
    found = reflected(wait_s, used, 1e12)
    assert found.wait_s == pytest.approx(wait_s, rel=1e-3)
    assert found.drained_s(1.0) == pytest.approx(1 / (1 - used), rel=1e-2)


@given(used=st.floats(0.01, 0.999), wait_s=st.floats(1e-3, 1e3), turn_s=st.floats(1e-2, 1e6))
def test_few_never_wait_longer_than_many(used: float, wait_s: float, turn_s: float) -> None:
    found = reflected(wait_s, used, turn_s)
    assert 0 <= found.wait_s <= wait_s
    assert found.wait_s <= reflected(wait_s, used, 10 * turn_s).wait_s * (1 + 1e-9)
    assert 0 < found.drained_s(1.0) <= 1 / (1 - used) * (1 + 1e-9)
    assert math.isfinite(found.more_slack_per_s)


def test_nobody_waits_where_nothing_is_asked() -> None:
    assert reflected(0.0, 0.5, 10.0).wait_s == 0.0
