"""A capacity review: every question about one deployment and one load, answered once and put side by side."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from infcalc import __version__
from infcalc.api.answer import Answer, distinct
from infcalc.api.bands import class_of, drawn_from, table_of
from infcalc.api.bounds import roofline
from infcalc.api.costing import Terms, settled
from infcalc.api.deployment import Ask, load, resolve
from infcalc.api.figures import bands_of
from infcalc.api.filling import memory
from infcalc.api.objectives import parse_slo
from infcalc.api.offer import Offer
from infcalc.api.plan_ask import DEFAULT_SLO, DEFAULT_USERS, PlanAsk, check_plan
from infcalc.api.plan_demand import slo_text
from infcalc.api.planning import plan
from infcalc.api.reporting_nouns import BandLine, ReportResult
from infcalc.api.reporting_words import load_words, unpriced, verdict
from infcalc.api.speed import SpeedResult, estimate
from infcalc.api.sweeping import Sweep, Variable, parse_sweep, sweep_text
from infcalc.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infcalc.api.deployment import Deployment
    from infcalc.api.filling import MemoryResult
    from infcalc.api.plan_nouns import PlanResult
    from infcalc.api.planning import Progress
    from infcalc.api.spending import ProfileAsk
    from infcalc.catalog.lookup import Catalog
    from infcalc.spec.explain import Explanation, Input

_NOT_MET = 4
_BATCHES = (1, 8, 32, 128, 512)
"""Where decode stands on the roofline, besides the batch of the load."""
_MOST_CLIENTS = 2**20
_BEYOND = 1.5
"""Of what memory admits, how far a curve goes at least: past it the throughput grows no more."""
_PARTS_OF_MOST = (0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
"""Of the highest stable rate, the rates of a curve."""
_BANDED = ("ttft_s", "tpot_s", "output_tokens_per_s")


def report(
    ask: Ask | None = None,
    asked: PlanAsk | None = None,
    *,
    terms: Terms | None = None,
    profile: ProfileAsk | None = None,
    sweep: Sweep | None = None,
    progress: Progress | None = None,
) -> Answer[ReportResult]:
    """Return the capacity review of one deployment: memory, roofline, speed, its curve, plans and prices.

    Without a load: 100 users, as :func:`infcalc.api.planning.plan`. Without ``sweep`` the curve goes over the load's
    own quantity, from little to more than the deployment can serve. Exit code 3 where the deployment does not fit, 4
    where nothing on offer keeps the limits, or given limits are not kept by any number of replicas of the deployment.

    Raises:
        InfcalcError: any of its kinds, as :func:`infcalc.api.deployment.resolve`.
        UsageError: several models or GPUs: a review is of one deployment.

    """
    ask, asked, terms = ask or Ask(), asked or PlanAsk(), terms or Terms()
    _check_single(ask)
    check_plan(asked)
    assumed = asked.requests_per_s is None and asked.num_users is None
    if assumed:
        asked = replace(asked, num_users=DEFAULT_USERS)
    catalog = load(ask)
    (deployment,) = resolve(ask, catalog)
    terms = settled(terms, catalog)
    here = _priced(terms, {deployment.gpu.name})
    named = {catalog.resolve("gpus", name) for name in asked.gpus_from}
    others = {name for name, _ in terms.gpu_prices_usd} - ({deployment.gpu.name} - named if named else set())
    own = plan(own_ask(ask, deployment), own_plan(asked), terms=here, explain=True)
    share = share_of(asked, own.result)
    offer = offer_of(asked, share)
    speed = estimate(ask, offer, terms=here, profile=profile, explain=True)
    filled = memory(ask, contexts=(round(_total_tokens(speed.result)),), explain=True)
    bounds = roofline(ask, contexts=(context_of(speed.result),), batches=batches_of(speed.result), explain=True)
    curve, swept = None, ""
    if speed.result.fits:
        swept = sweep_for(asked, speed.result, share) if sweep is None else sweep_text(sweep)
        along = parse_sweep(swept)
        curve = estimate(ask, _without(offer, along.variable), terms=here, sweep=along).result.sweep
    best = plan(_free(ask), asked, terms=_priced(terms, others), progress=progress)
    slo = asked.slo or parse_slo(tuple(DEFAULT_SLO.split(",")))
    result = ReportResult(
        date=terms.today,
        version=__version__,
        load=load_words(asked, speed.result),
        share_per_replica=share,
        limits=slo_text(slo),
        slo=slo,
        verdict=verdict(filled.result, speed.result, own.result, best.result),
        ranks=deployment.parallelism,
        memory=filled.result,
        roofline=bounds.result,
        estimate=speed.result,
        curve=curve,
        swept=swept,
        as_deployed=own.result,
        plan=best.result,
        bands=_bands(deployment, catalog, at_rate=asked.requests_per_s is not None),
    )
    parts: tuple[Answer[Any], ...] = (filled, speed, bounds, best)
    return Answer(
        command="report",
        results=(result,),
        inputs=_inputs((*parts, own), given_users=not assumed),
        assumptions=_of_both(
            [*(note for part in parts for note in part.assumptions), *_drafting(asked)], own.assumptions
        ),
        # What the deployment's own kind cannot do is in the verdict; its mends are those of a plan for it alone.
        warnings=_of_both(
            [text for part in parts for text in part.warnings], [one for one in own.warnings if one != own.result.text]
        ),
        explanations=_explained(("memory", filled), ("estimate", speed), ("roofline", bounds), ("as_deployed", own)),
        exit_code=_exit_code(filled, speed, own.result, best.result, limited=bool(asked.slo)),
    )


def _priced(terms: Terms, names: set[str]) -> Terms:
    """Return the terms with the prices of these GPUs alone: the others are of another part."""
    return replace(terms, gpu_prices_usd=tuple(one for one in terms.gpu_prices_usd if one[0] in names))


def _check_single(ask: Ask) -> None:
    for names, option, kind in ((ask.models, "--model", "models"), (ask.gpus, "--gpu", "kinds of GPU")):
        if len(names) > 1:
            raise UsageError(
                f"{len(names)} {kind}",
                place=option,
                hint="a report is of one deployment: write one for each; --gpus-from names GPUs to choose plans from",
            )


def share_of(asked: PlanAsk, own: PlanResult) -> float:
    """Return the users or requests per second of the fullest replica; all, where no number of replicas will do.

    Six digits, as a command takes them.
    """
    whole = asked.requests_per_s or float(asked.num_users or DEFAULT_USERS)
    share = own.plans[0].share_per_replica if own.plans else whole
    return float(f"{share:.6g}") if asked.requests_per_s is not None else float(math.ceil(share))


def offer_of(asked: PlanAsk, share: float) -> Offer:
    """Return the load of a plan as that of one server with this share of it."""
    at_rate = asked.requests_per_s is not None
    return Offer(
        input_tokens=asked.input_tokens,
        output_tokens=asked.output_tokens,
        concurrency=None if at_rate else int(share),
        requests_per_s=share if at_rate else None,
        think_time_s=asked.think_time_s,
        prefix_hit_fraction=asked.prefix_hit_fraction or 0.0,
    )


def own_ask(ask: Ask, deployment: Deployment) -> Ask:
    """Return the ask for this deployment and no other split of its GPUs."""
    ranks = deployment.parallelism
    return replace(
        ask,
        gpus=(deployment.gpu.name,),
        num_gpus=ranks.num_gpus,
        tp=ranks.tp,
        pp=ranks.pp,
        dp=ranks.dp,
        ep=ranks.ep,
    )


def own_plan(asked: PlanAsk) -> PlanAsk:
    """Return what is asked of the deployment's own kind: how many replicas, whatever they cost."""
    return replace(
        asked,
        gpus_from=(),
        engines_from=(),
        allow=(),
        draft=None,
        usd_per_hour=None,
        max_gpus=None,
        num_shown=1,
        from_naive=False,
    )


