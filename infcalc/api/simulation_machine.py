"""From a deployment to who serves in a simulation: lanes, seats, step times, front end, and what they cost."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.ledger import deployment_ledger
from infcalc.api.offering import limit_of
from infcalc.api.replicas import Seating, step_timer
from infcalc.api.speed import machine_of
from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.front_end import FrontEndTimes

if TYPE_CHECKING:
    from infcalc.api.costing import Rent, Terms
    from infcalc.api.offer import Figure
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.speed import Machine, Site
    from infcalc.simulation.timing import StepTimer

_HOUR_S = 3600


@frozen
class Seats:
    """What memory and the engine leave to each lane of a deployment, and what is missing for one request.

    A lane is a part of a replica that takes steps on its own: an attention-DP rank, or one of the micro-batches of a
    pipeline, which share the cache of a rank in equal parts here.
    """

    seating: Seating
    lanes_per_replica: int
    missing_bytes: int


@frozen
class Machinery:
    """The steps of a lane and the front end, with what they rest on. ``pace`` is 1 with the band of a step's time."""

    machine: Machine
    timer: StepTimer
    front_end: FrontEndTimes
    pace: Figure


def seats_of(site: Site, asked: SimulationAsk, mean_total_tokens: int) -> Seats:
    """Return the seats of a deployment for requests of a mean length."""
    deployment = site.deployment
    parallelism = deployment.parallelism
    book = deployment_ledger(
        replace(deployment, max_model_len=mean_total_tokens), site.form, context_tokens=mean_total_tokens
    )
    # The engine counts its cache in sequences of the length that it was started with.
    own = deployment_ledger(deployment, site.form, context_tokens=mean_total_tokens)
    slots = deployment.max_num_seqs if asked.num_slots is None else asked.num_slots
    seating = Seating(
        cache_tokens=own.kv_cache_tokens // parallelism.pp,
        block_tokens=own.block_tokens,
        max_num_seqs=max(1, slots // parallelism.pp),
        budget_tokens=deployment.max_num_batched_tokens,
        max_model_len=limit_of(deployment),
        prefix_caching=asked.prefix_caching,
    )
    return Seats(
        seating=seating,
        lanes_per_replica=parallelism.dp * parallelism.pp,
        missing_bytes=0 if book.fits else book.missing_bytes,
    )


def machinery_of(site: Site) -> Machinery:
    """Return what times the steps of a deployment that fits."""
    machine = machine_of(site)
    pace = machine.pace.value
    front = FrontEndTimes(
        request_ps=round(pace.request_s * PS_PER_S),
        prompt_token_ps=round(pace.prompt_token_s * PS_PER_S),
        latency_ps=round(pace.latency_s * PS_PER_S),
    )
    return Machinery(
        machine=machine,
        timer=step_timer(machine, in_blocks=True),
        front_end=front,
        pace=machine.bands.figure("tpot_s", 1.0),
    )


def usd_per_s(rent: Rent | None, terms: Terms, num_gpus: int) -> float | None:
    """Return what so many GPUs cost in a second; None without a price."""
    if rent is None:
        return None
    return rent.usd_per_hour * num_gpus / _HOUR_S / terms.utilization_fraction
