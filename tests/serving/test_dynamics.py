"""Closed forms against a simulation step by step, and the laws that no load breaks."""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from infcalc.engines.pace import Order
from infcalc.serving.server import Requests, at_most, at_rate, in_batch, in_burst, in_closed_loop
from infcalc.serving.steady import Work, behind_steps
from tests.serving.clock import FIXED_S, TOKEN_S, pipeline, ranks, requests, server
from tests.serving.oracle import Seen, World, alike, evenly, scattered

ORDERS = pytest.mark.parametrize("order", [Order.MIXED, Order.PREFILL_FIRST])
RATE, PACE, FIRST = 0.05, 0.1, 0.2
"""How far closed forms may lie from the simulation: rate, time per token, time to first token."""


def spread(prompt: float, answer: float) -> Requests:
    """Return requests whose answers are those of :func:`evenly`; short ones are alike."""
    if answer < 5:
        return requests(prompt, answer)
    lengths = [answer * (0.5 + (place + 0.5) / 8) for place in range(8)]
    return Requests(prompt_tokens=prompt, cached_tokens=0.0, answers=tuple((1 / 8, length) for length in lengths))


@functools.cache
def closed(
    order: Order,
    lengths: tuple[int, int],
    clients: int,
    *,
    latency_s: float = 0.0,
    lanes: int = 1,
    stages: int = 1,
    rounds: int = 12,
) -> Seen:
    prompt, answer = lengths
    world = World(
        order,
        alike(prompt),
        evenly(answer) if answer >= 5 else alike(answer),
        clients=clients,
        lanes=lanes,
        stages=stages,
        slowest_share=0.4 if stages > 1 else None,
    )
    if latency_s:
        away = scattered(1000)
        world.latency_s = lambda: latency_s * away() / 1000
    return world.seen(max(rounds * clients, 80) + 2 * clients, 2 * clients)


@ORDERS
@pytest.mark.parametrize(
    "lengths", [(200, 150), (1000, 150), (1000, 30), (1000, 5), (1000, 10), (1000, 20), (5000, 100)]
)
@pytest.mark.parametrize("clients", [1, 2, 3, 4, 6, 16, 48])
def test_a_closed_loop_is_what_the_simulation_gives(order: Order, lengths: tuple[int, int], clients: int) -> None:
    seen = closed(order, lengths, clients)
    speed = in_closed_loop(server(order), spread(*lengths), clients)
    assert speed.requests_per_s == pytest.approx(seen.requests_per_s, rel=RATE)
    assert speed.tpot_s == pytest.approx(seen.tpot_s, rel=PACE)
    # Where prompts take nearly all of the time, their wait is what happens to be left.
    busy = speed.requests_per_s * (FIXED_S + lengths[0] * TOKEN_S)
    assert speed.ttft_s == pytest.approx(seen.ttft_s, rel=FIRST if busy < 0.8 else 0.3)


@ORDERS
@pytest.mark.parametrize("lengths", [(200, 150), (1000, 150), (1000, 30), (5000, 100)])
@pytest.mark.parametrize("clients", [1, 4, 16, 48])
def test_so_is_one_whose_clients_are_away_for_a_while(order: Order, lengths: tuple[int, int], clients: int) -> None:
    seen = closed(order, lengths, clients, latency_s=0.02)
    speed = in_closed_loop(server(order, latency_s=0.02), spread(*lengths), clients)
    assert speed.requests_per_s == pytest.approx(seen.requests_per_s, rel=RATE)
    assert speed.tpot_s == pytest.approx(seen.tpot_s, rel=PACE)
    busy = speed.requests_per_s * (FIXED_S + lengths[0] * TOKEN_S)
    assert speed.ttft_s - 0.02 == pytest.approx(seen.ttft_s, rel=0.25 if busy < 0.8 else 0.45)


