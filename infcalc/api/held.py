"""A speed held within what physics allows: what an estimate prints, and what is scored against measurements."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.floors import FloorClock, Floors, Work, floors_of
from infcalc.api.floors import held as always_held
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.serving.server import Loading, Requests, Server, Speed

_GUARD_SLACK = 1e-6


@frozen
class Held:
    """A speed that no physics forbids, the floors of its load, and what had to be raised to them."""

    speed: Speed
    floors: Floors
    raised: tuple[str, ...]


def held(
    clock: FloorClock, server: Server, requests: Requests, load: Loading, speed: Speed, *, num_stages: int
) -> Held:
    """Return a speed within the floors of its load."""
    clients = load.batch or load.num_clients
    most = min(server.num_places, float(clients or math.inf))
    floors = floors_of(
        clock,
        Work(
            prompt_tokens=requests.prompt_tokens,
            cached_tokens=requests.cached_tokens,
            answer_tokens=requests.answer_tokens,
            num_decodes=min(speed.num_decodes, most),
            num_most=most,
            num_prompts=most if load.batch is not None and load.batch <= server.num_places else 1.0,
            num_clients=None if clients is None else float(clients),
            num_held=0.0 if load.num_clients is None else always_held(load.num_clients, load.num_requests),
            think_s=load.think_time_s,
        ),
        num_lanes=server.num_lanes,
        num_stages=num_stages,
    )
    guarded, raised = _guarded(speed, requests, floors)
    return Held(speed=guarded, floors=floors, raised=raised)


def _guarded(speed: Speed, requests: Requests, floors: Floors) -> tuple[Speed, tuple[str, ...]]:
    """Return a speed that no physics forbids, and what had to be raised to its floor."""
    raised = []
    steps = max(0.0, requests.answer_tokens - 1)
    tpot_s = max(speed.tpot_s, floors.tpot_s) if steps else speed.tpot_s
    ttft_s, e2e_s = max(speed.ttft_s, floors.ttft_s), max(speed.e2e_s, floors.e2e_s)
    rate = min(speed.requests_per_s, floors.requests_per_s)
    for name, before, after in (
        ("ttft_s", speed.ttft_s, ttft_s),
        ("tpot_s", speed.tpot_s, tpot_s),
        ("e2e_s", speed.e2e_s, e2e_s),
        ("requests_per_s", speed.requests_per_s, rate),
    ):
        if math.isfinite(before) and abs(after - before) > _GUARD_SLACK * before:
            raised.append(f"{name}: the model gave {before:.4g}, beyond what the hardware allows; {after:.4g} taken")
    return (
        replace(
            speed,
            ttft_s=ttft_s,
            ttft_median_s=max(speed.ttft_median_s, floors.ttft_s),
            tpot_s=tpot_s,
            tpot_median_s=max(speed.tpot_median_s, floors.tpot_s) if steps else speed.tpot_median_s,
            e2e_s=e2e_s,
            e2e_median_s=max(speed.e2e_median_s, floors.e2e_s),
            requests_per_s=rate,
            output_tokens_per_s=min(speed.output_tokens_per_s, rate * requests.answer_tokens),
        ),
        tuple(raised),
    )
