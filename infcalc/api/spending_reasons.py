"""How the figures of cost came about: formula, substituted values, origin of each input."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.costing import rent_origin
from infcalc.planning.owning import YEAR_S, amortised_usd_per_hour
from infcalc.planning.power import DECODE, IDLE, PREFILL, mean_watt
from infcalc.spec.explain import Explanation, Input
from infcalc.units import HOURS_PER_MONTH

if TYPE_CHECKING:
    from infcalc.api.costing import Rent, Terms
    from infcalc.api.speed import SpeedResult
    from infcalc.api.spending import AgainstApi
    from infcalc.planning.owning import Purchase
    from infcalc.spec.hardware import Gpu


def explain_spending(gpu: Gpu, result: SpeedResult, rent: Rent | None, terms: Terms) -> list[Explanation]:
    """Return one explanation per figure of cost and energy."""
    found = []
    if rent is not None:
        if terms.purchase is not None:
            found.append(_owned(gpu, result, rent, terms.purchase))
        found += _bought(result, rent)
    if result.break_even is not None:
        found.append(_met(result, result.break_even))
    if result.bill is not None:
        bill = result.bill
        found.append(
            Explanation(
                quantity="bill.scaled_usd_per_month",
                formula="replica-hours of a period / hours of it x 730 x USD/h of a replica; each start pays its time",
                substituted=(
                    f"{bill.num_mean_replicas:.4g} replicas in the mean x {HOURS_PER_MONTH} x "
                    f"{result.usd_per_hour or 0:.4g} = {bill.scaled_usd_per_month.value:,.0f}; all the time "
                    f"{bill.num_peak_replicas:,} x {HOURS_PER_MONTH} x {result.usd_per_hour or 0:.4g} = "
                    f"{bill.fixed_usd_per_month.value:,.0f}"
                ),
            )
        )
    return [*found, *_energy(gpu, result, terms)]


def _bought(result: SpeedResult, rent: Rent) -> list[Explanation]:
    tokens, cost, month = result.output_tokens_per_s, result.usd_per_million_output_tokens, result.usd_per_month
    if tokens is None or cost is None or month is None:
        return []
    hourly = Input(name="usd_per_hour", value=rent.usd_per_hour, origin=rent_origin(rent))
    return [
        Explanation(
            quantity="usd_per_million_output_tokens",
            formula="GPUs x USD/h / (3600 x output tokens/s x utilisation) x 1e6",
            substituted=(
                f"{result.num_gpus} x {rent.usd_per_hour:.4g} / (3600 x {tokens.value:,.1f} x "
                f"{result.utilization_fraction:g}) x 1e6 = {cost.value:.4g}"
            ),
            inputs=(hourly,),
        ),
        Explanation(
            quantity="usd_per_month",
            formula="GPUs x USD/h x 730 h",
            substituted=f"{result.num_gpus} x {rent.usd_per_hour:.4g} x {HOURS_PER_MONTH} = {month.value:,.0f}",
            inputs=(hourly,),
        ),
    ]


def _owned(gpu: Gpu, result: SpeedResult, rent: Rent, purchase: Purchase) -> Explanation:
    years = purchase.life_s / YEAR_S
    spread = amortised_usd_per_hour(purchase)
    power = rent.usd_per_hour - spread
    paid = "no power is paid"
    if purchase.usd_per_kwh and gpu.tdp_watt is not None:
        watt = mean_watt(gpu.tdp_watt, result.prefill_time_fraction, result.utilization_fraction)
        paid = f"{watt.value:,.0f} W x {purchase.pue:g} / 1000 x {purchase.usd_per_kwh:g} = {power:.4g}"
    return Explanation(
        quantity="usd_per_gpu_hour",
        formula="capex x (1 - residual) / (years x 8760 h) + mean power x PUE / 1000 x USD/kWh; no interest, no people",
        substituted=(
            f"{purchase.gpu_usd:,.10g} x (1 - {purchase.residual_fraction:g}) / ({years:g} x 8760) = {spread:.4g}; "
            f"{paid}; together {rent.usd_per_hour:.4g}"
        ),
        inputs=(Input(name="usd_per_gpu_hour", value=rent.usd_per_hour, origin=rent.source),),
    )


def _met(result: SpeedResult, met: AgainstApi) -> Explanation:
    share = met.capacity_fraction
    rate = 0.0 if result.requests_per_s is None else result.requests_per_s.value
    told = "nowhere: power alone costs more" if share is None else f"utilisation {share.value:.4g}"
    return Explanation(
        quantity="break_even.capacity_fraction",
        formula="USD/h when idle / (requests/s x 3600 x USD of a request at the API - (USD/h when full - when idle))",
        substituted=f"{rate:.4g} requests/s at {met.api_request_usd:.4g} USD each against the GPUs' hours: {told}",
    )


def _energy(gpu: Gpu, result: SpeedResult, terms: Terms) -> list[Explanation]:
    energy, tokens = result.kwh_per_million_output_tokens, result.output_tokens_per_s
    if energy is None or tokens is None or gpu.tdp_watt is None:
        return []
    used, pue = result.utilization_fraction, 1.0 if terms.purchase is None else terms.purchase.pue
    watt = mean_watt(gpu.tdp_watt, result.prefill_time_fraction, used)
    return [
        Explanation(
            quantity="kwh_per_million_output_tokens",
            formula=(
                "GPUs x mean power of a board x PUE / (output tokens/s x utilisation) / 3.6; of its limit it draws "
                f"{PREFILL.value:.0%} in prefill, {DECODE.value:.0%} in decode, {IDLE.value:.0%} idle"
            ),
            substituted=(
                f"{result.num_gpus} x {watt.value:,.0f} W x {pue:g} / ({tokens.value:,.1f} x {used:g}) / 3.6 = "
                f"{energy.value:.4g}; {result.prefill_time_fraction:.0%} of the time is prefill"
            ),
            inputs=(Input(name="tdp_watt", value=gpu.tdp_watt, origin=f"gpus.yaml {gpu.name}", source=gpu.source),),
            source="board power measured with GEMMs on H200 and B200; a model elsewhere",
        )
    ]
