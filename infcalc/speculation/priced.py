"""Whether drafting pays on the clock: rounds priced by the time of real steps, and the batch where the gain ends.

A round of gamma draft tokens at batch b takes

    T(b, gamma) = verify(b, gamma + 1) + passes * draft(b) + fixed

where verify is one target step with gamma + 1 tokens per sequence and plain decoding takes verify(b, 1). The speedup
is E * verify(b, 1) / T. Verification is free only while the step stays bound by memory; more tokens also touch more
experts of a mixture, so that it is not free there even at batch 1. A tree verifies its nodes and the root instead of
gamma + 1 tokens. A chain takes a pass of the drafter for each draft token, heads that are run at once take one, and
looking drafts up takes none.

This module knows no hardware: how long a step, a pass and the rest of a round take is handed in.
Costs known as fractions of a target step (:class:`~infcalc.speculation.linear.DraftCost`) scale thus: a draft step
with the target's plain step at the same batch, the fixed part with that at batch 1, being launches and sampling.
Not counted: the draft's own prefill, and that tokens of one sequence share experts more often than chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, TypeAlias

from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Explanation, Input
from infcalc.speculation.linear import (
    FREE,
    Acceptance,
    DraftCost,
    SurvivalAcceptance,
    alpha_of_tokens_per_round,
    survival_rates,
    tokens_per_round,
)
from infcalc.speculation.published import Drafter
from infcalc.speculation.spread import tokens_per_round_variance
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable
    from fractions import Fraction

    from infcalc.speculation.published import Profile

StepTimer: TypeAlias = Callable[[int, int], float]
"""Seconds of one target step, of (batch, tokens per sequence)."""
DraftTimer: TypeAlias = Callable[[int], float]
"""Seconds of one draft step, of the batch."""

PRICING_BAND = (0.80, 1.12)
"""Where 80 % of measured speedups lie, over what is predicted from the tokens per round that their reports state.

