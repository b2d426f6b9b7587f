"""Chain (linear) drafting in closed form: tokens per round, wall-clock gain, best draft length, and the way back.

One round drafts ``num_draft_tokens`` tokens one after another and verifies them in one target step. Symbols:

- alpha: probability that a drafted token is accepted, given that all before it were
- s_i: unconditional probability that draft token i survives (all of the first i are accepted), as vLLM prints it
- gamma: draft tokens per round (``num_draft_tokens``)
- c: time of one draft step over time of one target step (``cost_ratio``)
- f: any further time of a round, over time of one target step (``fixed_ratio``)
- E: tokens a round yields on average, the corrected or bonus token included (``tokens_per_round``); published
  "acceptance length", "tau", "AL" and "MAT" are this figure

Sources: Leviathan, Kalman, Matias, "Fast inference from transformers via speculative decoding", ICML 2023 (E, speedup,
operations, best gamma); Chen et al., "Accelerating large language model decoding with speculative sampling", 2023;
vLLM spec_decode metrics (survival rates and counters).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, TypeAlias, assert_never

from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_DRAFT_TOKENS = 64
"""Longest draft that :func:`best_num_draft_tokens` considers; engines stop far below."""
_LIMIT_DRAFT_TOKENS = 65_536
_ROUNDING = 1e-9


@frozen
class UniformAcceptance:
    """Every draft token is accepted with the same probability ``alpha``, given that all before it were."""

    alpha: float

    def __post_init__(self) -> None:
        """Refuse what is not a probability."""
        _require_fraction(self.alpha, "acceptance", place="--acceptance")


@frozen
class SurvivalAcceptance:
    """Unconditional acceptance rate of each draft position, as vLLM prints it: never rising.

    Beyond the last position given, the chance to survive one more falls by the last ratio of two neighbours (the rate
    itself where only one is given): real drafters fall off about geometrically.
    """

    rates: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse rates that are not probabilities or that rise with the position."""
        if not self.rates:
            raise UsageError(
                "no acceptance rate given", place="--acceptance", hint="give one number, or one per position"
            )
        for rate in self.rates:
            _require_fraction(rate, "acceptance", place="--acceptance")
        for position, (earlier, later) in enumerate(zip(self.rates, self.rates[1:], strict=False), start=2):
            if later > earlier:
                raise UsageError(
                    f"acceptance {later:g} of position {position} is above {earlier:g} of the one before",
                    place="--acceptance",
                    hint="a list holds unconditional survival rates, as vLLM prints them: they can only fall",
                )


Acceptance: TypeAlias = UniformAcceptance | SurvivalAcceptance


def acceptance_of(rates: Sequence[float]) -> Acceptance:
    """Return one number as uniform acceptance, several as survival rate by position.

    Raises:
        UsageError: a rate is outside 0..1, or they rise.

    >>> acceptance_of([0.8]), acceptance_of([0.58, 0.34])
    (UniformAcceptance(alpha=0.8), SurvivalAcceptance(rates=(0.58, 0.34)))

    """
    return UniformAcceptance(alpha=rates[0]) if len(rates) == 1 else SurvivalAcceptance(rates=tuple(rates))


def survival_rates(acceptance: Acceptance, num_draft_tokens: int) -> tuple[float, ...]:
    """Return s_1 ... s_gamma: the chance that draft token i and all before it are accepted.

    Uniform acceptance gives alpha**i.

    >>> survival_rates(UniformAcceptance(alpha=0.5), 3)
    (0.5, 0.25, 0.125)
    >>> survival_rates(SurvivalAcceptance(rates=(0.6, 0.3)), 4)
    (0.6, 0.3, 0.15, 0.075)
    """
    _require_draft_tokens(num_draft_tokens)
    match acceptance:
        case UniformAcceptance(alpha=alpha):
            survivors, last, ratio = [], 1.0, alpha
        case SurvivalAcceptance(rates=given):
            survivors, last = list(given[:num_draft_tokens]), given[-1]
            before = given[-2] if len(given) > 1 else 1.0
            ratio = last / before if before else 0.0
        case _:
            assert_never(acceptance)
    while len(survivors) < num_draft_tokens:
        last *= ratio
        survivors.append(last)
    return tuple(survivors)


