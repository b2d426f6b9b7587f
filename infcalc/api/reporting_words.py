"""The words of a capacity review: its load, and its verdict in two sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.planning.nouns import Miss
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.filling import MemoryResult
    from infcalc.api.offer import Figure
    from infcalc.api.plan_ask import PlanAsk
    from infcalc.api.plan_nouns import Plan, PlanResult
    from infcalc.api.speed import SpeedResult


def load_words(asked: PlanAsk, speed: SpeedResult) -> str:
    """Return the load in words: who asks, how often, and how much."""
    if asked.requests_per_s is not None:
        who = f"{asked.requests_per_s:g} requests per second at random"
    else:
        pause = f" who think for {format_seconds(asked.think_time_s)}" if asked.think_time_s else ""
        who = f"{asked.num_users:,} users{pause}" if asked.num_users != 1 else f"1 user{pause}"
    cached = f", {asked.prefix_hit_fraction:.0%} of each prompt cached" if asked.prefix_hit_fraction else ""
    lengths = (
        f"prompts of {_tokens(asked.input_tokens, speed.input_tokens)}, "
        f"answers of {_tokens(asked.output_tokens, speed.output_tokens)}"
    )
    return f"{who}; {lengths}{cached}"


def _tokens(text: str | None, mean: float) -> str:
    if text is not None and not text.strip().isdigit():
        return f"{mean:,.0f} tokens on average ({text})"
    return f"{mean:,.0f} tokens"


def verdict(memory: MemoryResult, speed: SpeedResult, own: PlanResult, best: PlanResult) -> tuple[str, str]:
    """Return what is to be said of the deployment, and of what is on offer instead."""
    return _of_deployment(memory, speed, own), _of_offer(own, best)


def _of_deployment(memory: MemoryResult, speed: SpeedResult, own: PlanResult) -> str:
    where = f"{memory.model} in {memory.weights} on {memory.num_gpus} x {memory.gpu}"
    if not speed.fits or not memory.fits:
        missing = max(memory.missing_bytes, speed.missing_bytes)
        return f"{where} does not fit: {format_bytes(missing)} per GPU are missing."
    who = _who(own)
    if not own.plans and unpriced(own):
        return f"{where} fits; how many replicas {who} take is not weighed, for {own.rejected[0].reason}."
    if not own.plans:
        reason = own.rejected[0].reason if own.rejected else own.text
        return f"{where} fits, but no number of such replicas keeps the limits for {who}: {reason}."
    plan = own.plans[0]
    served = (
        f"{where} serves {who} within the limits"
        if plan.replicas == 1
        else f"{where} serves {who} within the limits with {plan.replicas:,} such replicas ({plan.total_gpus:,} GPUs)"
    )
    told = [served]
    # Of the fullest replica, as the review shows it: a plan at a rate draws its bands by another rule.
    if speed.ttft_s is not None:
        told.append(f"first token after {_banded(speed.ttft_s)}")
    if speed.tpot_s is not None:
        told.append(f"{_banded(speed.tpot_s)} per token")
    if plan.usd_per_month is not None:
        told.append(f"{plan.usd_per_month.value:,.0f} USD a month")
    sure = (
        f"{plan.certainty}; {'by formula, not simulated' if plan.confirmation is None else 'confirmed by simulation'}"
    )
    return f"{told[0]}: {', '.join(told[1:])}; {sure}." if told[1:] else f"{served}; {sure}."


def unpriced(own: PlanResult) -> bool:
    """Return whether the deployment's own kind was not weighed, for want of a price."""
    return bool(own.rejected) and all(one.kind is Miss.PRICE for one in own.rejected)


def _of_offer(own: PlanResult, best: PlanResult) -> str:
    if not best.plans:
        return f"{best.text[:1].upper()}{best.text[1:]}."
    if own.plans and _same(own.plans[0], best.plans[0]):
        return f"By {best.objective}, nothing on offer is better than this deployment."
    return f"Best by {best.objective} of all on offer: {best.text}."


def _same(one: Plan, other: Plan) -> bool:
    keys = ("gpu", "replicas", "total_gpus", "tp", "pp", "dp", "ep", "weights", "kv_dtype", "engine", "method")
    return all(getattr(one, key) == getattr(other, key) for key in keys)


def _who(result: PlanResult) -> str:
    if result.rate_per_s is not None:
        return f"{result.rate_per_s:g} requests per second"
    return f"{result.users or 0:,} user{'' if result.users == 1 else 's'}"


def _banded(figure: Figure) -> str:
    return f"{format_seconds(figure.value)} ({format_seconds(figure.low)} to {format_seconds(figure.high)})"