Over 24 runs of 4 sources (tests/published/speculation_measured.yaml), most of them of Spec-Bench: at batch 1.
"""
MAX_BATCH = 4096
"""Largest batch that the search for the break-even looks at."""
_LOGIT_BYTES = 4


class Breakeven(StrEnum):
    """Where a gain turns into a loss as the batch grows."""

    AT_BATCH = "at_batch"
    ALWAYS = "always"
    """There is still a gain at the largest batch looked at."""
    NEVER = "never"
    """There is no gain at any batch looked at."""


@frozen
class Drafting:
    """One way of drafting, ready to be priced.

    ``acceptance`` is the typical one, ``low`` and ``high`` its published range (equal to it where one was given).
    ``draft_timer`` (seconds of one pass) replaces the per-token part of ``cost`` where the draft's own work is known,
    and ``fixed_s`` is what the engine adds to a round. ``num_draft_tokens`` are the lengths to choose from; a tree
    (``tree_tokens`` verified per round) has one: its depth.
    """

    method: str
    acceptance: Acceptance
    low: Acceptance
    high: Acceptance
    num_draft_tokens: tuple[int, ...]
    cost: DraftCost = FREE
    draft_timer: DraftTimer | None = None
    fixed_s: float = 0.0
    at_once: bool = False
    """All draft tokens come from one pass."""
    tree_tokens: int | None = None
    acceptance_source: str = ""
    cost_source: str = ""
    fixed_source: str = ""
    operations_ratio: float = 0.0
    """Multiplications of a pass over those of a token in the target."""

    def num_passes(self, num_draft_tokens: int) -> int:
        """Return the passes of the drafter in a round."""
        return 1 if self.at_once else num_draft_tokens

    def verified_tokens(self, num_draft_tokens: int) -> int:
        """Tokens per sequence that the target computes in a round: the drafts and the token before them."""
        return 1 + (num_draft_tokens if self.tree_tokens is None else self.tree_tokens)


@frozen
class SpeculationRow:
    """What one way of drafting gives at one batch, at its best draft length.

    ``acceptance`` is the uniform acceptance that yields the same tokens per round at this length, ``survival_rates``
    what it was computed from, ``deviation_tokens`` the standard deviation of the tokens of one round. ``num_passes`` of
    the drafter propose the ``num_draft_tokens``. ``cost_ratio`` is one pass over one plain step, ``verify_ratio`` the
    verifying step over a plain one, ``fixed_ratio`` what a round costs besides. ``speedup_low`` and ``speedup_high``
    span acceptance from low to high and :data:`PRICING_BAND`.
    """

    method: str
    batch: int
    num_draft_tokens: int
    num_passes: int
    verified_tokens: int
    acceptance: float
    acceptance_low: float
    acceptance_high: float
    survival_rates: tuple[float, ...]
    tokens_per_round: float
    tokens_per_round_low: float
    tokens_per_round_high: float
    speedup: float
    speedup_low: float
    speedup_high: float
    breakeven: Breakeven
    breakeven_batch: int | None
    """Largest batch with a gain at this draft length; None when ``breakeven`` is always or never."""
    breakeven_acceptance: float | None
    """Uniform acceptance below which this length loses time at this batch; None when even certain acceptance does."""
    deviation_tokens: float
    cost_ratio: float
    verify_ratio: float
    fixed_ratio: float
    plain_step_s: float
    round_s: float
    operations_increase: float
    """Multiplications for a token with drafting, over those without: what a compute-bound GPU pays."""
    acceptance_source: str
    cost_source: str
    fixed_source: str


@frozen
class BatchPoint:
    """What one way of drafting gives at one batch, at its best draft length there."""

    method: str
    batch: int
    num_draft_tokens: int
    tokens_per_round: float
    speedup: float


@frozen
class MemoryItem:
    """One thing that drafting adds to memory, in bytes over all GPUs of a replica."""

    name: str
    num_bytes: int
    why: str


def drafting_of(
    profile: Profile,
    *,
    acceptance: Acceptance | None = None,
    num_draft_tokens: int | None = None,
    draft_timer: DraftTimer | None = None,
    fixed_s: float = 0.0,
    cost_source: str = "",
    fixed_source: str = "",
    operations_ratio: float = 0.0,
) -> Drafting:
    """Return the published ``profile`` as a drafting to price, with what the user knows better in its place.

    Without a ``draft_timer`` a draft costs what the profile says, else nothing. A given ``acceptance`` has no range.
    Without a given length, chains choose among those that were measured: by the profile, and where ``acceptance`` is by
    position, by it too.

    Raises:
        UsageError: a length below 1, or beyond the positions of ``acceptance``.

    """
    if num_draft_tokens is not None and num_draft_tokens < 1:
        raise UsageError(
            f"{num_draft_tokens} draft tokens is not a draft", place="--num-draft-tokens", hint="1 or more"
        )
    typical = profile.typical
    longest = profile.max_draft_tokens
    if isinstance(acceptance, SurvivalAcceptance):
        measured = len(acceptance.rates)
        if num_draft_tokens is not None and num_draft_tokens > measured:
            raise UsageError(
                f"{num_draft_tokens} draft tokens, but acceptance of {measured} positions",
                place="--num-draft-tokens",
                hint="give --acceptance one rate per position, or one number for all",
            )
        longest = min(longest, measured)
    first = longest if profile.tree_tokens is not None else 1
    return Drafting(
        method=profile.method,
        acceptance=acceptance or typical.acceptance(),
        low=acceptance or profile.low.acceptance(),
        high=acceptance or profile.high.acceptance(),
        num_draft_tokens=tuple(range(first, longest + 1)) if num_draft_tokens is None else (num_draft_tokens,),
        cost=profile.draft_cost,
        draft_timer=draft_timer,
        fixed_s=fixed_s,
        at_once=profile.drafter is Drafter.AT_ONCE,
        tree_tokens=profile.tree_tokens,
        acceptance_source="given"
        if acceptance
        else f"{typical.title} [{typical.tag}]: {typical.source}, {typical.date}",
        cost_source=cost_source or profile.cost_source,
        fixed_source=fixed_source,
        operations_ratio=operations_ratio,
    )


def round_time(drafting: Drafting, target: StepTimer, batch: int, num_draft_tokens: int) -> float:
    """Return the seconds of one round: T(b, gamma) of this module's docstring."""
    verify_s = target(batch, drafting.verified_tokens(num_draft_tokens))
    passes = drafting.num_passes(num_draft_tokens)
    return verify_s + passes * _draft_step(drafting, target, batch) + fixed_s(drafting, target)


def speedup_at(
    drafting: Drafting, target: StepTimer, batch: int, num_draft_tokens: int, *, acceptance: Acceptance | None = None
) -> float:
    """Return tokens per second with drafting over those without, at ``batch``."""
    mean_tokens = tokens_per_round(acceptance or drafting.acceptance, num_draft_tokens)
    return mean_tokens * target(batch, 1) / round_time(drafting, target, batch, num_draft_tokens)


def rows(
    draftings: Iterable[Drafting], target: StepTimer, *, batch: int = 1, max_batch: int = MAX_BATCH
) -> tuple[SpeculationRow, ...]:
    """Return one row per way of drafting, each at its best draft length for ``batch``.

    ``max_batch`` bounds the search for the break-even (the sequences that fit, where they are known).

    Raises:
        UsageError: a batch below 1, or a drafting without lengths to choose from.

    """
    if batch < 1 or max_batch < 1:
        raise UsageError(f"batch {min(batch, max_batch)} is not at least 1", place="--batch")
    return tuple(_row(drafting, target, batch, max_batch) for drafting in draftings)