def tokens_per_round(acceptance: Acceptance, num_draft_tokens: int) -> float:
    """Return E, the expected tokens of one round: 1 + s_1 + ... + s_gamma.

    For uniform acceptance that sum is (1 - alpha**(gamma + 1)) / (1 - alpha), and gamma + 1 at alpha 1.
    Source: Leviathan et al. 2023, equation 1.

    Raises:
        UsageError: a rate is outside 0..1 or the draft length negative.

    >>> round(tokens_per_round(UniformAcceptance(alpha=0.8), 5), 3)
    3.689
    >>> tokens_per_round(UniformAcceptance(alpha=1), 5), tokens_per_round(UniformAcceptance(alpha=0), 5)
    (6.0, 1.0)

    """
    return 1 + math.fsum(survival_rates(acceptance, num_draft_tokens))


def tokens_per_round_of_counters(num_accepted_tokens: float, num_drafts: float) -> float:
    """Return E from an engine's counters: accepted draft tokens over rounds, plus one.

    Source: vLLM ``vllm:spec_decode_num_accepted_tokens`` and ``vllm:spec_decode_num_drafts``.

    Raises:
        UsageError: no round was counted, or a counter is negative.

    >>> round(tokens_per_round_of_counters(63_669, 43_221), 3)
    2.473

    """
    if not (num_drafts > 0 and num_accepted_tokens >= 0):
        raise UsageError(
            f"{num_accepted_tokens:g} accepted tokens in {num_drafts:g} drafts is not a measurement",
            hint="give the counters spec_decode_num_accepted_tokens and spec_decode_num_drafts",
        )
    return 1 + num_accepted_tokens / num_drafts


def tokens_per_round_of_rate(acceptance_rate: float, num_draft_tokens: int) -> float:
    """Return E from the draft acceptance rate r, the share of all drafted tokens that was accepted: E = 1 + r * gamma.

    >>> tokens_per_round_of_rate(0.5, 4)
    3.0
    """
    _require_fraction(acceptance_rate, "draft acceptance rate")
    _require_draft_tokens(num_draft_tokens)
    return 1 + acceptance_rate * num_draft_tokens


def alpha_of_tokens_per_round(mean_tokens: float, num_draft_tokens: int) -> float:
    """Return the uniform alpha that yields ``mean_tokens`` per round of ``num_draft_tokens`` drafts.

    Inverse of :func:`tokens_per_round`, by bisection: E rises strictly with alpha.

    Raises:
        UsageError: E is outside 1..gamma + 1, which no acceptance can yield, or gamma is 0.

    >>> round(alpha_of_tokens_per_round(3.68928, 5), 6)
    0.8

    """
    _require_draft_tokens(num_draft_tokens)
    # Sums of rates may miss their limits by a rounding error.
    slack = _ROUNDING * (num_draft_tokens + 1)
    if not 1 - slack <= mean_tokens <= num_draft_tokens + 1 + slack or num_draft_tokens == 0:
        raise UsageError(
            f"{mean_tokens:g} tokens per round is impossible with {num_draft_tokens} draft tokens",
            hint=f"a round yields between 1 and {num_draft_tokens + 1} tokens",
        )
    low, high = 0.0, 1.0
    while low < (middle := (low + high) / 2) < high:
        if tokens_per_round(UniformAcceptance(alpha=middle), num_draft_tokens) < mean_tokens:
            low = middle
        else:
            high = middle
    return high


