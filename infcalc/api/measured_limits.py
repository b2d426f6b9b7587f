"""What no machine of this kind can do under a load, whatever fits in its memory: limits that make a figure impossible.

The floors of an estimate count on the room for requests that is predicted; here as many run as were there at all.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.floors import Floors, Work, floors_of
from infcalc.api.floors import held as always_held
from infcalc.evidence.nouns import Quantity

if TYPE_CHECKING:
    from infcalc.api.speed import Run

_MANY = 65_536.0
"""Requests at once, where nothing says how many there were."""


def hard_floors(run: Run) -> Floors:
    """Return the floors of a load on a machine whose memory has room for all of its requests."""
    offer, asked = run.load.offer, run.asked
    clients = offer.batch or offer.concurrency
    most = float(clients or offer.num_requests or _MANY)
    return floors_of(
        run.machine.floors,
        Work(
            prompt_tokens=asked.prompt_tokens,
            cached_tokens=asked.cached_tokens,
            answer_tokens=asked.answer_tokens,
            num_decodes=1.0,
            num_most=most,
            num_clients=None if clients is None else float(clients),
            num_held=0.0 if offer.concurrency is None else always_held(offer.concurrency, offer.num_requests),
            think_s=offer.think_time_s,
        ),
        num_lanes=run.server.num_lanes,
        num_stages=run.machine.deployment.parallelism.pp,
    )


def hard_limit(run: Run, quantity: str, *, single: bool = False) -> float | None:
    """Return the floor of a time, or the ceiling of a rate; None of what has none. ``single``: one sequence alone."""
    floors = hard_floors(run)
    answer, prompt = run.asked.answer_tokens, run.load.prompt_tokens
    own_s = run.machine.floors.prefill_s(run.asked.prompt_tokens, run.asked.cached_tokens)
    limits = {
        Quantity.TTFT: own_s,
        Quantity.PREFILL: own_s,
        Quantity.TPOT: floors.alone_s,
        Quantity.TPOT_INCLUSIVE: floors.alone_s * max(0.0, answer - 1) / answer,
        Quantity.E2E: floors.e2e_s,
        Quantity.REQUESTS_PER_S: floors.requests_per_s,
        Quantity.OUTPUT_PER_S: floors.requests_per_s * answer,
        Quantity.TOTAL_PER_S: floors.requests_per_s * (answer + prompt),
        Quantity.INPUT_PER_S: run.asked.prompt_tokens / own_s if single else floors.requests_per_s * prompt,
        Quantity.PER_USER: 1 / floors.alone_s if floors.alone_s else math.inf,
    }
    found = limits.get(Quantity(quantity))
    return found if found and math.isfinite(found) else None
