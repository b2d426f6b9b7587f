"""One run of a load: the choice between every step and steps in aggregate, and what it leaves behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import numpy as np

from infcalc.api.replicas import Policy, Seating, scheduler_of
from infcalc.api.simulation_load import kept_ids, requests_of
from infcalc.frozen import frozen
from infcalc.simulation.aggregate import in_aggregate
from infcalc.simulation.by_events import Routing, by_events
from infcalc.simulation.chance import summed
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
    from collections.abc import Callable, Sequence

    from infcalc.api.simulation_load import Load
    from infcalc.scheduling.scheduler import Scheduler
    from infcalc.simulation.chance import AcceptanceChance
    from infcalc.simulation.front_end import FrontEndTimes
    from infcalc.simulation.records import RequestRecord
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
    keep_requests: bool = True
    """Where steps are in aggregate: whether anybody asks for each request."""
    chance: AcceptanceChance | None = None
    """How many drafts of a round are accepted; None: nothing is drafted."""

    @property
    def reserves(self) -> bool:
        """Whether the policy keeps room for the longest answer from the start."""
        return self.policy in _RESERVING

    @property
    def num_slots(self) -> int:
        """Requests that may run at once on all lanes."""
        return self.num_lanes * self.seating.max_num_seqs


def run_of(setting: Setting, load: Load, progress: Progress | None = None) -> Gathered:
    """Return the run of a load; one that Ctrl-C breaks off is marked ``partial``."""
    seating = seating_of(setting)
    if setting.step_by_step or not is_fast(scheduler_of(setting.policy, seating)):
        return _every_step(setting, load, progress)

    def make() -> Scheduler:
        return scheduler_of(setting.policy, seating)

    allowed = allowed_tokens(setting, load)
    columns = _columns(load, allowed)
    if load.sending.is_open and setting.num_locked == 1 and _is_split(setting):
        return in_aggregate(
            make,
            columns,
            setting.timer,
            num_lanes=setting.num_lanes,
            front_end=setting.front_end,
            chance=setting.chance,
            progress=progress,
            keep_requests=setting.keep_requests,
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
        num_locked=setting.num_locked,
        routing=routing,
        front_end=setting.front_end,
        chance=setting.chance,
        progress=progress,
    )


def _is_split(setting: Setting) -> bool:
    """Return whether it is known beforehand which lane gets a request of an open loop."""
    return setting.num_lanes == 1 or setting.router in {RouterKind.ROUND_ROBIN, RouterKind.SESSION}


def _columns(load: Load, allowed: Ints | None) -> Columns:
    """Return a load as steps in aggregate take it."""
    tree = None if load.sharing is None else load.sharing.tree
    return Columns(
        arrival_ps=np.asarray(load.sending.times_ps, dtype=np.int64),
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
    seating = seating_of(setting)
    requests = requests_of(load, allowed_tokens(setting, load))
    books = Books(len(requests), progress)
    replicas = [
        books.opened(
            Replica(
                scheduler_of(setting.policy, seating),
                setting.timer,
                waited=books.waits.append,
                chance=setting.chance,
            )
        )
        for _ in range(setting.num_lanes)
    ]
    fleet = Fleet(
        replicas,
        requests,
        load.sending,
        router=Router(setting.router, setting.num_lanes),
        front_end=setting.front_end,
        sessions=load.sessions.tolist(),
        observe=books.observe,
        num_locked=setting.num_locked,
    )
    return books.gathered(fleet, requests)


_Served = TypeVar("_Served", bound=Replica)


class Books:
    """What is written down while a fleet computes every step; ``gathered`` runs it and closes the books."""

    def __init__(self, num_requests: int, progress: Progress | None) -> None:
        self.waits: list[int] = []
        self.replicas: list[Replica] = []
        self._num_requests = num_requests
        self._progress = progress
        self._num_steps = 0
        self._records: Sequence[RequestRecord] = ()
        self._meters: list[StepMeter] = []

    def opened(self, replica: _Served) -> _Served:
        """Return a replica with which steps are counted under the next place."""
        self.replicas.append(replica)
        self._meters.append(StepMeter(replica.scheduler.num_blocks))
        return replica

    def observe(self, place: int, step: StepRecord) -> None:
        """Take in a step."""
        self._meters[place].take(step)
        self._num_steps += 1
        if self._progress is not None and self._num_steps % _STEPS_BETWEEN == 0:
            self._progress(len(self._records), self._num_requests)

    def gathered(self, fleet: Fleet, requests: list[Request]) -> Gathered:
        """Return the run of a fleet; one that Ctrl-C breaks off is marked ``partial``."""
        self._records = fleet.records
        partial = False
        try:
            records = fleet.run()
        except KeyboardInterrupt:
            partial = True
        else:
            _check(requests, fleet, records)
        busy_ps = sum(door.busy_ps for door in fleet.front_ends)
        values, counts = np.unique(np.array(self.waits, dtype=np.int64), return_counts=True)
        # As often as it came up, one request each time.
        runs = np.stack([values, np.zeros_like(values), (counts << TIMES_BITS) + 1], axis=1)
        return Gathered(
            sent_ps=np.array([-1 if moment is None else moment for moment in fleet.sent_ps], dtype=np.int64),
            finished=finished_of(fleet.records),
            reasons={one.index: one.reason for one in fleet.records if one.outcome is Outcome.REJECTED},
            num_aborted=sum(one.outcome is Outcome.ABORTED for one in fleet.records),
            interval_runs=runs.reshape(-1),
            replicas=tuple(
                meter.totals(replica.scheduler.num_preemptions)
                for meter, replica in zip(self._meters, self.replicas, strict=True)
            ),
            placed=np.array([-1 if place is None else place for place in fleet.placed], dtype=np.int64),
            front_end_busy_fraction=busy_ps / max(1, fleet.now_ps) / len(fleet.front_ends),
            end_ps=fleet.now_ps,
            partial=partial,
            rounds=summed([replica.rounds for replica in self.replicas]),
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
