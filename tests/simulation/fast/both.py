"""The same load step by step and in aggregate: everything that is written down of either, to compare."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence
from infcalc.scheduling.step_plan import StepPlan
from infcalc.simulation.chance import AcceptanceChance
from infcalc.simulation.fast.columns import load_of
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.run import run_fast
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.records import RequestRecord, StepRecord
from infcalc.simulation.request import Request
from infcalc.simulation.timing import AffineTimer


@dataclass(frozen=True)
class Written:
    """What a run leaves behind. ``intervals``: how often which time lay between two tokens of one request."""

    records: tuple[RequestRecord, ...]
    intervals: Counter[int]
    num_steps: int
    busy_ps: int
    held_block_ps: int
    most_held_blocks: int
    num_preemptions: int
    num_evictions: int


def plainly(
    make: Callable[[], Scheduler], load: list[Request], timer: AffineTimer, chance: AcceptanceChance | None = None
) -> Written:
    scheduler = make()
    steps: list[StepRecord] = []
    last: dict[int, int] = {}
    intervals: Counter[int] = Counter()
    update = scheduler.update

    def watched(
        plan: StepPlan, produced: Mapping[int, int], accepted: Mapping[int, int] | None = None
    ) -> tuple[Sequence, ...]:
        end_ps = steps[-1].start_ps + steps[-1].duration_ps
        for key in produced:
            if key in last:
                intervals[end_ps - last[key]] += 1
            last[key] = end_ps
        return update(plan, produced, accepted)

    scheduler.update = watched  # type: ignore[method-assign]
    records = run_step_by_step(scheduler, load, timer, chance=chance, observe=steps.append)
    computing = [step for step in steps if step.shape.num_sequences]
    return Written(
        records=records,
        intervals=intervals,
        num_steps=len(computing),
        busy_ps=sum(step.duration_ps for step in computing),
        held_block_ps=sum(step.duration_ps * step.num_held_blocks for step in computing),
        most_held_blocks=max((step.num_held_blocks for step in computing), default=0),
        num_preemptions=scheduler.num_preemptions,
        num_evictions=scheduler.kv.pool.num_evictions,  # type: ignore[attr-defined]
    )


def quickly(
    make: Callable[[], Scheduler], load: list[Request], timer: AffineTimer, chance: AcceptanceChance | None = None
) -> Written:
    recorder = Recorder()
    replica = run_fast(make(), load_of(load), timer, recorder, chance=chance)
    intervals: Counter[int] = Counter()
    for first, more, count, requests in recorder.intervals:
        for place in range(count):
            intervals[first + place * more] += requests
    return Written(
        records=recorder.records(),
        intervals=intervals,
        num_steps=replica.num_computing_steps,
        busy_ps=replica.busy_ps,
        held_block_ps=replica.held_block_ps,
        most_held_blocks=replica.most_held_blocks,
        num_preemptions=replica.num_preemptions,
        num_evictions=replica.blocks.num_evictions,
    )
