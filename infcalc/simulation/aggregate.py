"""An open load on replicas alike, steps in aggregate: which replica gets what is known before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from infcalc.scheduling.scheduler import Scheduler
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.fast.columns import Ints, Load
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.gate import gate_of, reason_of
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.replica import FastReplica
from infcalc.simulation.fast.run import replica_of
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.gathered import Finished, Gathered, Meter, Totals
from infcalc.simulation.timing import AffineTimer

_METERS = 256


def in_aggregate(
    make: Callable[[], Scheduler],
    load: Load,
    timer: AffineTimer,
    *,
    num_lanes: int = 1,
    front_end: FrontEndTimes | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Gathered:
    """Serve a load by ``num_lanes`` replicas that take requests in turn, each by the rules of a scheduler of ``make``.

    Ctrl-C breaks it off: what happened so far is returned, marked ``partial``.

    Raises:
        ValueError: the scheduler's rules are not known in aggregate.
        AssertionError: a law is broken; never the fault of the requests.

    """
    times = front_end or FrontEndTimes()
    order = np.argsort(load.arrival_ps, kind="stable")
    placed = np.empty(len(load), dtype=np.int64)
    placed[order] = np.arange(len(load)) % num_lanes
    lanes: list[Lane] = []
    busy_ps = 0
    partial = False
    for number in range(num_lanes):
        chosen = np.flatnonzero(placed == number)
        reached_ps, work_ps = reached(load.arrival_ps[chosen], load.prompt_tokens[chosen], times)
        busy_ps += work_ps
        mine = replace(
            load,
            arrival_ps=reached_ps,
            prompt_tokens=load.prompt_tokens[chosen],
            output_tokens=load.output_tokens[chosen],
            allowed_tokens=None if load.allowed_tokens is None else load.allowed_tokens[chosen],
            contents=None if load.contents is None else load.contents[chosen],
        )
        lane = Lane(make(), mine, timer, chosen)
        lanes.append(lane)
        try:
            lane.run(progress, sum(len(one) for one in lanes[:-1]), len(load))
        except KeyboardInterrupt:
            partial = True
            break
    # A run that is broken off ends where its first unfinished lane does; what others did after that is not told apart.
    end_ps = max(lane.replica.now_ps for lane in lanes)
    return Gathered(
        sent_ps=np.where(load.arrival_ps <= end_ps, load.arrival_ps, -1) if partial else load.arrival_ps,
        finished=finished_in(lanes),
        reasons={int(lane.chosen[one.index]): one.reason for lane in lanes for one in lane.recorder.rejections},
        num_aborted=0,
        interval_runs=np.concatenate([lane.recorder.interval_runs() for lane in lanes]),
        replicas=tuple(lane.totals() for lane in lanes),
        placed=placed,
        front_end_busy_fraction=busy_ps / max(1, end_ps) / num_lanes,
        end_ps=end_ps,
        partial=partial,
    )


def reached(sent_ps: Ints, prompt_tokens: Ints, times: FrontEndTimes) -> tuple[Ints, int]:
    """Return when each request leaves the front end, and the time of all its work: what a ``FrontEnd`` does, at once.

    Source: Lindley's recursion, as sums and a running greatest.
    """
    order = np.argsort(sent_ps, kind="stable")
    work = times.request_ps + times.prompt_token_ps * prompt_tokens[order]
    done = np.cumsum(work)
    free = np.maximum.accumulate(sent_ps[order] - (done - work)) if len(work) else done
    found = np.empty_like(sent_ps)
    found[order] = free + done
    return found, int(done[-1]) if len(done) else 0


class Lane:
    """One replica and the requests that it gets."""

    def __init__(self, scheduler: Scheduler, load: Load, timer: AffineTimer, chosen: Ints) -> None:
        self.recorder = Recorder()
        self.replica: FastReplica = replica_of(scheduler, load, timer, self.recorder)
        self.chosen = chosen
        self._scheduler = scheduler
        self._load = load
        self._curve = [Meter(now_ps=0)]

    def __len__(self) -> int:
        """Return the number of its requests."""
        return len(self._load)

    def run(self, progress: Callable[[int, int], None] | None, before: int, total: int) -> None:
        """Serve all requests; a meter is read every so many of them."""
        replica, load, recorder = self.replica, self._load, self.recorder
        advance, receive = replica.advance, replica.receive
        every = max(1, len(load) // _METERS)
        for place, (index, arrival, prompt, answer, allowed, content, enters) in enumerate(
            load.rows(gate_of(self._scheduler))
        ):
            if replica.now_ps < arrival:
                advance(arrival)
            if not place % every:
                self.read(arrival)
                if progress is not None:
                    progress(before + recorder.num_finished, total)
            if enters:
                receive(Flight(index, arrival, prompt, answer, allowed, content), arrival)
            else:
                reason = reason_of(self._scheduler, index, prompt, load.told_tokens(index))
                recorder.rejected(index, arrival, max(arrival, replica.now_ps), prompt, reason)
        while replica.has_work:
            advance(replica.now_ps + max(PS_PER_S // 10, replica.now_ps // _METERS))
            self.read(replica.now_ps)
            if progress is not None:
                progress(before + recorder.num_finished, total)
        recorder.close(len(load), replica)

    def read(self, moment_ps: int) -> None:
        """Read the meter at the replica's moment and at another; one that is not later than the last is left out."""
        replica = self.replica
        for now_ps in (replica.now_ps, moment_ps):
            if now_ps > self._curve[-1].now_ps:
                self._curve.append(
                    Meter(now_ps=now_ps, held_block_ps=replica.held_block_ps, live_ps=replica.running_ps)
                )

    @property
    def num_readings(self) -> int:
        """How often the meter was read."""
        return len(self._curve)

    def thin(self) -> None:
        """Forget every second reading."""
        del self._curve[1::2]

    def totals(self) -> Totals:
        """Return the sums up to here."""
        self.read(self.replica.now_ps)
        replica = self.replica
        last = Meter(now_ps=self._curve[-1].now_ps, held_block_ps=replica.held_block_ps, live_ps=replica.running_ps)
        return Totals(
            num_blocks=replica.blocks.num_blocks,
            most_held_blocks=replica.most_held_blocks,
            num_steps=replica.num_computing_steps,
            busy_ps=replica.busy_ps,
            num_preemptions=replica.num_preemptions,
            curve=(*self._curve[:-1], last),
        )


def finished_in(lanes: Sequence[Lane]) -> Finished:
    """Return the requests that got their answer in any of the lanes, in the order of the requests."""
    columns = [lane.recorder.columns() for lane in lanes]
    indices = np.concatenate([lane.chosen[one["index"]] for lane, one in zip(lanes, columns, strict=True)])
    order = np.argsort(indices, kind="stable")

    def column(name: str) -> Ints:
        found: Ints = np.concatenate([one[name] for one in columns])[order]
        return found

    return Finished(
        indices=indices[order],
        reached_ps=column("arrival_ps"),
        scheduled_ps=column("scheduled_ps"),
        first_token_ps=column("first_token_ps"),
        last_token_ps=column("last_token_ps"),
        end_ps=column("end_ps"),
        prompt_tokens=column("prompt_tokens"),
        output_tokens=column("output_tokens"),
        hit_tokens=column("hit_tokens"),
        num_preemptions=column("num_preemptions"),
    )
