"""An open load on replicas alike, steps in aggregate: which replica gets what is known before anything runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from infcalc.scheduling.scheduler import Scheduler
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.fast.columns import Ints, Load
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.gate import gate_of, reason_of
from infcalc.simulation.fast.moments import UNFINISHED, MomentRecorder
from infcalc.simulation.fast.recorder import Recorder
from infcalc.simulation.fast.replica import FastReplica
from infcalc.simulation.fast.run import replica_of
from infcalc.simulation.front_end import FrontEndTimes
from infcalc.simulation.gathered import COLUMNS, Finished, Gathered, Meter, Totals
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
    keep_requests: bool = True,
) -> Gathered:
    """Serve a load by ``num_lanes`` replicas that take requests in turn, each by the rules of a scheduler of ``make``.

    Without ``keep_requests`` four moments of each are all that is kept: see :mod:`infcalc.simulation.fast.moments`.

    Ctrl-C breaks it off: what happened so far is returned, marked ``partial``.

    Raises:
        ValueError: the scheduler's rules are not known in aggregate.
        AssertionError: a law is broken; never the fault of the requests.

    """
    times = front_end or FrontEndTimes()
    placed = _placed(load, num_lanes)
    lanes: list[Lane] = []
    busy_ps = 0
    partial = False
    for number in range(num_lanes):
        chosen = np.flatnonzero(placed == number)
        mine = load if num_lanes == 1 else _part(load, chosen)
        reached_ps, work_ps = reached(mine.arrival_ps, mine.prompt_tokens, times)
        busy_ps += work_ps
        lane = Lane(make(), replace(mine, arrival_ps=reached_ps), timer, chosen, keep_requests=keep_requests)
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
        reasons={int(lane.chosen[index]): reason for lane in lanes for index, reason in lane.reasons()},
        num_aborted=0,
        interval_runs=np.concatenate([lane.recorder.interval_runs() for lane in lanes]),
        replicas=tuple(lane.totals() for lane in lanes),
        placed=placed,
        front_end_busy_fraction=busy_ps / max(1, end_ps) / num_lanes,
        end_ps=end_ps,
        partial=partial,
    )


def _placed(load: Load, num_lanes: int) -> Ints:
    """Return the replica of each request: in turn, as they come."""
    placed = np.zeros(len(load), dtype=np.int64)
    if num_lanes > 1:
        placed[np.argsort(load.arrival_ps, kind="stable")] = np.arange(len(load)) % num_lanes
    return placed


def _part(load: Load, chosen: Ints) -> Load:
    return replace(
        load,
        arrival_ps=load.arrival_ps[chosen],
        prompt_tokens=load.prompt_tokens[chosen],
        output_tokens=load.output_tokens[chosen],
        allowed_tokens=None if load.allowed_tokens is None else load.allowed_tokens[chosen],
        contents=None if load.contents is None else load.contents[chosen],
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

    def __init__(
        self, scheduler: Scheduler, load: Load, timer: AffineTimer, chosen: Ints, *, keep_requests: bool = True
    ) -> None:
        self.recorder: Recorder | MomentRecorder = Recorder() if keep_requests else MomentRecorder(load)
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

    def reasons(self) -> Iterator[tuple[int, str]]:
        """Yield the requests that were refused, with the reason."""
        if isinstance(self.recorder, MomentRecorder):
            yield from self.recorder.reasons.items()
        else:
            yield from ((one.index, one.reason) for one in self.recorder.rejections)

    def finished(self) -> Finished:
        """Return the requests that got their answer, by their places among those of all lanes."""
        recorder, load = self.recorder, self._load
        if not isinstance(recorder, MomentRecorder):
            one = recorder.columns()
            order = np.argsort(one["index"], kind="stable")
            columns = {name: one[field][order] for name, field in COLUMNS.items() if name != "indices"}
            return Finished(indices=self.chosen[one["index"][order]], **columns)
        moments = recorder.moments()
        answer_tokens, _, _ = gate_of(self._scheduler)(load.prompt_tokens, load.output_tokens, load.told())
        whole = recorder.num_finished == len(load)
        done = slice(None) if whole else np.flatnonzero(moments["end_ps"] != UNFINISHED)
        return Finished(
            indices=self.chosen[done],
            reached_ps=load.arrival_ps[done],
            prompt_tokens=load.prompt_tokens[done],
            output_tokens=answer_tokens[done],
            hit_tokens=np.array([recorder.hit_tokens], dtype=np.int64),
            num_preemptions=np.zeros(0, dtype=np.int64),
            **{name: column[done] for name, column in moments.items()},
        )


def finished_in(lanes: Sequence[Lane]) -> Finished:
    """Return the requests that got their answer in any of the lanes, in the order of the requests."""
    parts = [lane.finished() for lane in lanes]
    if len(parts) == 1:
        return parts[0]
    indices = np.concatenate([one.indices for one in parts])
    order = np.argsort(indices, kind="stable")

    def column(name: str) -> Ints:
        found: Ints = np.concatenate([getattr(one, name) for one in parts])
        # A sum, or nothing, where requests are not kept.
        return found[order] if len(found) == len(order) else found

    return Finished(**{name: column(name) for name in COLUMNS})
