"""What tokens cost: the price of the GPUs' hours, over the tokens of those hours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.offer import Figure
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from infcalc.spec.hardware import Gpu, Price

_HOUR_S = 3600.0
_MILLION = 1e6
INPUT_SHARE = 0.75
"""Of blended tokens: three of a prompt to one of an answer."""
_MOST_USD = 1e6


@frozen
class Rent:
    """The price of one GPU's hour, its range where there is one, and where it comes from."""

    usd_per_hour: float
    usd_per_hour_low: float
    usd_per_hour_high: float
    source: str


@frozen
class Terms:
    """How the hours are paid and used: ``usd_per_hour`` of one GPU (None: the catalog's), and the share used."""

    usd_per_hour: float | None = None
    utilization_fraction: float = 1.0


@frozen
class Costs:
    """USD per million tokens.

    ``output``: all cost on the tokens of answers. ``total``: on all tokens alike. ``input``: what of the cost is the
    device time of prefill, on the tokens of prompts. ``blended``: three tokens of a prompt at that price to one of an
    answer at the price of decode's device time.
    """

    output: Figure
    input: Figure | None
    blended: Figure | None
    total: Figure


def check_terms(terms: Terms) -> None:
    """Refuse a price or a utilisation that cannot be.

    Raises:
        UsageError: one is out of range.

    """
    if not 0 < terms.utilization_fraction <= 1:
        raise UsageError(
            f"{terms.utilization_fraction:g} is out of range", place="--utilization", hint="above 0 and at most 1"
        )
    price = terms.usd_per_hour
    if price is not None and not 0 < price <= _MOST_USD:
        raise UsageError(f"{price:g} USD per GPU-hour is out of range", place="--price", hint="write 2.5 or 2.5 USD/h")


def rent_of(gpu: Gpu, terms: Terms) -> Rent | None:
    """Return the price of a GPU's hour: as given, else the newest of the catalog; None where it has none."""
    if terms.usd_per_hour is not None:
        price = terms.usd_per_hour
        return Rent(usd_per_hour=price, usd_per_hour_low=price, usd_per_hour_high=price, source="given (--price)")
    if not gpu.prices:
        return None
    newest = max(gpu.prices, key=lambda one: one.date)
    low, high = newest.usd_per_hour, newest.usd_per_hour_high or newest.usd_per_hour
    return Rent(
        # Of a range the geometric mean: as far from one end as from the other.
        usd_per_hour=math.sqrt(low * high),
        usd_per_hour_low=low,
        usd_per_hour_high=high,
        source=_cited(newest),
    )


def rent_inputs(rent: Rent | None, terms: Terms) -> tuple[Input, ...]:
    """Return price and utilisation as inputs of an answer."""
    found = [Input(name="utilization_fraction", value=terms.utilization_fraction, origin="--utilization, 1 by default")]
    if rent is not None:
        value = f"{rent.usd_per_hour:.4g}"
        if rent.usd_per_hour_low != rent.usd_per_hour_high:
            value = f"{rent.usd_per_hour_low:g}..{rent.usd_per_hour_high:g}"
        found.append(Input(name="usd_per_gpu_hour", value=value, origin=rent.source))
    return tuple(found)


def costs_of(
    rent: Rent,
    terms: Terms,
    *,
    num_gpus: int,
    output_tokens_per_s: Figure,
    prompt_tokens: float,
    answer_tokens: float,
    prefill_fraction: float,
) -> Costs:
    """Return the cost of a million tokens at a throughput; ``prefill_fraction`` of the devices' time is prefill."""
    hours = num_gpus / _HOUR_S / terms.utilization_fraction * _MILLION

    def figure(weight: float) -> Figure:
        rate = output_tokens_per_s
        return Figure(
            value=rent.usd_per_hour * hours * weight / rate.value,
            low=rent.usd_per_hour_low * hours * weight / rate.high,
            high=rent.usd_per_hour_high * hours * weight / rate.low,
            basis=rate.basis,
        )

    per_prompt_token = prefill_fraction * answer_tokens / prompt_tokens
    blended = INPUT_SHARE * per_prompt_token + (1 - INPUT_SHARE) * (1 - prefill_fraction)
    return Costs(
        output=figure(1.0),
        input=figure(per_prompt_token),
        blended=figure(blended),
        total=figure(answer_tokens / (prompt_tokens + answer_tokens)),
    )


def _cited(price: Price) -> str:
    when = f", {price.date}" if price.date else ""
    source = f" ({price.source})" if price.source else ""
    return f"{price.provider}{when}{source}"
