"""The requests that all policies get: how many, how long, when, drawn from a seed."""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING

from infcalc.api.offering import limit_of
from infcalc.api.ranges import check_range
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.simulation.batch_shape import PS_PER_S
from infcalc.simulation.request import Request
from infcalc.spec.explain import Input
from infcalc.workload.lengths import FORMS, described, mean_tokens, parse_lengths, quantile_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.deployment import Ask, Deployment
    from infcalc.workload.lengths import Lengths

DEFAULT_PROMPTS = "256"
DEFAULT_ANSWERS = "pareto:min=32,max=1024,alpha=1.2"
"""Many short answers and few long ones: what static batching suffers from."""
DEFAULT_REQUESTS = 50
DEFAULT_SLOTS = 8
_MOST_REQUESTS = 10_000
_MOST_SLOTS = 4096
_SEEDS = 2**32
_MOST_PER_S = 1e6
MOST_WORK = 500_000
"""Turns in the steps of all runs together, each simulated one by one: some ten seconds."""
TURN_PROMPT_TOKENS = 32
"""Of a prompt: they take as long to simulate as one turn, for their blocks."""


@frozen
class BatchingAsk:
    """What a user may say of the requests and of who serves them; None stands for the default.

    ``requests_per_s`` arrive at random (Poisson); without it all are there at the start. ``num_slots`` is the
    deployment's ``max_num_seqs`` where that is asked for, else 8.
    """

    num_requests: int | None = None
    num_slots: int | None = None
    input_tokens: str | int | None = None
    output_tokens: str | int | None = None
    requests_per_s: float | None = None
    policies: tuple[str, ...] = ()
    seed: int | None = None
    unit_steps: bool = False


