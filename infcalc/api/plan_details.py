"""A plan in full: what binds it, how sure it is, and the command that writes its launch text."""

from __future__ import annotations

import math
import shlex
from typing import TYPE_CHECKING

from infcalc.api.figures import scaled
from infcalc.api.ledger import longest_for
from infcalc.api.offer import Figure
from infcalc.api.plan_ask import HOURS_PER_MONTH
from infcalc.api.plan_demand import DemandKind
from infcalc.api.plan_nouns import FrontPoint, Plan, Rejected
from infcalc.api.plan_odds import far_s, judged, safe
from infcalc.api.speed import use_of
from infcalc.api.spending import energy_of
from infcalc.engines.launch.spec import Drafter
from infcalc.planning.nouns import Goal, Miss
from infcalc.planning.replicas import least_kept
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from infcalc.api.deployment import Ask
    from infcalc.api.plan_rig import Point, Rig
    from infcalc.api.plan_search import Field, Found
    from infcalc.planning.nouns import Refusal, Setup

_HOUR_S = 3600.0
_MILLION = 1e6
_EVEN = 0.5
"""Odds below which a plan is more likely to miss a limit than to keep it."""
_LOOKED_FURTHER = 4
"""Times the replicas of a plan, up to which it is looked for a safe number."""


def plan_of(field: Field, item: tuple[Found, tuple[Refusal, ...]]) -> Plan:
    """Return a plan in full; ``item`` has the refusals of smaller setups like it."""
    found, smaller = item
    rig = field.rig(found.setup)
    deployment, setup = rig.deployment, found.setup
    rent = field.rent(setup)
    number, unsafe = _safe_number(field, rig, found)
    stated, planned = judged(rig, found.share), judged(rig, _planned(field, rig, found))
    per_million = None
    if found.usd_per_hour is not None:
        usd, rate = found.usd_per_hour, found.tokens_per_s
        hours = _MILLION / _HOUR_S / field.terms.utilization_fraction
        per_million = Figure(
            value=usd.value / rate.value * hours,
            low=usd.low / rate.high * hours,
            high=usd.high / rate.low * hours,
            basis=rate.basis,
        )
    length = min(deployment.max_model_len, max(longest_for(deployment, rig.site.form), rig.load.total_tokens))
    spare = found.num_replicas - found.num_needed
    return Plan(
        gpu=deployment.gpu.name,
        gpus_per_replica=setup.num_gpus,
        replicas=found.num_replicas,
        spare_replicas=spare,
        total_gpus=found.num_gpus,
        tp=setup.ranks.tp,
        pp=setup.ranks.pp,
        dp=setup.ranks.dp,
        ep=setup.ranks.ep,
        weights=deployment.weights,
        kv_dtype=rig.site.form.name,
        engine=deployment.rules.engine,
        engine_version=deployment.rules.version,
        method=setup.method,
        draft_model=setup.draft_model,
        num_draft_tokens=setup.num_draft_tokens,
        max_model_len=length,
        share_per_replica=found.share,
        batch=found.point.batch,
        max_batch=found.point.max_batch,
        ttft_s=stated.ttft_s,
        tpot_s=stated.tpot_s,
        e2e_s=stated.e2e_s,
        output_tokens_per_s=found.tokens_per_s,
        requests_per_s=found.requests_per_s,
        usd_per_hour=found.usd_per_hour,
        usd_per_month=None if found.usd_per_hour is None else scaled(found.usd_per_hour, HOURS_PER_MONTH),
        usd_per_million_output_tokens=per_million,
        kwh_per_million_output_tokens=_kwh_per_million(field, rig, found),
        price_source="" if rent is None else rent.source,
        slo=planned.kept,
        slo_probability_fraction=planned.probability_fraction,
        safe_replicas=None if number is None else number + spare,
        safe_gpus=None if number is None else (number + spare) * setup.num_gpus,
        binding_constraint=_binding(field, rig, found, smaller),
        certainty=_certainty(found, planned.probability_fraction, number, unsafe),
        only_optimistic=_only_optimistic(planned.probability_fraction),
        launch_command=launch_command(
            field.ask,
            found,
            length,
            deployment.model.name,
            full_length=deployment.max_model_len,
            cached=field.demand.prefix_hit_fraction > 0,
        ),
    )


