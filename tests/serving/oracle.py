"""A server step by step: whole requests, whole steps, and no formula of the package.

Requests come from clients that wait for answers or at random (Poisson); each lane takes prompts first in, first out.
Lanes step together (data-parallel ranks with common experts) or follow one another through the stages of a pipeline.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from infcalc.engines.pace import Order
from tests.serving.clock import CONTEXT_S, DECODE_S, FIXED_S, TOKEN_S

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(slots=True)
class One:
    """A request on its way."""

    came_s: float
    prompt: int
    answer: int
    left: int
    first_s: float = 0.0
    begun_s: float = -1.0


@dataclass(slots=True)
class Lane:
    """A scheduler of its own."""

    waiting: deque[One] = field(default_factory=deque)
    running: list[tuple[int, int, One]] = field(default_factory=list)
    """A heap, by the decode step in which the answer ends."""
    steps: int = 0
    tokens: int = 0
    decodes: bool = False
    finished: list[One] = field(default_factory=list)

    @property
    def held(self) -> int:
        return len(self.waiting) + len(self.running)


@dataclass(frozen=True, slots=True)
class Seen:
    """Means over the requests after the start."""

    ttft_s: float
    tpot_s: float
    requests_per_s: float
    e2e_s: float
    queue_s: float


@dataclass(slots=True)
class World:
    """A load on lanes; ``latency_s()`` passes between the end of an answer and the client's next request."""

    order: Order
    prompt: Callable[[], int]
    answer: Callable[[], int]
    clients: int | None = None
    rate: float | None = None
    lanes: int = 1
    stages: int = 1
    slowest_share: float | None = None
    """Of the first stage in the time of all; None: all take the same."""
    places: int = 256
    budget: int = 2048
    latency_s: Callable[[], float] = lambda: 0.0
    seed: int = 1
    most: float = math.inf
    """Requests that clients send in all."""
    count: itertools.count[int] = field(default_factory=itertools.count)

    def plan(self, lane: Lane, now: float) -> tuple[int, int, int]:
        """Return sequences in decode, tokens in their caches, and tokens of prompts of the next step."""
        number = len(lane.running)
        budget = self.budget - (number if self.order is Order.MIXED else 0)
        new = 0
        lane.finished = []
        while lane.waiting and budget > 0:
            one = lane.waiting[0]
            if one.begun_s < 0:
                if number + len(lane.finished) >= self.places:
                    break
                one.begun_s = now
            used = min(one.left, budget)
            one.left -= used
            budget -= used
            new += used
            if one.left:
                break
            lane.finished.append(lane.waiting.popleft())
        lane.decodes = bool(number) and (self.order is Order.MIXED or not new)
        return (number, lane.tokens, new) if lane.decodes else (0, 0, new)

    def close(self, lane: Lane, now: float) -> list[One]:
        """End the step of a lane; return whose answers ended in it."""
        ended: list[One] = []
        if lane.decodes:
            lane.steps += 1
            lane.tokens += len(lane.running)
            while lane.running and lane.running[0][0] <= lane.steps:
                _, _, one = heapq.heappop(lane.running)
                lane.tokens -= one.prompt + one.answer - 1
                ended.append(one)
        for one in lane.finished:
            one.first_s = now
            if one.answer <= 1:
                ended.append(one)
                continue
            heapq.heappush(lane.running, (lane.steps + one.answer - 1, next(self.count), one))
            lane.tokens += one.prompt
        lane.finished = []
        return ended

    def born(self, now: float) -> One:
        prompt = self.prompt()
        return One(now, prompt, self.answer(), prompt)

    def seen(self, number: int, warm: int) -> Seen:
        """Run until ``number`` answers have ended; the first ``warm`` are not counted."""
        chance = random.Random(self.seed)  # noqa: S311 - a simulation
        lanes = [Lane() for _ in range(self.lanes * self.stages)]
        coming: list[tuple[float, int]] = []
        if self.rate is not None:
            moment = 0.0
            for place in range(number * 2):
                moment += chance.expovariate(self.rate)
                coming.append((moment, place))
        else:
            coming = [(0.0, place) for place in range(self.clients or 1)]
        done: list[tuple[One, float]] = []
        sent = [len(coming)]

        def take_in(now: float) -> None:
            while coming and coming[0][0] <= now:
                came_s, _ = heapq.heappop(coming)
                min(lanes, key=lambda lane: lane.held).waiting.append(self.born(came_s))

        def leave(ended: list[One], now: float) -> None:
            for one in ended:
                done.append((one, now))
                if self.rate is None and sent[0] < self.most:
                    sent[0] += 1
                    heapq.heappush(coming, (now + self.latency_s(), next(self.count)))

        if self.stages == 1:
            self._together(lanes, number, take_in, leave, coming, done)
        else:
            self._in_stages(lanes, number, take_in, leave, coming, done)
        counted = done[warm:number]
        start = done[warm - 1][1] if warm else 0.0
        firsts = [one.first_s - one.came_s for one, _ in counted]
        paces = [(end - one.first_s) / (one.answer - 1) for one, end in counted if one.answer > 1]
        return Seen(
            ttft_s=sum(firsts) / len(firsts),
            tpot_s=sum(paces) / len(paces) if paces else 0.0,
            requests_per_s=len(counted) / (counted[-1][1] - start),
            e2e_s=sum(end - one.came_s for one, end in counted) / len(counted),
            queue_s=sum(one.begun_s - one.came_s for one, _ in counted) / len(counted),
        )

    def _together(  # noqa: PLR0917
        self,
        lanes: list[Lane],
        number: int,
        take_in: Callable[[float], None],
        leave: Callable[[list[One], float], None],
        coming: list[tuple[float, int]],
        done: list[tuple[One, float]],
    ) -> None:
        now = 0.0
        while len(done) < number:
            take_in(now)
            plans = [self.plan(lane, now) for lane in lanes]
            if not any(decodes or new for decodes, _, new in plans):
                now = coming[0][0]
                continue
            ranks = len(plans)
            now += together_s(plans) if ranks > 1 else step_s(*plans[0])
            for lane in lanes:
                leave(self.close(lane, now), now)

    def _in_stages(  # noqa: PLR0917
        self,
        lanes: list[Lane],
        number: int,
        take_in: Callable[[float], None],
        leave: Callable[[list[One], float], None],
        coming: list[tuple[float, int]],
        done: list[tuple[One, float]],
    ) -> None:
        free = [0.0] * self.stages
        ready = [(0.0, place) for place in range(len(lanes))]
        under_way: dict[int, bool] = {}
        while len(done) < number:
            moment, place = heapq.heappop(ready)
            lane = lanes[place]
            if under_way.pop(place, False):
                leave(self.close(lane, moment), moment)
            begin = max(moment, free[0])
            take_in(begin)
            decodes, tokens, new = self.plan(lane, begin)
            if not decodes and not new:
                # Nothing to do until somebody comes, which is at the end of another lane's step at the earliest.
                others = [at for at, other in ready if under_way.get(other)] + ([coming[0][0]] if coming else [])
                heapq.heappush(ready, (max(begin, min(others)) + 1e-9, place))
                continue
            whole = step_s(decodes, tokens, new)
            first = 1 / self.stages if self.slowest_share is None else self.slowest_share
            now = begin
            for stage in range(self.stages):
                now = max(now, free[stage]) + whole * (first if not stage else (1 - first) / (self.stages - 1))
                free[stage] = now
            under_way[place] = True
            heapq.heappush(ready, (now, place))


