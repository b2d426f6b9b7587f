"""Queues that theory knows, simulated: M/D/1, M/G/1, M/M/c and E_c/M/1 wait as their formulas say.

One slot, answers of one token, and a second for each token of a prompt: the prompt is the service, one step long, and
the slot a single server exactly. The next request starts where the one before ends, and at its arrival where nobody is
served. Geometric lengths have no memory: services of exponential length, in whole tokens.

Several slots with steps of one length are the M/M/c queue where answers are of geometric length: one queue, first come,
first served, for all. They are it up to the step that an arrival finds under way, which all slots share; steps are
short beside a service, and one is allowed for. Replicas behind a router are not it: each has a queue of its own, and
nobody changes over. In turns they are E_c/M/1 queues.

Every mean is held to the interval of independent replications (Student's t, 99 %, seeds fixed).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import factorial

import numpy as np
import pytest

from infcalc.kvcache.manager import KvCacheManager
from infcalc.scheduling.continuous import ContinuousScheduler
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.vllm import VllmLimits, VllmScheduler
from infcalc.simulation.aggregate import in_aggregate
from infcalc.simulation.batch_shape import PS_PER_S, BatchShape
from infcalc.simulation.fast.columns import Load
from infcalc.simulation.fast.recorder import SampleRecorder
from infcalc.simulation.fast.run import run_fast
from infcalc.simulation.fleet import Fleet
from infcalc.simulation.oracle import run_step_by_step
from infcalc.simulation.replica import Replica
from infcalc.simulation.request import Request
from infcalc.simulation.routing import Router, RouterKind
from infcalc.simulation.sending import Sending
from infcalc.simulation.timing import AffineTimer, Line, SteadyTimer

Chance = np.random.Generator
Ints = np.ndarray[tuple[int], np.dtype[np.int64]]
Floats = np.ndarray[tuple[int], np.dtype[np.float64]]
REPLICATIONS = 16
STUDENT_T = 2.947
"""99 % of Student's distribution with 15 degrees of freedom lies within as much on either side."""
WARM_UP = 0.1
"""The share of each replication that is left out: it starts with nobody there."""


class PromptTimer:
    """A second for each token of a prompt; nobody decodes."""

    def __call__(self, shape: BatchShape) -> int:
        return PS_PER_S * shape.prefill_tokens

    def line(self, num_decodes: int, total_tokens: int) -> Line:
        raise AssertionError(f"{num_decodes} decode at {total_tokens}")

    def chunks_ps(self, num_decodes: int, chunks: Sequence[tuple[int, int]]) -> int:
        assert not num_decodes
        return PS_PER_S * sum(new for new, _ in chunks)


@dataclass(frozen=True)
class Law:
    """Services in whole tokens, a second each, with their first two moments."""

    name: str
    draw: Callable[[Chance, int], Ints]
    mean: float
    mean_square: float

    def __str__(self) -> str:  # noqa: D105 - the name of a test
        return self.name


def constant(length: int) -> Law:
    return Law("constant", lambda _, count: np.full(count, length), length, length**2)


def geometric(mean: float) -> Law:
    end = 1 / mean
    return Law("geometric", lambda chance, count: chance.geometric(end, count), mean, (2 - end) / end**2)


def two_kinds(short: int, long: int, share: float) -> Law:
    def draw(chance: Chance, count: int) -> Ints:
        return np.where(chance.random(count) < share, long, short)

    return Law("two kinds", draw, short + share * (long - short), short**2 + share * (long**2 - short**2))


def pollaczek_khinchine(law: Law, rate: float) -> float:
    """Return the mean wait of M/G/1 in seconds. Source: Pollaczek 1930, Khinchine 1932."""
    return rate * law.mean_square / (2 * (1 - rate * law.mean))


def erlang(servers: int, load: float) -> float:
    """Return the mean wait of M/M/c in services, at ``load`` services per service. Source: Erlang 1917, his C."""
    waiting = load**servers / factorial(servers) * servers / (servers - load)
    free = sum(load**number / factorial(number) for number in range(servers))
    return waiting / (free + waiting) / (servers - load)


