from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from infcalc.engines.pace import Order
from infcalc.serving.server import (
    Requests,
    at_most,
    at_rate,
    decoding,
    in_batch,
    in_burst,
    in_closed_loop,
    in_open_run,
)
from tests.serving.clock import CONTEXT_S, DECODE_S, FIXED_S, TOKEN_S, lone_decode_s, requests, server
from tests.serving.oracle import World, alike


def spread(prompt: float = 1000, answer: float = 200) -> Requests:
    """Return requests whose answers are spread evenly over half to one and a half times the mean."""
    lengths = [answer * (0.5 + (place + 0.5) / 8) for place in range(8)]
    return Requests(prompt_tokens=prompt, cached_tokens=0.0, answers=tuple((1 / 8, length) for length in lengths))


ORDERS = pytest.mark.parametrize("order", [Order.MIXED, Order.PREFILL_FIRST])


# One batch


def test_a_batch_of_one_is_its_prompt_and_its_steps() -> None:
    speed = in_batch(server(), requests(1000, 200), 1)
    assert speed.ttft_s == pytest.approx(FIXED_S + 1000 * TOKEN_S)
    assert speed.e2e_s == pytest.approx(speed.ttft_s + lone_decode_s(1000, 200), rel=1e-3)
    assert speed.tpot_s == pytest.approx(lone_decode_s(1000, 200) / 199, rel=1e-3)


def test_prompts_of_a_batch_fill_steps_of_the_budget() -> None:
    speed = in_batch(server(), requests(1000, 200), 16)
    # 16,000 tokens: seven steps of 2,048 and one of 1,664.
    assert speed.ttft_s == pytest.approx(8 * FIXED_S + 16_000 * TOKEN_S)


def test_a_batch_shrinks_as_answers_end() -> None:
    mixed = Requests(prompt_tokens=100, cached_tokens=0, answers=((0.5, 101), (0.5, 301)))
    speed = in_batch(server(), mixed, 64)
    full = sum(FIXED_S + 64 * (DECODE_S + CONTEXT_S * (100 + token)) for token in range(100))
    half = sum(FIXED_S + 32 * (DECODE_S + CONTEXT_S * (200 + token)) for token in range(200))
    prefill = 4 * FIXED_S + 6400 * TOKEN_S
    assert 64 / speed.requests_per_s == pytest.approx(prefill + full + half, rel=5e-3)


def test_decode_alone_is_one_step_at_the_mean_context() -> None:
    speed = decoding(server(), requests(1000, 200), 8)
    assert speed.tpot_s == pytest.approx(FIXED_S + 8 * (DECODE_S + CONTEXT_S * 1100))
    assert speed.output_tokens_per_s == pytest.approx(8 / speed.tpot_s)


def test_a_batch_beyond_the_room_runs_in_waves() -> None:
    roomy, tight = (in_batch(server(places=places), requests(), 64) for places in (64, 16))
    assert tight.requests_per_s < roomy.requests_per_s
    assert tight.queue_s > 0


# Closed loop


@ORDERS
def test_answers_of_one_length_end_and_begin_together(order: Order) -> None:
    seen = World(order, alike(1000), alike(150), clients=32, most=3 * 32).seen(3 * 32, 0)
    run = in_closed_loop(server(order), requests(1000, 150), 32, num_requests=3 * 32)
    assert run.requests_per_s == pytest.approx(seen.requests_per_s, rel=1e-6)
    assert run.ttft_s == pytest.approx(seen.ttft_s, rel=1e-6)
    assert run.tpot_s == pytest.approx(seen.tpot_s, rel=1e-6)


@ORDERS
@pytest.mark.parametrize("clients", [1, 7, 64, 1000])
def test_clients_are_throughput_times_latency(order: Order, clients: int) -> None:
    speed = in_closed_loop(server(order), requests(), clients)
    assert speed.requests_per_s * speed.e2e_s == pytest.approx(clients, rel=5e-3)