def by_batch(draftings: Iterable[Drafting], target: StepTimer, batches: Iterable[int]) -> tuple[BatchPoint, ...]:
    """Return what each way of drafting gives at each batch, at its best draft length there."""
    sizes = tuple(batches)
    found: list[BatchPoint] = []
    for drafting in draftings:
        for batch in sizes:
            best = best_length(drafting, target, batch)
            found.append(
                BatchPoint(
                    method=drafting.method,
                    batch=batch,
                    num_draft_tokens=best,
                    tokens_per_round=tokens_per_round(drafting.acceptance, best),
                    speedup=speedup_at(drafting, target, batch, best),
                )
            )
    return tuple(found)


def best_length(drafting: Drafting, target: StepTimer, batch: int) -> int:
    """Return the draft length of the greatest speedup at ``batch``, the first of equals.

    A longer draft that gains nothing only costs memory.

    Raises:
        UsageError: no length of 1 or more to choose from.

    """
    lengths = drafting.num_draft_tokens
    if not lengths or min(lengths) < 1:
        raise UsageError(
            f"{drafting.method} has no draft length of 1 or more to choose from", place="--num-draft-tokens"
        )
    return max(lengths, key=lambda length: speedup_at(drafting, target, batch, length))


def breakeven_batch(
    drafting: Drafting, target: StepTimer, num_draft_tokens: int, *, max_batch: int = MAX_BATCH
) -> tuple[Breakeven, int | None]:
    """Return the largest batch at which ``num_draft_tokens`` drafts still gain time.

    Powers of two are tried from ``max_batch`` down: the gain of a mixture of experts dips and recovers before it falls
    for good. The last stretch is bisected.
    """

    def gains(batch: int) -> bool:
        return speedup_at(drafting, target, batch, num_draft_tokens) > 1

    if gains(max_batch):
        return Breakeven.ALWAYS, None
    loses = max_batch
    power = 1 << (max_batch.bit_length() - 1)
    while power and (power == loses or not gains(power)):
        loses = power
        power >>= 1
    if not power:
        return Breakeven.NEVER, None
    while loses - power > 1:
        middle = (loses + power) // 2
        if gains(middle):
            power = middle
        else:
            loses = middle
    return Breakeven.AT_BATCH, power


def draft_memory(
    *,
    draft_weights_bytes: float,
    draft_kv_bytes_per_token: float | Fraction,
    target_kv_bytes_per_token: float | Fraction,
    vocab_size: int,
    batch: int,
    context_tokens: int,
    num_draft_tokens: int,
    weights_why: str = "loaded beside the target",
) -> tuple[MemoryItem, ...]:
    """Return what drafting adds to memory, by name; ``weights_why`` says which weights those are.

    Draft weights, the draft's own KV cache for the whole context, look-ahead slots for the drafts in both caches, and
    the logits of the drafted positions (32 bit).

    >>> [item.name for item in draft_memory(draft_weights_bytes=1, draft_kv_bytes_per_token=1,
    ...     target_kv_bytes_per_token=1, vocab_size=1, batch=1, context_tokens=1, num_draft_tokens=1)]
    ['draft weights', 'draft kv', 'look-ahead kv', 'draft compute (logits)']
    """
    own = float(draft_kv_bytes_per_token)
    both = own + float(target_kv_bytes_per_token)
    return (
        MemoryItem(name="draft weights", num_bytes=round(draft_weights_bytes), why=weights_why),
        MemoryItem(
            name="draft kv",
            num_bytes=round(batch * context_tokens * own),
            why=f"{batch} x {context_tokens} tokens x {own:.6g} B",
        ),
        MemoryItem(
            name="look-ahead kv",
            num_bytes=round(batch * num_draft_tokens * both),
            why=f"{batch} x {num_draft_tokens} draft tokens in both caches x {both:.6g} B",
        ),
        MemoryItem(
            name="draft compute (logits)",
            num_bytes=batch * num_draft_tokens * vocab_size * _LOGIT_BYTES,
            why=f"{batch} x {num_draft_tokens} more positions x {vocab_size} logits x {_LOGIT_BYTES} B",
        ),
    )


