"""Rounds in place of steps: exact where each yields one token, and as many as chance takes elsewhere."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from infcalc.serving.rounds import RoundClock, Rounds, in_rounds, in_tokens, rounds_per_token
from infcalc.serving.server import at_rate, in_closed_loop
from infcalc.speculation.linear import UniformAcceptance, survival_rates, tokens_per_round
from infcalc.speculation.spread import tokens_per_round_variance
from tests.serving.clock import CONTEXT_S, DECODE_S, FIXED_S, requests, server

ONE = Rounds(mean_tokens=1.0, deviation_tokens=0.0, verified_tokens=1.0)
FOUR = Rounds(mean_tokens=4.0, deviation_tokens=0.0, verified_tokens=4.0)


def rounds_by_chance(alpha: float, num_drafts: int, tokens: int) -> float:
    """Return the mean rounds until so many tokens are there, from the law of each round, by all ways it can go."""
    alive = (1.0, *survival_rates(UniformAcceptance(alpha=alpha), num_drafts), 0.0)
    law = [now - following for now, following in pairwise(alive)]
    means = [0.0] * (tokens + 1)
    for rest in range(1, tokens + 1):
        means[rest] = 1 + sum(chance * means[max(0, rest - 1 - kept)] for kept, chance in enumerate(law))
    return means[tokens]


@pytest.mark.parametrize("alpha", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("num_drafts", [1, 3, 7])
@pytest.mark.parametrize("tokens", [20, 100, 300])
def test_as_many_rounds_as_chance_takes(alpha: float, num_drafts: int, tokens: int) -> None:
    law = UniformAcceptance(alpha=alpha)
    rounds = Rounds(
        mean_tokens=tokens_per_round(law, num_drafts),
        deviation_tokens=math.sqrt(tokens_per_round_variance(law, num_drafts)),
        verified_tokens=1.0 + num_drafts,
    )
    # What the last round gives beyond the end is that of long answers: by 20 tokens it is nearly so.
    assert rounds.number_for(tokens) == pytest.approx(rounds_by_chance(alpha, num_drafts, tokens), abs=0.06)


def test_no_answer_takes_less_than_a_round() -> None:
    assert FOUR.number_for(0) == 0
    assert FOUR.number_for(1) == 1
    assert FOUR.number_for(2) == 1.0


def test_rounds_of_one_token_are_steps() -> None:
    plain, asked = server(), requests(1000, 200)
    counted_server, counted = in_rounds(plain, asked, ONE)
    assert counted.answers == asked.answers
    for speed, other in (
        (in_closed_loop(plain, asked, 40), in_closed_loop(counted_server, counted, 40)),
        (at_rate(plain, asked, 2.0), at_rate(counted_server, counted, 2.0)),
    ):
        assert in_tokens(other, asked, counted) == speed


def test_a_lone_client_waits_for_its_rounds() -> None:
    """Every round gives four tokens, and takes as long as this clock says at the context that they have."""
    asked = requests(1000, 201)

    def seconds(
        *,
        num_decodes: float,
        context_tokens: float,
        num_prefills: float,
        new_tokens: float,
        cached_tokens: float,
        busy_dp_ranks: float | None = None,
    ) -> float:
        del num_prefills, cached_tokens, busy_dp_ranks
        return FIXED_S + num_decodes * (DECODE_S + CONTEXT_S * context_tokens) + new_tokens * 1e-4

    clock = RoundClock(seconds, start_tokens=1000, mean_tokens=4.0)  # type: ignore[arg-type]
    counted_server, counted = in_rounds(replace(server(), clock=clock, full_clock=clock), asked, FOUR)
    speed = in_tokens(in_closed_loop(counted_server, counted, 1), asked, counted)
    rounds = 200 / 4 + 3 / 8
    mean_context = 1000 + 200 / 2
    assert rounds_per_token(asked, counted) == pytest.approx(rounds / 200)
    assert speed.tpot_s == pytest.approx((FIXED_S + DECODE_S + CONTEXT_S * mean_context) * rounds / 200, rel=0.01)
    assert speed.output_tokens_per_s == pytest.approx(201 * speed.requests_per_s)


def test_drafts_leave_less_of_a_step_for_prompts() -> None:
    """With the same clock and as many rounds: 64 who decode take 256 of 2,048 tokens in place of 64."""
    asked = requests(4000, 50)
    wide = replace(server(), verified_tokens=16.0)
    assert in_closed_loop(wide, asked, 64).requests_per_s < in_closed_loop(server(), asked, 64).requests_per_s