def erlang_arrivals(stages: int, busy: float) -> float:
    """Return the mean wait of E_c/M/1 in services: a server that gets every ``stages``-th of Poisson arrivals.

    It is s / (1 - s), where s is the share of arrivals that find somebody, the root below 1 of s = A(1 - s) with A the
    transform of the times between arrivals. Source: Kendall 1953, GI/M/1.
    """
    share, rate = 0.5, stages * busy
    for _ in range(1000):
        share = (rate / (rate + 1 - share)) ** stages
    return share / (1 - share)


def arriving(law: Law, rate: float, count: int, seed: int, *, answers: bool = False) -> Load:
    """Return requests at random times, ``rate`` of them a second; ``law`` draws prompts, or ``answers``."""
    chance = np.random.default_rng(seed)
    arrivals = np.cumsum(chance.exponential(1 / rate, count))
    lengths, ones = law.draw(chance, count).astype(np.int64), np.ones(count, dtype=np.int64)
    return Load(
        arrival_ps=np.round(arrivals * PS_PER_S).astype(np.int64),
        prompt_tokens=ones if answers else lengths,
        output_tokens=lengths if answers else ones,
    )


def one_by_one(load: Load) -> list[Request]:
    rows = zip(load.arrival_ps.tolist(), load.prompt_tokens.tolist(), load.output_tokens.tolist(), strict=True)
    return [Request(arrival_ps=arrival, prompt_tokens=prompt, output_tokens=answer) for arrival, prompt, answer in rows]


def room() -> KvCacheManager:
    return KvCacheManager(4000, 64, prefix_caching=False)


def continuous(slots: int) -> Scheduler:
    return ContinuousScheduler(room(), max_num_seqs=slots)


def vllm(slots: int) -> Scheduler:
    return VllmScheduler(room(), VllmLimits(max_num_seqs=slots, budget_tokens=64))


def step_by_step(scheduler: Scheduler, load: Load, timer: AffineTimer) -> Floats:
    """Return the wait of each request in seconds, by arrival."""
    records = run_step_by_step(scheduler, one_by_one(load), timer)
    waits = [one.scheduled_ps - one.arrival_ps for one in records if one.scheduled_ps is not None]
    return np.array(waits) / PS_PER_S


def in_closed_form(scheduler: Scheduler, load: Load, timer: AffineTimer) -> Floats:
    """Return the same by end, steps in aggregate."""
    recorder = SampleRecorder()
    run_fast(scheduler, load, timer, recorder)
    return recorder.samples().queue_ps / PS_PER_S


Way = Callable[[Scheduler, Load, AffineTimer], Floats]
WAYS = pytest.mark.parametrize("way", [step_by_step, in_closed_form])


def interval(waits: list[Floats]) -> tuple[float, float]:
    """Return the mean wait over the replications, and half the width of its interval."""
    means = np.array([one[int(WARM_UP * len(one)) :].mean() for one in waits])
    return float(means.mean()), float(STUDENT_T * means.std(ddof=1) / len(means) ** 0.5)


def one_server(way: Way, law: Law, busy: float, count: int = 3000) -> tuple[float, float]:
    loads = [arriving(law, busy / law.mean, count, seed) for seed in range(REPLICATIONS)]
    return interval([way(continuous(1), load, PromptTimer()) for load in loads])


@WAYS
@pytest.mark.parametrize("law", [constant(100), geometric(100), two_kinds(20, 300, 0.1)], ids=str)
@pytest.mark.parametrize("busy", [0.4, 0.7])
def test_one_slot_waits_as_pollaczek_and_khinchine_say(way: Way, law: Law, busy: float) -> None:
    wait, half = one_server(way, law, busy)
    assert half < 0.2 * wait
    assert abs(wait - pollaczek_khinchine(law, busy / law.mean)) < half


@WAYS
def test_another_law_or_load_is_told_apart(way: Way) -> None:
    """The intervals are narrow enough to refuse what is wrong."""
    law, busy = geometric(100), 0.7
    wait, half = one_server(way, law, busy)
    right = pollaczek_khinchine(law, busy / law.mean)
    assert abs(wait - right) < half
    for wrong in (
        pollaczek_khinchine(constant(100), busy / law.mean),
        pollaczek_khinchine(two_kinds(20, 820, 0.1), busy / law.mean),
        pollaczek_khinchine(law, 1.1 * busy / law.mean),
        pollaczek_khinchine(law, 0.9 * busy / law.mean),
        2 * right,
    ):
        assert abs(wait - wrong) > half


