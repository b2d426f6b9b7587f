"""Clients that think between their turns: closed forms against a simulation step by step, up to and beyond saturation.

The simulation draws thinking times from an exponential; users and loads are those at which prompts of clients that
come back at random queue up.
"""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.engines.pace import Order
from infcalc.serving.lane import times_of, work_of
from infcalc.serving.opened import at_random
from infcalc.serving.server import Requests, at_most, at_rate, in_batch, in_closed_loop
from infcalc.serving.steady import steps_of
from tests.serving.clock import FIXED_S, TOKEN_S, pipeline, ranks, requests, server
from tests.serving.oracle import Seen, World, alike, evenly, scattered

ORDERS = pytest.mark.parametrize("order", [Order.MIXED, Order.PREFILL_FIRST])
RATE, PACE, FIRST = 0.05, 0.1, 0.2
"""How far closed forms may lie from the simulation: rate, time per token, time to first token."""
SHORT_RATE, SHORT_PACE, SHORT_FIRST = 0.08, 0.2, 0.3
"""The same, for answers of few tokens."""


def spread(prompt: float, answer: float) -> Requests:
    """Return requests whose answers are those of :func:`evenly`; short ones are alike."""
    if answer < 5:
        return requests(prompt, answer)
    lengths = [answer * (0.5 + (place + 0.5) / 8) for place in range(8)]
    return Requests(prompt_tokens=prompt, cached_tokens=0.0, answers=tuple((1 / 8, length) for length in lengths))


def clients_at(order: Order, lengths: tuple[int, int], think_s: float, load: float) -> int:
    """Return how many clients would ask for ``load`` of what the server can do if none of them ever waited."""
    one, asked = server(order), spread(*lengths)
    lone_s = in_batch(one, asked, 1).e2e_s
    return max(2, round(load * at_most(one, asked).requests_per_s * (think_s + lone_s)))


@functools.cache
def seen(
    order: Order,
    lengths: tuple[int, int],
    clients: int,
    think_s: float,
    *,
    lanes: int = 1,
    stages: int = 1,
    places: int = 256,
    number: int = 1600,
) -> Seen:
    prompt, answer = lengths
    away = scattered(1000)
    world = World(
        order,
        alike(prompt),
        evenly(answer),
        clients=clients,
        lanes=lanes,
        stages=stages,
        slowest_share=0.4 if stages > 1 else None,
        places=places if lanes == stages == 1 else 2048,
        latency_s=lambda: think_s * away() / 1000,
    )
    warm = max(3 * clients, 400)
    return world.seen(warm + max(6 * clients, number), warm)


@ORDERS
@pytest.mark.parametrize("lengths", [(200, 150), (1000, 150), (5000, 100), (2000, 300), (1000, 30), (4000, 20)])
@pytest.mark.parametrize("think_s", [0.3, 1.0, 10.0])
@pytest.mark.parametrize("load", [0.5, 0.85, 1.0, 1.1])
def test_clients_that_think_are_served_as_in_the_simulation(
    order: Order, lengths: tuple[int, int], think_s: float, load: float
) -> None:
    clients = clients_at(order, lengths, think_s, load)
    found = seen(order, lengths, clients, think_s)
    speed = in_closed_loop(server(order), spread(*lengths), clients, think_time_s=think_s)
    few = lengths[1] <= 30
    assert speed.requests_per_s == pytest.approx(found.requests_per_s, rel=SHORT_RATE if few else RATE)
    # Backlogs and what decodes meanwhile grow together, which means do not see.
    assert speed.tpot_s == pytest.approx(found.tpot_s, rel=SHORT_PACE if few else PACE if load <= 1 else 0.15)
    assert speed.ttft_s == pytest.approx(found.ttft_s, rel=SHORT_FIRST if few else FIRST)


@ORDERS
@pytest.mark.parametrize(("lengths", "places"), [((200, 150), 20), ((1000, 150), 30)])
@pytest.mark.parametrize("load", [1.0, 1.1, 1.15, 1.5])
def test_clients_wait_for_a_place_when_by_chance_few_think(
    order: Order, lengths: tuple[int, int], places: int, load: float
) -> None:
    one, asked = server(order, places=places), spread(*lengths)
    rate = at_most(one, asked).requests_per_s
    clients = round(load * rate * (10 + in_batch(one, asked, 1).e2e_s))
    found = seen(order, lengths, clients, 10.0, places=places, number=8000)
    speed = in_closed_loop(one, asked, clients, think_time_s=10.0)
    assert speed.requests_per_s == pytest.approx(found.requests_per_s, rel=RATE)
    assert speed.tpot_s == pytest.approx(found.tpot_s, rel=PACE)
    # Near the crossing the time to first token is nearly all wait, and that grows within a few clients.
    assert speed.ttft_s == pytest.approx(found.ttft_s, rel=0.3)


