"""The steady state of one lane: decode steps into which the prompts of arriving requests are woven.

A request takes ``n`` decode steps, and its prompt adds ``e`` seconds to steps of its lane. Whatever others send while
it is there adds to its time as well: with ``l`` of their prompts a second, a time of ``m`` steps lasts m T / (1 - l e),
where T is a step without prompts. In a closed loop every other client sends one prompt while a request goes round
once; time to first token, time per token and rate follow, and no rate takes more than all of the device's time.

How long prompts wait for each other is that of a server whose work comes at random (M/G/1: Pollaczek 1930, Khinchine
1932), with as many side by side as a step has room for (Sakasegawa, Ann. Inst. Statist. Math. 29, 1977).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from infcalc.engines.pace import Order

if TYPE_CHECKING:
    from infcalc.serving.times import StepTimes

_NEARLY_ONE = 1 - 1e-12


class Work(NamedTuple):
    """What every request brings to a lane, and how the engine takes it."""

    prompt_tokens: float
    """To compute: what the prefix cache does not hold."""
    context_tokens: float
    """Mean tokens in the cache of a request in decode."""
    decode_tokens: float
    """Mean tokens of an answer after its first."""
    budget_tokens: float
    order: Order
    prompt_scatter: float = 0.0
    """Squared coefficient of variation of the prompts."""
    num_steps_ahead: int = 0
    """Steps that are already scheduled when a request comes, beside the one under way."""
    num_locked: int = 1
    """Lanes that step together because they share experts: each waits for the longest step."""

    @property
    def prompts(self) -> tuple[tuple[float, float], ...]:
        """Weights and lengths, in means, of the prompts: of a gamma with their scatter (Gauss and Laguerre)."""
        if not self.prompt_scatter:
            return _ALIKE
        more = 1 / self.prompt_scatter + 1
        root = math.sqrt(more)
        scale = self.prompt_scatter
        return ((0.5 + 0.5 / root, (more - root) * scale), (0.5 - 0.5 / root, (more + root) * scale))


_ALIKE = ((1.0, 1.0),)


class Flow(NamedTuple):
    """One lane with so many sequences in decode."""

    num_decodes: float
    tpot_s: float
    prefill_s: float
    """Own prefill of a request, from its first chunk on, with what shares its steps."""
    wait_s: float
    """For the step under way, and for prompts before its own."""
    requests_per_s: float
    crowded: bool = False
    """Whether prompts take all the room of every step."""
    prefill_share: float = 0.0
    """Of the device's time that prompts take."""

    @property
    def num_requests(self) -> float:
        """Requests in the lane: in decode and in prefill (Little's law)."""
        return self.num_decodes + self.requests_per_s * (self.prefill_s + self.wait_s)


class Steps(NamedTuple):
    """Steps of a lane in which so many decode and so many prompt tokens are woven into each on average."""

    plain_s: float
    """Of a step without a prompt."""
    extra_s: float
    """What a prompt adds to the steps of its lane, when each of the lanes that step together has one."""
    prompt_step_s: float
    """Mean of the steps with a prompt in them."""
    share: float
    """Of the steps that have one in a lane of those that step together."""
    room_tokens: float
    """Prompt tokens that a step takes."""
    lane_share: float
    """Of the steps that have a prompt in a given lane."""
    token_s: float
    """What a token of a prompt adds to a step of its lane."""

    @property
    def residual_s(self) -> float:
        """Mean rest of the step that a random moment falls in, which is a long step more often than a short one."""
        first = (1 - self.share) * self.plain_s + self.share * self.prompt_step_s
        second = (1 - self.share) * self.plain_s**2 + self.share * self.prompt_step_s**2
        return 0.5 * second / first if first else 0.0