def survival_of_lengths(measured: Sequence[tuple[int, float]]) -> tuple[float, ...]:
    """Return survival rates by position from acceptance lengths measured at several draft lengths.

    E rises by s_(k+1) + ... + s_m when the draft grows from k to m tokens; within such a stretch the rates fall
    geometrically. One measurement gives alpha**i.

    Raises:
        UsageError: nothing measured, or lengths that no falling survival rates can yield.

    >>> [round(rate, 3) for rate in survival_of_lengths([(1, 1.75), (2, 2.2), (4, 2.5)])]
    [0.75, 0.45, 0.206, 0.094]

    """
    rates: list[float] = []
    tokens = 1.0
    for length, mean_tokens in sorted(measured):
        before = rates[-1] if rates else 1.0
        gained = mean_tokens - tokens
        if gained < -_ROUNDING or (before == 0 and gained > _ROUNDING):
            raise UsageError(
                f"{mean_tokens:g} tokens per round at {length} draft tokens is below that of shorter drafts"
            )
        # Seen from the last known position, the stretch is a draft of its own, entered with probability `before`.
        steps = length - len(rates)
        ratio = alpha_of_tokens_per_round(1 + gained / before, steps) if before else 0.0
        rates.extend(before * ratio**step for step in range(1, steps + 1))
        tokens = mean_tokens
    if not rates:
        raise UsageError("no acceptance length given", hint="give pairs of draft length and tokens per round")
    return tuple(rates)


def alpha_of_rate(acceptance_rate: float, num_draft_tokens: int) -> float:
    """Return the uniform alpha behind a draft acceptance rate (accepted over drafted tokens).

    The rate is lower than alpha: tokens after the first rejection count as drafted and can never be accepted.

    >>> round(alpha_of_rate(0.5378560, 5), 6)
    0.8
    """
    return alpha_of_tokens_per_round(tokens_per_round_of_rate(acceptance_rate, num_draft_tokens), num_draft_tokens)


def round_cost(num_draft_tokens: int, cost_ratio: float, fixed_ratio: float = 0) -> float:
    """Return the time of one round in target steps: 1 + gamma * c + f; plain decoding (gamma 0) is 1.

    Verifying gamma + 1 tokens is taken to cost one target step: true only left of the roofline's knee.

    >>> round(round_cost(2, 0.1145, 0.157), 3)
    1.386
    """
    _require_draft_tokens(num_draft_tokens)
    _require_ratio(cost_ratio, "cost of a draft step")
    _require_ratio(fixed_ratio, "fixed cost of a round")
    return 1 + num_draft_tokens * cost_ratio + fixed_ratio if num_draft_tokens else 1.0


def speedup(acceptance: Acceptance, num_draft_tokens: int, cost_ratio: float, fixed_ratio: float = 0) -> float:
    """Return the wall-clock gain over plain decoding: E / (1 + gamma * c + f).

    Source: Leviathan et al. 2023, theorem 3.8 (f = 0). There is a gain for some gamma exactly when alpha > c.

    >>> round(speedup(UniformAcceptance(alpha=0.8), 6, 0.10), 2)
    2.47
    >>> speedup(UniformAcceptance(alpha=0.8), 0, 0.10)
    1.0
    """
    return tokens_per_round(acceptance, num_draft_tokens) / round_cost(num_draft_tokens, cost_ratio, fixed_ratio)


def operations_increase(acceptance: Acceptance, num_draft_tokens: int, operations_ratio: float) -> float:
    """Return how many times more operations a token costs: (gamma * c_hat + gamma + 1) / E.

    ``operations_ratio`` c_hat is draft over target operations per token. This is what a compute-bound GPU pays.
    Source: Leviathan et al. 2023, theorem 3.11: (1 - alpha)(gamma c_hat + gamma + 1) / (1 - alpha**(gamma + 1)).

    >>> round(operations_increase(UniformAcceptance(alpha=0.8), 5, 0.05), 3)
    1.694
    """
    _require_ratio(operations_ratio, "operations of the draft")
    work = num_draft_tokens * operations_ratio + num_draft_tokens + 1
    return work / tokens_per_round(acceptance, num_draft_tokens)