@ORDERS
@pytest.mark.parametrize("clients", [2, 3, 4, 8, 48])
@pytest.mark.parametrize("lengths", [(1000, 2), (200, 2), (200, 1)])
def test_the_shortest_answers_come_at_the_rate_of_the_simulation(
    order: Order, clients: int, lengths: tuple[int, int]
) -> None:
    seen = closed(order, lengths, clients)
    speed = in_closed_loop(server(order), spread(*lengths), clients)
    assert speed.requests_per_s == pytest.approx(seen.requests_per_s, rel=RATE)
    assert speed.e2e_s == pytest.approx(seen.e2e_s, rel=RATE)


@functools.cache
def opened(order: Order, lengths: tuple[int, int], rate: float, *, lanes: int = 1, stages: int = 1) -> Seen:
    prompt, answer = lengths
    world = World(
        order,
        alike(prompt),
        evenly(answer) if answer >= 5 else alike(answer),
        rate=rate,
        lanes=lanes,
        stages=stages,
        slowest_share=0.4 if stages > 1 else None,
    )
    return world.seen(3000, 500)


@ORDERS
@pytest.mark.parametrize("lengths", [(1000, 150), (5000, 100), (200, 300), (1000, 10), (1000, 1), (2000, 30)])
@pytest.mark.parametrize("share", [0.1, 0.3, 0.5, 0.7, 0.8])
def test_requests_at_random_are_served_as_in_the_simulation(
    order: Order, lengths: tuple[int, int], share: float
) -> None:
    rate = share * at_most(server(order), spread(*lengths)).requests_per_s
    seen = opened(order, lengths, rate)
    speed = at_rate(server(order), spread(*lengths), rate)
    assert speed.ttft_s == pytest.approx(seen.ttft_s, rel=FIRST if lengths != (1000, 10) else 0.3)
    # Backlogs and what decodes meanwhile grow together, which means do not see.
    assert speed.tpot_s == pytest.approx(seen.tpot_s, rel=PACE if share < 0.8 and lengths != (1000, 10) else 0.15)


@ORDERS
@pytest.mark.parametrize("clients", [1, 4, 8, 9, 12, 32, 128])
@pytest.mark.parametrize("lengths", [(2000, 50), (300, 100)])
def test_ranks_that_share_experts_wait_for_the_prompts_of_all(
    order: Order, clients: int, lengths: tuple[int, int]
) -> None:
    seen = closed(order, lengths, clients, lanes=8)
    speed = in_closed_loop(ranks(8, order), spread(*lengths), clients)
    assert speed.requests_per_s == pytest.approx(seen.requests_per_s, rel=RATE)
    assert speed.tpot_s == pytest.approx(seen.tpot_s, rel=PACE)
    if clients >= 4:
        assert speed.ttft_s == pytest.approx(seen.ttft_s, rel=FIRST)


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 5, 8, 16, 48])
@pytest.mark.parametrize("lengths", [(1000, 100), (200, 200)])
def test_a_pipeline_takes_the_longer_of_its_length_and_its_slowest_stage(
    clients: int, lengths: tuple[int, int]
) -> None:
    seen = closed(Order.MIXED, lengths, clients, stages=4)
    speed = in_closed_loop(pipeline(4, 0.4), spread(*lengths), clients)
    assert speed.requests_per_s == pytest.approx(seen.requests_per_s, rel=RATE)
    assert speed.tpot_s == pytest.approx(seen.tpot_s, rel=PACE)
    # Which micro-batch takes a request is not followed.
    assert speed.ttft_s == pytest.approx(seen.ttft_s, rel=FIRST if clients < 4 else 0.3)


# Finite runs


@ORDERS
@pytest.mark.parametrize("clients", [1, 4, 32])
@pytest.mark.parametrize("lengths", [(200, 50), (1000, 150), (5000, 20)])
def test_a_run_of_equal_requests_is_the_simulation_to_the_last_digit(
    order: Order, clients: int, lengths: tuple[int, int]
) -> None:
    number = 3 * clients
    seen = World(order, alike(lengths[0]), alike(lengths[1]), clients=clients, most=number, places=24).seen(number, 0)
    run = in_closed_loop(server(order, places=24), requests(*lengths), clients, num_requests=number)
    assert run.requests_per_s == pytest.approx(seen.requests_per_s, rel=1e-9)
    assert run.ttft_s == pytest.approx(seen.ttft_s, rel=1e-9)
    assert run.tpot_s == pytest.approx(seen.tpot_s, rel=1e-9)


