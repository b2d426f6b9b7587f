"""The steady state of one lane whose clients think for a while before they ask again.

Who thinks for longer than a prompt takes comes back at a moment that has nothing to do with what the lane does: as one
of those who come at random (:mod:`.opened`), among which it does not meet itself (Sevcik and Mitrani, J. ACM 28, 1981),
and which are too few for a queue without end (:mod:`.reflected`). The rate is the one at which all of them are
somewhere: thinking or inside (Little's law).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.serving.opened import at_random, full_step_s, pace_at, prompts_at

if TYPE_CHECKING:
    from infcalc.serving.steady import Flow, Work
    from infcalc.serving.times import StepTimes

_CLOSE = 1e-3
"""Of those inside, how many may be nowhere."""
_MOST_ROUNDS = 40
_NARROW = 1e-10
"""Of a rate: bounds that lie as close enclose it."""
_LEAST_CUT = 0.02
"""Of the bounds, by which each round narrows them at least."""


def thinking(times: StepTimes, work: Work, num_requests: float, *, away_s: float, start_per_s: float) -> Flow:
    """Return the lane of ``num_requests`` clients that are ``away_s`` outside between two turns, and all decode.

    ``start_per_s`` is a rate from which theirs is looked for.
    """
    lone_s = times.at(1.0, work.context_tokens) if work.decode_tokens > 0 else 0.0
    low, high = 0.0, num_requests / (away_s + work.decode_tokens * lone_s)
    below, above = -num_requests, math.inf
    rate, step_s = min(start_per_s, high * (1 - _NARROW)), lone_s
    best: Flow | None = None
    for _ in range(_MOST_ROUNDS):
        found, step_s = _at(times, work, num_requests, rate, step_s)
        if found is None:
            high, above = rate, math.inf
        else:
            inside = rate * _inside_s(found, work)
            gap = rate * away_s + inside - num_requests
            if best is None or gap <= 0:
                best = found
            if abs(gap) <= _CLOSE * inside:
                best = found
                break
            if gap > 0:
                high, above = rate, gap
            else:
                low, below = rate, gap
        width = high - low
        if width <= _NARROW * high:
            break
        if math.isinf(above):
            # More than that cannot be done: who is not outside waits, however short that is of it.
            if low and width <= _CLOSE * (high - away_s * high * low / num_requests):
                break
            rate = low + 0.5 * width
        else:
            rate = low - below * width / (above - below)
            rate = min(max(rate, low + _LEAST_CUT * width), high - _LEAST_CUT * width)
    if best is None:
        message = "some rate is so low that nobody meets anybody"
        raise AssertionError(message)
    # Beyond what the lane can do, whoever is nowhere else waits.
    left_s = max(0.0, num_requests / best.requests_per_s - away_s - _inside_s(best, work))
    return best._replace(wait_s=best.wait_s + left_s)


def _inside_s(found: Flow, work: Work) -> float:
    return found.wait_s + found.prefill_s + work.decode_tokens * found.tpot_s


def _at(times: StepTimes, work: Work, num_requests: float, rate: float, step_s: float) -> tuple[Flow | None, float]:
    """Return the lane of clients that come at ``rate``, None where that is too much, and the length of its steps."""
    met = rate * max(0.0, 1 - 1 / (num_requests * work.num_locked))
    if work.decode_tokens > 0:
        pace = pace_at(times, work, met, step_s, num_requests=num_requests)
    else:
        pace = prompts_at(times, work, met)
    used = met * work.prompt_tokens / pace.found.room_tokens * full_step_s(times, work, pace.found)
    if used >= 1 or (work.decode_tokens > 0 and met * pace.found.extra_s >= 1):
        return None, step_s
    found = at_random(
        times,
        work,
        pace.found,
        rate=met,
        num_decodes=pace.num_decodes,
        step_s=pace.step_s,
        used=0.0,
        turn_s=num_requests / rate,
    )
    return found._replace(requests_per_s=rate, prefill_share=min(1.0, rate * pace.found.extra_s)), pace.step_s
