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
    from infcalc.workload.lengths import Node

_STRETCHES = 32
_WAVES = 5.0
_LEAST = 1e-6
_MOST_STRETCHES = 6000
_MOST_COHORTS = 200


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
    """Mean over the makespan."""


def finite_run(
    times: StepTimes,
    work: Work,
    *,
    num_requests: float,
    max_running: float,
    answers: Sequence[Node],
    prompt_and_cached_tokens: float,
    clients: float | None = None,
    requests_per_s: float | None = None,
) -> RunResult:
    """Return the run of ``num_requests`` requests: all at once, from ``clients`` that wait, or at a rate.

    ``answers`` are weights and lengths of the answers, ``max_running`` what memory and the engine admit at once.
    """
    places = min(max_running, clients or max_running)
    simulated = min(num_requests, max(_WAVES * places, 1.0)) if requests_per_s is None else num_requests
    followed = _follow(
        times,
        work,
        num_requests=simulated,
        places=places,
        answers=answers,
        first_context=prompt_and_cached_tokens,
        clients=clients,
        requests_per_s=requests_per_s,
    )
    return followed.result(num_requests, queued=clients is None and requests_per_s is None)


class _Followed:
    """What a run was like: times of its cohorts, with their weights."""

    __slots__ = ("answers", "cohorts", "ends_s", "makespan_s", "middle", "simulated", "stretch", "weight_s")

    def __init__(self) -> None:
        self.cohorts: list[tuple[int, float, float, float, float]] = []
        self.ends_s: list[float] = []
        self.middle: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)
        self.weight_s = 0.0

    def result(self, num_requests: float, *, queued: bool) -> RunResult:
        """Return means and medians over the requests."""
        cohorts, ends_s = self.cohorts, self.ends_s
        more = max(0.0, num_requests - self.simulated)
        (n0, t0), (n1, t1) = self.middle[:2], self.middle[2:]
        each_s = (t1 - t0) / (n1 - n0) if n1 > n0 else self.makespan_s / self.simulated
        makespan_s = self.makespan_s + more * each_s
        firsts: list[tuple[float, float]] = []
        paces: list[tuple[float, float]] = []
        wholes: list[tuple[float, float]] = []
        queue = total = 0.0
        token_s = 0.0
        # Where a run goes on, what is like its middle is what goes on.
        early, late = 0.4 * self.simulated, 0.75 * self.simulated
        seen = 0.0
        grow = more / max(late - early, _LEAST)
        stride = max(1, len(cohorts) // _MOST_COHORTS)
        for number, (index, count, arrived_s, started_s, first_s) in enumerate(cohorts):
            if number % stride:
                seen += count
                continue
            inside = early <= seen < late
            seen += count
            weight = count * (1 + grow) if inside else count
            shift = 0.0
            if queued and more:
                # The later half of the queue also waits for those that were not followed.
                shift = 0.5 * more * each_s if inside else more * each_s if seen > late else 0.0
            firsts.append((first_s - arrived_s + shift, weight))
            queue += weight * (started_s - arrived_s + shift)
            total += weight
            for share, length in self.answers:
                steps = max(0.0, length - 1)
                end_s = _time_at(ends_s, index + steps / self.stretch) if steps else first_s
                end_s = max(end_s, first_s)
                if steps:
                    paces.append(((end_s - first_s) / steps, weight * share))
                    token_s += weight * share * (end_s - first_s) / steps
                wholes.append((end_s - arrived_s + shift, weight * share))
        spread = sum(weight for _, weight in paces)
        return RunResult(
            ttft_s=_mean(firsts),
            ttft_median_s=_median(firsts),
            tpot_s=token_s / spread if spread else 0.0,
            tpot_median_s=_median(paces) if paces else 0.0,
            e2e_s=_mean(wholes),
            e2e_median_s=_median(wholes),
            queue_s=queue / total,
            makespan_s=makespan_s,
            requests_per_s=num_requests / makespan_s,
            num_decodes=self.weight_s / self.makespan_s,
        )


def _follow(
    times: StepTimes,
    work: Work,
    *,
    num_requests: float,
    places: float,
    answers: Sequence[Node],
    first_context: float,
    clients: float | None,
    requests_per_s: float | None,
) -> _Followed:
    mean = max(1.0, work.decode_tokens)
    stretch = max(1.0, mean / _STRETCHES)
    found = _Followed()
    found.answers, found.stretch, found.simulated = tuple(answers), stretch, num_requests
    leaving: dict[int, float] = {}
    freed: dict[int, float] = {}
    now_s, index, admitted, done, running, tokens = 0.0, 0, 0.0, 0.0, 0.0, 0.0
    ends_s = found.ends_s
    ends_s.append(0.0)
    middle: list[tuple[float, float]] = []
    prompt = max(work.prompt_tokens, _LEAST)
    # What comes at the very start finds an empty house and fills it; its prompts are computed one after the other.
    filling = 0.0 if requests_per_s is not None else min(places, num_requests) * 0.999
    for _ in range(_MOST_STRETCHES):
        # The last of so many requests ends when the flow holds less than half of one.
        if done >= num_requests - min(0.5, 0.01 * num_requests):
            break
        if requests_per_s is not None:
            arrived = min(num_requests, requests_per_s * now_s + 1)
        else:
            arrived = num_requests if clients is None else min(num_requests, clients + done)
        room = max(0.0, min(places - running, arrived - admitted))
        if running < _LEAST:
            entering = min(room, max(1.0, work.budget_tokens / prompt))
            if entering < _LEAST:
                now_s = max(now_s, admitted / (requests_per_s or 1.0)) + _LEAST
                continue
            new = entering * prompt
            chunk = min(new, work.budget_tokens)
            taken_s = new / chunk * times.at(0, first_context, chunk)
            first_s = now_s + taken_s
        else:
            context = tokens / running
            if work.order is Order.MIXED:
                entering = min(room, stretch * max(1.0, work.budget_tokens - running) / prompt)
                step_s = woven_step_s(times, work, running, entering * prompt / stretch, context)
                taken_s = stretch * step_s
                first_s = now_s
                if entering > _LEAST:
                    first_s += _first_s(
                        times, work, running, context, entering, together=admitted < filling, stretch=stretch
                    )
            else:
                entering = room
                plain_s = stretch * times.at(running, context)
                taken_s, first_s = plain_s, now_s
                if entering > _LEAST:
                    new = entering * prompt
                    chunk = min(max(new / stretch, prompt), work.budget_tokens)
                    if new > work.budget_tokens:
                        chunk = work.budget_tokens
                    more_s = new / chunk * times.at(0, context, chunk)
                    taken_s += more_s
                    own_s = times.at(0, context, chunk) * max(1.0, prompt / chunk)
                    residual_s = 0.0 if admitted < filling else 0.5 * plain_s / stretch
                    first_s = now_s + residual_s + max(own_s, 0.5 * more_s if admitted < filling else 0.0)
        if entering > _LEAST:
            place = admitted + 0.5 * entering
            if requests_per_s is not None:
                came_s = min(now_s, place / requests_per_s)
            elif clients is not None and place > clients:
                came_s = _came(middle, place - clients, now_s)
            else:
                came_s = 0.0
            begin = index if running < _LEAST else index + 1
            found.cohorts.append((begin, entering, came_s, now_s, first_s))
            for share, length in answers:
                steps = max(0.0, length - 1)
                end = begin + max(0, round(steps / stretch) - 1)
                if steps <= 0:
                    done += entering * share
                    continue
                leaving[end] = leaving.get(end, 0.0) + entering * share
                freed[end] = freed.get(end, 0.0) + entering * share * (first_context + steps)
            admitted += entering
        now_s += taken_s
        found.weight_s += running * taken_s
        if running >= _LEAST:
            gone = leaving.pop(index, 0.0)
            tokens += running * stretch - freed.pop(index, 0.0)
            running -= gone
            done += gone
            index += 1
            ends_s.append(now_s)
            middle.append((done, now_s))
        if entering > _LEAST:
            living = entering * sum(share for share, length in answers if length > 1)
            running += living
            tokens += living * first_context
        if running < _LEAST:
            running, tokens = 0.0, 0.0
    found.makespan_s = max(now_s, _LEAST)
    # First passages: where requests end in waves, a share of the requests is a whole number of them.
    marks = [next((pair for pair in middle if pair[0] >= share * num_requests), None) for share in (0.35, 0.75)]
    if marks[0] is not None and marks[1] is not None:
        found.middle = (*marks[0], *marks[1])
    return found


def _first_s(
    times: StepTimes,
    work: Work,
    running: float,
    context: float,
    entering: float,
    *,
    together: bool,
    stretch: float,
) -> float:
    """Return the mean time from admission to the first token of prompts that are woven into decode steps."""
    room = max(1.0, work.budget_tokens - running)
    prompt = work.prompt_tokens
    chunk = min(prompt, room)
    own_s = prompt / chunk * times.at(running, context, chunk)
    tokens = entering * prompt
    if together:
        steps = max(1.0, tokens / room)
        return max(own_s, 0.5 * (1 + 1 / steps) * steps * times.at(running, context, min(room, tokens)))
    busy = min(0.9, tokens / stretch / room)
    return 0.5 * times.at(running, context) + own_s * (1 + 0.5 * busy / (1 - busy))


def _came(ends: list[tuple[float, float]], place: float, now_s: float) -> float:
    """Return when the request that freed place number ``place`` ended: its client then sends the next."""
    low, high = 0, len(ends)
    while low < high:
        half = (low + high) // 2
        if ends[half][0] < place:
            low = half + 1
        else:
            high = half
    return min(now_s, ends[low][1]) if low < len(ends) else now_s


def _time_at(ends_s: list[float], index: float) -> float:
    whole = int(index)
    if whole + 1 >= len(ends_s):
        return ends_s[-1]
    return ends_s[whole] + (index - whole) * (ends_s[whole + 1] - ends_s[whole])


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
