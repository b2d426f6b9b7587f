"""A server for ever under one load: clients that wait for answers, requests at random, or as many as can run."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from infcalc.engines.pace import Order
from infcalc.serving.closed import closed
from infcalc.serving.lane import CLIENTS, bound, front_end_s, latency_of, share_out, times_of, work_of
from infcalc.serving.nouns import Requests, Server, one_pace
from infcalc.serving.opened import opened
from infcalc.serving.reflected import reflected
from infcalc.serving.static import static_at_rate, static_loop
from infcalc.serving.steady import Flow, Work

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.serving.nouns import Speed
    from infcalc.serving.times import StepTimes

_NEARLY_ALL = 0.95
"""Of the devices' time, from which on prompts are what bounds a server."""
_ROUNDS = 3
_DEVIATIONS = 3.0
"""Of the number of clients that think, by which hardly fewer or more ever do (that number is Poisson's at most)."""
_LITTLE = 0.05
"""Of the time to a first token, within which a wait for a place is found."""
_MOST_HALVINGS = 8
PREFILL = "prefill"
"""What bounds a server whose steps or time are full of prompts."""


def steady_loop(
    server: Server, asked: Requests, clients: float, *, think_time_s: float = 0.0, front_end: bool = True
) -> Speed:
    """Return the steady state of so many clients, whose answers end one after the other.

    Beyond the places of the server whoever leaves one is followed at once.
    """
    if server.pace.order is Order.STATIC:
        return static_loop(server, asked, clients, think_time_s=think_time_s, front_end=front_end)
    places, latency_s = server.num_places, latency_of(server, asked, front_end=front_end)
    running, away_s = min(places, clients), think_time_s + latency_s
    each = share_out(server, running)
    times, work = times_of(server, asked, each, num_busy=running), work_of(server, asked)
    full = closed(times, work, each) if clients > places else None
    most = math.inf if full is None else full.requests_per_s * places / each
    excess = -math.inf if full is None else clients - most * away_s - places
    if full is not None and excess >= (_DEVIATIONS * math.sqrt(most * away_s) if think_time_s else 0):
        found, rate, per_lane = full, most, places / each
    else:
        # All of them find a place, if need be because others are away.
        inside = share_out(server, clients)
        per_lane = clients / inside

        def after(queue_s: float) -> Flow:
            return closed(times, work, inside, away_s=away_s + queue_s, think_time_s=think_time_s)

        found = after(0.0)
        if full is not None and think_time_s:
            found = _turned_away(server, asked, found, after, clients=clients, most=most)
            if excess >= 0 and found.requests_per_s * per_lane >= most:
                found, per_lane = full, places / each
        rate = min(most, found.requests_per_s * per_lane)
    limit = bound(server, running, clients) if rate >= most else CLIENTS
    bound_by = _bound_by(found, limit)
    each_s = front_end_s(server, asked, front_end=front_end)
    if rate * each_s > 1:
        # Requests reach the lanes at the pace of the front end, and wait before it.
        best = closed(times, work, each)
        rate, bound_by = 1 / each_s, "front end"
        found = opened(times, work, rate / per_lane, best) or found
    return _steady(
        asked,
        latency_s=latency_s,
        found=found,
        queue_s=_waiting_s(clients / rate - away_s, _active_s(found, work)),
        rate=rate,
        num_decodes=found.num_decodes * rate / found.requests_per_s,
        bound_by=bound_by,
    )


def _turned_away(
    server: Server,
    asked: Requests,
    found: Flow,
    after: Callable[[float], Flow],
    *,
    clients: float,
    most: float,
) -> Flow:
    """Return the lane of clients that are too many for all of them to be inside: at times few think, and some wait.

    ``after`` gives the lane by the wait for a place, ``found`` is that without any. The longer it is, the fewer others
    are inside.
    """

    def wait_s(lane: Flow) -> float:
        rate = min(most, lane.requests_per_s * scale)
        spare = max(most - rate, _NOTHING * most)
        running = lane.num_requests * rate / lane.requests_per_s
        random_s = _place_wait_s(running, server.num_places, spare_per_s=spare, scatter=asked.answer_scatter)
        return reflected(random_s, rate / (rate + spare), clients / rate).wait_s

    scale = clients / share_out(server, clients)
    low_s, high_s = 0.0, wait_s(found)
    for _ in range(_MOST_HALVINGS):
        if high_s - low_s <= _LITTLE * (low_s + found.prefill_s + found.wait_s):
            break
        queue_s = 0.5 * (low_s + high_s)
        found = after(queue_s)
        following_s = wait_s(found)
        low_s, high_s = (
            (queue_s, min(high_s, following_s)) if following_s > queue_s else (max(low_s, following_s), queue_s)
        )
    return found


def at_most(server: Server, asked: Requests, *, front_end: bool = True) -> Speed:
    """Return the speed where more requests wait than find a place; their wait for one is not counted."""
    return Saturated.of(server, asked).speed(front_end=front_end)