def best_num_draft_tokens(
    acceptance: Acceptance, cost_ratio: float, fixed_ratio: float = 0, *, max_draft_tokens: int = MAX_DRAFT_TOKENS
) -> int:
    """Return the draft length of the greatest speedup, 0 when drafting never pays; the shorter one of equals.

    Integer argmax of :func:`speedup` up to ``max_draft_tokens`` (a perfect draft without cost has no best length).

    >>> best_num_draft_tokens(UniformAcceptance(alpha=0.8), 0.05)
    8
    >>> best_num_draft_tokens(UniformAcceptance(alpha=0.1), 0.2)
    0
    """
    _require_draft_tokens(max_draft_tokens)
    best, best_gain, tokens = 0, 1.0, 1.0
    for length, survivor in enumerate(survival_rates(acceptance, max_draft_tokens), start=1):
        tokens += survivor
        gain = tokens / round_cost(length, cost_ratio, fixed_ratio)
        if gain > best_gain:
            best, best_gain = length, gain
    return best


def breakeven_alpha(num_draft_tokens: int, cost_ratio: float, fixed_ratio: float = 0) -> float | None:
    """Return the uniform alpha below which drafting ``num_draft_tokens`` loses time; None when even alpha 1 loses.

    Solves E = 1 + gamma * c + f. With one draft token and no fixed cost it is c itself.

    >>> round(breakeven_alpha(1, 0.2), 6), breakeven_alpha(4, 1.5)
    (0.2, None)
    """
    needed = round_cost(num_draft_tokens, cost_ratio, fixed_ratio)
    if num_draft_tokens == 0 or needed > num_draft_tokens + 1:
        return None
    return alpha_of_tokens_per_round(needed, num_draft_tokens)


@frozen
class DraftCost:
    """Time that drafting adds to a round, in target steps: ``cost_ratio`` per draft token and ``fixed_ratio`` once."""

    cost_ratio: float
    fixed_ratio: float = 0.0


FREE = DraftCost(cost_ratio=0.0)
"""Drafting that takes no time."""


def fit_draft_cost(measured: Sequence[tuple[int, float, float]]) -> DraftCost:
    """Return c and f from measurements of (num_draft_tokens, tokens_per_round, speedup), by least squares.

    A round took E / speedup target steps; the line through (gamma, E / speedup - 1) has slope c and intercept f. A
    line that would start below zero is drawn through the origin instead: no cost is negative.

    Raises:
        UsageError: fewer than two different draft lengths, or a speedup that is not positive.

    >>> cost = fit_draft_cost([(2, 1.89, 175.5 / 128.6), (4, 2.08, 165.7 / 128.6)])
    >>> round(cost.cost_ratio, 3), round(cost.fixed_ratio, 3)
    (0.115, 0.156)

    """
    if len({length for length, _, _ in measured}) < 2 or not all(gain > 0 for _, _, gain in measured):  # noqa: PLR2004
        raise UsageError(
            "the cost of a draft step needs measured speedups at two or more draft lengths",
            hint="measure the same load at, say, 2 and 4 draft tokens",
        )
    extra = [(length, tokens / gain - 1) for length, tokens, gain in measured]
    mean_length = math.fsum(length for length, _ in extra) / len(extra)
    mean_extra = math.fsum(cost for _, cost in extra) / len(extra)
    slope = math.fsum((length - mean_length) * (cost - mean_extra) for length, cost in extra) / math.fsum(
        (length - mean_length) ** 2 for length, _ in extra
    )
    fixed = mean_extra - slope * mean_length
    if fixed < 0:
        squares = math.fsum(length**2 for length, _ in extra)
        slope, fixed = math.fsum(length * cost for length, cost in extra) / squares, 0.0
    return DraftCost(cost_ratio=max(0.0, slope), fixed_ratio=fixed)


def _require_fraction(value: float, what: str, *, place: str = "") -> None:
    if not 0 <= value <= 1:
        raise UsageError(f"{what} {value:g} is not between 0 and 1", place=place, hint="write 80 % as 0.8")


def _require_draft_tokens(num_draft_tokens: int) -> None:
    if not 0 <= num_draft_tokens <= _LIMIT_DRAFT_TOKENS:
        raise UsageError(
            f"{num_draft_tokens} draft tokens is not between 0 and {_LIMIT_DRAFT_TOKENS}", place="--num-draft-tokens"
        )


def _require_ratio(value: float, what: str) -> None:
    if not (value >= 0 and math.isfinite(value)):
        raise UsageError(f"{what} {value:g} is not a finite number of at least 0")
