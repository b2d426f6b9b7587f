"""From a server to the lane that stands for all of them: its step times, its work, its front end."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from infcalc.serving.steady import Work
from infcalc.serving.times import StepTimes, step_times

if TYPE_CHECKING:
    from infcalc.serving.nouns import Requests, Server
    from infcalc.serving.times import Clock


class _PartlyFull:
    """The clock of a pipeline in which only a share of the lanes has a batch under way.

    Each batch passes all stages, and the slowest stage takes one batch after the other: a round takes as long as the
    longer of the two.
    """

    __slots__ = ("_alone", "_full", "_share")

    def __init__(self, alone: Clock, full: Clock, share: float) -> None:
        self._alone, self._full, self._share = alone, full, share

    def step_s(self, **step: Any) -> Any:  # noqa: ANN401 - numbers or arrays
        """Return the seconds of one step."""
        alone_s, full_s = self._alone.step_s(**step), self._share * self._full.step_s(**step)
        if isinstance(alone_s, int | float) and isinstance(full_s, int | float):
            return max(alone_s, full_s)
        import numpy as np  # noqa: PLC0415 - whoever hands in arrays has loaded it

        return np.maximum(alone_s, full_s)


class _OneWithPrompt:
    """The clock of a full pipeline in which one lane computes a prompt, and those behind it wait."""

    __slots__ = ("_clock", "_full", "_share")

    def __init__(self, clock: Clock, full: Clock, share: float) -> None:
        self._clock, self._full, self._share = clock, full, share

    def step_s(self, **step: Any) -> Any:  # noqa: ANN401 - numbers
        """Return the seconds of one round: all of the lane's own, or all turns of the slowest stage."""
        others_s = self._full.step_s(num_decodes=step["num_decodes"], context_tokens=step["context_tokens"])
        mean_s = others_s + self._share * (self._full.step_s(**step) - others_s)
        return max(self._clock.step_s(**step), mean_s)


def clock_at(server: Server, num_busy: float) -> Clock:
    """Return the clock of a lane where ``num_busy`` lanes have anything to do."""
    if server.full_clock is server.clock:
        return server.clock
    share = num_busy / server.num_lanes
    return server.full_clock if share >= 1 else _PartlyFull(server.clock, server.full_clock, share)


def times_of(server: Server, asked: Requests, most: float, *, num_busy: float = math.inf) -> StepTimes:
    """Return the step times of a lane with up to ``most`` in decode, where ``num_busy`` lanes have anything to do."""
    longest = max(length for _, length in asked.answers)
    start = asked.prompt_tokens + asked.cached_tokens
    staged = server.num_stages > 1
    return step_times(
        clock_at(server, num_busy),
        lone_clock=_OneWithPrompt(server.clock, clock_at(server, num_busy), 1 / server.num_stages) if staged else None,
        most_decodes=max(1.0, most),
        least_context_tokens=start,
        most_context_tokens=start + max(longest, 1.0),
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        cached_tokens=asked.cached_tokens,
        budget_tokens=server.budget_tokens,
        num_locked=server.num_locked,
        num_decoding=max(1.0, min(num_busy, server.num_lanes) / (server.num_groups * server.num_stages)),
    )


def work_of(server: Server, asked: Requests) -> Work:
    """Return what every request brings to a lane."""
    return Work(
        prompt_tokens=max(asked.prompt_tokens, 1.0),
        context_tokens=asked.live_tokens,
        decode_tokens=max(0.0, asked.answer_tokens - 1),
        budget_tokens=server.budget_tokens,
        order=server.pace.order,
        prompt_scatter=asked.scatter,
        num_steps_ahead=server.pace.num_steps_ahead,
        num_locked=server.num_coupled,
        verified_tokens=server.verified_tokens,
    )


def before_s(server: Server, asked: Requests) -> float:
    """Return what the front end does for a request before the scheduler sees it."""
    return server.pace.request_s + server.pace.prompt_token_s * (asked.prompt_tokens + asked.cached_tokens)


def latency_of(server: Server, asked: Requests, *, front_end: bool) -> float:
    """Return what a lone request waits in the front end before and after the engine."""
    return server.pace.latency_s + before_s(server, asked) if front_end else 0.0


def front_end_s(server: Server, asked: Requests, *, front_end: bool = True) -> float:
    """Return the time of the front end that a request costs from taking it in to sending its last token."""
    if not front_end:
        return 0.0
    each_s = before_s(server, asked) + asked.answer_tokens * server.pace.token_s
    return each_s / server.num_front_ends


def share_out(server: Server, num_requests: float) -> float:
    """Return how many of ``num_requests`` each lane has: one at least of those that wait for each other."""
    return max(1.0 / server.num_coupled, num_requests / server.num_lanes)


CLIENTS = "clients"
"""What bounds a server that would do more if more asked: those who do are few, or away."""


def bound(server: Server, most: float, clients: float | None) -> str:
    """Return what limits how many run at once."""
    if clients is not None and clients < server.num_places:
        return CLIENTS
    if most < server.num_places:
        return "requests"
    return "KV room" if server.num_fitting < server.num_places + 1 else "max_num_seqs"