def _kwh_per_million(field: Field, rig: Rig, found: Found) -> Figure | None:
    """Return the energy of a million tokens: all replicas as full as the fullest, those that are spare idle."""
    run, each = rig.run_at(found.share), found.setup.num_gpus
    use = use_of(run, found.requests_per_s, found.tokens_per_s)
    spare = found.num_replicas - found.num_needed
    return energy_of(rig.deployment.gpu, found.num_needed * each, use, field.terms, num_idle_gpus=spare * each)


def _planned(field: Field, rig: Rig, found: Found) -> float:
    """Return what the fullest replica has of the load with its headroom."""
    return found.share if field.demand.kind is DemandKind.CAPACITY else rig.share(found.num_needed)


def _safe_number(field: Field, rig: Rig, found: Found) -> tuple[int | None, str]:
    """Return the least number of replicas that is safe; None and why, where none is."""
    if safe(rig, _planned(field, rig, found)):
        return found.num_needed, ""
    if field.demand.kind is DemandKind.CAPACITY:
        return None, "with fewer clients to a replica it may be"
    most = min(field.most_useful(), _LOOKED_FURTHER * found.num_needed + _LOOKED_FURTHER)
    number = least_kept(lambda number: safe(rig, rig.share(number)), found.num_needed, most)
    if number is not None:
        return number, ""
    worst, value_s = max(far_s(rig, rig.share(most)), key=lambda pair: pair[1] / pair[0].limit_s)
    # A server at the slow end of the band may not answer its part of a rate at all.
    until = "without end" if math.isinf(value_s) else format_seconds(value_s)
    return None, f"{worst.name} may be {until} even with {most}"


def _certainty(found: Found, share: float, number: int | None, unsafe: str) -> str:
    """Return what the band means for the decision."""
    gpus, each = found.num_needed * found.setup.num_gpus, found.setup.num_gpus
    one = gpus == 1
    noun = "GPU" if one else "GPUs"
    noun += ", without the spare," if found.num_replicas > found.num_needed else ""
    if number == found.num_needed:
        return f"{gpus} {noun} {'is' if one else 'are'} safe: the whole band keeps all limits"
    only = "only at the good end of the band, " if _only_optimistic(share) else ""
    told = f"{gpus} {noun} {'keeps' if one else 'keep'} all limits {only}with a probability of {share:.0%}"
    if number is None:
        return f"{told}; no number of replicas is safe: {unsafe}"
    return f"{told}, {number * each} are safe"


def _only_optimistic(share: float) -> bool:
    return round(share, 2) < _EVEN


def _binding(field: Field, rig: Rig, found: Found, smaller: tuple[Refusal, ...]) -> str:
    """Return what keeps it from being cheaper: what one replica fewer misses, or why no smaller setup will do."""
    number = found.num_needed
    if field.demand.kind is DemandKind.CAPACITY:
        return _tightest(found, rig.at(found.share + 1) if found.share < found.point.max_batch else None)
    if field.goal in {Goal.THROUGHPUT, Goal.LATENCY} and number == field.most_affordable(found.setup):
        return "GPUs or budget: more replicas would serve the objective better"
    if number > 1:
        return _one_fewer(rig.with_replicas(number - 1), number - 1)
    if smaller:
        nearest = max(smaller, key=lambda one: one.setup.num_gpus)
        kind = "memory" if nearest.kind is Miss.MEMORY else nearest.quantity or nearest.kind
        return f"{kind}: on fewer GPUs {nearest.reason}"
    return _tightest(found, None)


def _one_fewer(fewer: Point, number: int) -> str:
    """Return what misses with one replica fewer."""
    missed = [one for one in fewer.kept if not one.met]
    if not fewer.stable:
        return f"throughput: {number} replica{'' if number == 1 else 's'} cannot answer the load"
    if missed:
        worst = max(missed, key=lambda one: (one.value_s or float("inf")) / one.limit_s)
        value = "without end" if worst.value_s is None else format_seconds(worst.value_s)
        cause = " (KV room)" if fewer.bound_by == "KV room" else ""
        return f"{worst.name}{cause}: {value} with one replica fewer, the limit {format_seconds(worst.limit_s)}"
    return "simulation: one replica fewer keeps all limits in closed form, and was not confirmed"


def _tightest(found: Found, beyond: Point | None) -> str:
    if beyond is not None:
        missed = [one for one in beyond.kept if not one.met]
        if missed:
            return f"{missed[0].name}: one client more is beyond the limit"
    known = [one for one in found.kept if one.value_s is not None]
    if beyond is None and found.point.bound_by in {"KV room", "max_num_seqs"}:
        return f"{found.point.bound_by}: {found.point.max_batch:,.0f} requests run at once"
    if not known:
        return "one replica is the least there is"
    worst = max(known, key=lambda one: (one.value_s or 0.0) / one.limit_s)
    return (
        f"one replica is the least there is; {worst.name} is at {(worst.value_s or 0) / worst.limit_s:.0%} of its limit"
    )