@pytest.mark.parametrize(("lengths", "users"), [((4000, 20), (45, 60, 75, 90, 120)), ((5000, 100), (40, 60, 80, 140))])
def test_the_knee_of_prompts_is_where_the_simulation_has_it(lengths: tuple[int, int], users: tuple[int, ...]) -> None:
    # From a prompt alone to a queue of more than twenty of them, by users that think for 10 seconds.
    firsts = []
    for clients in users:
        found = seen(Order.MIXED, lengths, clients, 10.0)
        speed = in_closed_loop(server(), spread(*lengths), clients, think_time_s=10.0)
        assert speed.ttft_s == pytest.approx(found.ttft_s, rel=FIRST)
        firsts.append(speed.ttft_s)
    assert firsts == sorted(firsts)
    assert firsts[-1] > 4 * firsts[0]


@ORDERS
@pytest.mark.parametrize("lengths", [(1000, 150), (5000, 100)])
def test_ever_more_clients_that_think_ever_longer_are_requests_at_random(
    order: Order, lengths: tuple[int, int]
) -> None:
    one, asked = server(order), spread(*lengths)
    rate = 0.5 * at_most(one, asked).requests_per_s
    random = at_rate(one, asked, rate)
    loop = in_closed_loop(one, asked, rate * (3e4 + random.e2e_s), think_time_s=3e4)
    assert loop.requests_per_s == pytest.approx(rate, rel=1e-3)
    assert loop.ttft_s == pytest.approx(random.ttft_s, rel=0.08)
    assert loop.tpot_s == pytest.approx(random.tpot_s, rel=0.02)


@ORDERS
def test_a_moment_of_thinking_is_like_one_in_the_front_end(order: Order) -> None:
    for clients in (1, 4, 32):
        front = in_closed_loop(server(order, latency_s=1e-6), spread(1000, 100), clients)
        moment = in_closed_loop(server(order), spread(1000, 100), clients, think_time_s=1e-6)
        assert moment.ttft_s == pytest.approx(front.ttft_s, rel=1e-3)
        assert moment.requests_per_s == pytest.approx(front.requests_per_s, rel=1e-3)


@ORDERS
@pytest.mark.parametrize("clients", [87, 147, 225])
def test_ranks_whose_clients_think_compute_prompts_as_in_the_simulation(order: Order, clients: int) -> None:
    found = seen(order, (2000, 50), clients, 1.0, lanes=8)
    speed = in_closed_loop(ranks(8, order), spread(2000, 50), clients, think_time_s=1.0)
    # Which of the ranks takes a request is not followed: the emptiest takes it, and prompts meet less than by chance.
    assert speed.requests_per_s == pytest.approx(found.requests_per_s, rel=0.12)
    assert speed.ttft_s == pytest.approx(found.ttft_s, rel=0.35)


@pytest.mark.parametrize("clients", [28, 55, 72])
def test_so_does_a_pipeline(clients: int) -> None:
    found = seen(Order.MIXED, (2000, 50), clients, 1.0, stages=4)
    speed = in_closed_loop(pipeline(4, 0.4), spread(2000, 50), clients, think_time_s=1.0)
    assert speed.requests_per_s == pytest.approx(found.requests_per_s, rel=0.15)
    assert speed.ttft_s == pytest.approx(found.ttft_s, rel=FIRST)


@settings(max_examples=150, deadline=None)
@given(
    order=st.sampled_from([Order.MIXED, Order.PREFILL_FIRST]),
    lengths=st.tuples(st.integers(1, 20_000), st.integers(1, 2000)),
    budget=st.sampled_from([64, 512, 2048, 8192]),
    clients=st.integers(1, 3000),
    think_s=st.sampled_from([1e-3, 0.1, 2.0, 30.0, 600.0]),
)
def test_no_client_is_lost_and_no_time_is_made(
    order: Order, lengths: tuple[int, int], budget: int, clients: int, think_s: float
) -> None:
    one = replace(server(order), budget_tokens=float(budget))
    asked = spread(*lengths)
    speed = in_closed_loop(one, asked, clients, think_time_s=think_s)
    least_s = TOKEN_S * lengths[0] + FIXED_S * lengths[0] / budget
    assert speed.requests_per_s * least_s <= 1 + 1e-6
    assert speed.requests_per_s * (think_s + speed.e2e_s) == pytest.approx(clients, rel=1e-6)
    alone = in_batch(one, asked, 1)
    assert speed.ttft_s >= alone.ttft_s * (1 - 1e-6)
    assert speed.tpot_s >= alone.tpot_s * (1 - 5e-3)
    assert all(math.isfinite(value) for value in (speed.ttft_s, speed.tpot_s, speed.queue_s, speed.num_decodes))


def test_a_prompt_that_makes_its_step_shorter_takes_no_time_from_others() -> None:
    """With experts whose kernels like more tokens, a step with a short prompt may be the shorter one."""
    asked = spread(40, 100)
    times, work = times_of(server(), asked, 64), work_of(server(), asked)
    found = steps_of(times, work, 20.0, 10.0)._replace(token_s=-1e-5, extra_s=-1e-4)
    flow = at_random(times, work, found, rate=30.0, num_decodes=20.0, step_s=found.plain_s, used=0.0, turn_s=10.0)
    assert flow.tpot_s == pytest.approx(found.plain_s)
