"""A finite run, step by step: whole requests come, wait for a place, are prefilled, decode side by side, and leave.

Lanes that step together are followed together; of lanes that do not, one stands for all. Decode steps between two
events are taken as one. Lengths and arrivals are drawn, the same ones every time.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from typing import TYPE_CHECKING

from infcalc.engines.pace import Order
from infcalc.frozen import frozen
from infcalc.serving.chance import draws, shuffled, slices

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from infcalc.serving.steady import Work
    from infcalc.serving.times import StepTimes
    from infcalc.workload.quadrature import Node

_MOST_STEPS = 400_000
_MOST_AT_ONCE = 64
"""Decode steps that are taken as one: the context in their middle is that of all."""


@frozen
class Arrivals:
    """How the requests of a run come: ``first_s`` when the first do, each other ``away_s`` after an answer ended.

    Without clients that wait, ``first_s`` has one moment for each request. One after the other takes ``intake_s`` of
    the front end on its way to the scheduler; ``away_s`` is a mean, for no two ways are alike.
    """

    first_s: tuple[float, ...]
    num_requests: int
    away_s: float = 0.0
    intake_s: float = 0.0


class Passed:
    """One request with its moments: sent, come to the scheduler, placed, first token, end."""

    __slots__ = ("answer", "came_s", "end_s", "first_s", "left", "placed_s", "prompt", "queued_s", "sent_s")

    def __init__(self, prompt: float, answer: int) -> None:
        self.prompt, self.left, self.answer = prompt, prompt, answer
        self.sent_s = self.came_s = self.placed_s = self.first_s = self.end_s = -1.0
        self.queued_s = 0.0


class _Lane:
    """A scheduler: who waits, who decodes, and what its next step holds."""

    __slots__ = (
        "begun",
        "blocked_s",
        "finished",
        "members",
        "new",
        "running",
        "stepping",
        "steps",
        "tokens",
        "waiting",
    )

    def __init__(self) -> None:
        self.waiting: deque[Passed] = deque()
        self.running: list[tuple[int, int, Passed]] = []
        self.finished: list[Passed] = []
        self.steps = self.members = self.begun = 0
        self.tokens = self.new = 0.0
        self.blocked_s = -1.0
        self.stepping = False

    def plan(self, order: Order, budget_tokens: float, places: float, now_s: float) -> None:
        """Decide on the next step: prompts first in, first out, as far as there is room for them."""
        running = len(self.running)
        room = budget_tokens - (running if order is Order.MIXED else 0)
        self.finished, self.new = [], 0.0
        waiting, static = self.waiting, order is Order.STATIC
        if static and not running and not self.members:
            self.members = int(min(len(waiting), places))
        while waiting and room > 0 and (self.members or not static):
            one = waiting[0]
            if one.placed_s < 0:
                if running + len(self.finished) >= places:
                    self.blocked_s = now_s
                    break
                one.placed_s = now_s
                if self.blocked_s >= one.came_s:
                    one.queued_s = now_s - one.came_s
            used = min(one.left, room)
            one.left -= used
            room -= used
            self.new += used
            if one.left > 0:
                break
            self.finished.append(waiting.popleft())
            self.members -= static
        self.stepping = bool(running) and (order is Order.MIXED or not self.new)

    def close(self, steps: int, now_s: float) -> list[Passed]:
        """End so many steps; return whose answers ended."""
        ended: list[Passed] = []
        running = self.running
        if self.stepping:
            self.steps += steps
            self.tokens += len(running) * steps
            while running and running[0][0] <= self.steps:
                one = heapq.heappop(running)[2]
                self.tokens -= one.prompt + one.answer - 1
                ended.append(one)
        for one in self.finished:
            one.first_s = now_s
            if one.answer <= 1:
                ended.append(one)
            else:
                self.begun += 1
                heapq.heappush(running, (self.steps + one.answer - 1, self.begun, one))
                self.tokens += one.prompt
        self.finished = []
        return ended


class _Door:
    """Where requests come in: one after the other through the front end, the next of a client after its answer."""

    __slots__ = ("_arrivals", "_chance", "_coming", "_taken_s", "_unsent")

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals, self._chance = arrivals, draws()
        self._coming: list[tuple[float, float]] = []
        self._taken_s = 0.0
        first = arrivals.first_s[: arrivals.num_requests]
        self._unsent = arrivals.num_requests - len(first)
        for sent_s in first:
            self._take_in(sent_s)

    @property
    def next_s(self) -> float:
        """When the next one comes to the scheduler."""
        return self._coming[0][0] if self._coming else math.inf

    def until(self, moment_s: float) -> Iterator[tuple[float, float]]:
        """Yield when each one came that is there by then, and when it was sent."""
        while self._coming and self._coming[0][0] <= moment_s:
            yield heapq.heappop(self._coming)

    def answered(self, now_s: float) -> None:
        """Let a client send its next request, if there are any left."""
        if self._unsent:
            self._unsent -= 1
            self._take_in(now_s - self._arrivals.away_s * math.log(next(self._chance)))

    def _take_in(self, sent_s: float) -> None:
        self._taken_s = max(self._taken_s, sent_s) + self._arrivals.intake_s
        heapq.heappush(self._coming, (self._taken_s, sent_s))


class Followed:
    """A run of one group of lanes, from its first request to its last token."""

    def __init__(
        self,
        times: StepTimes,
        work: Work,
        arrivals: Arrivals,
        *,
        places: float,
        answers: Sequence[Node],
        cached_tokens: float,
    ) -> None:
        self._times, self._work, self._places, self._cached = times, work, places, cached_tokens
        number = arrivals.num_requests
        lengths = shuffled(answers, number)
        prompts = shuffled(slices(work.prompt_scatter), number, start=2)
        self.requests = [
            Passed(max(1.0, work.prompt_tokens * prompt), max(1, round(length)))
            for prompt, length in zip(prompts, lengths, strict=True)
        ]
        self.decode_s = 0.0
        """Seconds that requests are in decode, over all of them."""
        self.makespan_s = self._follow(arrivals)

    def _follow(self, arrivals: Arrivals) -> float:
        work, lanes = self._work, [_Lane() for _ in range(self._work.num_locked)]
        door = _Door(arrivals)
        next_one = iter(self.requests)
        left = arrivals.num_requests
        now = known_s = 0.0
        for _ in range(_MOST_STEPS):
            for came_s, sent_s in door.until(known_s):
                one = next(next_one)
                one.came_s, one.sent_s = came_s, sent_s
                target = lanes[0] if len(lanes) == 1 else min(lanes, key=_held)
                target.waiting.append(one)
            for lane in lanes:
                lane.plan(work.order, work.budget_tokens, self._places, now)
            steps, step_s = self._step(lanes, door.next_s - now)
            if not steps:
                if math.isinf(door.next_s):
                    break
                now = known_s = max(now, door.next_s)
                continue
            now += step_s
            # Steps that are scheduled ahead hold nobody who comes meanwhile.
            known_s = now - work.num_steps_ahead * step_s / steps
            for lane in lanes:
                self.decode_s += step_s * len(lane.running)
                for one in lane.close(steps, now):
                    one.end_s = now
                    left -= 1
                    door.answered(now)
            if not left:
                break
        return now

    def _step(self, lanes: list[_Lane], until_s: float) -> tuple[int, float]:
        """Return the number of steps that are taken as one, and their seconds."""
        times, work = self._times, self._work
        chunk = max(lane.new for lane in lanes)
        stepping = [lane for lane in lanes if lane.stepping]
        if not stepping:
            return (1, self._priced_s(0, 0.0, chunk, lanes)) if chunk else (0, 0.0)
        number = max(len(lane.running) for lane in stepping)
        tokens = sum(lane.tokens for lane in stepping) / sum(len(lane.running) for lane in stepping)
        context = tokens + self._cached
        if chunk:
            return 1, self._priced_s(number, context, chunk, lanes)
        steps = min(*(lane.running[0][0] - lane.steps for lane in stepping), _MOST_AT_ONCE)
        one_s = times.at(number, context)
        if until_s < steps * one_s:
            steps = min(steps, max(1, math.ceil(until_s / one_s)) + work.num_steps_ahead)
        return steps, steps * times.at(number, context + 0.5 * (steps - 1))

    def _priced_s(self, number: int, context: float, chunk: float, lanes: list[_Lane]) -> float:
        times = self._times
        found = times.at(number, context, chunk)
        if len(lanes) == 1:
            return found
        lone_s = times.lone.at(number, context, chunk)
        more = (sum(lane.new for lane in lanes) / chunk - 1) / (len(lanes) - 1)
        return lone_s + more * (found - lone_s)


def _held(lane: _Lane) -> int:
    return len(lane.waiting) + len(lane.running)
