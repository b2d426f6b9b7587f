"""One run of a load: the choice between every step and steps in aggregate, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from infcalc.api.replicas import Policy, Seating, scheduler_of
from infcalc.api.simulation_load import kept_ids, requests_of
from infcalc.frozen import frozen
from infcalc.simulation.aggregate import in_aggregate
from infcalc.simulation.by_events import Routing, by_events
from infcalc.simulation.fast.columns import Load as Columns
from infcalc.simulation.fast.intervals import TIMES_BITS
from infcalc.simulation.fast.run import is_fast
from infcalc.simulation.fleet import Fleet
from infcalc.simulation.gathered import Gathered, StepMeter, finished_of
from infcalc.simulation.laws import check_laws
from infcalc.simulation.records import Outcome, StepRecord
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Router, RouterKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.simulation_load import Load
    from infcalc.scheduling.scheduler import Scheduler
    from infcalc.simulation.front_end import FrontEndTimes
    from infcalc.simulation.timing import StepTimer
    from infcalc.workload.trace import Ints

Progress: TypeAlias = "Callable[[int, int], None]"
"""Takes in how many requests have ended, and of how many."""
_STEPS_BETWEEN = 2048
_RESERVING = {Policy.STATIC, Policy.CONTINUOUS}


@frozen
class Setting:
    """Who serves: ``num_lanes`` alike, each with the scheduler, slots and cache of ``seating``, behind one router.

    A lane is what takes steps on its own: a replica, or one of its attention-DP ranks or micro-batches.
    """

    policy: Policy
    seating: Seating
    timer: StepTimer
    front_end: FrontEndTimes
    num_lanes: int = 1
    num_locked: int = 1
    """Lanes that step together."""
    router: RouterKind = RouterKind.ROUND_ROBIN
    contiguous: bool = False
    step_by_step: bool = False

    @property
    def reserves(self) -> bool:
        """Whether the policy keeps room for the longest answer from the start."""
        return self.policy in _RESERVING


def run_of(setting: Setting, load: Load, progress: Progress | None = None) -> Gathered:
    """Return the run of a load; one that Ctrl-C breaks off is marked ``partial``."""
    seating = seating_of(setting)
    if setting.step_by_step or setting.num_locked > 1 or not is_fast(scheduler_of(setting.policy, seating)):
        return _every_step(setting, load, progress)

    def make() -> Scheduler:
        return scheduler_of(setting.policy, seating)

    allowed = allowed_tokens(setting, load)
    columns = _columns(load, allowed)
    if load.sending.is_open and _is_split(setting):
        return in_aggregate(
            make,
            columns,
            setting.timer,
            num_lanes=setting.num_lanes,
            front_end=setting.front_end,
            progress=progress,
        )
    routing = None
    if setting.num_lanes > 1:
        routing = Routing(
            router=Router(setting.router, setting.num_lanes),
            requests=requests_of(load, allowed),
            sessions=load.sessions.tolist(),
        )
    return by_events(
        make,
        columns,
        setting.timer,
        load.sending,
        num_lanes=setting.num_lanes,
        routing=routing,
        front_end=setting.front_end,
        progress=progress,
    )


def _is_split(setting: Setting) -> bool:
    """Return whether it is known beforehand which lane gets a request of an open loop."""
    return setting.num_lanes == 1 or setting.router in {RouterKind.ROUND_ROBIN, RouterKind.SESSION}


def _columns(load: Load, allowed: Ints | None) -> Columns:
    """Return a load as steps in aggregate take it."""
    tree = None if load.sharing is None else load.sharing.tree
    return Columns(
        arrival_ps=np.array(load.sending.times_ps, dtype=np.int64),
        prompt_tokens=load.prompt_tokens,
        output_tokens=load.output_tokens,
        allowed_tokens=allowed,
        contents=None if tree is None else kept_ids(load),
        parents=() if tree is None else tree.parent_ids.tolist(),
        sizes_tokens=() if tree is None else tree.node_tokens.tolist(),
    )


def allowed_tokens(setting: Setting, load: Load) -> Ints | None:
    """Return what the engine is told to expect of each answer; None: the truth.

    Static and continuous batching keep room for the longest answer of all, as their engines keep it for the limit that
    a server sets; without paging for the longest sequence.
    """
    if not setting.reserves:
        return None
    room = load.limit_tokens - load.prompt_tokens
    return room if setting.contiguous else np.minimum(load.longest_tokens, room)


def _every_step(setting: Setting, load: Load, progress: Progress | None) -> Gathered:
    waits: list[int] = []
    seating = seating_of(setting)
    schedulers = [scheduler_of(setting.policy, seating) for _ in range(setting.num_lanes)]
    replicas = [Replica(scheduler, setting.timer, waited=waits.append) for scheduler in schedulers]
    meters = [StepMeter(scheduler.num_blocks) for scheduler in schedulers]
    num_steps = 0

    def observe(place: int, step: StepRecord) -> None:
        nonlocal num_steps
        meters[place].take(step)
        num_steps += 1
        if progress is not None and num_steps % _STEPS_BETWEEN == 0:
            progress(len(fleet.records), len(requests))

    requests = requests_of(load, allowed_tokens(setting, load))
    fleet = Fleet(
        replicas,
        requests,
        load.sending,
        router=Router(setting.router, setting.num_lanes),
        front_end=setting.front_end,
        sessions=load.sessions.tolist(),
        observe=observe,
        num_locked=setting.num_locked,
    )
    partial = False
    try:
        records = fleet.run()
    except KeyboardInterrupt:
        partial = True
    else:
        _check(requests, fleet, records)
    busy_ps = sum(door.busy_ps for door in fleet.front_ends)
    values, counts = np.unique(np.array(waits, dtype=np.int64), return_counts=True)
    # As often as it came up, one request each time.
    runs = np.stack([values, np.zeros_like(values), (counts << TIMES_BITS) + 1], axis=1)
    return Gathered(
        sent_ps=np.array([-1 if moment is None else moment for moment in fleet.sent_ps], dtype=np.int64),
        finished=finished_of(fleet.records),
        reasons={one.index: one.reason for one in fleet.records if one.outcome is Outcome.REJECTED},
        num_aborted=sum(one.outcome is Outcome.ABORTED for one in fleet.records),
        interval_runs=runs.reshape(-1),
        replicas=tuple(
            meter.totals(scheduler.num_preemptions) for meter, scheduler in zip(meters, schedulers, strict=True)
        ),
        placed=np.array([-1 if place is None else place for place in fleet.placed], dtype=np.int64),
        front_end_busy_fraction=busy_ps / max(1, fleet.now_ps) / setting.num_lanes,
        end_ps=fleet.now_ps,
        partial=partial,
    )


def _check(requests: list[Request], fleet: Fleet, records: tuple[object, ...]) -> None:
    del records
    ordered = sorted(fleet.records, key=lambda record: record.index)
    sent = [replace(request, arrival_ps=record.arrival_ps) for request, record in zip(requests, ordered, strict=True)]
    check_laws(sent, ordered)


def seating_of(setting: Setting) -> Seating:
    """Return the seating of a lane: an engine without paging has no prefix cache either."""
    seating = setting.seating
    if setting.contiguous and setting.reserves:
        return replace(seating, prefix_caching=False)
    return seating