def _free(ask: Ask) -> Ask:
    """Return the ask without GPUs and their split, which a plan chooses."""
    return replace(ask, gpus=(), num_gpus=None, tp=None, pp=None, dp=None, ep=None, dcp=None)


def _without(offer: Offer, variable: Variable) -> Offer:
    """Return the load without what a sweep varies."""
    match variable:
        case Variable.USERS | Variable.CONCURRENCY:
            return replace(offer, concurrency=None, requests_per_s=None)
        case Variable.RATE | Variable.BATCH:
            return replace(offer, concurrency=None, requests_per_s=None, think_time_s=0.0)
        case Variable.INPUT_TOKENS:
            return replace(offer, input_tokens=None)
        case Variable.OUTPUT_TOKENS:
            return replace(offer, output_tokens=None)
        case Variable.TP:
            return offer


def _total_tokens(speed: SpeedResult) -> float:
    return speed.input_tokens + speed.output_tokens


def context_of(speed: SpeedResult) -> int:
    """Return the tokens that a running request holds on average, which is where the roofline is drawn."""
    return max(1, round(_total_tokens(speed) if speed.step is None else speed.step.context_tokens))


def batches_of(speed: SpeedResult) -> tuple[int, ...]:
    """Return the batches of the roofline: that of the load among them, none beyond what memory admits."""
    own = max(1, round(speed.batch))
    return tuple(sorted({own, *(batch for batch in _BATCHES if batch == 1 or batch <= speed.max_batch)}))