def steps_of(
    times: StepTimes, work: Work, num_decodes: float, new_tokens: float, num_requests: float = math.inf
) -> Steps:
    """Return the steps of a lane with ``num_decodes`` in decode into each of which ``new_tokens`` of prompts come.

    ``num_requests``: who can send them.

    Prompts that come more often than once in a step share one; longer ones than it has room for take several.
    """
    context, prompt = work.context_tokens, work.prompt_tokens
    plain_s = times.at(num_decodes, context)
    mixed = work.order is Order.MIXED
    beside = num_decodes if mixed else 0.0
    room = max(1.0, work.budget_tokens - beside)
    base_s = plain_s if mixed else 0.0
    each = new_tokens
    if not mixed and work.decode_tokens > 0:
        # Prompts that come between two decode steps are computed together, and come by chance: by twos as well.
        each = prompt * _met(new_tokens / prompt, num_requests)
    chunk = min(max(each, prompt), room)

    def woven_s(grid: StepTimes) -> float:
        found = 0.0
        for weight, length in work.prompts:
            parts = max(1.0, chunk * length / room)
            found += weight * parts * (grid.at(beside, context, chunk * length / parts) - base_s)
        return found

    per_step = new_tokens / chunk
    if work.num_locked == 1:
        all_s = woven_s(times)
        share = min(1.0, per_step)
        return Steps(plain_s, all_s * prompt / chunk, base_s + all_s, share, room, share, all_s / chunk)
    # One lane's prompt holds up all that step with it; experts take the prompts of all.
    lanes = work.num_locked
    per_step = max(per_step, 1e-9)
    if not mixed:
        # A lane that computes prompts does not decode meanwhile, but others do.
        base_s, stopped = plain_s, per_step
    else:
        base_s, stopped = plain_s, 0.0
        per_step = min(1.0, per_step)
    one_s, all_s = woven_s(times.lone), woven_s(times)
    own_share = per_step / (1 + stopped)
    share = 1 - (1 - own_share) ** lanes
    mean_s = share * one_s + (lanes * own_share - share) / (lanes - 1) * (all_s - one_s)
    more_s = (1 + stopped) * (plain_s + mean_s) - plain_s
    return Steps(
        plain_s,
        more_s / per_step * prompt / chunk,
        plain_s + mean_s / share,
        share,
        room,
        lane_share=own_share,
        token_s=one_s / chunk,
    )


def _met(mean: float, number: float) -> float:
    """Return how many come together where any come: of ``number`` that come by chance, ``mean`` on average."""
    if mean < _FEW:
        return 1.0
    none = math.exp(-mean) if math.isinf(number) else max(0.0, 1 - mean / max(number, 1.0)) ** max(number, 1.0)
    return mean / (1 - none)


_FEW = 1e-6


def own_s(times: StepTimes, work: Work, num_decodes: float, beside_tokens: float, found: Steps | None = None) -> float:
    """Return the time from a prompt's first chunk to its last, which has room for ``beside_tokens`` of others.

    ``found``: the steps of the lane, which say how often lanes that step with it have a prompt too, and what tokens
    that ride along take.
    """
    context = work.context_tokens
    mixed = work.order is Order.MIXED
    beside = num_decodes if mixed else 0.0
    room = max(1.0, work.budget_tokens - beside)

    def taken_s(tokens: float) -> float:
        priced_s = times.at(beside, context, tokens)
        if work.num_locked > 1:
            lone_s = times.lone.at(beside, context, tokens)
            priced_s = lone_s + (0.0 if found is None else found.lane_share) * (priced_s - lone_s)
        return priced_s

    total = 0.0
    for weight, length in work.prompts:
        whole, rest = divmod(work.prompt_tokens * length, room)
        if not mixed:
            # All that came in the same step are computed together; of those that do not fit, half come before.
            half = 0.5 * beside_tokens
            through = work.prompt_tokens * length + half
            through += min(half, max(0.0, 0.5 * (room - work.prompt_tokens * length)))
            whole, rest = divmod(through, room)
            last_s = taken_s(rest) if rest else 0.0
        elif rest or not whole:
            last_s = taken_s(rest)
            if found is not None:
                last_s += found.token_s * min(beside_tokens, room - rest)
        else:
            last_s = 0.0
        total += weight * ((whole * taken_s(room) if whole else 0.0) + last_s)
    return total


def behind_steps(work: Work, room_tokens: float, used: float, *, at_random: bool) -> float:
    """Return the full steps that a prompt waits for those before it, where ``used`` of the room is taken by others.

    ``at_random``: it also waits for the rest of the step under way, which is not counted here.
    """
    # A prompt of a token or two may add less than nothing to the step that it joins: it takes no room then.
    used = min(max(used, 0.0), _NEARLY_ONE)
    each = max(1.0, work.prompt_tokens / room_tokens)
    side = max(1.0, room_tokens / work.prompt_tokens)
    power = math.sqrt(2 * (side + 1)) - 1
    found = math.pow(used, power) * 0.5 * each * (1 + work.prompt_scatter) / (side * (1 - used))
    return max(0.0, found - 0.5 * used) if at_random and side == 1 else found * (used if at_random else 1.0)


def num_prompt_steps(work: Work, room_tokens: float) -> float:
    """Return the steps in which a prompt is computed beside decode: none of its own where prefill goes first."""
    if work.order is not Order.MIXED:
        return 0.0
    return sum(weight * math.ceil(work.prompt_tokens * length / room_tokens - 1e-9) for weight, length in work.prompts)


def most_decodes(work: Work) -> float:
    """Return how many can be in decode at most: as many as their followers' prompts leave room for in every step.

    A step of T tokens with D of them in decode computes T - D of prompts; D / n answers of n tokens end in it, and as
    many prompts must be computed.
    """
    if work.order is not Order.MIXED:
        return math.inf
    return work.budget_tokens / (1 + work.prompt_tokens / work.decode_tokens)