@ORDERS
@pytest.mark.parametrize("number", [1, 10, 100])
@pytest.mark.parametrize("lengths", [(8000, 50), (2000, 200), (200, 200)])
def test_no_first_token_of_a_run_at_a_rate_comes_before_its_prompt_is_computed(
    order: Order, number: int, lengths: tuple[int, int]
) -> None:
    from infcalc.serving.server import in_open_run  # noqa: PLC0415

    alone = in_batch(server(order), requests(*lengths), 1)
    run = in_open_run(server(order), requests(*lengths), 0.5, number, front_end=False)
    assert run.ttft_s >= alone.ttft_s * (1 - 1e-9)
    assert run.tpot_s >= alone.tpot_s * (1 - 1e-3)
    if number > 1:
        rare = in_open_run(server(order), requests(*lengths), 1e-3, number, front_end=False)
        assert rare.ttft_s == pytest.approx(alone.ttft_s, rel=0.02)


# Laws

LENGTHS = st.tuples(st.integers(1, 20_000), st.integers(1, 2000))
BUDGETS = st.sampled_from([64, 512, 2048, 8192])


@settings(max_examples=150, deadline=None)
@given(
    order=st.sampled_from([Order.MIXED, Order.PREFILL_FIRST]),
    lengths=LENGTHS,
    budget=BUDGETS,
    places=st.integers(1, 600),
)
def test_more_clients_never_do_less_and_most_is_their_limit(
    order: Order, lengths: tuple[int, int], budget: int, places: int
) -> None:
    one = replace(server(order, places=places), budget_tokens=float(budget))
    clients = (1, 2, 3, 4, 5, 8, 16, 64, 256, 1000, 100_000)
    rates = [in_closed_loop(one, spread(*lengths), count).requests_per_s for count in clients]
    for fewer, more in itertools.pairwise(rates):
        assert more >= fewer * (1 - 1e-4)
    assert rates[-1] == pytest.approx(at_most(one, spread(*lengths)).requests_per_s, rel=1e-6)


@settings(max_examples=200, deadline=None)
@given(
    order=st.sampled_from([Order.MIXED, Order.PREFILL_FIRST]),
    lengths=LENGTHS,
    budget=BUDGETS,
    clients=st.integers(1, 2000),
    latency_s=st.sampled_from([0.0, 1e-3, 50e-3, 10.0]),
)
def test_no_closed_loop_makes_device_time_or_loses_a_client(
    order: Order, lengths: tuple[int, int], budget: int, clients: int, latency_s: float
) -> None:
    prompt, answer = lengths
    one = replace(server(order, latency_s=latency_s), budget_tokens=float(budget))
    asked = spread(prompt, answer)
    speed = in_closed_loop(one, asked, clients)
    # A prompt's tokens take their time at least, and all steps that they fill their fixed part.
    least_s = TOKEN_S * prompt + FIXED_S * prompt / budget
    assert speed.requests_per_s * least_s <= 1 + 1e-6
    assert speed.requests_per_s * (speed.e2e_s) == pytest.approx(clients, rel=1e-6)
    alone = in_batch(one, asked, 1)
    assert speed.ttft_s >= alone.ttft_s * (1 - 1e-6)
    assert speed.tpot_s >= alone.tpot_s * (1 - 5e-3)
    assert all(math.isfinite(value) for value in (speed.ttft_s, speed.tpot_s, speed.queue_s, speed.num_decodes))


