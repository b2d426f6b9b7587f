"""The steady state of one lane: decode steps into which the prompts of arriving requests are woven.

With D sequences in decode, each of which gives ``n`` tokens after its first, D / n requests end in a step and as many
enter: a step carries P = D * prompt / n prompt tokens on average. Where they come in chunks of c tokens, a share P / c
of the steps carries one. Time per token, time to first token and rate follow; how many are in decode follows from how
many are in the house (Little's law).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.engines.pace import Order
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.serving.times import StepTimes

_MOST_STEPS = 60
_TOLERANCE = 1e-7


@frozen
class Work:
    """What every request brings to a lane, and how the engine takes it."""

    prompt_tokens: float
    """To compute: what the prefix cache does not hold."""
    context_tokens: float
    """Mean tokens in the cache of a request in decode."""
    decode_tokens: float
    """Mean tokens of an answer after its first."""
    budget_tokens: float
    order: Order
    varied: bool = False
    """Prompts differ as those of conversations do: their lengths are taken as exponential."""
    num_steps_ahead: int = 0
    """Steps that are already scheduled when a request comes, beside the one under way."""
    num_locked: int = 1
    """Lanes that step together because they share experts: each waits for the longest step."""


_VARIED = ((0.8535533905932737, 0.5857864376269049), (0.14644660940672624, 3.414213562373095))
"""Gauss-Laguerre: weights and lengths, in means, of an exponential."""
_ALIKE = ((1.0, 1.0),)
_LOCAL = 0.5
"""Share of a prompt's work that is not the experts', in models whose attention is served data-parallel."""


@frozen
class Flow:
    """One lane with so many sequences in decode."""

    num_decodes: float
    tpot_s: float
    prefill_s: float
    """Own prefill of a request, from its first chunk on."""
    wait_s: float
    """For the step under way, and for prompts before its own."""
    requests_per_s: float

    @property
    def num_requests(self) -> float:
        """Requests in the lane: in decode and in prefill (Little's law)."""
        return self.num_decodes + self.requests_per_s * (self.prefill_s + self.wait_s)


def woven_step_s(times: StepTimes, work: Work, num_decodes: float, new_tokens: float, context_tokens: float) -> float:
    """Return the mean time of a decode step when ``new_tokens`` prompt tokens per step are to be done besides."""
    # A step has one sequence at least: where fewer decode on average, there are no steps in between.
    num_decodes = max(num_decodes, 1.0)
    plain = times.at(num_decodes, context_tokens)
    if new_tokens <= 0:
        return plain
    if work.order is Order.MIXED:
        room = max(1.0, work.budget_tokens - num_decodes)
        # Everyone who decodes has a token of every step; prompts beyond its room wait, and with them whoever sent them.
        new_tokens = min(new_tokens, room)
        chunk = min(max(new_tokens, work.prompt_tokens), room)
        steps = new_tokens / chunk
        more = 0.0
        for weight, length in _VARIED if work.varied else _ALIKE:
            # A prompt beyond the room of a step takes several.
            parts = max(1.0, chunk * length / room)
            more += weight * parts * (times.at(num_decodes, context_tokens, chunk * length / parts) - plain)
        more = min(more, times.at(num_decodes, context_tokens, room) - plain)
        # One lane's prompt holds up all that step with it, but for the experts, which take the prompts of all.
        any_lane = 1 - (1 - steps) ** work.num_locked
        return plain + more * (_LOCAL * any_lane + (1 - _LOCAL) * steps)
    chunk = min(max(new_tokens, work.prompt_tokens), work.budget_tokens)
    return plain + new_tokens / chunk * times.at(0, context_tokens, chunk)


def flow(times: StepTimes, work: Work, num_decodes: float, *, num_clients: float | None = None) -> Flow:
    """Return the lane with ``num_decodes`` sequences in decode on average.

    Of ``num_clients`` that wait for their answers, one is not slowed by its own prompt; None: they do not wait.
    """
    prompt, budget = work.prompt_tokens, work.budget_tokens
    if work.decode_tokens <= 0:
        chunk = min(prompt, budget)
        own = prompt / chunk * times.at(0, 0, chunk)
        full = prompt / budget * times.at(0, 0, budget)
        return Flow(num_decodes=0, tpot_s=0, prefill_s=own, wait_s=0, requests_per_s=1 / min(own, full))
    others = 1.0 if num_clients is None else max(0.0, 1 - 1 / num_clients)
    new = others * num_decodes * prompt / work.decode_tokens
    tpot_s = woven_step_s(times, work, num_decodes, new, work.context_tokens)
    least = max(num_decodes, 1.0)
    plain = times.at(least, work.context_tokens)
    if work.order is Order.MIXED:
        room = max(1.0, budget - num_decodes)
        chunk = min(prompt, room)
        step_s = times.at(num_decodes, work.context_tokens, chunk)
        own = prompt / chunk * step_s
        busy = min(0.95, new / room)
    else:
        chunk = min(prompt, budget)
        own = prompt / chunk * times.at(0, 0, chunk)
        busy = min(0.95, 1 - plain / tpot_s)
    # A request comes at a random moment of a step; before it are those that came since the last prefill.
    decoding = min(1.0, num_decodes) * others
    wait_s = decoding * (0.5 + work.num_steps_ahead) * plain + others * own * busy / (2 * (1 - busy))
    wait_s = min(wait_s, num_decodes * own + (1 + work.num_steps_ahead) * plain)
    return Flow(
        num_decodes=num_decodes,
        tpot_s=tpot_s,
        prefill_s=own,
        wait_s=wait_s,
        requests_per_s=num_decodes / (work.decode_tokens * tpot_s),
    )


def closed(times: StepTimes, work: Work, num_requests: float, *, away_s: float = 0.0) -> Flow:
    """Return the lane of ``num_requests`` requests: in prefill, in decode, or ``away_s`` outside between two turns."""
    if work.decode_tokens <= 0:
        return flow(times, work, 0)

    def lane(num_decodes: float) -> tuple[Flow, float]:
        found = flow(times, work, num_decodes, num_clients=num_requests)
        return found, found.num_requests + away_s * found.requests_per_s - num_requests

    found = _balanced(lane, min(num_requests, most_decodes(work)), at_none=-num_requests)
    missing = num_requests - found.num_requests - away_s * found.requests_per_s
    if missing <= _TOLERANCE * num_requests:
        return found
    # Prompts take all the room of every step: who is not in decode waits for his.
    return replace(found, wait_s=found.wait_s + missing / found.requests_per_s)


def most_decodes(work: Work) -> float:
    """Return how many can be in decode at most: as many as their followers' prompts leave room for in every step.

    A step of T tokens with D of them in decode computes T - D of prompts; D / n answers of n tokens end in it, and as
    many prompts must be computed.
    """
    if work.order is not Order.MIXED:
        return math.inf
    return work.budget_tokens / (1 + work.prompt_tokens / work.decode_tokens)


def opened(times: StepTimes, work: Work, requests_per_s: float, best: Flow) -> Flow | None:
    """Return the lane that answers ``requests_per_s``; None where it does not at its ``best``."""
    if best.requests_per_s <= requests_per_s:
        return None
    # Where prompts take all the room of every step, they are a queue of one server (M/D/1).
    busy = requests_per_s / best.requests_per_s
    behind_s = busy / (2 * (1 - busy)) / best.requests_per_s
    if work.decode_tokens <= 0:
        return replace(best, wait_s=behind_s, requests_per_s=requests_per_s)

    def lane(num_decodes: float) -> tuple[Flow, float]:
        found = flow(times, work, num_decodes)
        return found, found.requests_per_s / requests_per_s - 1

    # As many as the rate keeps in decode at the pace of few, and then at the pace of those.
    per_s = requests_per_s * work.decode_tokens
    guess = per_s * times.at(1.0, work.context_tokens)
    guess = min(best.num_decodes, per_s * flow(times, work, min(guess, best.num_decodes)).tpot_s)
    found = _balanced(lane, best.num_decodes, at_none=-1.0, guess=guess)
    crowded = best.num_decodes >= most_decodes(work) * (1 - _TOLERANCE)
    return replace(found, wait_s=max(found.wait_s, behind_s)) if crowded else found


def _balanced(
    lane: Callable[[float], tuple[Flow, float]], most: float, *, at_none: float, guess: float | None = None
) -> Flow:
    """Return the lane, with up to ``most`` in decode, that has neither too few (below 0) nor too many.

    ``at_none`` is what it has with none; ``guess`` is tried first, else ``most``. Between too few and too many the next
    to try lies on the line through the last two; where that leaves the bracket, on the line through its ends, of which
    the one that stays is halved (Illinois). Few lanes are tried, and between the ends there always is a right one.
    """
    low, below = 0.0, at_none
    high, above = most, 0.0
    if guess is None:
        found, above = lane(most)
        if above <= 0:
            return found
        place = _between(low, below, high, above)
    else:
        place = min(max(guess, 0.0), most)
    last: tuple[float, float] | None = None
    found, value = lane(place)
    for _ in range(_MOST_STEPS):
        if abs(value) <= _TOLERANCE * abs(at_none) or high - low < _TOLERANCE * high:
            break
        if value < 0:
            low, below = place, value
            above *= 0.5
        else:
            high, above = place, value
            below *= 0.5
        following = place - value * (place - last[0]) / (value - last[1]) if last and value != last[1] else low
        if not low < following < high:
            if not above:
                # The upper end was not tried: there it is enough, for that is all there can be.
                _, above = lane(high)
                if above <= 0:
                    return lane(high)[0]
            following = _between(low, below, high, above)
        last = place, value
        place = following
        found, value = lane(place)
    return found


def _between(low: float, below: float, high: float, above: float) -> float:
    return (low * above - high * below) / (above - below)
