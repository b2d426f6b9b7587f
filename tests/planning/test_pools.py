"""Pools of two kinds against trying everything."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from infcalc.planning.pools import Pool, cheapest_split, fewest_alike, rate_matched, transfer_s

pools = st.builds(
    Pool,
    usd_per_hour=st.floats(0.1, 50.0, allow_nan=False),
    capacity=st.floats(0.5, 60.0, allow_nan=False),
)


@given(pools, pools, st.floats(1.0, 200.0))
def test_the_cheapest_split_is_that_of_all_splits(first: Pool, second: Pool, load: float) -> None:
    split = cheapest_split(first, second, load)
    assert split is not None
    most = [max(1, math.ceil(load / one.capacity)) + 1 for one in (first, second)]
    every = [
        a * first.usd_per_hour + b * second.usd_per_hour
        for a in range(1, most[0] + 1)
        for b in range(1, most[1] + 1)
        if a * first.capacity + b * second.capacity >= load * (1 - 1e-9)
    ]
    assert split.usd_per_hour <= min(every) * (1 + 1e-9)
    assert split.num_first * first.capacity + split.num_second * second.capacity >= load * (1 - 1e-9)


@given(pools, pools, st.floats(0.1, 100.0))
def test_both_pools_keep_up_and_one_fewer_of_either_does_not(prefill: Pool, decode: Pool, rate: float) -> None:
    split = rate_matched(prefill, decode, rate)
    for number, pool in ((split.num_first, prefill), (split.num_second, decode)):
        assert number * pool.capacity >= rate * (1 - 1e-6)
        assert number == 1 or (number - 1) * pool.capacity < rate
        assert number == fewest_alike(pool, rate)


def test_sending_takes_bytes_over_speed_and_only_the_last_chunk_is_waited_for() -> None:
    whole = transfer_s(1e9, bytes_per_s=50e9, latency_s=1e-5)
    assert whole == 1e9 / 50e9 + 1e-5
    assert transfer_s(1e9, bytes_per_s=50e9, latency_s=1e-5, exposed_fraction=0.25) < whole


def test_a_pool_without_capacity_makes_no_split() -> None:
    assert cheapest_split(Pool(usd_per_hour=1.0, capacity=0.0), Pool(usd_per_hour=1.0, capacity=1.0), 5.0) is None
