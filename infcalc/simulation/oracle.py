"""The plain simulation: every step of one replica, one after another, by the real components."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from infcalc.scheduling.scheduler import Scheduler
from infcalc.simulation.batch_shape import Timer
from infcalc.simulation.chance import AcceptanceChance
from infcalc.simulation.laws import check_laws
from infcalc.simulation.records import RequestRecord, StepRecord
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import MOST_REQUESTS, Request


def run_step_by_step(
    scheduler: Scheduler,
    requests: Sequence[Request],
    timer: Timer,
    *,
    chance: AcceptanceChance | None = None,
    observe: Callable[[StepRecord], None] | None = None,
) -> tuple[RequestRecord, ...]:
    """Serve ``requests`` with a fresh ``scheduler`` and return their records, in the order of the requests.

    They arrive by time, those of one moment in the order given. What happens at one moment happens in this order: a
    step ends, requests arrive, the next step begins. A replica without work waits for the next arrival. ``observe`` is
    called with each step as it begins; a step that only takes blocks back has no chunks and takes no time. ``chance``
    is how many drafts are accepted, where the scheduler drafts.

    Raises:
        ValueError: more requests than have token ids of their own.
        AssertionError: a law of :mod:`infcalc.simulation.laws` is broken; never the fault of the requests.

    """
    if len(requests) > MOST_REQUESTS:
        raise ValueError(f"{len(requests)} requests: at most {MOST_REQUESTS} can be told apart")
    replica = Replica(scheduler, timer, chance=chance)
    coming = sorted(range(len(requests)), key=lambda index: requests[index].arrival_ps)
    coming.reverse()
    records: list[RequestRecord] = []
    now_ps = 0
    while coming or scheduler.has_work:
        if not scheduler.has_work:
            now_ps = max(now_ps, requests[coming[-1]].arrival_ps)
        while coming and requests[coming[-1]].arrival_ps <= now_ps:
            index = coming.pop()
            rejected = replica.receive(index, requests[index], now_ps)
            if rejected is not None:
                records.append(rejected)
        step = replica.begin(now_ps)
        if step is not None:
            if observe is not None:
                observe(step)
            now_ps += step.duration_ps
            records.extend(replica.end(now_ps))
    records.sort(key=lambda record: record.index)
    check_laws(requests, records, scheduler)
    return tuple(records)
