"""The steady state of one lane whose clients wait for their answers before they ask again."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from infcalc.engines.pace import Order
from infcalc.serving.steady import Flow, Steps, Work, behind_steps, most_decodes, num_prompt_steps, own_s, steps_of
from infcalc.serving.thinking import thinking

if TYPE_CHECKING:
    from infcalc.serving.times import StepTimes

_CLOSE = 1e-6
"""Change of what is in decode, as a share, below which it is found."""
_MOST_ROUNDS = 40
_CROWDED = 0.9
"""Of the tokens of all steps, from which on it is asked whether prompts take all the room of them."""


def closed(
    times: StepTimes, work: Work, num_requests: float, *, away_s: float = 0.0, think_time_s: float = 0.0
) -> Flow:
    """Return the lane of ``num_requests`` requests: in prefill, in decode, or ``away_s`` outside between two turns.

    Without any time outside, whoever ends is followed in the very next step. ``think_time_s`` of the time outside is
    the client's own, which is never twice the same.
    """
    way = _bound_to_steps if work.decode_tokens > 0 else _only_prompts
    found = way(times, work, num_requests, away_s)
    if think_time_s <= 0 or num_requests * work.num_locked <= 1:
        return found
    free = thinking(times, work, num_requests, away_s=away_s, start_per_s=found.requests_per_s)
    return _between(work, num_requests, found, free, away_s=away_s, think_time_s=think_time_s)


def _between(work: Work, num_requests: float, bound: Flow, free: Flow, *, away_s: float, think_time_s: float) -> Flow:
    """Return the lane between that of clients ``bound`` to its steps and that of others who come at random.

    Who thinks for less time than a prompt takes comes back among the same prompts. The time inside is what is left of
    a turn, whose length is sure where there is little else, and else what others who come at random make of it.
    """
    decode = work.decode_tokens
    apart = think_time_s / (think_time_s + free.prefill_s)
    outside = away_s * free.requests_per_s / num_requests
    bound_s, free_s = (num_requests / one.requests_per_s - away_s for one in (bound, free))
    inside_s = bound_s + outside * apart * (free_s - bound_s)
    bound_first, free_first = (bound.prefill_s + bound.wait_s) / bound_s, (free.prefill_s + free.wait_s) / free_s
    first_s = inside_s * (bound_first + apart * (free_first - bound_first)) if decode else inside_s
    prefill_s = min(first_s, bound.prefill_s + apart * (free.prefill_s - bound.prefill_s))
    rate, tpot_s = num_requests / (away_s + inside_s), (inside_s - first_s) / decode if decode else 0.0
    return Flow(
        num_decodes=rate * decode * tpot_s,
        tpot_s=tpot_s,
        prefill_s=prefill_s,
        wait_s=first_s - prefill_s,
        requests_per_s=rate,
        crowded=bound.crowded,
        prefill_share=bound.prefill_share,
    )


def _bound_to_steps(times: StepTimes, work: Work, num_requests: float, away_s: float) -> Flow:
    """Return the lane whose clients come back when a step ends, or so soon after that they are still of its time."""
    turn = _turn(times, work, num_requests, away_s)
    full = _crowded(times, work, num_requests, turn)
    turn = turn if full is None else full
    found, decode, whole_s = turn.found, work.decode_tokens, turn.whole_s
    rate = num_requests / whole_s
    if work.order is Order.MIXED:
        beside = turn.others * rate * work.prompt_tokens * (2 * found.residual_s if away_s else turn.step_s)
        prefill_s = own_s(times, work, turn.num_decodes - 1, beside, found)
        wait_s = turn.rest_s + turn.before * (found.plain_s + found.token_s * turn.room_tokens)
    else:
        beside = turn.others * num_requests * work.prompt_tokens / decode
        prefill_s, wait_s = own_s(times, work, turn.num_decodes, beside, found), turn.rest_s
        if away_s:
            prefill_s, wait_s = _clump(times, work, num_requests, turn, away_s=away_s, beside_tokens=beside)
    # What a request does not spend before its first token, it spends after it; no token is faster than a lone step.
    first_s = min(prefill_s + wait_s, whole_s - away_s - decode * found.plain_s)
    if work.order is Order.MIXED and work.num_locked == 1:
        # Nor is any slower than a step that is full of prompts.
        most_s = found.plain_s + found.token_s * turn.room_tokens if full is None else full.step_s
        first_s = max(first_s, whole_s - away_s - decode * most_s)
    prefill_s = min(prefill_s, first_s)
    tpot_s = (whole_s - away_s - first_s) / decode
    return Flow(
        num_decodes=rate * decode * tpot_s,
        tpot_s=tpot_s,
        prefill_s=prefill_s,
        wait_s=first_s - prefill_s,
        requests_per_s=rate,
        crowded=full is not None,
        prefill_share=min(1.0, rate * found.extra_s),
    )


class _Turn(NamedTuple):
    """What a client goes through from one request to its next."""

    found: Steps
    num_decodes: float
    """As seen by one of them."""
    room_tokens: float
    others: float
    """Share of all prompts that are not its own."""
    before: float
    """Full steps that it waits for prompts before its own."""
    rest_s: float
    """Of the step under way and those already scheduled."""
    num_steps: float
    step_s: float
    whole_s: float


def _turn(times: StepTimes, work: Work, num_requests: float, away_s: float) -> _Turn:
    """Return a turn of ``num_requests`` clients: the time of its own steps, and of the prompts of all others.

    With ``C`` the turn, ``d`` the time outside, ``A`` that of its own steps and prompt and ``B`` what the prompts of
    the others add in a turn, what comes while it is inside is ``B (C - d) / C``: hence (C - d) (C - B) = A C.
    """
    decode, lanes = work.decode_tokens, work.num_locked
    clients = num_requests * lanes
    others = max(0.0, 1 - 1 / clients)
    prompts = num_requests * work.prompt_tokens
    num_steps = decode + 1
    num_decodes = 0.0
    for _ in range(_MOST_ROUNDS):
        following = 1 + max(0.0, num_requests - 1) * decode / num_steps
        if abs(following - num_decodes) <= _CLOSE * following:
            break
        num_decodes = following
        found = steps_of(times, work, num_decodes, prompts / num_steps, num_requests)
        before = 0.0
        if work.order is Order.MIXED:
            used = others * prompts / (num_steps * found.room_tokens)
            before = behind_steps(work, found.room_tokens, used, at_random=away_s > 0)
            before = min(before, others * prompts / found.room_tokens)
        rest_s = work.num_steps_ahead * found.plain_s * (clients > 1)
        if away_s and clients > 1:
            # At times all the others are away as well, and no step is under way.
            none = math.pow(away_s / (away_s + decode * found.plain_s), clients - 1)
            rest_s += (1 - none) * found.residual_s
        outside_s = away_s + rest_s
        own_steps = decode + num_prompt_steps(work, found.room_tokens) + before
        mine = own_steps * found.plain_s + _own_extra_s(times, work, found, clients)
        theirs = found.extra_s * (clients - 1) / lanes
        both = outside_s + mine + theirs
        whole_s = 0.5 * (both + math.sqrt(both**2 - 4 * theirs * outside_s))
        step_s = found.plain_s * (whole_s - outside_s) / mine
        num_steps = own_steps + outside_s / step_s
    return _Turn(found, num_decodes, found.room_tokens, others, before, rest_s, num_steps, step_s, whole_s)


def _crowded(times: StepTimes, work: Work, num_requests: float, turn: _Turn) -> _Turn | None:
    """Return the turn where prompts take all the room of every step, and who is not in decode waits; else None."""
    tokens = num_requests * (work.prompt_tokens + work.verified_tokens * work.decode_tokens)
    if work.order is not Order.MIXED or tokens <= _CROWDED * turn.num_steps * work.budget_tokens:
        return None
    num_decodes = most_decodes(work)
    room = work.room_tokens(num_decodes)
    full = steps_of(times, work, num_decodes, room)
    step_s = full.plain_s + full.extra_s * room / work.prompt_tokens
    whole_s = tokens / work.budget_tokens * step_s
    if whole_s <= turn.whole_s:
        return None
    return turn._replace(num_decodes=num_decodes, room_tokens=room, step_s=step_s, whole_s=whole_s)


def _own_extra_s(times: StepTimes, work: Work, found: Steps, clients: float) -> float:
    """Return what a request's own prompt adds: whole steps where prompts go first and nobody fills the last."""
    shared_s = found.extra_s / work.num_locked
    if work.order is Order.MIXED or work.prompt_tokens <= found.room_tokens:
        return shared_s
    return shared_s + max(0.0, own_s(times, work, 0.0, 0.0, found) - shared_s) / clients


