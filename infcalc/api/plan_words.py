"""How the figures of a plan come about: formula, values, and where each comes from."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.plan_ask import HOURS_PER_MONTH
from infcalc.planning.odds import SAFE
from infcalc.spec.explain import Explanation, Input

if TYPE_CHECKING:
    from infcalc.api.plan_nouns import PlanResult
    from infcalc.api.plan_search import Field


def explain_plan(field: Field, result: PlanResult) -> list[Explanation]:
    """Return how cost, percentiles and probability of the best plan come about."""
    if not result.plans:
        return []
    best = result.plans[0]
    gpus = f"{best.replicas} x {best.gpus_per_replica}"
    found = []
    if best.usd_per_month is not None and best.usd_per_hour is not None:
        each = best.usd_per_hour.value / best.total_gpus
        found.append(
            Explanation(
                quantity="usd_per_month",
                formula="replicas x GPUs x USD per GPU-hour x hours of a month",
                substituted=f"{gpus} x {each:.4g} x {HOURS_PER_MONTH:g} = {best.usd_per_month.value:,.2f}",
                inputs=(Input(name="usd_per_gpu_hour", value=f"{each:.4g}", origin=best.price_source),),
                source="hours of a month: 365 x 24 / 12",
            )
        )
    for one in best.slo:
        if one.value_s is None or one.low_s is None or one.high_s is None:
            continue
        found.append(
            Explanation(
                quantity=f"slo[name={one.name}].probability_fraction",
                formula="P = Phi((ln limit - (ln low + ln high) / 2) / (ln(high / low) / (2 x 1.2816)))",
                substituted=(
                    f"limit {one.limit_s:.4g} s, band {one.low_s:.4g} to {one.high_s:.4g} s: "
                    f"{one.probability_fraction:.1%} ({SAFE:.0%} and more is safe)"
                ),
                inputs=(
                    Input(name="limit", value=one.limit_s, origin="--slo"),
                    Input(
                        name="value",
                        value=f"{one.value_s:.4g}",
                        origin="closed form",
                    ),
                ),
                source="the band holds the middle 80 % of a log-normal law; a percentile is the mean times that of a "
                "log-normal law with the spread of waits, prompts and answers",
            )
        )
    found.append(
        Explanation(
            quantity="share_per_replica",
            formula="users / replicas, rounded up" if result.users is not None else "rate / replicas",
            substituted=f"{best.share_per_replica:.4g} with {best.replicas - best.spare_replicas} replicas at work",
            inputs=(Input(name="headroom_fraction", value=field.demand.headroom_fraction, origin="--headroom"),),
            source="a router that spreads the load evenly",
        )
    )
    return found
