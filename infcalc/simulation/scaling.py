"""Replicas that come and go with the load: a fleet that is looked at every so often, and changed by one replica.

What is looked at is the mean over a window: requests that wait in schedulers, or the share of the cache that running
requests hold, each per replica that serves or starts. Who starts counts as empty: so does the autoscaler of Kubernetes
(`Horizontal Pod Autoscaling, algorithm details
<https://kubernetes.io/docs/tasks/run-application/horizontal-pod-autoscale/>`_: pods that are not ready count as
consuming nothing when it scales up).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from enum import StrEnum

from infcalc.frozen import frozen
from infcalc.kvcache.invariant import holds
from infcalc.simulation.fleet import Event, Fleet, Observer, Rank
from infcalc.simulation.front_end import FrontEnd, FrontEndTimes
from infcalc.simulation.records import RequestRecord
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Asked, Router
from infcalc.simulation.sending import Sending


class Gauge(StrEnum):
    """What is looked at."""

    QUEUE = "queue"
    """Requests that wait, per replica."""
    KV = "kv"
    """Share of the cache that running requests hold."""


@frozen
class ScalingRule:
    """When replicas are added and removed.

    Every ``every_ps`` the mean of the last ``window_ps`` is compared: above ``above`` one replica more starts, below
    ``below`` one is drained. Nothing changes within ``pause_ps`` or a window of the last change. A new replica takes
    requests ``start_ps`` after it was called; nobody is drained while one starts.

    Raises:
        ValueError: such a rule cannot be.

    """

    num_least: int
    num_most: int
    gauge: Gauge
    above: float
    below: float
    start_ps: int
    window_ps: int
    every_ps: int
    pause_ps: int

    def __post_init__(self) -> None:
        """Check the numbers."""
        if not 1 <= self.num_least <= self.num_most:
            raise ValueError(f"{self.num_least} to {self.num_most} replicas")
        if not 0 <= self.below < self.above:
            raise ValueError(f"removed below {self.below:g} and added above {self.above:g}: the first must be less")
        if min(self.start_ps, self.pause_ps) < 0 or self.every_ps < 1 or self.window_ps < self.every_ps:
            raise ValueError("no time is below 0, and a window spans a look at least")
        if self.window_ps % self.every_ps:
            raise ValueError("a window is a whole number of looks")

    @property
    def rest_ps(self) -> int:
        """How long nothing changes after a change: until a window has seen only what came of it, at least."""
        return max(self.window_ps, self.pause_ps)


@frozen
class Count:
    """How many replicas there are from a moment on."""

    time_ps: int
    num_serving: int
    num_starting: int
    num_draining: int

    @property
    def num_paid(self) -> int:
        """All that are there."""
        return self.num_serving + self.num_starting + self.num_draining


class Unit:
    """One replica from its call to its end; ``places`` are its lanes."""

    __slots__ = ("called_ps", "drained_ps", "ended_ps", "places", "serves_ps")

    def __init__(self, places: range, called_ps: int, serves_ps: int | None) -> None:
        self.places = places
        self.called_ps = called_ps
        self.serves_ps = serves_ps
        self.drained_ps: int | None = None
        self.ended_ps: int | None = None

    @property
    def serves(self) -> bool:
        """Whether it takes requests."""
        return self.serves_ps is not None and self.drained_ps is None

    @property
    def starts(self) -> bool:
        """Whether it was called, and takes none yet."""
        return self.serves_ps is None


class ScaledFleet(Fleet):
    """A run of requests on replicas that ``make`` makes, as lanes: ``rule.num_least`` of them serve from the beginning.

    The lanes of a replica step together in groups of ``num_locked``. Places are never used twice: a replica that starts
    again is a new one, with an empty cache.
    """

    def __init__(
        self,
        make: Callable[[], Sequence[Replica]],
        rule: ScalingRule,
        requests: Sequence[Request],
        sending: Sending,
        *,
        router: Router,
        front_end: FrontEndTimes | None = None,
        sessions: Sequence[int] = (),
        observe: Observer | None = None,
        num_locked: int = 1,
    ) -> None:
        super().__init__((), requests, sending, router=router, front_end=front_end, sessions=sessions, observe=observe)
        self.units: list[Unit] = []
        self.counts: list[Count] = []
        self._draining: list[Unit] = []
        self._make = make
        self._rule = rule
        self._times = front_end or FrontEndTimes()
        self._lanes_locked = num_locked
        self._changed_ps = 0
        self._level, self._level_ps = (0, 0), 0
        self._sums = (0, 0)
        self._looks: deque[tuple[int, int]] = deque([(0, 0)], maxlen=rule.window_ps // rule.every_ps + 1)
        for _ in range(rule.num_least):
            self._call(serves_ps=0)
        self._count()

    @property
    def replicas(self) -> Sequence[Replica]:
        """Lanes of all replicas that there ever were."""
        return self._replicas

    def run(self) -> tuple[RequestRecord, ...]:
        """Serve all requests and return their records, in the order of the requests."""
        if self._requests:
            self._push(self._rule.every_ps, Rank.CHECKED)
        return super().run()

    def paid_ps(self, first_ps: int, last_ps: int) -> int:
        """Return for how long replicas were paid between two moments, each from its call to the end of its drain."""
        return sum(
            max(0, (last_ps if one.ended_ps is None else one.ended_ps) - max(first_ps, one.called_ps))
            for one in self.units
        )

    # What happens

    def _happen(self, event: Event) -> None:
        if event.rank is Rank.STARTED:
            self.units[event.index].serves_ps = self.now_ps
            self._count()
        elif event.rank is Rank.CHECKED:
            self._look()
            self._push(self.now_ps + self._rule.every_ps, Rank.CHECKED)
        else:
            super()._happen(event)

    def _choose(self, asked: Asked) -> int:
        places = [place for one in self.units if one.serves for place in one.places]
        return self._router.choose(asked, self._loads, places)

    def _ended(self, place: int, record: RequestRecord) -> None:
        super()._ended(place, record)
        if len(self.records) == len(self._requests):
            # Nothing more comes: whoever is called and every later look are of no use.
            self._events.clear()

    def _settle(self) -> None:
        self._end_drained()

    def _note(self) -> None:
        self._sums = self._sums_now()
        watched = [one for one in self.units if one.serves]
        count = len(watched) + sum(one.starts for one in self.units)
        schedulers = [self._replicas[place].scheduler for one in watched for place in one.places]
        if self._rule.gauge is Gauge.QUEUE:
            value = sum(len(scheduler.waiting) for scheduler in schedulers)
        else:
            value = sum(scheduler.num_blocks - scheduler.kv.num_free_blocks for scheduler in schedulers)
            count *= sum(self._replicas[place].scheduler.num_blocks for place in self.units[0].places)
        self._level, self._level_ps = (value, count), self.now_ps

    def _sums_now(self) -> tuple[int, int]:
        """Return what is looked at and how many share it, each summed over time up to now."""
        lasted_ps = self.now_ps - self._level_ps
        return self._sums[0] + self._level[0] * lasted_ps, self._sums[1] + self._level[1] * lasted_ps

    # What is changed

    def _look(self) -> None:
        rule, sums = self._rule, self._sums_now()
        self._looks.append(sums)
        if self.now_ps - self._changed_ps < rule.rest_ps or len(self._looks) < (self._looks.maxlen or 0):
            return
        value, count = sums[0] - self._looks[0][0], sums[1] - self._looks[0][1]
        serving = [one for one in self.units if one.serves]
        starting = [one for one in self.units if one.starts]
        if value > rule.above * count and len(serving) + len(starting) < rule.num_most:
            self._call(serves_ps=None)
        elif value < rule.below * count and len(serving) > rule.num_least and not starting:
            # The one with the least to do is gone first; of equal ones the last that came.
            least = min(reversed(serving), key=lambda one: sum(self._loads[place] for place in one.places))
            least.drained_ps = self.now_ps
            self._draining.append(least)
        else:
            return
        self._changed_ps = self.now_ps
        self._count()

    def _call(self, *, serves_ps: int | None) -> None:
        lanes = self._make()
        first = len(self._replicas)
        self._replicas.extend(lanes)
        for _ in lanes:
            self.front_ends.append(FrontEnd(self._times))
            self._loads.append(0)
            self._busy.append(False)
            self._router.add_replica()
        if len(lanes) % self._lanes_locked:
            raise ValueError(f"{len(lanes)} lanes in groups of {self._lanes_locked}")
        last = first + len(lanes)
        self._groups += [range(one, one + self._lanes_locked) for one in range(first, last, self._lanes_locked)]
        self.units.append(Unit(range(first, last), self.now_ps, serves_ps))
        if serves_ps is None:
            self._push(self.now_ps + self._rule.start_ps, Rank.STARTED, index=len(self.units) - 1)

    def _end_drained(self) -> None:
        """End whoever is drained and has nothing left to do."""
        over = [
            one for one in self._draining if not any(self._loads[place] or self._busy[place] for place in one.places)
        ]
        for one in over:
            one.ended_ps = self.now_ps
            self._draining.remove(one)
            gone = set(one.places)
            self._groups = [group for group in self._groups if not gone.issuperset(group)]
        if over:
            self._count()

    def _count(self) -> None:
        present = [one for one in self.units if one.ended_ps is None]
        count = Count(
            time_ps=self.now_ps,
            num_serving=sum(one.serves for one in present),
            num_starting=sum(one.starts for one in present),
            num_draining=sum(one.drained_ps is not None for one in present),
        )
        if self.counts and self.counts[-1].time_ps == self.now_ps:
            self.counts.pop()
        self.counts.append(count)

    def check_laws(self) -> None:
        """Check that replicas hold nothing when they end, nor when the run does, and were as many as allowed.

        Raises:
            AssertionError: a law is broken.

        """
        for replica in self._replicas:
            scheduler = replica.scheduler
            holds(not scheduler.has_work, "nobody is left in a replica")
            holds(scheduler.kv.num_free_blocks == scheduler.num_blocks, "all blocks are given back")
        unit_of: dict[int | None, Unit] = {place: one for one in self.units for place in one.places}
        for record in self.records:
            unit = unit_of[self.placed[record.index]]
            holds(unit.serves_ps is not None and unit.serves_ps <= record.arrival_ps, "only who serves gets requests")
            holds(unit.ended_ps is None or record.end_ps <= unit.ended_ps, "nobody is lost when a replica is drained")
        holds(
            all(self._rule.num_least <= one.num_serving for one in self.counts)
            and all(one.num_serving + one.num_starting <= self._rule.num_most for one in self.counts),
            "as many replicas as allowed",
        )