def sweep_for(asked: PlanAsk, speed: SpeedResult, share: float) -> str:
    """Return the sweep of the load's own quantity, as ``--sweep`` takes it: its values hold the share of a replica."""
    if asked.requests_per_s is not None:
        most = speed.highest_stable_requests_per_s
        rates = [float(f"{part * most.value:.3g}") for part in _PARTS_OF_MOST] if most is not None else []
        return sweep_text(Sweep(variable=Variable.RATE, values=_each_once([share, *rates])))
    room = speed.max_batch * _thinkers_per_place(asked, speed)
    end = 2.0 ** math.ceil(math.log2(max(2.0, _BEYOND * max(room, share))))
    doubled = [end / 2**halvings for halvings in range(int(math.log2(end)) + 1)]
    users = [min(number, float(_MOST_CLIENTS)) for number in doubled]
    return sweep_text(Sweep(variable=Variable.USERS, values=_each_once([share, *users])))


def _thinkers_per_place(asked: PlanAsk, speed: SpeedResult) -> float:
    """Return how many users keep one place busy, at the pace of this load."""
    if not asked.think_time_s or speed.tpot_s is None:
        return 1.0
    return 1.0 + asked.think_time_s / (speed.tpot_s.value * max(1.0, speed.output_tokens))


def _each_once(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(sorted({float(f"{value:.6g}") for value in values if value > 0}))


def _bands(deployment: Deployment, catalog: Catalog, *, at_rate: bool) -> tuple[BandLine, ...]:
    efficiency = catalog.efficiency(deployment.gpu)
    basis, kind = bands_of(deployment, efficiency).basis, class_of(deployment, efficiency)
    found = []
    for quantity in _BANDED:
        name, (low, high) = drawn_from(kind, table_of(quantity, at_rate=at_rate))
        found.append(BandLine(quantity=quantity, basis=basis, drawn_from=name, factor_low=low, factor_high=high))
    return tuple(found)


def _drafting(asked: PlanAsk) -> tuple[str, ...]:
    if asked.draft is None:
        return ()
    return ("drafting is a choice of the plans on offer: the deployment itself is reviewed without it",)


_OF_ONE_PART = frozenset({"context", "contexts", "batches", "concurrency", "load"})
"""Inputs that a part was given by the review itself, not by the reader."""


def _explained(*parts: tuple[str, Answer[Any]]) -> tuple[Explanation, ...]:
    """Return all explanations, each under its key in the result of the review."""
    return tuple(replace(one, quantity=f"{name}.{one.quantity}") for name, part in parts for one in part.explanations)


def _of_both(texts: list[str], own: Iterable[str]) -> tuple[str, ...]:
    """Return texts of all parts, and those that only the plan of the deployment's own kind has under its name."""
    return distinct([*_told_once(texts), *(f"as deployed: {text}" for text in own if text not in texts)])


def _told_once(texts: list[str]) -> list[str]:
    """Return the texts, of several that tell in their own words what does not fit the first alone."""
    found: dict[str, str] = {}
    for text in texts:
        who, mark, _ = text.partition(_UNFIT)
        found.setdefault(f"{who}{mark}" if mark else text, text)
    return list(found.values())


_UNFIT = " does not fit on "


def _inputs(parts: Iterable[Answer[Any]], *, given_users: bool) -> tuple[Input, ...]:
    found: dict[str, Input] = {}
    for part in parts:
        for item in part.inputs:
            if part.command == "estimate" and item.name in {"users", "rate_per_s"}:
                # Of one replica: that of the whole load is the plan's.
                continue
            if item.name not in _OF_ONE_PART:
                found.setdefault(item.name, item)
    if not given_users and "users" in found:
        found["users"] = replace(found["users"], origin="reference scenario")
    return tuple(found.values())


def _exit_code(
    filled: Answer[MemoryResult],
    speed: Answer[SpeedResult],
    own: PlanResult,
    best: PlanResult,
    *,
    limited: bool,
) -> int:
    if filled.exit_code or speed.exit_code:
        return filled.exit_code or speed.exit_code
    missed = limited and not own.feasible and not unpriced(own)
    return _NOT_MET if missed or not best.feasible else 0
