"""Drafting under load: rounds in place of steps, on a server that has room for the drafter.

A round is priced as ``speculate`` does (:mod:`infcalc.api.drafted_steps`). Steps with prompts draft for them as well;
the drafter's own prefill is not counted.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.crowding import with_drafter
from infcalc.api.drafted_steps import at_context, round_timer
from infcalc.api.drafting import acceptance_origin, counted, way_of
from infcalc.api.rounds import rig_of, target_timer
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.scheduling.drafts import Drafts
from infcalc.simulation.chance import AcceptanceChance
from infcalc.spec.explain import Explanation, Input
from infcalc.speculation.linear import survival_rates, tokens_per_round
from infcalc.speculation.priced import best_length, explain_row, rows
from infcalc.speculation.published import Method
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.deployment import Deployment
    from infcalc.api.drafting import DraftAsk, Way
    from infcalc.api.rounds import Rig
    from infcalc.api.speed import Machine, Site
    from infcalc.simulation.timing import StepTimer

_CONTEXT_TOKENS = 1024
"""At which the best length is looked for, and fixed parts that are known as a share of a step are taken."""
_NEEDS_LAST = {Method.EAGLE, Method.EAGLE_TREE, Method.EAGLE2, Method.EAGLE3, Method.EAGLE3_TREE, Method.MTP}
"""Heads that read the target's hidden states. Source: vLLM ``SpeculativeConfig.use_eagle``: the last block found in the
prefix cache is dropped for them (``single_type_kv_cache_manager.find_longest_cache_hit``)."""
_WRITES_AHEAD = {*_NEEDS_LAST, Method.DRAFT_MODEL}
"""Drafters with a cache of their own. Source: vLLM ``v1/core/sched/scheduler.py``, ``num_lookahead_tokens``."""


@frozen
class DraftedLoad:
    """One way of drafting on one deployment, ready to be simulated."""

    way: Way
    rig: Rig
    num_draft_tokens: int
    deployment: Deployment
    """With what the drafter loads and caches."""

    @property
    def drafts(self) -> Drafts:
        """What the scheduler plans: all that is verified but the token before it."""
        number = self.way.drafting.verified_tokens(self.num_draft_tokens) - 1
        return Drafts(num_tokens=number, num_lookahead_tokens=number if self.way.method in _WRITES_AHEAD else 0)

    @property
    def drops_last_hit(self) -> bool:
        """Whether the last block found in the prefix cache is computed again."""
        return self.way.method in _NEEDS_LAST

    @property
    def expected_tokens_per_round(self) -> float:
        """By the law."""
        return tokens_per_round(self.way.drafting.acceptance, self.num_draft_tokens)

    def chance(self, seed: int) -> AcceptanceChance:
        """Return how many drafts of each round are accepted: of a tree no more than its depth."""
        rates = survival_rates(self.way.drafting.acceptance, self.num_draft_tokens)
        beside = self.drafts.num_tokens - len(rates)
        return AcceptanceChance(seed=seed, rates=(*rates, *(0.0 for _ in range(beside))))

    def timer(self, machine: Machine) -> StepTimer:
        """Return the timer of a lane."""
        return round_timer(machine, self.rig, self.way.drafting, self.way.passes, self.num_draft_tokens)

    def inputs(self, asked: DraftAsk) -> tuple[Input, ...]:
        """Return what it rests on."""
        named = counted(asked).acceptance
        drafting = self.way.drafting
        return (
            Input(name="method", value=str(self.way.method), origin="given" if asked.methods else "that of the draft"),
            *((Input(name="draft_model", value=asked.draft_model, origin="given"),) if asked.draft_model else ()),
            Input(
                name="num_draft_tokens",
                value=self.num_draft_tokens,
                origin="default" if asked.num_draft_tokens is None else "given (--num-draft-tokens)",
            ),
            Input(
                name="acceptance",
                value=named or "published",
                origin=acceptance_origin(asked),
                source="" if named else drafting.acceptance_source,
            ),
        )

    def explanations(self, batch: int, context_tokens: int) -> tuple[Explanation, ...]:
        """Return how long a round takes at one batch and context, and what it gains there."""
        rig, drafting = at_context(self.way.drafting, self.way.passes, self.rig, context_tokens)
        (row,) = rows(
            (replace(drafting, num_draft_tokens=(self.num_draft_tokens,)),), target_timer(rig), batch=max(1, batch)
        )
        return (
            Explanation(
                quantity="round_s",
                formula="T(b, k) = verify(b, k + 1) + passes * draft(b) + fixed",
                substituted=(
                    f"{format_seconds(row.plain_step_s)} x ({row.verify_ratio:.3f} + {row.num_passes} x "
                    f"{row.cost_ratio:.3f} + {row.fixed_ratio:.3f}) = {format_seconds(row.round_s)} "
                    f"for {max(1, batch):,} requests after {context_tokens:,} tokens each, the means of the run; "
                    f"{format_seconds(row.plain_step_s)} is a step without drafting"
                ),
                inputs=(
                    Input(name="verify step / plain step", value=row.verify_ratio, origin="the target's steps"),
                    Input(name="draft step / plain step", value=row.cost_ratio, origin=row.cost_source),
                    Input(name="fixed / plain step", value=row.fixed_ratio, origin=row.fixed_source),
                ),
            ),
            *(one for one in explain_row(row) if one.quantity == "speedup"),
        )


def check_drafted(asked: DraftAsk) -> None:
    """Refuse what names no single way of drafting.

    Raises:
        UsageError: no method and no draft model, or several methods.

    """
    if len(asked.methods) > 1:
        raise UsageError(f"{len(asked.methods)} methods", place="--method", hint="simulate one at a time")
    if not asked.methods and asked.draft_model is None:
        place = "--acceptance" if asked.acceptance else "--accepted" if asked.accepted_tokens else "--num-draft-tokens"
        raise UsageError("drafts, and nothing that drafts", place=place, hint="add --method eagle3, or a --draft-model")


def drafted_load(asked: DraftAsk, site: Site) -> DraftedLoad:
    """Return the way of drafting that is asked for on a deployment; without a length the best for one request alone.

    Raises:
        InfcalcError: as :func:`infcalc.api.drafting.speculate`.

    """
    deployment = site.deployment
    rig = rig_of(deployment, site.form, site.catalog.efficiency(deployment.gpu), context_tokens=_CONTEXT_TOKENS)
    way = way_of(asked, rig, site.catalog)
    length = asked.num_draft_tokens or best_length(way.drafting, target_timer(rig), 1)
    return DraftedLoad(
        way=way, rig=rig, num_draft_tokens=length, deployment=with_drafter(deployment, way.passes, length)
    )