@ORDERS
def test_more_clients_never_do_less(order: Order) -> None:
    rates = [in_closed_loop(server(order), requests(), clients).requests_per_s for clients in (1, 2, 8, 32, 128, 512)]
    assert rates == sorted(rates)


@ORDERS
def test_prompts_of_others_slow_the_tokens_of_all(order: Order) -> None:
    short, long = (in_closed_loop(server(order), requests(prompt), 32).tpot_s for prompt in (100, 4000))
    assert long > 1.3 * short


def test_clients_beyond_the_room_wait() -> None:
    speed = in_closed_loop(server(places=16), requests(), 64)
    assert speed.queue_s > 0.5 * speed.e2e_s
    assert speed.bound_by == "KV room"


def test_clients_that_think_leave_the_server_alone() -> None:
    busy = in_closed_loop(server(), requests(), 32)
    idle = in_closed_loop(server(), requests(), 32, think_time_s=100.0)
    assert idle.tpot_s < busy.tpot_s
    assert idle.requests_per_s == pytest.approx(32 / (100 + idle.e2e_s), rel=0.02)


@pytest.mark.parametrize("order", [*Order])
def test_users_who_are_away_do_not_fill_the_places_that_they_outnumber(order: Order) -> None:
    fitting = replace(server(order, places=16), num_fitting=16)
    idle, full = (in_closed_loop(fitting, requests(), 64, think_time_s=away_s) for away_s in (1000.0, 0.0))
    assert idle.num_decodes < 16
    assert (idle.bound_by, full.bound_by) == ("clients", "KV room")


def test_lanes_share_the_clients() -> None:
    one, four = (in_closed_loop(server(lanes=lanes), requests(), 16 * lanes) for lanes in (1, 4))
    assert four.requests_per_s == pytest.approx(4 * one.requests_per_s)
    assert four.tpot_s == pytest.approx(one.tpot_s)


def test_the_front_end_bounds_what_a_fast_server_could_do() -> None:
    free = in_closed_loop(server(), requests(), 128)
    bound = in_closed_loop(server(token_s=1e-3), requests(), 128)
    assert bound.requests_per_s == pytest.approx(1 / (200 * 1e-3), rel=1e-6)
    assert bound.requests_per_s < free.requests_per_s
    assert bound.bound_by == "front end"


@pytest.mark.parametrize("budget", [64, 512, 2048, 8192])
@pytest.mark.parametrize("clients", [8, 64, 512])
@pytest.mark.parametrize("lengths", [(100, 400), (2000, 20), (8000, 100), (30_000, 30)])
def test_no_token_takes_longer_than_a_full_step(budget: float, clients: int, lengths: tuple[int, int]) -> None:
    # Whoever decodes has a token of every step, however many prompts wait.
    one = replace(server(places=1024), budget_tokens=budget)
    speed = in_closed_loop(one, requests(*lengths), clients)
    at_once = max(1.0, min(speed.num_decodes, budget))
    full_s = FIXED_S + at_once * (DECODE_S + CONTEXT_S * sum(lengths)) + (budget - at_once) * TOKEN_S
    assert speed.tpot_s <= full_s * 1.001
    # Tokens are conserved: what a step computes of prompts and answers fits in it.
    assert speed.requests_per_s * sum(lengths) * FIXED_S < budget
    assert speed.requests_per_s * speed.e2e_s == pytest.approx(clients, rel=5e-3)


def test_where_prompts_are_the_bottleneck_few_decode_and_the_others_wait() -> None:
    speed = in_closed_loop(server(), requests(2000, 21), 200)
    # (2048 - d) / 2000 prompts begin in a step, and d / 20 answers end.
    assert speed.num_decodes == pytest.approx(2048 / 101, rel=0.02)
    assert speed.ttft_s > 0.8 * speed.e2e_s


