"""Loads that wait for answers, and routers that look at them: the events of the fleet, steps in aggregate.

What goes first at one moment is as in :mod:`infcalc.simulation.fleet`. In between replicas compute as many steps as
nobody can interrupt: all up to the next event where no end lets anybody send; a lone one up to its next end; else
whichever is furthest behind takes one step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import TypeAlias

import numpy as np

from infcalc.frozen import frozen
from infcalc.scheduling.scheduler import Scheduler
from infcalc.simulation.aggregate import Lane, finished_in
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.chance import AcceptanceChance, summed
from infcalc.simulation.fast.columns import Load
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.gate import gate_of, reason_of
from infcalc.simulation.fast.locked import LockedReplicas
from infcalc.simulation.fast.replica import FastReplica
from infcalc.simulation.fleet import Rank
from infcalc.simulation.front_end import FrontEnd, FrontEndTimes
from infcalc.simulation.gathered import Gathered
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Asked, Router
from infcalc.simulation.sending import Senders, Sending
from infcalc.simulation.timing import AffineTimer

_METERS = 1024
"""Readings of each replica; at more, every second one is forgotten."""
_END_OF_TIME_PS = 2**80
_NEVER = -1
_Event: TypeAlias = tuple[int, int, tuple[int, ...], int, int]
"""Moment, rank, what goes first of one rank, replica and request."""


@frozen
class Routing:
    """A router and what it looks at: the requests, and their sessions; without any, each is one of its own."""

    router: Router
    requests: Sequence[Request]
    sessions: Sequence[int] = ()

    def choose(self, index: int, loads: Sequence[int]) -> int:
        """Return the replica of a request; ``loads`` are the requests under way at each."""
        session = self.sessions[index] if self.sessions else index
        return self.router.choose(Asked(index=index, request=self.requests[index], session=session), loads)


def by_events(
    make: Callable[[], Scheduler],
    load: Load,
    timer: AffineTimer,
    sending: Sending,
    *,
    num_lanes: int = 1,
    num_locked: int = 1,
    routing: Routing | None = None,
    front_end: FrontEndTimes | None = None,
    chance: AcceptanceChance | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Gathered:
    """Serve a load, sent as ``sending`` says, by ``num_lanes`` replicas, each by the rules of a scheduler of ``make``.

    Those in groups of ``num_locked`` step together, as in a fleet. ``routing`` chooses among several; a lone one needs
    none. Ctrl-C breaks the run off: what happened so far is
    returned, marked ``partial``. ``chance``: where the schedulers draft, how many drafts of a round are accepted.

    Raises:
        ValueError: the scheduler's rules are not known in aggregate, nobody routes to several, or groups are not whole.
        AssertionError: a law is broken; never the fault of the requests.

    """
    if num_lanes > 1 and routing is None:
        raise ValueError(f"{num_lanes} replicas, and nobody chooses among them")
    if num_locked < 1 or num_lanes % num_locked:
        raise ValueError(f"{num_lanes} replicas in groups of {num_locked}")
    everybody = np.arange(len(load))
    lanes = [Lane(make(), load, timer, everybody, chance) for _ in range(num_lanes)]
    run = _Run(lanes, make(), load, sending, routing, front_end or FrontEndTimes(), num_locked)
    partial = False
    try:
        run.serve(progress)
    except KeyboardInterrupt:
        partial = True
    else:
        run.close()
    return run.gathered(partial=partial)


def _group(lanes: list[FastReplica]) -> FastReplica | LockedReplicas:
    return lanes[0] if len(lanes) == 1 else LockedReplicas(lanes)


class _Run:
    """The events of a run, and where they left everybody."""

    def __init__(  # noqa: PLR0917 - made in one place
        self,
        lanes: Sequence[Lane],
        scheduler: Scheduler,
        load: Load,
        sending: Sending,
        routing: Routing | None,
        front_end: FrontEndTimes,
        num_locked: int,
    ) -> None:
        told = load.output_tokens if load.allowed_tokens is None else load.allowed_tokens
        answers, allowed, enters = gate_of(scheduler)(load.prompt_tokens, load.output_tokens, told)
        self._prompts: list[int] = load.prompt_tokens.tolist()
        self._answers: list[int] = answers.tolist()
        self._allowed: list[int] = allowed.tolist()
        self._contents: list[int] | None = None if load.contents is None else load.contents.tolist()
        self._enters: list[bool] = enters.tolist()
        self._scheduler, self._load = scheduler, load
        self._lanes = lanes
        starts = range(0, len(lanes), num_locked)
        self._groups = [_group([lane.replica for lane in lanes[start : start + num_locked]]) for start in starts]
        """What steps on its own."""
        self._num_locked = num_locked
        self._routing = routing
        self._is_open = sending.is_open
        self._senders = Senders(sending)
        self._doors = [FrontEnd(front_end) for _ in lanes]
        self._latency_ps = front_end.latency_ps
        self._loads = [0] * len(lanes)
        self._told = [0] * len(lanes)
        """Ends of each lane that are among the events."""
        self._sent_ps = [_NEVER] * len(load)
        self._placed = [_NEVER] * len(load)
        self._now_ps = 0
        self._num_ended = 0
        self._num_made = 0
        """Counts events that send or reach: what was made first goes first."""
        self._events: list[_Event] = []

    def serve(self, progress: Callable[[int, int], None] | None) -> None:
        """Serve all requests."""
        events, total = self._events, len(self._load)
        for moment, index in self._senders.at_first():
            self._push(moment, Rank.SENT, 0, index)
        moments, every, read_ps = 0, 1, 0
        while True:
            until_ps = events[0][0] if events else _END_OF_TIME_PS
            # Where nothing happens for long, meters are read all the same.
            next_read_ps = read_ps + max(PS_PER_S // 10, read_ps // _METERS)
            if self._advance(min(until_ps, next_read_ps)):
                continue
            if next_read_ps < until_ps and any(lane.replica.has_work for lane in self._lanes):
                read_ps = next_read_ps
            elif events:
                read_ps = self._now_ps = until_ps
                while events and events[0][0] == until_ps:
                    self._happen(heappop(events))
                moments += 1
            else:
                return
            if not moments % every:
                if self._read_meters(read_ps) > _METERS:
                    every *= 2
                if progress is not None:
                    progress(self._num_ended, total)

    def _read_meters(self, moment_ps: int) -> int:
        """Read the meters; return the readings of the replica that has most."""
        for lane in self._lanes:
            lane.read(moment_ps)
        most = max(lane.num_readings for lane in self._lanes)
        if most > _METERS:
            for lane in self._lanes:
                lane.thin()
        return most

    def _happen(self, event: _Event) -> None:
        _, rank, _, place, index = event
        if rank == Rank.ENDED:
            self._ended(place, index)
        elif rank == Rank.SENT:
            self._sent(index)
        else:
            self._reached(place, index)

    def _advance(self, until_ps: int) -> bool:
        """Compute what nobody can interrupt before a moment; False where everybody is there."""
        behind = [number for number, group in enumerate(self._groups) if group.has_work and group.now_ps < until_ps]
        if not behind:
            return False
        if self._is_open:
            for number in behind:
                self._groups[number].advance(until_ps)
                self._tell_ends(number, 0, 0)
        elif len(self._groups) == 1:
            self._groups[0].advance(until_ps, to_an_end=True)
            self._tell_ends(0, 0, 0)
        else:
            number = min(behind, key=lambda one: self._groups[one].now_ps)
            group = self._groups[number]
            begin_ps, num_empty = group.now_ps, group.num_empty_steps
            group.advance(begin_ps + 1)
            self._tell_ends(number, begin_ps, group.num_empty_steps - num_empty)
        return True

    def _tell_ends(self, number: int, begin_ps: int, num_empty_steps: int) -> None:
        """Make events of the new ends of a group: of steps that end at once, the one that began first goes first."""
        first = number * self._num_locked
        for place in range(first, first + self._num_locked):
            for index, end_ps in self._lanes[place].records.ended_since(self._told[place]):
                self._told[place] += 1
                order = (begin_ps, num_empty_steps, place, self._told[place])
                heappush(self._events, (end_ps, Rank.ENDED, order, place, index))

    def _push(self, moment_ps: int, rank: Rank, place: int, index: int) -> None:
        self._num_made += 1
        heappush(self._events, (moment_ps, rank, (self._num_made,), place, index))

    def _sent(self, index: int) -> None:
        now_ps = self._sent_ps[index] = self._now_ps
        place = 0 if self._routing is None else self._routing.choose(index, self._loads)
        self._placed[index] = place
        self._loads[place] += 1
        self._push(self._doors[place].passed_ps(now_ps, self._prompts[index]), Rank.REACHED, place, index)

    def _reached(self, place: int, index: int) -> None:
        lane, now_ps, prompt = self._lanes[place], self._now_ps, self._prompts[index]
        if self._enters[index]:
            content = _NEVER if self._contents is None else self._contents[index]
            flight = Flight(index, now_ps, prompt, self._answers[index], self._allowed[index], content)
            lane.replica.receive(flight, now_ps)
        else:
            reason = reason_of(self._scheduler, index, prompt, self._load.told_tokens(index))
            lane.records.rejected(index, now_ps, now_ps, prompt, reason)
            self._ended(place, index)

    def _ended(self, place: int, index: int) -> None:
        self._num_ended += 1
        self._loads[place] -= 1
        for moment, following in self._senders.after(index, self._now_ps + self._latency_ps):
            self._push(moment, Rank.SENT, 0, following)

    def close(self) -> None:
        """Check what must hold after a run."""
        numbers = np.bincount(np.array(self._placed, dtype=np.int64), minlength=len(self._lanes)).tolist()
        for lane, number in zip(self._lanes, numbers, strict=True):
            lane.records.close(number, lane.replica)

    def gathered(self, *, partial: bool) -> Gathered:
        """Return what happened."""
        lanes = self._lanes
        end_ps = max(self._now_ps, *(lane.replica.now_ps for lane in lanes))
        return Gathered(
            sent_ps=np.array(self._sent_ps, dtype=np.int64),
            finished=finished_in(lanes),
            reasons=dict(told for lane in lanes for told in lane.reasons()),
            num_aborted=0,
            interval_runs=np.concatenate([lane.recorder.interval_runs() for lane in lanes]),
            replicas=tuple(lane.totals() for lane in lanes),
            placed=np.array(self._placed, dtype=np.int64),
            front_end_busy_fraction=sum(door.busy_ps for door in self._doors) / max(1, end_ps) / len(lanes),
            end_ps=end_ps,
            partial=partial,
            rounds=summed([lane.replica.rounds for lane in lanes]),
        )