def _clump(
    times: StepTimes,
    work: Work,
    num_requests: float,
    turn: _Turn,
    *,
    away_s: float,
    beside_tokens: float,
) -> tuple[float, float]:
    """Return own prefill and wait where prefill goes first, and clients are away between two turns.

    Nobody ends while prompts are computed: who comes then was away before, and of those there are few.
    """
    found, others, rest_s = turn.found, turn.others, turn.rest_s
    each_s, prompt, rate = found.extra_s, work.prompt_tokens, num_requests / turn.whole_s
    away = others * num_requests * away_s / (away_s + work.decode_tokens * found.plain_s)
    first = 1 + beside_tokens / prompt
    most = 1 + others * num_requests
    together = min(first + away, most)
    if together * each_s < away_s:
        together = min(together, first / max(1e-9, 1 - away * each_s / away_s))
    known = min(1.0, together * each_s / away_s)
    clump_s = own_s(times, work, 0.0, (together - 1) * prompt, found)
    clump_s += rest_s - found.residual_s + 0.5 * found.plain_s / together
    clump_s -= 0.5 * (1 - 1 / together) * min(away_s, together * each_s)
    used = others * rate * each_s
    side = max(1.0, found.room_tokens / prompt)
    met = own_s(times, work, 0.0, others * rate * prompt * 2 * found.residual_s, found)
    met += rest_s + behind_steps(work, found.room_tokens, used, at_random=True) * each_s * side
    own = own_s(times, work, 0.0, 0.0, found)
    whole_s = max(own, known * clump_s + (1 - known) * met)
    return own, whole_s - own