@frozen
class Drawn:
    """The requests of one run, and where they come from."""

    requests: tuple[Request, ...]
    num_slots: int
    told_tokens: int
    """The longest answer that engines are told to expect."""
    limit_tokens: int
    """Prompt and answer together that model and server admit."""
    inputs: tuple[Input, ...]
    warnings: tuple[str, ...]

    @property
    def mean_total_tokens(self) -> int:
        """Prompt and answer together, on average, rounded up."""
        total = sum(request.prompt_tokens + request.output_tokens for request in self.requests)
        return -(-total // len(self.requests))


def drawn_for(ask: Ask, deployment: Deployment, wanted: BatchingAsk) -> Drawn:
    """Return the requests for a deployment; the same seed gives the same, and lengths do not depend on the rate.

    Raises:
        UsageError: a number out of range, a length that is none, or prompts that the model does not take.

    """
    number, seed = _or(wanted.num_requests, DEFAULT_REQUESTS), _or(wanted.seed, 0)
    slots = _or(wanted.num_slots, _or(ask.max_num_seqs, DEFAULT_SLOTS))
    _check(number, slots, wanted.requests_per_s, seed)
    prompts = _lengths(wanted.input_tokens, DEFAULT_PROMPTS, "--input-tokens")
    answers = _lengths(wanted.output_tokens, DEFAULT_ANSWERS, "--output-tokens")
    limit = limit_of(deployment)
    if mean_tokens(prompts) + 1 > limit:
        raise UsageError(
            f"prompts of {mean_tokens(prompts):,.0f} tokens: model and server admit {limit:,} with the answer",
            place="--input-tokens",
            hint=f"at most {limit - 1:,}",
        )
    asked = list(
        zip(
            _sizes(prompts, number, f"{seed} prompts"),
            _sizes(answers, number, f"{seed} answers"),
            _arrivals(number, wanted.requests_per_s, f"{seed} arrivals"),
            strict=True,
        )
    )
    taken = [(min(prompt, limit - 1), answer, moment) for prompt, answer, moment in asked]
    taken = [(prompt, min(answer, limit - prompt), moment) for prompt, answer, moment in taken]
    num_cut = sum(one != other for one, other in zip(asked, taken, strict=True))
    told = max(answer for _, answer, _ in taken)
    cut = f"{num_cut:,} requests are longer than the {limit:,} tokens that model and server admit: they end there"
    return Drawn(
        requests=tuple(
            Request(
                arrival_ps=moment,
                prompt_tokens=prompt,
                output_tokens=answer,
                max_output_tokens=min(told, limit - prompt),
            )
            for prompt, answer, moment in taken
        ),
        num_slots=slots,
        told_tokens=told,
        limit_tokens=limit,
        inputs=_inputs(wanted, prompts, answers, number, slots),
        warnings=(cut,) if num_cut else (),
    )


def work_of(requests: Sequence[Request]) -> int:
    """Return how many turns requests take in the steps of one run, if none is preempted.

    A token of an answer is a turn, but the first, which comes with the prompt; so are 32 tokens of a prompt.
    """
    return sum(request.output_tokens - 1 + -(-request.prompt_tokens // TURN_PROMPT_TOKENS) for request in requests)


def check_work(drawn: Drawn, num_runs: int) -> None:
    """Refuse requests whose simulation would take too long: each step of each of ``num_runs`` runs is carried out.

    Raises:
        UsageError: it is more than :data:`MOST_WORK`; the hint names as many of the same requests as are not too many.

    """
    work = num_runs * work_of(drawn.requests)
    if work <= MOST_WORK:
        return
    room, most = MOST_WORK // num_runs, 0
    for request in drawn.requests:
        room -= work_of((request,))
        if room < 0:
            break
        most += 1
    fewer = f"--requests {most}, " if most else ""
    answers = sum(one.output_tokens for one in drawn.requests)
    prompts = sum(one.prompt_tokens for one in drawn.requests)
    raise UsageError(
        f"{len(drawn.requests):,} requests with {answers:,} answer tokens (and {prompts:,} prompt tokens, "
        f"{TURN_PROMPT_TOKENS} of them as one) in {num_runs} runs take {work:,} turns: more than {MOST_WORK:,} take "
        "too long",
        place="--requests" if most else "--output-tokens",
        hint=f"{fewer}shorter --output-tokens or --input-tokens, or fewer schedulers with --policy",
    )


def _or(given: int | None, default: int) -> int:
    return default if given is None else given


def _check(number: int, slots: int, rate: float | None, seed: int) -> None:
    check_range("--requests", number, most=_MOST_REQUESTS)
    check_range("--slots", slots, most=_MOST_SLOTS)
    check_range("--seed", seed, least=0, most=_SEEDS - 1)
    if rate is not None and not 1 / _MOST_PER_S <= rate <= _MOST_PER_S:
        raise UsageError(
            f"{rate:g} requests per second",
            place="--rate",
            hint=f"from {1 / _MOST_PER_S:f} to {_MOST_PER_S:,.0f}; without it all are there at the start",
        )


def _lengths(value: str | int | None, default: str, option: str) -> Lengths:
    try:
        return parse_lengths(default if value is None else str(value))
    except ValueError as wrong:
        raise UsageError(str(wrong), place=option, hint=f"write {FORMS}") from None


def _sizes(lengths: Lengths, number: int, seed: str) -> list[int]:
    """Return lengths drawn by inverse transform, in whole tokens."""
    chance = random.Random(seed)  # noqa: S311 - no secret
    return [max(1, round(quantile_tokens(lengths, chance.random()))) for _ in range(number)]


def _arrivals(number: int, rate: float | None, seed: str) -> list[int]:
    """Return when requests come, in picoseconds: the first at once, gaps exponential."""
    if rate is None:
        return [0] * number
    chance = random.Random(seed)  # noqa: S311
    moments, now_s = [0], 0.0
    for _ in range(number - 1):
        now_s -= math.log1p(-chance.random()) / rate
        moments.append(round(now_s * PS_PER_S))
    return moments


def _inputs(wanted: BatchingAsk, prompts: Lengths, answers: Lengths, number: int, slots: int) -> tuple[Input, ...]:
    told = (
        ("requests", number, wanted.num_requests),
        ("slots", slots, wanted.num_slots),
        ("input_tokens", described(prompts), wanted.input_tokens),
        ("output_tokens", described(answers), wanted.output_tokens),
        ("seed", _or(wanted.seed, 0), wanted.seed),
    )
    found = [
        Input(name=name, value=value, origin="default" if given is None else "given") for name, value, given in told
    ]
    if wanted.requests_per_s is None:
        return (*found, Input(name="arrivals", value="all at once", origin="default"))
    return (*found, Input(name="rate_per_s", value=wanted.requests_per_s, origin="given"))
