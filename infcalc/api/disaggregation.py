"""Prefill and decode in pools of their own, from a deployment to a run; :mod:`infcalc.api.plain_beside` compares it."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING

import numpy as np

from infcalc.api.deployment import resolve
from infcalc.api.disaggregation_ask import Shared
from infcalc.api.disaggregation_nouns import Disaggregation, LinkUse, PoolUse
from infcalc.api.offering import limit_of
from infcalc.api.replicas import Policy, Seating, scheduler_of
from infcalc.api.simulation_load import requests_of
from infcalc.api.simulation_machine import machinery_of, seats_of
from infcalc.api.simulation_nouns import Use
from infcalc.api.simulation_runs import Books, Setting
from infcalc.api.speed import site_of
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.memory.kv import kv_components
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.disaggregated import DisaggregatedFleet, Pools
from infcalc.simulation.link import Link, Payload
from infcalc.simulation.pools import DecodeReplica, Handover, PrefillReplica
from infcalc.simulation.routing import Router
from infcalc.simulation.summary import summary_of

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask
    from infcalc.api.disaggregation_ask import PoolsAsk
    from infcalc.api.simulation_ask import SimulationAsk
    from infcalc.api.simulation_load import Load
    from infcalc.api.simulation_machine import Machinery, Seats
    from infcalc.api.simulation_runs import Progress
    from infcalc.api.speed import Site
    from infcalc.scheduling.scheduler import Scheduler
    from infcalc.simulation.gathered import Gathered, Totals
    from infcalc.simulation.timing import StepTimer
    from infcalc.workload.trace import Trace

NETWORK_BYTES_PER_S = 50e9
"""Of one GPU: a card of 400 Gb/s each, as servers of eight H100 or H200 have."""
NETWORK_ORIGIN = "default: a network card of 400 Gb/s for each GPU of a prefill replica"
_RESERVED_TOKENS = 512
"""``num_reserved_decode_tokens`` of SGLang 0.5."""
HANDOVERS = {
    Policy.VLLM: Handover(computes_first=True),
    Policy.SGLANG: Handover(room_first=True, reserved_tokens=_RESERVED_TOKENS),
    Policy.TENSORRT_LLM: Handover(to_the_end=True),
}


@frozen
class Side:
    """One pool: a deployment, how many replicas of it, and what serves in each."""

    site: Site
    num_replicas: int
    seats: Seats
    machinery: Machinery | None

    @property
    def num_lanes(self) -> int:
        """Parts of all its replicas that take steps on their own."""
        return self.num_replicas * self.seats.lanes_per_replica

    @property
    def num_locked(self) -> int:
        """Lanes that step together."""
        deployment = self.site.deployment
        return deployment.parallelism.dp if deployment.model.has_experts else 1

    @property
    def num_gpus(self) -> int:
        """Of one replica."""
        return self.site.deployment.parallelism.num_gpus


@frozen
class PoolsPlace:
    """Both pools and the link between them."""

    asked: PoolsAsk
    prefill: Side
    decode: Side
    bytes_per_s: float
    """Of one link."""
    link_origin: str
    payload: Payload
    mean_tokens: int
    """Of prompt and answer."""

    @property
    def num_gpus(self) -> int:
        """Of both pools."""
        return sum(side.num_replicas * side.num_gpus for side in (self.prefill, self.decode))

    @property
    def missing_bytes(self) -> int:
        """What is missing per GPU, in the pool where more is."""
        return max(self.prefill.seats.missing_bytes, self.decode.seats.missing_bytes)


@frozen
class PoolsSetting(Setting):
    """Who serves in pools. The lanes of the base are those of both; its seating and timer are those of decode."""

    place: PoolsPlace

    @property
    def num_slots(self) -> int:
        """Requests that may run at once in both pools."""
        return sum(side.num_lanes * side.seats.seating.max_num_seqs for side in (self.place.prefill, self.place.decode))


def setting_of(setting: Setting, place: PoolsPlace) -> PoolsSetting:
    """Return a setting with two pools in place of its lanes."""
    return PoolsSetting(**{field.name: getattr(setting, field.name) for field in fields(Setting)}, place=place)


def spread(site: Site, ask: Ask) -> Site:
    """Return the same model on the same GPU, as another ask spreads it.

    Raises:
        UsageError: the model cannot be split so.

    """
    here = site.deployment
    for deployment in resolve(ask, site.catalog):
        if (deployment.model.name, deployment.gpu.name) == (here.model.name, here.gpu.name):
            return site_of(ask, deployment, site.catalog)
    raise AssertionError("the same ask names the same deployments")


def _with_tp(site: Site, tp: int | None, option: str) -> Site:
    if tp is None:
        return site
    ask = replace(site.ask, tp=tp, num_gpus=tp * (site.ask.pp or 1) * (site.ask.dp or 1))
    try:
        return spread(site, ask)
    except UsageError as wrong:
        raise UsageError(wrong.message, place=option, hint=wrong.hint) from None


def pools_place(site: Site, asked: SimulationAsk, pools: PoolsAsk, trace: Trace) -> PoolsPlace:
    """Return the pools as the requests of a trace find them."""
    prompts, answers = float(trace.input_tokens.mean()), float(trace.output_tokens.mean())
    prefill = _side(_with_tp(site, pools.prefill_tp, "--prefill-tp"), asked, pools.num_prefill, prompts + 1)
    decode = _side(_with_tp(site, pools.decode_tp, "--decode-tp"), asked, pools.num_decode, prompts + answers)
    # What was computed elsewhere is found nowhere else: SGLang turns its tree off on decode replicas.
    seats = replace(decode.seats, seating=replace(decode.seats.seating, prefix_caching=False))
    deployment = site.deployment
    parts = kv_components(deployment.model, site.form, with_mtp=deployment.with_mtp)
    given = pools.link.bytes_per_s
    senders = prefill.num_gpus * (pools.num_prefill if pools.link.shared is Shared.POOL else 1)
    return PoolsPlace(
        asked=pools,
        prefill=prefill,
        decode=replace(decode, seats=seats),
        bytes_per_s=NETWORK_BYTES_PER_S * senders if given is None else given,
        link_origin=NETWORK_ORIGIN if given is None else "given (--kv-link)",
        payload=Payload(parts=parts),
        mean_tokens=_within(site, prompts + answers),
    )


def _within(site: Site, tokens: float) -> int:
    return min(limit_of(site.deployment), max(2, round(tokens)))


def _side(site: Site, asked: SimulationAsk, num_replicas: int, mean_tokens: float) -> Side:
    seats = seats_of(site, asked, _within(site, mean_tokens))
    machinery = None if seats.missing_bytes else machinery_of(site)
    return Side(site=site, num_replicas=num_replicas, seats=seats, machinery=machinery)


def run_pools(setting: PoolsSetting, load: Load, progress: Progress | None) -> tuple[Gathered, Disaggregation]:
    """Return the run of a load on pools, and what is said of the hand-over."""
    place = setting.place
    requests = requests_of(load)
    books = Books(len(requests), progress)
    prefill = [
        books.opened(PrefillReplica(*_engine(setting.policy, place.prefill), waited=books.waits.append))
        for _ in range(place.prefill.num_lanes)
    ]
    decode = [
        books.opened(DecodeReplica(*_engine(setting.policy, place.decode), waited=books.waits.append))
        for _ in range(place.decode.num_lanes)
    ]
    pools = Pools(
        prefill,
        decode,
        _links(place),
        handover=HANDOVERS[setting.policy],
        payload=place.payload,
        num_locked=(place.prefill.num_locked, place.decode.num_locked),
    )
    fleet = DisaggregatedFleet(
        pools,
        requests,
        load.sending,
        router=Router(setting.router, len(prefill)),
        front_end=setting.front_end,
        sessions=load.sessions.tolist(),
        observe=books.observe,
    )
    gathered = books.gathered(fleet, requests)
    if not gathered.partial:
        fleet.check_laws()
    return gathered, _told(place, fleet, gathered, setting.front_end.latency_ps)


def _engine(policy: Policy, side: Side) -> tuple[Scheduler, StepTimer]:
    if side.machinery is None:
        raise AssertionError("what does not fit runs nothing")
    return scheduler_of(policy, side.seats.seating), side.machinery.timer


def _links(place: PoolsPlace) -> list[Link]:
    link = place.asked.link
    number = 1 if link.shared is Shared.POOL else place.prefill.num_replicas
    latency_ps = round(link.latency_s * PS_PER_S)
    links = [Link(bytes_per_s=round(place.bytes_per_s), latency_ps=latency_ps) for _ in range(number)]
    lanes = place.prefill.seats.lanes_per_replica
    return [links[lane // lanes % number] for lane in range(place.prefill.num_lanes)]


def _told(place: PoolsPlace, fleet: DisaggregatedFleet, gathered: Gathered, latency_ps: int) -> Disaggregation:
    first = int(gathered.sent_ps[gathered.sent_ps >= 0].min(initial=gathered.end_ps))
    lasted_ps = gathered.end_ps - first
    done = set(gathered.finished.indices.tolist())
    moved = [one for one in fleet.transfers if one.index in done]
    landed = np.array([one.landed_ps for one in moved], dtype=np.int64)
    sent = gathered.sent_ps[np.array([one.index for one in moved], dtype=np.int64)]
    computed = np.array([one.computed_ps for one in moved], dtype=np.int64)
    links = fleet.pools.distinct_links
    lanes = place.prefill.num_lanes
    return Disaggregation(
        num_gpus=place.num_gpus,
        prefill=_use(place.prefill, gathered.replicas[:lanes], lasted_ps),
        decode=_use(place.decode, gathered.replicas[lanes:], lasted_ps),
        link=LinkUse(
            bytes_per_s=place.bytes_per_s,
            latency_s=place.asked.link.latency_s,
            shared=str(place.asked.link.shared),
            num_links=len(links),
            num_transfers=len(fleet.transfers),
            sent_bytes=sum(link.sent_bytes for link in links),
            utilization_fraction=sum(link.busy_ps for link in links) / len(links) / lasted_ps if lasted_ps else 0.0,
        ),
        transfer_s=summary_of(landed - np.array([one.sent_ps for one in moved], dtype=np.int64)),
        room_wait_s=summary_of(np.array([one.room_ps - one.ready_ps for one in moved], dtype=np.int64)),
        prefill_done_s=summary_of(computed - sent + latency_ps),
        handover_s=summary_of(landed - computed),
    )


def _use(side: Side, totals: tuple[Totals, ...], lasted_ps: int) -> PoolUse:
    seating: Seating = side.seats.seating
    blocks = sum(one.num_blocks for one in totals)
    held, live = (sum(getattr(one.end, name) for one in totals) for name in ("held_block_ps", "live_ps"))
    span = max(1, lasted_ps)
    return PoolUse(
        num_replicas=side.num_replicas,
        num_gpus=side.num_gpus,
        tp=side.site.deployment.parallelism.tp,
        cache_tokens=seating.cache_tokens,
        max_num_seqs=seating.max_num_seqs,
        num_slots=side.num_lanes * seating.max_num_seqs,
        busy_fraction=sum(one.busy_ps for one in totals) / len(totals) / span,
        kv_usage_fraction=Use(
            mean=held / blocks / span, max=max(one.most_held_blocks / one.num_blocks for one in totals)
        ),
        slot_utilization_fraction=live / (side.num_lanes * seating.max_num_seqs) / span,
        steps=sum(one.num_steps for one in totals),
        preemptions=sum(one.num_preemptions for one in totals),
    )