def _drafting_words(setup: Setup) -> list[str]:
    """Return the drafting of a setup as ``launch`` takes it."""
    number = str(setup.num_draft_tokens)
    match setup.method:
        case None:
            return []
        case Drafter.MTP:
            return ["--mtp-tokens", number]
        case Drafter.NGRAM:
            return ["--method", Drafter.NGRAM, "--num-draft-tokens", number]
        case _:
            return ["--draft-model", setup.draft_model or "", "--num-draft-tokens", number]


def launch_command(ask: Ask, found: Found, length: int, model: str, *, full_length: int, cached: bool = False) -> str:
    """Return the command that writes the launch text of a plan, safe for a shell.

    ``cached``: its prompts are found in the prefix cache, which an engine must not be left without.
    """
    setup, ranks = found.setup, found.setup.ranks
    words = [
        "infcalc",
        "launch",
        "--model",
        ask.models[0] if ask.models else model,
        "--gpu",
        setup.gpu,
        "--tp",
        str(ranks.tp),
    ]
    for option, number in (("--pp", ranks.pp), ("--dp", ranks.dp), ("--ep", ranks.ep)):
        if number > 1:
            words += [option, str(number)]
    for option, word in (
        ("--weights", setup.weights),
        ("--kv-dtype", setup.kv),
        ("--engine", setup.engine),
        ("--engine-version", ask.engine_version),
    ):
        if word is not None:
            words += [option, word]
    if ask.max_model_len is not None or length < full_length:
        words += ["--max-model-len", str(length)]
    for option, value in (
        ("--memory-fraction", ask.memory_fraction),
        ("--max-num-seqs", ask.max_num_seqs),
        ("--max-num-batched-tokens", ask.max_num_batched_tokens),
        ("--block-size", ask.block_size),
    ):
        if value is not None:
            words += [option, str(value)]
    words += _drafting_words(setup)
    if cached:
        words.append("--prefix-caching")
    words += ["--replicas", str(found.num_replicas)]
    for path in ask.catalogs:
        words += ["--catalog", path]
    return shlex.join(words)


def rejected_of(refusal: Refusal, own_weights: str, own_kv: str) -> Rejected:
    """Return a refusal as the result has it."""
    setup, ranks = refusal.setup, refusal.setup.ranks
    return Rejected(
        gpu=setup.gpu,
        gpus_per_replica=setup.num_gpus,
        replicas=refusal.num_replicas,
        tp=ranks.tp,
        pp=ranks.pp,
        dp=ranks.dp,
        ep=ranks.ep,
        weights=setup.weights or own_weights,
        kv_dtype=setup.kv or own_kv,
        engine=setup.engine,
        method=setup.method,
        num_draft_tokens=setup.num_draft_tokens,
        kind=refusal.kind,
        reason=refusal.reason,
        quantity=refusal.quantity,
        limit=refusal.limit,
        value=refusal.value,
        miss_fraction=refusal.miss_fraction,
        only_optimistic=refusal.optimistic,
        nearest_change=refusal.change,
        change_suffices=refusal.suffices,
    )


def front_point(plan: Found, weights: str, kv: str) -> FrontPoint:
    """Return a point of the front."""
    point, ranks = plan.point, plan.setup.ranks
    if plan.usd_per_hour is None or point.ttft_s is None:
        raise AssertionError
    return FrontPoint(
        gpu=plan.setup.gpu,
        replicas=plan.num_replicas,
        total_gpus=plan.num_gpus,
        tp=ranks.tp,
        pp=ranks.pp,
        weights=plan.setup.weights or weights,
        kv_dtype=plan.setup.kv or kv,
        engine=plan.setup.engine,
        method=plan.setup.method,
        num_draft_tokens=plan.setup.num_draft_tokens,
        usd_per_hour=plan.usd_per_hour.value,
        usd_per_month=plan.usd_per_hour.value * HOURS_PER_MONTH,
        e2e_s=plan.delay_s,
        ttft_s=point.ttft_s.value,
        tpot_s=None if point.tpot_s is None else point.tpot_s.value,
        output_tokens_per_s=plan.tokens_per_s.value,
    )
