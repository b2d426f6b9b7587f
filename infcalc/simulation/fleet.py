"""One replica or several behind a router, every step computed: :mod:`infcalc.simulation.oracle` for any load.

One queue of events, ordered by time, rank and serial number. At one moment steps end first, then transfers and
starts, then requests are sent, then they reach a scheduler, and then replicas that stand still begin a step.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import IntEnum
from heapq import heappop, heappush

from infcalc.frozen import frozen
from infcalc.simulation.front_end import FrontEnd, FrontEndTimes
from infcalc.simulation.records import RequestRecord, StepRecord
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import MOST_REQUESTS, Request
from infcalc.simulation.routing import Asked, Router
from infcalc.simulation.sending import Senders, Sending


class Rank(IntEnum):
    """What goes first at one moment."""

    ENDED = 0
    LANDED = 1
    """The cache of a request is where it is read."""
    STARTED = 2
    """A replica takes requests from now on."""
    CHECKED = 3
    """Whoever scales looks at the replicas."""
    SENT = 4
    REACHED = 5


@frozen
class Event:
    """Something that happens: a step of replica ``replica`` ends, or request ``index`` is sent or reaches it."""

    time_ps: int
    rank: Rank
    serial: int
    replica: int = 0
    index: int = 0

    def __lt__(self, other: Event) -> bool:
        """Return whether it happens first."""
        return (self.time_ps, self.rank, self.serial) < (other.time_ps, other.rank, other.serial)


Observer = Callable[[int, StepRecord], None]
"""Takes in the replica and the step that it begins."""


class Fleet:
    """A run of ``requests``; ``sending`` says when each is sent, whatever their own times say.

    Replicas in groups of ``num_locked`` begin and end their steps together, each as late as the longest: so do the
    ranks of a mixture of experts, which exchange tokens in every layer.

    What happened so far stands in ``records``, in the order of ending, in ``sent_ps`` and in ``now_ps``: a run that is
    broken off has them too.
    """

    def __init__(
        self,
        replicas: Sequence[Replica],
        requests: Sequence[Request],
        sending: Sending,
        *,
        router: Router,
        front_end: FrontEndTimes | None = None,
        sessions: Sequence[int] = (),
        observe: Observer | None = None,
        num_locked: int = 1,
    ) -> None:
        if num_locked < 1 or len(replicas) % num_locked:
            raise ValueError(f"{len(replicas)} replicas in groups of {num_locked}")
        if len(requests) > MOST_REQUESTS:
            raise ValueError(f"{len(requests)} requests: at most {MOST_REQUESTS} can be told apart")
        if len(requests) != len(sending.times_ps):
            raise ValueError(f"{len(requests)} requests, and times for {len(sending.times_ps)}")
        times = front_end or FrontEndTimes()
        self.records: list[RequestRecord] = []
        self.sent_ps: list[int | None] = [None] * len(requests)
        self.now_ps = 0
        self.front_ends = [FrontEnd(times) for _ in replicas]
        self.placed: list[int | None] = [None] * len(requests)
        """The replica of each request."""
        self._replicas = list(replicas)
        self._requests = requests
        self._senders = Senders(sending)
        self._router = router
        self._latency_ps = times.latency_ps
        self._sessions = sessions
        self._groups: list[Sequence[int]] = [
            range(first, first + num_locked) for first in range(0, len(replicas), num_locked)
        ]
        self._observe = observe
        self._loads = [0] * len(replicas)
        self._busy = [False] * len(replicas)
        self._events: list[Event] = []
        self._num_events = 0

    def run(self) -> tuple[RequestRecord, ...]:
        """Serve all requests and return their records, in the order of the requests."""
        for moment, index in self._senders.at_first():
            self._push(moment, Rank.SENT, index=index)
        events = self._events
        while events:
            self.now_ps = now = events[0].time_ps
            while events and events[0].time_ps == now:
                self._happen(heappop(events))
            self._settle()
            for group in self._groups:
                if not any(self._busy[place] for place in group):
                    self._begin(group)
            self._note()
        return tuple(sorted(self.records, key=lambda record: record.index))

    def _settle(self) -> None:
        """Do what follows from all that happened at one moment, before steps begin."""

    def _note(self) -> None:
        """Look at what holds until the next moment."""

    def _push(self, time_ps: int, rank: Rank, *, replica: int = 0, index: int = 0) -> None:
        self._num_events += 1
        heappush(self._events, Event(time_ps=time_ps, rank=rank, serial=self._num_events, replica=replica, index=index))

    def _happen(self, event: Event) -> None:
        match event.rank:
            case Rank.ENDED:
                self._busy[event.replica] = False
                self._end_step(event.replica)
            case Rank.SENT:
                self._sent(event.index)
            case Rank.REACHED:
                self._reached(event.replica, event.index)
            case Rank.LANDED | Rank.STARTED | Rank.CHECKED:
                raise AssertionError(f"{event} in a fleet of fixed replicas")

    def _end_step(self, place: int) -> None:
        for record in self._replicas[place].end(self.now_ps):
            self._ended(place, record)

    def _reached(self, place: int, index: int) -> None:
        request = replace(self._requests[index], arrival_ps=self.now_ps)
        refused = self._replicas[place].receive(index, request, self.now_ps)
        if refused is not None:
            self._ended(place, refused)

    def _sent(self, index: int) -> None:
        self.sent_ps[index] = self.now_ps
        request = self._requests[index]
        session = self._sessions[index] if len(self._sessions) else index
        place = self._choose(Asked(index=index, request=request, session=session))
        self.placed[index] = place
        self._loads[place] += 1
        reached_ps = self.front_ends[place].passed_ps(self.now_ps, request.prompt_tokens)
        self._push(reached_ps, Rank.REACHED, replica=place, index=index)

    def _choose(self, asked: Asked) -> int:
        return self._router.choose(asked, self._loads)

    def _ended(self, place: int, record: RequestRecord) -> None:
        self._loads[place] -= 1
        self.records.append(record)
        for moment, index in self._senders.after(record.index, record.end_ps + self._latency_ps):
            self._push(moment, Rank.SENT, index=index)

    def _begin(self, group: Sequence[int]) -> None:
        begun = [(place, step) for place in group if (step := self._replicas[place].begin(self.now_ps)) is not None]
        longest_ps = max((step.duration_ps for _, step in begun), default=0)
        for place, step in begun:
            if self._observe is not None:
                self._observe(place, replace(step, duration_ps=longest_ps))
            self._busy[place] = True
            self._push(self.now_ps + longest_ps, Rank.ENDED, replica=place)
