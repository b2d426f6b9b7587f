"""What should I rent? From users, objectives and a budget to GPUs, their number, how to split them, and the price."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.answer import Answer, distinct
from infcalc.api.costing import Terms, price_warnings, rent_of, settled, unused_prices
from infcalc.api.deployment import REFERENCE_MODEL, Ask, load, merged_inputs, stored_in
from infcalc.api.drafting import counted
from infcalc.api.plan_ask import HOURS_PER_MONTH, PlanAsk, check_plan, goal_of
from infcalc.api.plan_candidates import choice_of, setups
from infcalc.api.plan_demand import DemandKind, demand_of
from infcalc.api.plan_details import front_point, plan_of, rejected_of
from infcalc.api.plan_drafting import draft_inputs, draft_ways
from infcalc.api.plan_fallback import SETUPS_PER_PLAN, judged
from infcalc.api.plan_front import REACH, front_of
from infcalc.api.plan_nouns import PlanResult, RejectedGroup
from infcalc.api.plan_options import options_of
from infcalc.api.plan_pool import over_cores
from infcalc.api.plan_pools import alternatives_of
from infcalc.api.plan_refusals import mended
from infcalc.api.plan_search import Field, weigh
from infcalc.errors import UsageError
from infcalc.planning.nouns import Goal, Miss, Refusal, Setup
from infcalc.spec.explain import Input
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from infcalc.api.plan_nouns import Plan, Rejected, StoryStep
    from infcalc.api.plan_search import Found, Weighed
    from infcalc.spec.explain import Explanation

    Progress: TypeAlias = Callable[[int, int], None]

_NOT_MET = 4
_DEFAULT_MOST_GPUS = 8
"""Of plans that only get better with more: one machine."""


def plan(
    ask: Ask | None = None,
    asked: PlanAsk | None = None,
    *,
    terms: Terms | None = None,
    explain: bool = False,
    progress: Progress | None = None,
) -> Answer[PlanResult]:
    """Return what serves a load best: every GPU, split, precision and number of replicas on offer is weighed.

    Without anything: the reference model for 100 users, at the least cost. Exit code 4 where nothing keeps the limits.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.

    """
    ask, asked, terms = ask or Ask(), asked or PlanAsk(), terms or Terms()
    check_plan(asked)
    _check_ask(ask)
    catalog = load(ask)
    terms = settled(terms, catalog)
    results: list[PlanResult] = []
    inputs: list[tuple[Input, ...]] = []
    notes: list[str] = []
    talk: list[str] = []
    explanations: list[Explanation] = []
    for name in ask.models or (REFERENCE_MODEL,):
        one = replace(ask, models=(name,))
        from infcalc import files  # noqa: PLC0415 - opening files is only needed here

        entry = files.load_model(catalog, name)
        demand, found_inputs, said = demand_of(asked)
        goal = goal_of(asked)
        most_gpus, capped = _most_gpus(asked, goal)
        field = Field(
            goal=goal,
            demand=demand,
            ask=one,
            terms=terms,
            catalog=catalog,
            model_entry=entry,
            most_gpus=most_gpus,
            most_usd_per_hour=asked.usd_per_hour,
            num_spare=asked.num_spare,
            draft=asked.draft,
        )
        result, told, lengths = _planned(field, replace(asked, max_gpus=most_gpus), progress)
        results.append(result)
        notes += [*said, *capped, *told, *_notes(field, result), *entry.assumptions]
        _, doubts = draft_ways(asked.draft, entry.model, catalog)
        talk += [*entry.warnings, *doubts, *_warnings(result), *_price_warnings(field, result)]
        origin = "given (--model)" if ask.models else "reference scenario"
        inputs.append(
            (
                Input(name="model", value=entry.model.name, origin=origin, source=entry.model.source),
                Input(name="objective", value=str(goal), origin="given" if asked.goal != Goal.COST else "default"),
                *found_inputs,
                *lengths,
                *_limits(asked, most_gpus),
                *draft_inputs(asked.draft),
            )
        )
        if explain:
            from infcalc.api.plan_words import explain_plan  # noqa: PLC0415 - only when asked

            explanations += explain_plan(field, result)
    talk += unused_prices(terms, [catalog.resolve("gpus", name) for name in asked.gpus_from] or catalog.names("gpus"))
    code = 0 if all(result.feasible for result in results) else _NOT_MET
    return Answer(
        command="plan",
        results=tuple(results),
        inputs=merged_inputs(inputs),
        assumptions=distinct(notes),
        warnings=distinct(talk),
        explanations=tuple(explanations),
        exit_code=code,
    )


def _price_warnings(field: Field, result: PlanResult) -> list[str]:
    """Return what is to be said of the prices of the plans that are shown."""
    found: list[str] = []
    for name in dict.fromkeys(one.gpu for one in result.plans):
        gpu = field.catalog.gpu(name).gpu
        found += price_warnings(gpu, rent_of(gpu, field.terms), field.terms)
    return found


def _check_ask(ask: Ask) -> None:
    if ask.num_gpus is not None and ask.num_gpus < 1:
        raise UsageError(f"{ask.num_gpus} is out of range", place="--gpus", hint="a whole number from 1")


def _most_gpus(asked: PlanAsk, goal: Goal) -> tuple[int | None, list[str]]:
    """Return the most GPUs, and a note where that is assumed: some goals know no end."""
    endless = goal in {Goal.THROUGHPUT, Goal.LATENCY}
    if asked.max_gpus is not None or asked.usd_per_hour is not None or not endless:
        return asked.max_gpus, []
    note = f"most {goal} knows no end: --max-gpus {_DEFAULT_MOST_GPUS} is assumed, for want of --budget or --max-gpus"
    return _DEFAULT_MOST_GPUS, [note]


def _limits(asked: PlanAsk, most_gpus: int | None) -> list[Input]:
    found = []
    if most_gpus is not None and asked.max_gpus is None:
        found.append(Input(name="max_gpus", value=most_gpus, origin="assumed"))
    for name, value, option in (
        ("max_gpus", asked.max_gpus, "--max-gpus"),
        (
            "budget_usd_per_month",
            None if asked.usd_per_hour is None else round(asked.usd_per_hour * HOURS_PER_MONTH, 2),
            "--budget",
        ),
        ("headroom_fraction", asked.headroom_fraction or None, "--headroom"),
        ("spare_replicas", asked.num_spare or None, "--spare"),
        ("allow", ",".join(asked.allow) or None, "--allow"),
        ("gpus_from", ",".join(asked.gpus_from) or None, "--gpus-from"),
        ("engines_from", ",".join(asked.engines_from) or None, "--engines-from"),
        ("prefix_hit_fraction", asked.prefix_hit_fraction or None, "--prefix-hit"),
    ):
        if value is not None:
            found.append(Input(name=name, value=value, origin=f"given ({option})"))
    return found


# One model -----------------------------------------------------------------------------------------------------------


def _planned(
    field: Field, asked: PlanAsk, progress: Progress | None
) -> tuple[PlanResult, list[str], tuple[Input, ...]]:
    priced = field.goal in {Goal.COST, Goal.GOODPUT} or asked.usd_per_hour is not None
    choice = choice_of(field.ask, asked, field.model_entry.model, field.catalog)
    offered: list[Setup] = []
    refusals: list[Refusal] = []
    for one in setups(choice, field.terms, priced=priced):
        if isinstance(one, Setup):
            offered.append(one)
        else:
            refusals.append(one)
    total = len(offered)
    weighed, outranked = _weighed(field, asked, offered, progress)
    found = sorted((one.found for one in weighed if one.found is not None), key=lambda one: one.order(field.goal))
    refusals += outranked
    refusals += [one.refusal for one in weighed if one.refusal is not None]
    told_by = judged(field, _best_lengths(found), asked)
    chosen, notes = told_by.chosen, list(told_by.notes)
    refusals += told_by.missed
    refuted = {(one.setup, one.num_replicas) for one in told_by.missed}
    front = front_of(
        field,
        [one for one in (*found, *chosen) if (one.setup, one.num_replicas) not in refuted],
        asked.num_workers,
    )
    details = over_cores(
        field, plan_of, [(one, _smaller(one, refusals)) for one in chosen], num_workers=asked.num_workers, few=8
    )
    on_front = {(one.setup, one.num_replicas) for one in front}
    plans = tuple(
        replace(one, confirmation=confirmation, on_front=(base.setup, base.num_replicas) in on_front)
        for one, confirmation, base in zip(details, told_by.confirmations, chosen, strict=True)
    )
    refusals = mended(refusals, (one.setup for one in found))
    own = _own_words(field)
    rejected = tuple(sorted((rejected_of(one, *own) for one in refusals), key=_nearness))
    means, given = _lengths(field, offered)
    demand = field.demand
    story: tuple[StoryStep, ...] = ()
    if asked.from_naive and chosen:
        from infcalc.api.plan_story import story_of  # noqa: PLC0415 - only when asked

        story, told = story_of(field, asked, chosen[0])
        notes = [*notes, *told]
    result = PlanResult(
        model=field.model_entry.model.name,
        objective=field.goal,
        load=demand.kind,
        users=demand.num_users if demand.kind is DemandKind.USERS else None,
        rate_per_s=demand.requests_per_s if demand.kind is DemandKind.RATE else None,
        input_tokens=means[0],
        output_tokens=means[1],
        feasible=bool(plans),
        plans=plans,
        front=tuple(front_point(one, *own) for one in front),
        alternatives=alternatives_of(field, found, asked.num_workers) if asked.with_pools else (),
        rejected_groups=_grouped(rejected),
        rejected=rejected,
        num_setups=total,
        num_candidates=sum(one.num_candidates for one in weighed) + _num_more(field, outranked),
        num_feasible=len(found),
        num_simulated=told_by.num_simulated,
        text=_text(plans, rejected),
        story=story,
        options=options_of(field, found, chosen),
    )
    return result, notes, given


def _best_lengths(found: Sequence[Found]) -> list[Found]:
    """Return the plans without those that differ from a better one in the length of their drafts alone."""
    seen: set[Setup] = set()
    kept = []
    for one in found:
        alike = replace(one.setup, num_draft_tokens=0)
        if alike not in seen:
            kept.append(one)
            seen.add(alike)
    return kept


def _weighed(
    field: Field, asked: PlanAsk, offered: Sequence[Setup], progress: Progress | None
) -> tuple[list[Weighed], list[Refusal]]:
    """Weigh setups, and refuse those that cannot be among the plans or on the front, whatever they do.

    For the least cost those with the cheapest replicas come first. Once as many plans are known as are shown or
    simulated, a setup of which one replica costs more than all of them, and more than the front reaches, is out: exact,
    for no plan of it has fewer.
    """
    total = len(offered)

    def weigh_all(some: Sequence[Setup], before: int) -> list[Weighed]:
        done = None if progress is None else lambda number: progress(before + number, total)
        return over_cores(field, weigh, some, num_workers=asked.num_workers, done=done)

    if field.goal is not Goal.COST or total < _MANY:
        return weigh_all(offered, 0), []
    least_usd = {one: field.least_usd_per_hour(one) for one in offered}
    ordered = sorted(offered, key=lambda one: least_usd[one])
    first = ordered[: max(_MANY // 2, total // 8)]
    weighed = weigh_all(first, 0)
    priced = [one.found for one in weighed if one.found is not None and one.found.usd_per_hour is not None]
    known = sorted(one.usd_per_hour.value for one in _best_lengths(priced) if one.usd_per_hour is not None)
    needed = asked.num_shown + SETUPS_PER_PLAN * asked.num_confirmed
    if len(known) < needed:
        return weighed + weigh_all(ordered[len(first) :], len(first)), []
    most_usd = max(known[needed - 1], REACH * known[0])
    rest = [one for one in ordered[len(first) :] if least_usd[one] <= most_usd]
    out = [
        Refusal(
            setup=one,
            kind=Miss.OUTRANKED,
            reason=f"one replica is {least_usd[one]:,.2f} USD/h, the best plans and their front end at {most_usd:,.2f}",
            quantity="usd_per_hour",
            limit=most_usd,
            value=least_usd[one],
            num_replicas=1 + field.num_spare,
        )
        for one in ordered[len(first) :]
        if least_usd[one] > most_usd
    ]
    return weighed + weigh_all(rest, len(first)), out


def _num_more(field: Field, outranked: Sequence[Refusal]) -> int:
    """Return the numbers of replicas that setups stand for which were left out."""
    return sum(max(1, min(field.most_affordable(one.setup), field.most_useful())) for one in outranked)


_MANY = 128
"""Setups from which on those are left out that cannot win."""


def _lengths(field: Field, offered: Sequence[Setup]) -> tuple[tuple[float, float], tuple[Input, ...]]:
    """Return mean prompt and answer, and what was given or assumed of them, as the first setup understands them."""
    for one in offered:
        try:
            load = field.rig(one).load
        except UsageError:
            continue
        means = (load.prompt_tokens, load.answer_tokens)
        if field.demand.file is None:
            return means, tuple(item for item in load.found if item.name in _LENGTHS)
        pairs = zip(_LENGTHS, means, strict=True)
        return means, tuple(
            Input(name=name, value=f"{mean:,.0f} on average", origin="of the trace") for name, mean in pairs
        )
    return (0.0, 0.0), ()


_LENGTHS = ("input_tokens", "output_tokens")


def _own_words(field: Field) -> tuple[str, str]:
    model = field.model_entry.model
    kv = model.kv_dtype or (model.dtype if model.dtype in {"bf16", "fp16"} else "bf16")
    return stored_in(model), kv


def _smaller(found: Found, refusals: Sequence[Refusal]) -> tuple[Refusal, ...]:
    """Return why setups like it on fewer GPUs will not do."""
    mine = found.setup
    return tuple(
        one
        for one in refusals
        if (one.setup.gpu, one.setup.engine, one.setup.weights, one.setup.kv)
        == (mine.gpu, mine.engine, mine.weights, mine.kv)
        and (one.setup.method, one.setup.num_draft_tokens) == (mine.method, mine.num_draft_tokens)
        and one.setup.num_gpus < found.num_needed * mine.num_gpus
        and one.kind in {Miss.MEMORY, Miss.OBJECTIVE, Miss.LOAD}
    )


# In words ------------------------------------------------------------------------------------------------------------

_KINDS = (
    Miss.SIMULATION,
    Miss.OBJECTIVE,
    Miss.LOAD,
    Miss.BUDGET,
    Miss.OUTRANKED,
    Miss.GPUS,
    # Before memory: what no hardware admits is not mended by more of it.
    Miss.LENGTH,
    Miss.MEMORY,
    Miss.PRECISION,
    Miss.DRAFTING,
    Miss.DIVISION,
    Miss.PRICE,
)


def _nearness(one: Rejected) -> tuple[int, float, str, int]:
    miss = one.miss_fraction
    return _KINDS.index(one.kind), float("inf") if miss is None else miss, one.gpu, one.gpus_per_replica


def _grouped(rejected: Sequence[Rejected]) -> tuple[RejectedGroup, ...]:
    groups = []
    for kind in _KINDS:
        mine = [one for one in rejected if one.kind is kind]
        if mine:
            groups.append(RejectedGroup(kind=kind, count=len(mine), nearest=mine[0]))
    return tuple(groups)


def _text(plans: Sequence[Plan], rejected: Sequence[Rejected]) -> str:
    if not plans:
        near = [one for one in rejected if one.nearest_change]
        if not near:
            return "nothing on offer serves this load"
        # What one change lets pass is nearer than what takes several.
        one = min(
            near,
            key=lambda one: (
                one.kind is Miss.PRICE,
                not one.change_suffices,
                one.nearest_change.count("--") if one.change_suffices else 0,
            ),
        )
        if one.kind is Miss.PRICE:
            return f"nothing on offer can be compared: {one.reason} (mend: {one.nearest_change})"
        return (
            f"nothing on offer keeps all limits; nearest: {one.gpus_per_replica} x {one.gpu}, {one.reason} "
            f"(mend{', in closed form' if one.change_suffices else ', as a first step'}: {one.nearest_change})"
        )
    best = plans[0]
    many = f"{best.replicas} x " if best.replicas > 1 else ""
    price = ""
    if best.usd_per_month is not None and best.usd_per_hour is not None:
        price = f" for {best.usd_per_month.value:,.0f} USD a month ({best.usd_per_hour.value:,.2f} USD/h)"
    simulated = "by formula, not simulated"
    if best.confirmation is not None:
        simulated = "its queues are confirmed by simulation, on the same clock"
    drafts = f" with {best.method} ({best.num_draft_tokens} drafts)" if best.method is not None else ""
    told = f"rent {many}{best.gpus_per_replica} x {best.gpu}{drafts}{price}: {best.certainty}; {simulated}"
    return "; ".join((told, *_safest(plans)))


def _safest(plans: Sequence[Plan]) -> tuple[str, ...]:
    """Return what the cheapest safe plan of those shown costs, where it is another than the best."""
    found = []
    for one in plans:
        if one.usd_per_month is not None and one.safe_gpus is not None and one.safe_replicas is not None:
            usd = one.usd_per_month.value / one.total_gpus * one.safe_gpus
            found.append((usd, one.safe_gpus, one.safe_replicas, one))
    if not found or plans[0].safe_replicas == plans[0].replicas:
        return ()
    usd, _, number, one = min(found, key=lambda item: item[:2])
    many = f"{number} x " if number > 1 else ""
    return (f"safe at least cost: {many}{one.gpus_per_replica} x {one.gpu} for {usd:,.0f} USD a month",)


def _notes(field: Field, result: PlanResult) -> list[str]:
    found = [
        "times are means over requests of the fullest replica; low to high is meant to hold 80 % of measurements",
        (
            "percentiles in closed form: waits as of an exponential, prompts and answers as they vary, a log-normal "
            "law of that spread; the simulator's are those of requests"
        ),
        *_of_odds(field, result),
        f"{result.num_candidates:,} candidates of {result.num_setups:,} {_setups(result.num_setups)} weighed",
        f"a month has {HOURS_PER_MONTH:.0f} hours",
    ]
    if field.num_spare:
        found.append(
            f"limits hold with {field.num_spare} replica{'s' if field.num_spare > 1 else ''} away; the price is of all"
        )
    if any(one.method is not None for one in result.plans):
        found.append(
            "times of plans that draft are those of rounds; acceptance "
            + ("is as given" if field.draft is not None and counted(field.draft).acceptance else "is published")
            + ", and a property of the task; the drafter's own prefill is not counted"
        )
    if field.demand.prefix_hit_fraction:
        found.append(
            f"{field.demand.prefix_hit_fraction:.0%} of each prompt is found in the prefix cache; every request "
            "still holds its whole context in memory, as if nothing were shared"
        )
    return found


def _of_odds(field: Field, result: PlanResult) -> list[str]:
    """Return what `sure` is, and what the simulator has no say in."""
    if not result.plans:
        return []
    found = [
        (
            "sure: how likely all limits are kept, from where published runs lie about their predictions; safe: over "
            "the whole band"
        )
    ]
    if field.demand.kind is DemandKind.RATE:
        found.append(
            "at a rate the band of first tokens is that of a server as much slower or faster as throughput was "
            "measured, its queue computed anew; `infcalc estimate` has the wider one of published runs at a rate"
        )
    if result.num_simulated:
        ahead_s = max((one.confirmation.scheduled_ahead_s for one in result.plans if one.confirmation), default=0.0)
        if ahead_s:
            found.append(
                f"simulated first tokens hold up to {format_seconds(ahead_s)} for the step that the engine has "
                "scheduled when a request comes: the simulator plans a step only when the one before has ended"
            )
        found.append(
            "the simulator confirms how requests meet and wait; its steps take the same modelled time as in closed "
            "form, so that it says nothing of how fast the GPUs are: `sure` does"
        )
    return found


def _warnings(result: PlanResult) -> list[str]:
    return [] if result.feasible else [result.text]


def _setups(number: int) -> str:
    return "setup" if number == 1 else "setups"
