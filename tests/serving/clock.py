"""A clock by formula, whose steps a test can add up by hand."""

from __future__ import annotations

from typing import Any, TypeAlias

from infcalc.engines.pace import Order, Pace
from infcalc.serving.server import Requests, Server

Amount: TypeAlias = Any
"""A number or an array."""
FIXED_S = 5e-3
DECODE_S = 20e-6
CONTEXT_S = 10e-9
TOKEN_S = 25e-6


class Formula:
    """5 ms a step, 20 us a sequence, 10 ns for each token in a cache, 25 us for each new token of a prompt."""

    def step_s(
        self,
        *,
        num_decodes: Amount,
        context_tokens: Amount,
        num_prefills: Amount = 0,
        new_tokens: Amount = 0,
        cached_tokens: Amount = 0,
        decode_new_tokens: Amount = 1,
        busy_dp_ranks: Amount = None,
    ) -> Amount:
        """Return the seconds of one step."""
        del cached_tokens, decode_new_tokens, busy_dp_ranks
        prompts = num_prefills * new_tokens
        some = (num_decodes + prompts) > 0
        return some * (FIXED_S + num_decodes * (DECODE_S + CONTEXT_S * context_tokens) + TOKEN_S * prompts)


class Shared:
    """As :class:`Formula`, but half of what a prompt's token takes is the experts', of ``num_ranks`` ranks together."""

    def __init__(self, num_ranks: int) -> None:
        self.num_ranks = num_ranks

    def step_s(
        self,
        *,
        num_decodes: Amount,
        context_tokens: Amount,
        num_prefills: Amount = 0,
        new_tokens: Amount = 0,
        cached_tokens: Amount = 0,
        decode_new_tokens: Amount = 1,
        busy_dp_ranks: Amount = None,
    ) -> Amount:
        """Return the seconds of one step."""
        del cached_tokens, decode_new_tokens
        prompts = num_prefills * new_tokens
        share = 1.0 if busy_dp_ranks is None else busy_dp_ranks / self.num_ranks
        own = num_decodes * (DECODE_S + CONTEXT_S * context_tokens) + 0.5 * TOKEN_S * prompts
        return ((num_decodes + prompts) > 0) * (FIXED_S + own + 0.5 * TOKEN_S * share * (num_decodes + prompts))


class Stages:
    """As :class:`Formula`, through stages of which the first takes ``slowest_share`` of the time."""

    def __init__(self, slowest_share: float, num_stages: int, *, full: bool) -> None:
        self.factor = slowest_share * num_stages if full else 1.0

    def step_s(self, **step: Amount) -> Amount:
        """Return the seconds of one step, or of one in a full pipeline."""
        return self.factor * Formula().step_s(**step)


def ranks(num_ranks: int, order: Order = Order.MIXED, *, places: float = 2048) -> Server:
    """Return ranks that step together because they share experts."""
    clock = Shared(num_ranks)
    return Server(
        clock=clock,
        full_clock=clock,
        pace=pace(order),
        num_lanes=num_ranks,
        num_locked=num_ranks,
        budget_tokens=2048,
        num_places=places,
        num_fitting=places,
    )


def pipeline(num_stages: int, slowest_share: float, order: Order = Order.MIXED, *, places: float = 2048) -> Server:
    """Return a pipeline whose first stage takes a share of the time of all."""
    return Server(
        clock=Stages(slowest_share, num_stages, full=False),
        full_clock=Stages(slowest_share, num_stages, full=True),
        pace=pace(order),
        num_lanes=num_stages,
        num_stages=num_stages,
        budget_tokens=2048,
        num_places=places,
        num_fitting=places,
    )


def pace(order: Order = Order.MIXED, **given: float) -> Pace:
    plain: dict[str, Any] = {"per_layer_s": 0.0, "per_step_s": 0.0, "per_sequence_s": 0.0}
    plain |= {"request_s": 0.0, "token_s": 0.0, "prompt_token_s": 0.0, "latency_s": 0.0}
    return Pace(order=order, **(plain | given))


def server(order: Order = Order.MIXED, *, places: float = 256, lanes: int = 1, **given: float) -> Server:
    clock = Formula()
    return Server(
        clock=clock,
        full_clock=clock,
        pace=pace(order, **given),
        num_lanes=lanes,
        budget_tokens=2048,
        num_places=places,
        num_fitting=places,
    )


def requests(prompt: float = 1000, answer: float = 200) -> Requests:
    return Requests(prompt_tokens=prompt, cached_tokens=0.0, answers=((1.0, answer),))


def lone_decode_s(prompt: float, answer: float) -> float:
    """Return the time of the steps of one request alone, token by token."""
    return sum(FIXED_S + DECODE_S + CONTEXT_S * (prompt + token) for token in range(int(answer) - 1))
