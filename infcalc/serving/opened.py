"""The steady state of one lane to which requests come at random, whether or not others have been answered."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from infcalc.engines.pace import Order
from infcalc.serving.reflected import reflected
from infcalc.serving.steady import Flow, Steps, Work, behind_steps, own_s, steps_of

if TYPE_CHECKING:
    from infcalc.serving.times import StepTimes

_CLOSE = 1e-6
"""Change of a step, as a share, below which it is found."""
_MOST_ROUNDS = 40
_MOST_USED = 0.999


def opened(times: StepTimes, work: Work, requests_per_s: float, best: Flow) -> Flow | None:
    """Return the lane to which ``requests_per_s`` come at random; None where it cannot answer them at its ``best``."""
    if best.requests_per_s <= requests_per_s:
        return None
    rate, decode = requests_per_s, work.decode_tokens
    used = rate / best.requests_per_s if best.crowded else 0.0
    if not decode:
        pace = prompts_at(times, work, rate)
        return at_random(times, work, pace.found, rate=rate, num_decodes=0.0, step_s=pace.step_s, used=used)
    most = max(best.num_decodes, 1e-9)
    alone_s = times.at(1.0, work.context_tokens)
    # As long as on the line between a lone step and those of the server at its best.
    slower = max(0.0, best.tpot_s - alone_s) / max(most, 1.0)
    step_s = alone_s / max(alone_s / max(best.tpot_s, alone_s), 1 - rate * decode * slower)
    pace = pace_at(times, work, rate, step_s, most=most)
    return at_random(times, work, pace.found, rate=rate, num_decodes=pace.num_decodes, step_s=pace.step_s, used=used)


class Pace(NamedTuple):
    """The steps of a lane at a rate."""

    found: Steps
    num_decodes: float
    """On average."""
    step_s: float
    """As seen by who decodes."""


def prompts_at(times: StepTimes, work: Work, rate: float) -> Pace:
    """Return the pace of a lane that computes nothing but prompts, ``rate`` of them a second."""
    step_s = own_s(times, work, 0.0, 0.0)
    for _ in range(_MOST_ROUNDS):
        found = steps_of(times, work, 0.0, rate * work.prompt_tokens * step_s)
        if abs(found.prompt_step_s - step_s) <= _CLOSE * step_s:
            break
        step_s = found.prompt_step_s
    return Pace(found, 0.0, step_s)


def pace_at(
    times: StepTimes,
    work: Work,
    rate: float,
    step_s: float,
    *,
    most: float = math.inf,
    num_requests: float = math.inf,
) -> Pace:
    """Return the pace of a lane to which ``rate`` requests a second come, looked for from ``step_s`` on.

    ``most`` are in decode at most, and ``num_requests`` can send prompts.
    """
    decode, prompt = work.decode_tokens, work.prompt_tokens
    low_s, high_s = 0.0, math.inf
    last: tuple[float, float] | None = None
    for _ in range(_MOST_ROUNDS):
        # Who decodes sees one more than there are on average; prompts that come in a step make it longer.
        count = min(most, rate * decode * step_s)
        found = steps_of(times, work, 1 + count, rate * prompt * step_s, num_requests)
        gap_s = found.plain_s + rate * step_s * found.extra_s - step_s
        if abs(gap_s) <= _CLOSE * step_s:
            break
        low_s, high_s = (step_s, high_s) if gap_s > 0 else (low_s, step_s)
        slope = (gap_s - last[1]) / (step_s - last[0]) if last else rate * found.extra_s - 1
        last = step_s, gap_s
        following_s = step_s - gap_s / slope if slope else 0.0
        if not low_s < following_s < high_s:
            following_s = 2 * step_s if math.isinf(high_s) else 0.5 * (low_s + high_s)
        step_s = following_s
    return Pace(found, count, step_s)


def full_step_s(times: StepTimes, work: Work, found: Steps) -> float:
    """Return the seconds of a step that is full of prompts."""
    if work.order is Order.MIXED and work.decode_tokens > 0:
        return found.token_s * found.room_tokens + found.plain_s
    return times.at(0.0, work.context_tokens, found.room_tokens)


def at_random(
    times: StepTimes,
    work: Work,
    found: Steps,
    *,
    rate: float,
    num_decodes: float,
    step_s: float,
    used: float,
    turn_s: float = math.inf,
) -> Flow:
    """Return the lane with so many in decode as seen by who comes at random.

    ``turn_s``: the time in which each of those who come does so once, if they are few (:mod:`.reflected`).
    """
    decode, prompt, room = work.decode_tokens, work.prompt_tokens, found.room_tokens
    mixed = work.order is Order.MIXED and decode > 0
    busy = min(rate * found.extra_s, _MOST_USED)
    each_s, lanes = found.token_s, work.num_locked
    full_s = full_step_s(times, work, found)
    used = max(used, min(_MOST_USED, rate * prompt / room * full_s))
    if mixed or (lanes > 1 and decode > 0):
        # Steps follow each other as the generations of a branching process: each brings the prompts of the next.
        spread = lanes * rate * step_s * (each_s * prompt) ** 2 * (1 + work.prompt_scatter) / (1 - busy**2)
        spread = min(spread, max(0.0, (full_s - step_s) * (step_s - found.plain_s)))
        rest_s = 0.5 * (step_s + spread / step_s)
        running = 1 - math.exp(-lanes * num_decodes - rate * found.extra_s)
    else:
        # While prompts are computed there is always a step under way, else where anybody decodes.
        met_s = found.prompt_step_s
        running = busy + (1 - busy) * -math.expm1(-num_decodes)
        plain = running - busy
        rest_s = 0.5 * (busy * met_s + plain * found.plain_s) / running if running else 0.0
    rest_s *= running
    ahead_s = work.num_steps_ahead * step_s * -math.expm1(-num_decodes) if decode > 0 else 0.0
    behind_s = behind_steps(work, room, used, at_random=True) * full_s
    queue = None if math.isinf(turn_s) else reflected(behind_s, used, turn_s)
    behind_s = behind_s if queue is None else queue.wait_s
    prefill_s = own_s(times, work, num_decodes, rate * prompt * 2 * rest_s, found)
    tpot_s = 0.0
    if decode > 0:
        # What came after it is computed in its own steps, at their start more than at their end.
        begin = rate * prompt * (behind_s + prefill_s)
        end = 0.0
        if mixed:
            parts = max(1.0, prompt / room)
            waiting = rate * prompt * (behind_s + 0.5 * (parts - 1) * full_s) / full_s
            end = rate * prompt * step_s + waiting / (used / full_s + (1 - used) / found.plain_s)
        more_s = max(0.0, each_s * (begin - end)) / decode
        if mixed or queue is None:
            more_s /= 1 - busy
        else:
            # What came meanwhile is computed before the first step of decode, and so is what comes during that.
            more_s = queue.drained_s(more_s * decode) / decode
        if mixed and more_s:
            # No step takes more than it has room for, and only where somebody waits behind.
            most_s = max(used * (full_s - step_s), 1e-12)
            more_s = most_s * -math.expm1(-more_s / most_s)
        tpot_s = step_s + more_s
    return Flow(
        num_decodes=rate * decode * tpot_s,
        tpot_s=tpot_s,
        prefill_s=prefill_s,
        wait_s=rest_s + ahead_s + behind_s,
        requests_per_s=rate,
    )
