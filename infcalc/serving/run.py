"""A finite run of one lane, as a flow: requests enter as there is room, decode side by side, and leave.

Time is cut into stretches of equal decode steps. In each, what has arrived and finds room is admitted, its prompts are
woven into the steps, and the answers that end there leave. Start, steady part and the emptying end all follow; numbers
of requests are not whole. A run of many waves is followed until its pace is steady and continued from there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.engines.pace import Order
from infcalc.frozen import frozen
from infcalc.serving.steady import Work, woven_step_s

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.serving.times import StepTimes
    from infcalc.workload.quadrature import Node

_STRETCHES = 32
"""Stretches of a mean answer."""
_WAVES = 5.0
"""Fillings of the house that are followed."""
_LEAST = 1e-6
_MOST_STRETCHES = 6000
_MOST_COHORTS = 200
_MIDDLE = (0.4, 0.75)
"""Shares of the followed requests between which a run is steady: what goes on is like those."""
_MOST_BUSY = 0.9
_MOST_BUSY_ALIKE = 0.5
"""Use of a step's room up to which prompts queue by chance; beyond, the queue is that of the flow itself.

Answers of one length end at the pace at which their prompts were computed: there is little chance in that.
"""
_CLUMPED = 3.0
"""Times the steady number that comes in a stretch, from which on requests come together."""


@frozen
class RunResult:
    """A finite run: times of its requests, mean and median, and its makespan."""

    ttft_s: float
    ttft_median_s: float
    tpot_s: float
    tpot_median_s: float
    e2e_s: float
    e2e_median_s: float
    queue_s: float
    makespan_s: float
    requests_per_s: float
    num_decodes: float
    """Mean over what was followed."""


@frozen
class Arrivals:
    """How the requests of a run come: all at once, from ``num_clients`` that wait for answers, or at a mean rate."""

    num_requests: float
    num_clients: float | None = None
    requests_per_s: float | None = None

    def by(self, now_s: float, num_done: float) -> float:
        """Return how many have come."""
        if self.requests_per_s is not None:
            return min(self.num_requests, self.requests_per_s * now_s + 1)
        return self.num_requests if self.num_clients is None else min(self.num_requests, self.num_clients + num_done)

    @property
    def at_once(self) -> bool:
        """Whether all come at the start."""
        return self.num_clients is None and self.requests_per_s is None


@frozen
class _Cohort:
    """Requests that were admitted together."""

    num_before: int
    """Stretches that were decoded before they begin."""
    num_requests: float
    came_s: float
    admitted_s: float
    first_token_s: float


def finite_run(
    times: StepTimes,
    work: Work,
    arrivals: Arrivals,
    *,
    max_running: float,
    answers: Sequence[Node],
    prompt_and_cached_tokens: float,
) -> RunResult:
    """Return the run of all requests; ``max_running`` is what memory and the engine admit at once.

    ``answers`` are weights and lengths of the answers.
    """
    places = min(max_running, arrivals.num_clients or max_running)
    followed = arrivals.num_requests
    if arrivals.requests_per_s is None:
        followed = min(followed, max(_WAVES * places, 1.0))
    flow = _Flow(
        times,
        work,
        Arrivals(num_requests=followed, num_clients=arrivals.num_clients, requests_per_s=arrivals.requests_per_s),
        places=places,
        answers=answers,
        first_context_tokens=prompt_and_cached_tokens,
    )
    flow.follow()
    return _result(flow, arrivals)


class _Flow:
    """The state of a run as it is followed."""

    __slots__ = (
        "admitted",
        "answers",
        "arrivals",
        "busy_s",
        "cohorts",
        "done",
        "ends",
        "filling",
        "first_context_tokens",
        "freed",
        "leaving",
        "now_s",
        "places",
        "running",
        "stretch",
        "stretch_steps",
        "times",
        "tokens",
        "work",
    )

    def __init__(
        self,
        times: StepTimes,
        work: Work,
        arrivals: Arrivals,
        *,
        places: float,
        answers: Sequence[Node],
        first_context_tokens: float,
    ) -> None:
        self.times, self.work, self.arrivals, self.places = times, work, arrivals, places
        self.answers = tuple(answers)
        self.first_context_tokens = first_context_tokens
        self.stretch_steps = max(1.0, max(1.0, work.decode_tokens) / _STRETCHES)
        self.now_s = self.admitted = self.done = self.running = self.tokens = self.busy_s = 0.0
        self.stretch = 0
        self.leaving: dict[int, float] = {}
        self.freed: dict[int, float] = {}
        self.cohorts: list[_Cohort] = []
        self.ends: list[tuple[float, float]] = [(0.0, 0.0)]
        """Requests done and the time at the end of each stretch."""
        # What comes at the very start finds an empty house and fills it; its prompts are computed one after the other.
        self.filling = 0.0
        if arrivals.requests_per_s is None:
            self.filling = min(places, arrivals.num_requests) * 0.999

    def follow(self) -> None:
        """Run to the end: the last request is done when the flow holds less than half of one."""
        last = self.arrivals.num_requests - min(0.5, 0.01 * self.arrivals.num_requests)
        for _ in range(_MOST_STRETCHES):
            if self.done >= last:
                return
            room = max(
                0.0,
                min(self.places - self.running, self.arrivals.by(self.now_s, self.done) - self.admitted),
            )
            if self.running < _LEAST:
                self._start(room)
            else:
                self._go_on(room)

    def _start(self, room: float) -> None:
        """Fill an empty house with as many prompts as one step takes; without any, wait for the next."""
        prompt = self.work.prompt_tokens
        entering = min(room, max(1.0, self.work.budget_tokens / prompt))
        if entering < _LEAST:
            rate = self.arrivals.requests_per_s or 1.0
            self.now_s = max(self.now_s, self.admitted / rate) + _LEAST
            return
        new = entering * prompt
        chunk = min(new, self.work.budget_tokens)
        taken_s = new / chunk * self.times.at(0, self.first_context_tokens, chunk)
        self._admit(entering, begins=self.stretch, first_token_s=self.now_s + taken_s)
        self.now_s += taken_s
        self._join(entering)

    def _go_on(self, room: float) -> None:
        """Decode one stretch, weaving in the prompts that find room."""
        context = self.tokens / self.running
        together = self.admitted < self.filling
        if self.work.order is Order.MIXED:
            entering, taken_s, first_s = self._mixed(room, context, together=together)
        else:
            # Answers of equal length end together, and what follows them is prefilled together again.
            usual = self.places * self.stretch_steps / max(1.0, self.work.decode_tokens)
            together = together or room > _CLUMPED * usual
            entering, taken_s, first_s = self._prefill_first(room, context, together=together)
        if entering > _LEAST:
            # What a stretch admits it also prefills: a long prompt is admitted by parts.
            self._admit(entering, begins=self.stretch + 1, first_token_s=self.now_s + min(first_s, taken_s))
        self.now_s += taken_s
        self.busy_s += self.running * taken_s
        gone = self.leaving.pop(self.stretch, 0.0)
        self.tokens += self.running * self.stretch_steps - self.freed.pop(self.stretch, 0.0)
        self.running -= gone
        self.done += gone
        self.stretch += 1
        self.ends.append((self.done, self.now_s))
        if entering > _LEAST:
            self._join(entering)
        if self.running < _LEAST:
            self.running = self.tokens = 0.0

    def _mixed(self, room: float, context: float, *, together: bool) -> tuple[float, float, float]:
        work, running = self.work, self.running
        free = max(1.0, work.budget_tokens - running)
        entering = min(room, self.stretch_steps * free / work.prompt_tokens)
        new = entering * work.prompt_tokens
        taken_s = self.stretch_steps * woven_step_s(self.times, work, running, new / self.stretch_steps, context)
        chunk = min(work.prompt_tokens, free)
        own_s = work.prompt_tokens / chunk * self.times.at(running, context, chunk)
        if together:
            steps = max(1.0, new / free)
            return entering, taken_s, max(own_s, 0.5 * (1 + steps) * self.times.at(running, context, min(free, new)))
        most = _MOST_BUSY if len(self.answers) > 1 else _MOST_BUSY_ALIKE
        busy = min(most, new / self.stretch_steps / free)
        before_s = (0.5 + work.num_steps_ahead) * self.times.at(running, context)
        return entering, taken_s, before_s + own_s * (1 + 0.5 * busy / (1 - busy))

    def _prefill_first(self, room: float, context: float, *, together: bool) -> tuple[float, float, float]:
        work = self.work
        plain_s = self.stretch_steps * self.times.at(self.running, context)
        if room <= _LEAST:
            return 0.0, plain_s, 0.0
        new = room * work.prompt_tokens
        most = work.budget_tokens
        chunk = most if new > most else min(max(new / self.stretch_steps, work.prompt_tokens), most)
        step_s = self.times.at(0, context, chunk)
        prefill_s = new / chunk * step_s
        own_s = step_s * max(1.0, work.prompt_tokens / chunk)
        wait_s = max(own_s, 0.5 * prefill_s) if together else own_s + 0.5 * plain_s / self.stretch_steps
        return room, plain_s + prefill_s, wait_s

    def _admit(self, entering: float, *, begins: int, first_token_s: float) -> None:
        place = self.admitted + 0.5 * entering
        self.cohorts.append(
            _Cohort(
                num_before=begins,
                num_requests=entering,
                came_s=self._came_s(place),
                admitted_s=self.now_s,
                first_token_s=first_token_s,
            )
        )
        for share, length in self.answers:
            count, steps = entering * share, length - 1
            if steps <= 0:
                self.done += count
                continue
            end = begins + max(0, round(steps / self.stretch_steps) - 1)
            self.leaving[end] = self.leaving.get(end, 0.0) + count
            self.freed[end] = self.freed.get(end, 0.0) + count * (self.first_context_tokens + steps)
        self.admitted += entering

    def _join(self, entering: float) -> None:
        living = entering * sum(share for share, length in self.answers if length > 1)
        self.running += living
        self.tokens += living * self.first_context_tokens

    def _came_s(self, place: float) -> float:
        """Return when request number ``place`` came: a client sends the next when the answer before it ended."""
        arrivals = self.arrivals
        if arrivals.requests_per_s is not None:
            return min(self.now_s, place / arrivals.requests_per_s)
        if arrivals.num_clients is None or place <= arrivals.num_clients:
            return 0.0
        freed = place - arrivals.num_clients
        low, high = 0, len(self.ends)
        while low < high:
            half = (low + high) // 2
            if self.ends[half][0] < freed:
                low = half + 1
            else:
                high = half
        return min(self.now_s, self.ends[low][1]) if low < len(self.ends) else self.now_s

    def each_s(self) -> float:
        """Return the time between two ends where the run is steady.

        Between first passages: where requests end in waves, a share of them is a whole number of waves.
        """
        marks = [
            next((pair for pair in self.ends if pair[0] >= share * self.arrivals.num_requests), None)
            for share in (0.35, 0.75)
        ]
        first, last = marks
        if first is None or last is None or last[0] <= first[0]:
            return max(self.now_s, _LEAST) / self.arrivals.num_requests
        return (last[1] - first[1]) / (last[0] - first[0])

    def time_at_s(self, stretches: float) -> float:
        """Return the time when so many stretches were done."""
        whole = int(stretches)
        if whole + 1 >= len(self.ends):
            return self.ends[-1][1]
        start_s = self.ends[whole][1]
        return start_s + (stretches - whole) * (self.ends[whole + 1][1] - start_s)


def _result(flow: _Flow, arrivals: Arrivals) -> RunResult:
    followed = flow.arrivals.num_requests
    more = max(0.0, arrivals.num_requests - followed)
    each_s = flow.each_s()
    makespan_s = max(flow.now_s, _LEAST) + more * each_s
    early, late = (share * followed for share in _MIDDLE)
    growth = more / max(late - early, _LEAST)
    firsts: list[tuple[float, float]] = []
    paces: list[tuple[float, float]] = []
    wholes: list[tuple[float, float]] = []
    queues: list[tuple[float, float]] = []
    stride = max(1, len(flow.cohorts) // _MOST_COHORTS)
    seen = 0.0
    for number, cohort in enumerate(flow.cohorts):
        inside = early <= seen < late
        seen += cohort.num_requests
        if number % stride:
            continue
        weight = cohort.num_requests * (1 + growth) if inside else cohort.num_requests
        shift_s = 0.0
        if arrivals.at_once and more:
            # The later part of the queue also waits for those that were not followed.
            shift_s = 0.5 * more * each_s if inside else more * each_s if seen > late else 0.0
        firsts.append((cohort.first_token_s - cohort.came_s + shift_s, weight))
        queues.append((cohort.admitted_s - cohort.came_s + shift_s, weight))
        for share, length in flow.answers:
            steps = length - 1
            end_s = cohort.first_token_s
            if steps > 0:
                end_s = max(end_s, flow.time_at_s(cohort.num_before + steps / flow.stretch_steps))
                paces.append(((end_s - cohort.first_token_s) / steps, weight * share))
            wholes.append((end_s - cohort.came_s + shift_s, weight * share))
    return RunResult(
        ttft_s=_mean(firsts),
        ttft_median_s=_median(firsts),
        tpot_s=_mean(paces),
        tpot_median_s=_median(paces),
        e2e_s=_mean(wholes),
        e2e_median_s=_median(wholes),
        queue_s=_mean(queues),
        makespan_s=makespan_s,
        requests_per_s=arrivals.num_requests / makespan_s,
        num_decodes=flow.busy_s / max(flow.now_s, _LEAST),
    )


def _mean(values: list[tuple[float, float]]) -> float:
    total = sum(weight for _, weight in values)
    return sum(value * weight for value, weight in values) / total if total else 0.0


def _median(values: list[tuple[float, float]]) -> float:
    ordered = sorted(values)
    half = 0.5 * sum(weight for _, weight in ordered)
    for value, weight in ordered:
        half -= weight
        if half <= 0:
            return value
    return ordered[-1][0] if ordered else 0.0
