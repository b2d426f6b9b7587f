"""Pools of two kinds: cheap replicas for a share of the load, and prefill apart from decode. Closed forms."""

from __future__ import annotations

import math

from infcalc.frozen import frozen

_NOTHING = 1e-9


@frozen
class Pool:
    """Replicas alike: what one costs, and the most of the load that one serves within all limits."""

    usd_per_hour: float
    capacity: float


@frozen
class Split:
    """How many replicas of each of two pools."""

    num_first: int
    num_second: int
    usd_per_hour: float


def cheapest_split(first: Pool, second: Pool, load: float) -> Split | None:
    """Return the cheapest numbers of two pools, at least one of each, that serve a load; None where they cannot.

    Each number of the first is tried with the fewest of the second that take the rest: exact.

    >>> cheapest_split(Pool(usd_per_hour=10.0, capacity=80.0), Pool(usd_per_hour=3.0, capacity=20.0), 100.0)
    Split(num_first=1, num_second=1, usd_per_hour=13.0)
    """
    if first.capacity <= 0 or second.capacity <= 0:
        return None
    best: Split | None = None
    for num_first in range(1, math.ceil(load / first.capacity - _NOTHING) + 1):
        rest = load - num_first * first.capacity
        num_second = max(1, math.ceil(rest / second.capacity - _NOTHING))
        usd = num_first * first.usd_per_hour + num_second * second.usd_per_hour
        if best is None or usd < best.usd_per_hour:
            best = Split(num_first=num_first, num_second=num_second, usd_per_hour=usd)
    return best


def fewest_alike(pool: Pool, load: float) -> int:
    """Return the fewest replicas of one pool that serve a load."""
    return max(1, math.ceil(load / pool.capacity - _NOTHING))


def rate_matched(prefill: Pool, decode: Pool, requests_per_s: float) -> Split:
    """Return the fewest replicas of a prefill and of a decode pool that both keep up with a rate.

    Capacities are requests per second. One pool waits for the other where their ratio is not that of whole numbers.

    >>> rate_matched(Pool(usd_per_hour=4.0, capacity=6.0), Pool(usd_per_hour=2.0, capacity=2.5), 10.0)
    Split(num_first=2, num_second=4, usd_per_hour=16.0)
    """
    num_first, num_second = fewest_alike(prefill, requests_per_s), fewest_alike(decode, requests_per_s)
    usd = num_first * prefill.usd_per_hour + num_second * decode.usd_per_hour
    return Split(num_first=num_first, num_second=num_second, usd_per_hour=usd)


def transfer_s(kv_bytes: float, *, bytes_per_s: float, latency_s: float, exposed_fraction: float = 1.0) -> float:
    """Return what handing a prompt's KV to another machine adds to its first token.

    Chunks are sent while the next are computed: of a prompt in several chunks only the last is waited for.

    A prompt of 2,048 tokens of Llama 3 70B in bf16 (327,680 bytes a token) over 50 GB/s:

    >>> round(transfer_s(2048 * 327_680, bytes_per_s=50e9, latency_s=12e-6), 5)
    0.01343
    """
    return latency_s + exposed_fraction * kv_bytes / bytes_per_s


def first_token_s(prefill_s: float, sent_s: float, queue_s: float, step_s: float) -> float:
    """Return when a user sees the first token where decode is elsewhere: when the decode replica gives it.

    >>> round(first_token_s(0.420, 0.012, 0.0, 0.018), 3)
    0.45
    """
    return prefill_s + sent_s + queue_s + step_s