@settings(max_examples=150, deadline=None)
@given(order=st.sampled_from([Order.MIXED, Order.PREFILL_FIRST]), lengths=LENGTHS, budget=BUDGETS)
def test_a_vanishing_rate_is_a_lone_request(order: Order, lengths: tuple[int, int], budget: int) -> None:
    one = replace(server(order), budget_tokens=float(budget))
    asked = spread(*lengths)
    alone, rare = in_batch(one, asked, 1), at_rate(one, asked, 1e-7, front_end=False)
    assert rare.ttft_s == pytest.approx(alone.ttft_s, rel=1e-3)
    assert rare.tpot_s == pytest.approx(alone.tpot_s, rel=5e-3)


@pytest.mark.parametrize("order", [Order.MIXED, Order.PREFILL_FIRST])
def test_longer_and_shorter_prompts_wait_more_than_equal_ones(order: Order) -> None:
    # Pollaczek and Khinchine: the wait grows with the second moment of what is served.
    def wait_s(scatter: float) -> float:
        asked = Requests(prompt_tokens=3000, cached_tokens=0.0, answers=((1.0, 1.0),), prompt_scatter=scatter)
        most = at_most(server(order), replace(asked, prompt_scatter=0.0)).requests_per_s
        found = at_rate(server(order), asked, 0.8 * most)
        return found.ttft_s - in_batch(server(order), asked, 1).ttft_s

    assert 1.6 * wait_s(0.0) < wait_s(1.0) < 2.6 * wait_s(0.0)
    assert wait_s(9.0) > 6 * wait_s(0.0)


def test_a_prompt_beyond_a_step_is_computed_in_full_before_its_first_token() -> None:
    one = server(Order.PREFILL_FIRST)
    speed = in_closed_loop(one, requests(6000, 200), 1)
    assert speed.ttft_s == pytest.approx(3 * FIXED_S + 6000 * TOKEN_S)
    below, above = (in_closed_loop(one, requests(prompt, 200), 1).ttft_s for prompt in (2048, 2056))
    assert above > below


def test_who_waits_for_the_front_end_waits_before_the_first_token() -> None:
    free, bound = (in_closed_loop(server(token_s=cost), requests(1, 1000), 2000) for cost in (0.0, 200e-6))
    assert bound.bound_by == "front end"
    assert bound.tpot_s <= free.tpot_s
    assert bound.queue_s > 0.9 * bound.ttft_s
    # As many decode as that rate keeps there.
    assert bound.num_decodes == pytest.approx(bound.requests_per_s * 999 * bound.tpot_s, rel=1e-6)


def test_a_static_batch_ends_before_the_next_begins() -> None:
    static = replace(server(), pace=replace(server().pace, order=Order.STATIC))
    speed, batch = in_closed_loop(static, requests(), 16), in_batch(static, requests(), 16)
    assert speed.requests_per_s == pytest.approx(batch.requests_per_s)
    assert speed.ttft_s == pytest.approx(batch.ttft_s)
    two = in_burst(replace(static, num_places=16), requests(), 32)
    assert 32 / two.requests_per_s == pytest.approx(2 * 16 / batch.requests_per_s, rel=1e-4)
    rare, often = (at_rate(static, requests(), rate) for rate in (1e-4, 4.0))
    assert rare.ttft_s == pytest.approx(in_batch(static, requests(), 1).ttft_s, rel=5e-3)
    assert often.ttft_s > 2 * rare.ttft_s
    assert not at_rate(static, requests(), 1e3).stable


def test_a_prompt_that_adds_nothing_to_its_step_waits_for_none_before_it() -> None:
    """A decode pool gets prompts of a token or two: with experts the step that they join may even be shorter."""
    work = Work(prompt_tokens=2.0, context_tokens=100.0, decode_tokens=50.0, budget_tokens=8192.0, order=Order.MIXED)
    for used in (-0.2, -1e-12, 0.0):
        assert behind_steps(work, 8192.0, used, at_random=True) == 0.0
    assert behind_steps(work, 8192.0, 0.9, at_random=True) > 0.0