def test_front_ends_side_by_side_share_the_work() -> None:
    one, four = (
        in_closed_loop(replace(server(lanes=ends, token_s=1e-3), num_front_ends=ends), requests(), 128 * ends)
        for ends in (1, 4)
    )
    assert four.requests_per_s == pytest.approx(4 * one.requests_per_s)


# Open loop


@ORDERS
def test_a_rare_request_is_served_as_if_alone(order: Order) -> None:
    alone = in_batch(server(order), requests(), 1)
    rare = at_rate(server(order), requests(), 1e-3)
    assert rare.e2e_s == pytest.approx(alone.e2e_s, rel=0.01)
    assert rare.stable


@ORDERS
def test_what_arrives_is_answered_until_saturation_and_no_more(order: Order) -> None:
    most = at_most(server(order), requests()).requests_per_s
    below, beyond = (at_rate(server(order), requests(), share * most) for share in (0.9, 1.1))
    assert below.stable
    assert below.requests_per_s == pytest.approx(0.9 * most)
    assert not beyond.stable
    assert math.isinf(beyond.ttft_s)
    assert beyond.requests_per_s == pytest.approx(most, rel=1e-6)


@ORDERS
def test_times_rise_with_the_rate(order: Order) -> None:
    speeds = [at_rate(server(order), requests(), rate) for rate in (0.1, 1, 4, 8)]
    assert [speed.tpot_s for speed in speeds] == sorted(speed.tpot_s for speed in speeds)
    assert [speed.ttft_s for speed in speeds] == sorted(speed.ttft_s for speed in speeds)


@ORDERS
@pytest.mark.parametrize("lengths", [(1000, 200), (4000, 20), (100, 400), (500, 1)])
@pytest.mark.parametrize("places", [4, 32, 256])
def test_the_wait_grows_without_end_towards_saturation(order: Order, lengths: tuple[int, int], places: float) -> None:
    one, asked = server(order, places=places), requests(*lengths)
    most = at_most(one, asked).requests_per_s
    shares = (0.1, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999, 0.99999)
    speeds = [at_rate(one, asked, most * share) for share in shares]
    assert all(speed.stable for speed in speeds)
    for before, after in itertools.pairwise(speeds):
        assert after.ttft_s > before.ttft_s * 0.999
        assert after.tpot_s >= before.tpot_s * 0.999
    assert speeds[-1].ttft_s > 8 * speeds[-2].ttft_s > 50 * speeds[-3].ttft_s
    assert not at_rate(one, asked, most * 1.00001).stable


# Finite runs


@ORDERS
def test_a_run_that_fits_at_once_is_a_batch(order: Order) -> None:
    run = in_burst(server(order), requests(200, 200), num_requests=64)
    batch = in_batch(server(order), requests(200, 200), 64)
    assert run.requests_per_s == pytest.approx(batch.requests_per_s, rel=0.06)


@ORDERS
def test_a_long_run_from_clients_is_the_closed_loop(order: Order) -> None:
    for clients, asked in itertools.product((3, 32, 300), (spread(200), spread(4000, 20))):
        one = server(order, places=64)
        loop = in_closed_loop(one, asked, clients)
        for waves, slack in ((40, 0.1), (2000, 0.02)):
            run = in_closed_loop(one, asked, clients, num_requests=waves * clients)
            assert run.requests_per_s == pytest.approx(loop.requests_per_s, rel=slack)
            assert run.tpot_s == pytest.approx(loop.tpot_s, rel=slack)
            assert run.e2e_s == pytest.approx(loop.e2e_s, rel=slack)
            assert run.ttft_s == pytest.approx(loop.ttft_s, rel=0.05 if waves > 100 else 0.6)


@ORDERS
def test_no_number_of_requests_is_a_cliff(order: Order) -> None:
    # From one request of each client to ever more of them.
    asked = spread(200)
    runs = [in_closed_loop(server(order, places=32), asked, 48, num_requests=count) for count in range(240, 4800, 48)]
    for before, after in itertools.pairwise(runs):
        assert after.ttft_s == pytest.approx(before.ttft_s, rel=0.1)
        assert after.tpot_s == pytest.approx(before.tpot_s, rel=0.02)
        assert after.requests_per_s == pytest.approx(before.requests_per_s, rel=0.05)