def step_s(decodes: int, tokens: int, new: int) -> float:
    """Return the seconds of a step of one lane."""
    return FIXED_S + DECODE_S * decodes + CONTEXT_S * tokens + TOKEN_S * new


def together_s(plans: list[tuple[int, int, int]]) -> float:
    """Return the seconds of a step of ranks with common experts, whose half of the work is shared out."""
    slowest = max(DECODE_S * decodes + CONTEXT_S * tokens + 0.5 * TOKEN_S * new for decodes, tokens, new in plans)
    shared = sum(decodes + new for decodes, _, new in plans) / len(plans)
    return FIXED_S + slowest + 0.5 * TOKEN_S * shared


def alike(tokens: int) -> Callable[[], int]:
    """Return a length that never changes."""
    return lambda: tokens


def evenly(mean: int, spread: float = 0.5, seed: int = 11) -> Callable[[], int]:
    """Return lengths that are equally likely between ``mean`` x (1 - ``spread``) and ``mean`` x (1 + ``spread``)."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    return lambda: max(1, round(mean * chance.uniform(1 - spread, 1 + spread)))


def scattered(mean: int, seed: int = 7) -> Callable[[], int]:
    """Return lengths of an exponential, 1 at least."""
    chance = random.Random(seed)  # noqa: S311 - a simulation
    return lambda: max(1, round(chance.expovariate(1 / mean)))