def explain_row(row: SpeculationRow) -> tuple[Explanation, ...]:
    """Return how tokens per round, speedup and break-even of a row came about."""
    survivors = " + ".join(["1", *(f"{rate:.3g}" for rate in row.survival_rates)])
    source = Input(name="s", value=row.survival_rates, origin=row.acceptance_source)
    plain, even = format_seconds(row.plain_step_s), row.breakeven_acceptance
    parts = (
        f"verify {row.verified_tokens} tokens {row.verify_ratio:.3f} + {row.num_passes} passes x "
        f"{row.cost_ratio:.3f} + fixed {row.fixed_ratio:.3f} plain steps of {plain} = {format_seconds(row.round_s)}"
    )
    return (
        Explanation(
            quantity="tokens_per_round",
            formula="E = 1 + s_1 + ... + s_gamma",
            substituted=f"{survivors} = {row.tokens_per_round:.3f}",
            inputs=(source,),
            source="Leviathan et al. 2023",
        ),
        Explanation(
            quantity="speedup",
            formula="S = E * plain step / (verify step + passes * draft step + fixed)",
            substituted=(
                f"{row.tokens_per_round:.3f} x {plain} / {format_seconds(row.round_s)} = {row.speedup:.3f} ({parts})"
            ),
            inputs=(
                Input(name="draft step / plain step", value=row.cost_ratio, origin=row.cost_source),
                Input(name="fixed / plain step", value=row.fixed_ratio, origin=row.fixed_source),
                Input(name="verify step / plain step", value=row.verify_ratio, origin="the target's steps"),
            ),
        ),
        Explanation(
            quantity="breakeven_acceptance",
            formula="uniform acceptance with E = round / plain step",
            substituted=(
                f"E = {row.round_s / row.plain_step_s:.3f} of {row.num_draft_tokens + 1}: "
                + ("more than certain acceptance yields" if even is None else f"{even:.3f}")
            ),
        ),
        Explanation(
            quantity="breakeven_batch",
            formula="largest batch with S > 1 at this draft length",
            substituted=row.breakeven if row.breakeven_batch is None else f"batch {row.breakeven_batch}",
        ),
    )


def fixed_s(drafting: Drafting, target: StepTimer) -> float:
    """Return the seconds of a round that neither verify nor draft."""
    return drafting.fixed_s + drafting.cost.fixed_ratio * target(1, 1)


def _draft_step(drafting: Drafting, target: StepTimer, batch: int) -> float:
    if drafting.draft_timer is not None:
        return drafting.draft_timer(batch)
    return drafting.cost.cost_ratio * target(batch, 1)


def _breakeven_acceptance(tokens: float, num_draft_tokens: int) -> float | None:
    """Return the uniform acceptance that yields as many ``tokens`` per round as the round takes plain steps."""
    if tokens > num_draft_tokens + 1:
        return None
    return alpha_of_tokens_per_round(max(1.0, tokens), num_draft_tokens)


def _row(drafting: Drafting, target: StepTimer, batch: int, max_batch: int) -> SpeculationRow:
    best = best_length(drafting, target, batch)
    plain_s = target(batch, 1)
    verified = drafting.verified_tokens(best)
    # Publications of one method may change places at short drafts: the range is that of all of them.
    known = (drafting.acceptance, drafting.low, drafting.high)
    tokens = [tokens_per_round(acceptance, best) for acceptance in known]
    gains = [speedup_at(drafting, target, batch, best, acceptance=acceptance) for acceptance in known]
    round_s = round_time(drafting, target, batch, best)
    state, at_batch = breakeven_batch(drafting, target, best, max_batch=max_batch)
    return SpeculationRow(
        method=drafting.method,
        batch=batch,
        num_draft_tokens=best,
        num_passes=drafting.num_passes(best),
        verified_tokens=verified,
        acceptance=alpha_of_tokens_per_round(tokens[0], best),
        acceptance_low=alpha_of_tokens_per_round(min(tokens), best),
        acceptance_high=alpha_of_tokens_per_round(max(tokens), best),
        survival_rates=survival_rates(drafting.acceptance, best),
        tokens_per_round=tokens[0],
        tokens_per_round_low=min(tokens),
        tokens_per_round_high=max(tokens),
        speedup=gains[0],
        speedup_low=PRICING_BAND[0] * min(gains),
        speedup_high=PRICING_BAND[1] * max(gains),
        breakeven=state,
        breakeven_batch=at_batch,
        breakeven_acceptance=_breakeven_acceptance(round_s / plain_s, best),
        deviation_tokens=math.sqrt(tokens_per_round_variance(drafting.acceptance, best)),
        cost_ratio=_draft_step(drafting, target, batch) / plain_s,
        verify_ratio=target(batch, verified) / plain_s,
        fixed_ratio=fixed_s(drafting, target) / plain_s,
        plain_step_s=plain_s,
        round_s=round_s,
        acceptance_source=drafting.acceptance_source,
        cost_source=drafting.cost_source,
        fixed_source=drafting.fixed_source,
        operations_increase=(verified + drafting.num_passes(best) * drafting.operations_ratio) / tokens[0],
    )
