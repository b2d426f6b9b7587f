"""Runs with a start and an end: followed step by step, long ones from there on as in their steady state."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.frozen import frozen
from infcalc.serving.chance import arrivals
from infcalc.serving.lane import before_s, bound, front_end_s, times_of, work_of
from infcalc.serving.loops import at_most, at_rate, steady_loop
from infcalc.serving.nouns import Requests, Server, Speed
from infcalc.serving.run import Arrivals, Followed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.serving.loops import Saturated
    from infcalc.serving.run import Passed

_MOST_FOLLOWED = 2000
"""Requests of a group of lanes that are followed at least, if there are so many."""
_MOST_FOLLOWED_ALIKE = 40_000
"""The same, of requests of one length: many of them begin and end at once, which are few events."""
_WAVES = 3.0
"""Fillings of the house that are followed, of runs with more.

What begins together does not stay together for long: runs of 19 rounds of equal requests (vllm_fp8kv) have the first
tokens of a steady state, not those of prompts that meet each other in every round.
"""
_MIDDLE = (0.4, 0.75)
"""Shares of the followed requests between which a run is steady."""


@frozen
class Mean:
    """Means and medians of a run, and how long it lasted."""

    ttft_s: float
    ttft_median_s: float
    tpot_s: float
    tpot_median_s: float
    e2e_s: float
    e2e_median_s: float
    queue_s: float
    num_decodes: float
    makespan_s: float


def in_closed_loop(
    server: Server,
    asked: Requests,
    clients: float,
    *,
    think_time_s: float = 0.0,
    num_requests: float | None = None,
    front_end: bool = True,
) -> Speed:
    """Return the speed with ``clients`` that each send their next request when they have the answer.

    ``num_requests`` makes it a run with a start and an end, else it goes on for ever. A few rounds are followed; what
    comes after them is the steady state, and the longer the run, the more of it.
    """
    if num_requests is None:
        return steady_loop(server, asked, clients, think_time_s=think_time_s, front_end=front_end)
    clients = min(clients, num_requests)
    most = _WAVES * clients
    if num_requests <= most:
        return _from_clients(server, asked, clients, num_requests, front_end=front_end)
    steady = steady_loop(server, asked, clients, front_end=front_end)
    start = _from_clients(server, asked, clients, most, front_end=front_end)
    return _joined(start, steady, asked, followed=most, num_requests=num_requests)


def _from_clients(server: Server, asked: Requests, clients: float, num_requests: float, *, front_end: bool) -> Speed:
    groups = server.num_groups
    each = max(1, math.ceil(clients / groups - 1e-9))
    number = max(each, round(num_requests * each / clients))
    return _speed(
        server,
        asked,
        (0.0,) * each,
        number,
        num_requests=num_requests,
        clients=clients,
        front_end=front_end,
    )


def _most_followed(asked: Requests) -> int:
    return _MOST_FOLLOWED if asked.scatter or len(asked.answers) > 1 else _MOST_FOLLOWED_ALIKE


def in_burst(server: Server, asked: Requests, num_requests: float, *, front_end: bool = True) -> Speed:
    """Return the speed of requests that all come at once."""
    groups = server.num_groups
    places = server.num_places / groups
    whole = max(1, math.ceil(num_requests / groups - 1e-9))
    number = min(whole, max(_most_followed(asked), math.ceil(_WAVES * places)))
    return _speed(
        server,
        asked,
        (0.0,) * number,
        number,
        num_requests=num_requests,
        clients=None,
        front_end=front_end,
        more=whole - number,
    )


def in_open_run(
    server: Server,
    asked: Requests,
    requests_per_s: float,
    num_requests: float | None,
    *,
    front_end: bool = True,
    most: Saturated | None = None,
) -> Speed:
    """Return the speed of requests at a mean rate: of ``num_requests`` of them, or for ever.

    A run much longer than a request, at a rate the server keeps up with, is ever more the steady state and an end.
    ``most`` is the server at its most, where that is at hand.
    """
    steady = at_rate(server, asked, requests_per_s, front_end=front_end, most=most)
    if num_requests is None:
        return steady
    groups = server.num_groups
    longest = float(_MOST_FOLLOWED * groups)
    if not steady.stable:
        longest = max(longest, _WAVES * server.num_places)
    followed = min(num_requests, longest)
    number = max(1, math.ceil(followed / groups - 1e-9))
    start = _speed(
        server,
        asked,
        tuple(arrivals(number, requests_per_s / groups)),
        number,
        num_requests=followed,
        clients=None,
        front_end=front_end,
        at_rate=True,
    )
    # So few that none waits for a place never see how fast they come.
    start = replace(start, stable=steady.stable or num_requests <= server.num_places)
    if followed == num_requests:
        return start
    if steady.stable:
        return _joined(
            start,
            replace(steady, requests_per_s=requests_per_s),
            asked,
            followed=followed,
            num_requests=num_requests,
        )
    # Each request waits longer than the one before it, by as much as they come faster than they are answered.
    more = num_requests - followed
    wait_s = 0.5 * more * max(0.0, 1 / steady.requests_per_s - 1 / requests_per_s)
    rate = num_requests / (followed / start.requests_per_s + more / steady.requests_per_s)
    waits = ("ttft_s", "ttft_median_s", "e2e_s", "e2e_median_s", "queue_s")
    return replace(
        start,
        **{name: getattr(start, name) + wait_s for name in waits},
        requests_per_s=rate,
        output_tokens_per_s=rate * asked.answer_tokens,
    )


def _speed(
    server: Server,
    asked: Requests,
    first_s: tuple[float, ...],
    number: int,
    *,
    num_requests: float,
    clients: float | None,
    front_end: bool,
    at_rate: bool = False,
    more: int = 0,
) -> Speed:
    """Return the speed of a run of one group that stands for all, and of ``more`` requests that are like its middle."""
    groups = server.num_groups
    latency_s = server.pace.latency_s if front_end else 0.0
    intake_s = before_s(server, asked) * groups / server.num_front_ends if front_end else 0.0
    places = server.num_places / server.num_lanes
    most = min(places, number if at_rate or clients is None else len(first_s))
    busy = clients if clients is not None else num_requests
    run = Followed(
        times_of(server, asked, most, num_busy=busy),
        work_of(server, asked),
        Arrivals(first_s=first_s, num_requests=number, away_s=latency_s, intake_s=intake_s),
        places=max(1.0, math.floor(places + 1e-9)),
        answers=asked.answers,
        cached_tokens=asked.cached_tokens,
    )
    found = _means(
        run, more=more, each_s=groups / at_most(server, asked, front_end=False).requests_per_s if more else 0
    )
    bound_by = bound(server, min(server.num_places, num_requests, clients or math.inf), clients)
    # A front end that falls behind holds up tokens, and at the start who has yet to be taken in.
    whole_s = found.makespan_s + latency_s
    late = max(1.0, num_requests * front_end_s(server, asked, front_end=front_end) / whole_s)
    if late > 1:
        bound_by = "front end"
    at_once = 1.0 if at_rate else min(1.0, len(first_s) / number)
    firsts = late if found.e2e_s <= found.ttft_s else 1 + at_once * (late - 1)
    paces = late
    if found.e2e_s > found.ttft_s:
        paces = (found.e2e_s * late - found.ttft_s * firsts) / (found.e2e_s - found.ttft_s)
    rate = num_requests / (whole_s * late)
    return Speed(
        ttft_s=found.ttft_s * firsts + latency_s,
        ttft_median_s=found.ttft_median_s * firsts + latency_s,
        tpot_s=found.tpot_s * paces,
        tpot_median_s=found.tpot_median_s * paces,
        e2e_s=found.e2e_s * late + latency_s,
        e2e_median_s=found.e2e_median_s * late + latency_s,
        queue_s=found.queue_s * firsts,
        output_tokens_per_s=rate * asked.answer_tokens,
        requests_per_s=rate,
        num_decodes=found.num_decodes * groups,
        stable=True,
        bound_by=bound_by,
    )


def _means(run: Followed, *, more: int, each_s: float) -> Mean:
    """Return the means of a run, ``more`` of whose requests were not followed: they are like those of its middle.

    One of those ends every ``each_s``.
    """
    passed = sorted(run.requests, key=_placed)
    number = len(passed)
    early, late = (int(share * number) for share in _MIDDLE)
    growth = more / max(1, late - early)
    firsts: list[tuple[float, float]] = []
    paces: list[tuple[float, float]] = []
    wholes: list[tuple[float, float]] = []
    queues: list[tuple[float, float]] = []
    for place, one in enumerate(passed):
        inside = early <= place < late
        weight = 1 + growth if inside else 1.0
        # The later part of the queue also waits for those that were not followed.
        shift_s = more * each_s * (0.5 if inside else float(place >= late))
        firsts.append((one.first_s - one.sent_s + shift_s, weight))
        queues.append((one.queued_s + shift_s, weight))
        wholes.append((one.end_s - one.sent_s + shift_s, weight))
        if one.answer > 1:
            paces.append(((one.end_s - one.first_s) / (one.answer - 1), weight))
    return Mean(
        ttft_s=_mean(firsts),
        ttft_median_s=_median(firsts),
        tpot_s=_mean(paces),
        tpot_median_s=_median(paces),
        e2e_s=_mean(wholes),
        e2e_median_s=_median(wholes),
        queue_s=_mean(queues),
        num_decodes=run.decode_s / max(run.makespan_s, 1e-12),
        makespan_s=run.makespan_s + more * each_s,
    )


def _placed(one: Passed) -> float:
    return one.placed_s


def _joined(start: Speed, steady: Speed, asked: Requests, *, followed: float, num_requests: float) -> Speed:
    """Return the run whose first ``followed`` requests are as ``start``, and the others as ``steady``."""
    share = followed / num_requests
    rate = num_requests / (followed / start.requests_per_s + (num_requests - followed) / steady.requests_per_s)
    means = ("ttft_s", "tpot_s", "e2e_s", "queue_s", "num_decodes", "ttft_median_s", "tpot_median_s", "e2e_median_s")
    return replace(
        steady,
        **{name: share * getattr(start, name) + (1 - share) * getattr(steady, name) for name in means},
        requests_per_s=rate,
        output_tokens_per_s=rate * asked.answer_tokens,
    )


def _mean(values: Sequence[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else 0.0


def _median(values: Sequence[tuple[float, float]]) -> float:
    ordered = sorted(values)
    half = 0.5 * sum(weight for _, weight in ordered)
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return ordered[-1][0] if ordered else 0.0