@ORDERS
@pytest.mark.parametrize("clients", [48, 64, 70, 80, 100, 200, 400])
def test_clients_of_a_long_run_are_throughput_times_latency(order: Order, clients: int) -> None:
    for asked in (requests(200), spread(200)):
        run = in_closed_loop(server(order, places=64), asked, clients, num_requests=100 * clients)
        assert run.requests_per_s * run.e2e_s == pytest.approx(clients, rel=0.03)


def test_a_run_of_fewer_requests_than_clients_is_theirs() -> None:
    few, all_of_them = (
        in_closed_loop(server(), requests(), clients, num_requests=10, front_end=False) for clients in (100, 10)
    )
    assert few == all_of_them


@ORDERS
def test_a_queue_of_many_waves_waits_in_proportion_to_its_length(order: Order) -> None:
    short, long = (in_burst(server(order, places=32), requests(), num_requests=count) for count in (1000, 4000))
    assert long.ttft_s == pytest.approx(4 * short.ttft_s, rel=0.1)
    assert long.requests_per_s == pytest.approx(short.requests_per_s, rel=0.05)


def test_a_run_at_a_rate_lasts_as_long_as_its_arrivals_and_an_answer() -> None:
    run = in_open_run(server(), requests(200, 100), 2.0, 1000)
    assert 1000 / run.requests_per_s == pytest.approx(500 + run.e2e_s, rel=0.01)


def test_a_short_run_beyond_saturation_is_given_all_the_same() -> None:
    run = in_open_run(server(places=8), requests(), 50.0, 200)
    burst = in_burst(server(places=8), requests(), num_requests=200)
    assert run.requests_per_s == pytest.approx(burst.requests_per_s, rel=0.1)
    assert math.isfinite(run.ttft_s)


def test_long_answers_keep_a_run_from_ending() -> None:
    alike = Requests(prompt_tokens=200, cached_tokens=0, answers=((1.0, 200),))
    spread = Requests(prompt_tokens=200, cached_tokens=0, answers=((0.9, 100), (0.1, 1100)))
    assert spread.answer_tokens == pytest.approx(alike.answer_tokens)
    first, second = (in_burst(server(), asked, num_requests=64) for asked in (alike, spread))
    assert second.output_tokens_per_s < 0.6 * first.output_tokens_per_s


def test_a_request_joins_after_the_steps_that_are_scheduled() -> None:
    def ttft_s(ahead: int, num_requests: float | None) -> float:
        one = server(num_steps_ahead=ahead)
        return in_closed_loop(one, spread(), 4, num_requests=num_requests, front_end=False).ttft_s

    # A step of 4 sequences is some 5 ms; in a run it may be one with a prompt of 30 ms.
    assert 0.5 * FIXED_S < ttft_s(1, None) - ttft_s(0, None) < 1.5 * FIXED_S
    assert 0.5 * FIXED_S < ttft_s(1, 1000) - ttft_s(0, 1000) < 4 * FIXED_S


@ORDERS
@pytest.mark.parametrize("lengths", [(128, 4), (200, 200), (4000, 1)])
@pytest.mark.parametrize("request_s", [1e-4, 2e-3, 50e-3])
def test_no_mean_time_of_a_burst_is_longer_than_the_burst(
    order: Order, lengths: tuple[int, int], request_s: float
) -> None:
    for places in (32, 256):
        one = server(order, places=places, request_s=request_s, token_s=50e-6)
        for count in (10, 100, 1000):
            run = in_burst(one, requests(*lengths), num_requests=count)
            assert run.ttft_s <= run.e2e_s * 1.001
            assert run.e2e_s <= 1.001 * count / run.requests_per_s
            # All of them are taken in by one process.
            assert run.ttft_s >= 0.5 * count * request_s