@pytest.mark.parametrize("make", [continuous, vllm])
@pytest.mark.parametrize(("slots", "busy"), [(2, 0.7), (4, 0.8), (10, 0.8)])
def test_several_slots_wait_as_erlang_says(make: Callable[[int], Scheduler], slots: int, busy: float) -> None:
    law = geometric(250)
    loads = [arriving(law, slots * busy / law.mean, 8000, seed, answers=True) for seed in range(REPLICATIONS)]
    wait, half = interval([in_closed_form(make(slots), load, SteadyTimer()) for load in loads])
    right = law.mean * erlang(slots, slots * busy)
    # An arrival waits for the step under way, and a slot is free at its end.
    assert right - half < wait < right + half + 1
    assert half < 0.2 * right
    # One server more, and queues of their own, are refused.
    assert wait > law.mean * erlang(slots + 1, slots * busy) + half
    assert wait < pollaczek_khinchine(law, busy / law.mean) - half
    # And every step by itself makes the same of the same requests.
    few = arriving(geometric(20), slots * busy / 20, 300, 5, answers=True)
    plain, quick = (np.sort(way(make(slots), few, SteadyTimer())) for way in (step_by_step, in_closed_form))
    np.testing.assert_array_equal(plain, quick)


def of_fleet(router: RouterKind, replicas: int, load: Load) -> Floats:
    """Return the wait of each request before replicas of one slot each, in seconds."""
    fleet = Fleet(
        [Replica(continuous(1), PromptTimer()) for _ in range(replicas)],
        one_by_one(load),
        Sending(times_ps=load.arrival_ps.tolist()),
        router=Router(router, replicas),
    )
    waits = [one.scheduled_ps - one.arrival_ps for one in fleet.run() if one.scheduled_ps is not None]
    return np.array(waits) / PS_PER_S


def in_turns(replicas: int, load: Load) -> Floats:
    return of_fleet(RouterKind.ROUND_ROBIN, replicas, load)


def in_aggregate_in_turns(replicas: int, load: Load) -> Floats:
    done = in_aggregate(lambda: continuous(1), load, PromptTimer(), num_lanes=replicas).finished
    waits: Floats = (done.scheduled_ps - done.reached_ps) / PS_PER_S
    return waits


REPLICAS, BUSY, EXPONENTIAL = 3, 0.7, geometric(500)
"""Whole tokens of 500 in the mean make the wait of E_c/M/1 longer by a thousandth."""


def routed_loads() -> list[Load]:
    rate = REPLICAS * BUSY / EXPONENTIAL.mean
    return [arriving(EXPONENTIAL, rate, 3000, seed) for seed in range(REPLICATIONS)]


@pytest.mark.parametrize("way", [in_turns, in_aggregate_in_turns])
def test_replicas_in_turns_wait_as_queues_with_erlang_arrivals(way: Callable[[int, Load], Floats]) -> None:
    wait, half = interval([way(REPLICAS, load) for load in routed_loads()])
    assert abs(wait - EXPONENTIAL.mean * erlang_arrivals(REPLICAS, BUSY)) < half
    # What replicas at random have, and one queue for all, are refused.
    assert erlang_arrivals(1, BUSY) == pytest.approx(erlang(1, BUSY))
    for wrong in (erlang_arrivals(1, BUSY), erlang_arrivals(2, BUSY), erlang(REPLICAS, REPLICAS * BUSY)):
        assert abs(wait - EXPONENTIAL.mean * wrong) > half


def test_least_loaded_lies_between_turns_and_one_queue_for_all() -> None:
    wait, half = interval([of_fleet(RouterKind.LEAST_LOADED, REPLICAS, load) for load in routed_loads()])
    assert wait + half < EXPONENTIAL.mean * erlang_arrivals(REPLICAS, BUSY)
    assert wait - half > EXPONENTIAL.mean * erlang(REPLICAS, REPLICAS * BUSY)