class Saturated(NamedTuple):
    """A server all of whose places are always taken."""

    server: Server
    asked: Requests
    times: StepTimes
    work: Work
    found: Flow
    each: float
    """Requests of a lane."""

    @classmethod
    def of(cls, server: Server, asked: Requests) -> Saturated:
        """Return the server with as many requests as it has places."""
        each = share_out(server, server.num_places)
        times, work = times_of(server, asked, each, num_busy=server.num_places), work_of(server, asked)
        return cls(server, asked, times, work, closed(times, work, each), each)

    @property
    def requests_per_s(self) -> float:
        """What its lanes answer."""
        return self.found.requests_per_s * self.server.num_places / self.each

    def speed(self, *, front_end: bool = True) -> Speed:
        """Return its speed; the wait for a place is not counted."""
        server, asked, found = self.server, self.asked, self.found
        if server.pace.order is Order.STATIC:
            return static_loop(server, asked, server.num_places, front_end=front_end)
        rate = self.requests_per_s
        bound_by = _bound_by(found, bound(server, server.num_places, None))
        each_s = front_end_s(server, asked, front_end=front_end)
        if rate * each_s > 1:
            found = opened(self.times, self.work, found.requests_per_s / (rate * each_s), found) or found
            rate, bound_by = 1 / each_s, "front end"
        return _steady(
            asked,
            latency_s=latency_of(server, asked, front_end=front_end),
            found=found,
            queue_s=0.0,
            rate=rate,
            num_decodes=found.num_decodes * rate / found.requests_per_s,
            bound_by=bound_by,
        )


def at_rate(
    server: Server, asked: Requests, requests_per_s: float, *, front_end: bool = True, most: Saturated | None = None
) -> Speed:
    """Return the steady state of requests that arrive at random at a mean rate; ``stable`` False beyond saturation.

    ``most`` is the server at its most, where that is at hand.
    """
    if server.pace.order is Order.STATIC:
        return static_at_rate(server, asked, requests_per_s, front_end=front_end)
    best = most or Saturated.of(server, asked)
    each_s = front_end_s(server, asked, front_end=front_end)
    load = requests_per_s * each_s
    found = _opened(best, requests_per_s)
    if found is None or load >= 1:
        speed = best.speed(front_end=front_end)
        return replace(
            speed,
            ttft_s=math.inf,
            ttft_median_s=math.inf,
            e2e_s=math.inf,
            e2e_median_s=math.inf,
            queue_s=math.inf,
            stable=False,
        )
    # The front end is a queue of its own with one server.
    front_s = latency_of(server, asked, front_end=front_end) + 0.5 * each_s * load / max(1e-9, 1 - load)
    number = requests_per_s / found.requests_per_s
    queue_s = _place_wait_s(
        number * found.num_requests,
        server.num_places,
        spare_per_s=best.requests_per_s - requests_per_s,
        scatter=asked.answer_scatter,
    )
    return _steady(
        asked,
        latency_s=front_s,
        found=found,
        queue_s=queue_s,
        rate=requests_per_s,
        num_decodes=found.num_decodes * number,
        bound_by="arrivals",
    )


def _opened(best: Saturated, requests_per_s: float) -> Flow | None:
    """Return the lane at a rate: the fewer lanes are busy with it, the sooner each of them is through."""
    server, asked, work = best.server, best.asked, best.work
    times, rate = best.times, requests_per_s / server.num_lanes
    if rate >= best.requests_per_s / server.num_lanes:
        return None
    found = opened(times, work, rate, best.found)
    if found is None or server.num_coupled == 1:
        return found
    for _ in range(_ROUNDS):
        busy = _busy_lanes(server, found, work)
        times = times_of(server, asked, best.each, num_busy=busy)
        following = opened(times, work, rate, best.found)
        if following is None:
            return found
        found = following
    return found


def _busy_lanes(server: Server, found: Flow, work: Work) -> float:
    """Return the lanes that are busy besides one that is: of a pipeline those that make the same mean time of a round.

    A round takes the longer of one lane's way through all stages and the turns of all busy lanes at the slowest stage.
    """
    used = -math.expm1(-found.num_requests)
    if server.num_stages == 1:
        return 1 + (server.num_lanes - 1) * used
    others, step = server.num_stages - 1, {"num_decodes": 1 + found.num_decodes, "context_tokens": work.context_tokens}
    share = float(server.full_clock.step_s(**step) / server.clock.step_s(**step)) / server.num_stages
    mean = sum(
        math.comb(others, number) * used**number * (1 - used) ** (others - number) * max(1.0, share * (1 + number))
        for number in range(others + 1)
    )
    return server.num_groups * server.num_locked * max(1.0, mean / share if mean > 1 else 1.0)


def _bound_by(found: Flow, otherwise: str) -> str:
    return PREFILL if found.crowded or found.prefill_share > _NEARLY_ALL else otherwise


def _waiting_s(whole_s: float, active_s: float) -> float:
    """Return what is left of a turn: nothing, where it is less than numbers can tell."""
    return whole_s - active_s if whole_s > active_s * (1 + _NOTHING) else 0.0


_NOTHING = 1e-9


def _active_s(found: Flow, work: Work) -> float:
    return found.prefill_s + found.wait_s + work.decode_tokens * found.tpot_s


def _steady(
    asked: Requests,
    *,
    latency_s: float,
    found: Flow,
    queue_s: float,
    rate: float,
    num_decodes: float,
    bound_by: str,
) -> Speed:
    ttft_s = latency_s + queue_s + found.wait_s + found.prefill_s
    e2e_s = ttft_s + max(0.0, asked.answer_tokens - 1) * found.tpot_s
    return one_pace(
        asked,
        ttft_s=ttft_s,
        tpot_s=found.tpot_s,
        e2e_s=e2e_s,
        queue_s=queue_s,
        requests_per_s=rate,
        num_decodes=num_decodes,
        bound_by=bound_by,
    )


def _place_wait_s(running: float, places: float, *, spare_per_s: float, scatter: float) -> float:
    """Return the wait for a free place where requests come at random: it grows without end as no rate is to spare.

    Sakasegawa (Ann. Inst. Statist. Math. 29, 1977) for many servers, with the share of places that are taken in the
    place of their use, for a server with few requests answers them sooner; ``scatter`` is the squared coefficient of
    variation of the answers.
    """
    share = min(1.0, running / places)
    return math.pow(share, math.sqrt(2 * (places + 1)) - 1) * 0.5 * (1 + scatter) / spare_per_s