def _only_prompts(times: StepTimes, work: Work, num_requests: float, away_s: float) -> Flow:
    """Return the lane of requests whose answer is one token: prompts alone, many in a step where there is room."""
    lanes, together = work.num_locked, num_requests
    clients = num_requests * lanes
    alone = work._replace(order=Order.PREFILL_FIRST)
    for _ in range(_MOST_ROUNDS):
        found = steps_of(times, alone, 0.0, together * work.prompt_tokens)
        mine, theirs = _own_extra_s(times, alone, found, clients), found.extra_s * (clients - 1) / lanes
        both = away_s + mine + theirs
        whole_s = 0.5 * (both + math.sqrt(both**2 - 4 * theirs * away_s))
        following = max(1.0, num_requests * (1 - away_s / whole_s))
        if abs(following - together) <= _CLOSE * together:
            break
        together = following
    own = min(own_s(times, alone, 0.0, (together - 1) * work.prompt_tokens, found), whole_s - away_s)
    return Flow(
        num_decodes=0.0,
        tpot_s=0.0,
        prefill_s=own,
        wait_s=whole_s - away_s - own,
        requests_per_s=num_requests / whole_s,
        crowded=num_requests > 1,
        prefill_share=min(1.0, num_requests / whole_s * found.extra_s),
    )
