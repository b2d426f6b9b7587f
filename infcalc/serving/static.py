"""A server that forms a batch, computes its prompts, decodes to its end, and only then looks at who waits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.serving.batch import BatchRun, batch_run
from infcalc.serving.lane import CLIENTS, bound, front_end_s, latency_of, times_of
from infcalc.serving.nouns import Requests, Server, one_pace

if TYPE_CHECKING:
    from infcalc.serving.nouns import Speed
    from infcalc.serving.times import StepTimes

_ROUNDS = 60
_CLOSE = 1e-9


def static_loop(
    server: Server, asked: Requests, clients: float, *, think_time_s: float = 0.0, front_end: bool = True
) -> Speed:
    """Return the speed of clients that are served batch by batch, and whose answers come to them together."""
    latency_s = latency_of(server, asked, front_end=front_end)
    running = min(server.num_places, clients)
    lanes = min(server.num_lanes, running)
    run = _batch(server, asked, times_of(server, asked, running / lanes, num_busy=running), running / lanes)
    rate = running / max(run.makespan_s, front_end_s(server, asked, front_end=front_end) * running)
    active_s = latency_s + run.e2e_s
    # Of fewer clients each waits for all of their batch, and is away while nothing runs.
    asking = clients / (run.makespan_s + latency_s + think_time_s)
    bound_by = bound(server, running, clients) if rate <= asking else CLIENTS
    rate = min(rate, asking)
    queue_s = max(0.0, clients / rate - think_time_s - active_s)
    return _speed(
        asked,
        run,
        latency_s=latency_s,
        queue_s=queue_s,
        rate=rate,
        num_decodes=rate * max(0.0, asked.answer_tokens - 1) * run.tpot_s,
        bound_by=bound_by,
    )


def static_at_rate(server: Server, asked: Requests, requests_per_s: float, *, front_end: bool = True) -> Speed:
    """Return the steady state of requests at random: each waits for the end of the batch that it finds.

    A batch holds those that came during the one before it (bulk service: Bailey, J. R. Statist. Soc. B 16, 1954).
    """
    lanes = server.num_lanes
    times, most = times_of(server, asked, server.num_places / lanes), server.num_places / lanes
    rate, size = requests_per_s / lanes, 1.0
    for _ in range(_ROUNDS):
        run = _batch(server, asked, times, size)
        following = min(most, max(1.0, rate * run.makespan_s))
        if abs(following - size) <= _CLOSE * size:
            break
        size = following
    stable = rate * run.makespan_s < most * (1 - _CLOSE)
    busy = min(1.0, rate * run.makespan_s / size)
    rest_s = 0.5 * busy * run.makespan_s if stable else math.inf
    return _speed(
        asked,
        run,
        latency_s=latency_of(server, asked, front_end=front_end),
        queue_s=rest_s,
        rate=requests_per_s if stable else lanes * most / run.makespan_s,
        num_decodes=requests_per_s * max(0.0, asked.answer_tokens - 1) * run.tpot_s if stable else server.num_places,
        bound_by="arrivals" if stable else bound(server, server.num_places, None),
        stable=stable,
    )


def _batch(server: Server, asked: Requests, times: StepTimes, size: float) -> BatchRun:
    return batch_run(
        times,
        num_sequences=max(1.0, size),
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        context_tokens=asked.prompt_tokens + asked.cached_tokens,
        answers=asked.answers,
        budget_tokens=server.budget_tokens,
    )


def _speed(
    asked: Requests,
    run: BatchRun,
    *,
    latency_s: float,
    queue_s: float,
    rate: float,
    num_decodes: float,
    bound_by: str,
    stable: bool = True,
) -> Speed:
    ttft_s, e2e_s = latency_s + queue_s + run.ttft_s, latency_s + queue_s + run.e2e_s
    return one_pace(
        asked,
        ttft_s=ttft_s,
        tpot_s=run.tpot_s,
        e2e_s=e2e_s,
        queue_s=queue_s,
        requests_per_s=rate,
        num_decodes=num_decodes,
        bound_by=bound_by,
        stable=stable,
    )
