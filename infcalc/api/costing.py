"""What tokens cost: the price of the GPUs' hours, rented or owned, over the tokens of those hours."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.offer import Figure
from infcalc.errors import UsageError
from infcalc.frozen import frozen
from infcalc.planning.money import token_costs
from infcalc.planning.owning import YEAR_S, owned_usd_per_hour
from infcalc.planning.power import mean_watt
from infcalc.planning.prices import age_warning, middle_usd_per_hour, standing_of
from infcalc.planning.spread import Spread, exact
from infcalc.spec.explain import Input

if TYPE_CHECKING:
    from collections.abc import Iterable

    from infcalc.catalog.lookup import Catalog
    from infcalc.planning.break_even import ApiPrice
    from infcalc.planning.money import Traffic
    from infcalc.planning.owning import Purchase
    from infcalc.spec.efficiency import Basis
    from infcalc.spec.hardware import Gpu, Price

_MOST_USD = 1e6
_MOST_CAPEX_USD = 1e9
_MOST_YEARS = 100.0
_MOST_PUE = 10.0


@frozen
class Rent:
    """What one GPU's hour costs, its range where there is one, and where it comes from.

    ``date`` is that of a price of the catalog, as it stands there; None for what was given.
    """

    usd_per_hour: float
    usd_per_hour_low: float
    usd_per_hour_high: float
    source: str
    date: str | None = None
    chosen_from: str = ""
    """Of how many prices it is the middle one, and their range."""

    @property
    def spread(self) -> Spread:
        """The price with its range."""
        return Spread(value=self.usd_per_hour, low=self.usd_per_hour_low, high=self.usd_per_hour_high)


@frozen
class Terms:
    """How the hours are paid and used.

    ``usd_per_hour`` of one GPU of any kind, or ``gpu_prices_usd`` by name, or ``purchase`` of own hardware; without any
    of them the catalog's prices hold. ``utilization_fraction`` of the paid hours is used. ``api`` is the price of an
    API to be compared with. Prices of the catalog are held against ``today`` (ISO date; empty: they are not).
    """

    usd_per_hour: float | None = None
    gpu_prices_usd: tuple[tuple[str, float], ...] = ()
    utilization_fraction: float = 1.0
    purchase: Purchase | None = None
    api: ApiPrice | None = None
    today: str = ""


@frozen
class Costs:
    """USD per million tokens: :class:`infcalc.planning.money.TokenCosts` with the basis of the speed."""

    output: Figure
    input: Figure
    cached: Figure | None
    blended: Figure
    total: Figure


def check_terms(terms: Terms) -> None:
    """Refuse prices, a utilisation or a purchase that cannot be.

    Raises:
        UsageError: one is out of range, or hours are both rented and owned.

    """
    if not 0 < terms.utilization_fraction <= 1:
        raise UsageError(
            f"{terms.utilization_fraction:g} is out of range", place="--utilization", hint="above 0 and at most 1"
        )
    plain = () if terms.usd_per_hour is None else (terms.usd_per_hour,)
    for price in (*plain, *(usd for _, usd in terms.gpu_prices_usd)):
        if not 0 < price <= _MOST_USD:
            raise UsageError(
                f"{price:g} USD per GPU-hour is out of range", place="--price", hint="write 2.5 or 2.5 USD/h"
            )
    if terms.purchase is not None:
        if plain or terms.gpu_prices_usd:
            raise UsageError("both --capex and --price", place="--capex", hint="GPUs are rented or owned: give one")
        _check_purchase(terms.purchase)
    if terms.api is not None:
        _check_api(terms.api)


def _check_purchase(purchase: Purchase) -> None:
    years = purchase.life_s / YEAR_S
    for place, value, fits, hint in (
        ("--capex", purchase.gpu_usd, 0 < purchase.gpu_usd <= _MOST_CAPEX_USD, "USD per GPU, such as 30000"),
        ("--years", years, 0 < years <= _MOST_YEARS, "years above 0, such as 3"),
        ("--residual", purchase.residual_fraction, 0 <= purchase.residual_fraction < 1, "a fraction from 0 to below 1"),
        ("--power-price", purchase.usd_per_kwh, 0 <= purchase.usd_per_kwh <= _MOST_USD, "USD per kWh, such as 0.12"),
        ("--pue", purchase.pue, 1 <= purchase.pue <= _MOST_PUE, "from 1, such as 1.3"),
    ):
        if not fits:
            raise UsageError(f"{value:g} is out of range", place=place, hint=hint)


def _check_api(api: ApiPrice) -> None:
    for usd in (api.input_usd, api.output_usd, api.cached_usd or 0.0):
        if not 0 <= usd <= _MOST_USD:
            raise UsageError(f"{usd:g} is out of range", place="--api-price", hint="USD per million tokens, from 0 on")
    if not api.input_usd and not api.output_usd:
        raise UsageError("an API without a price", place="--api-price", hint="write in=0.5,out=1.5")


def settled(terms: Terms, catalog: Catalog) -> Terms:
    """Return the terms with GPUs by their names in the catalog.

    Raises:
        UsageError: as :func:`check_terms`, or two prices of one GPU.
        UnknownName: a price of a GPU that the catalog does not know.

    """
    check_terms(terms)
    if not terms.gpu_prices_usd:
        return terms
    found: dict[str, float] = {}
    for name, usd in terms.gpu_prices_usd:
        known = catalog.resolve("gpus", name)
        if found.setdefault(known, usd) != usd:
            raise UsageError(f"two prices of {known}", place="--price", hint="give one")
    return replace(terms, gpu_prices_usd=tuple(found.items()))


def rent_of(
    gpu: Gpu, terms: Terms, *, prefill_fraction: float = 0.0, utilization_fraction: float | None = None
) -> Rent | None:
    """Return what a GPU's hour costs: owned, or as given, or by the catalog; None where there is no price.

    What is owned is paid for the power it draws: ``prefill_fraction`` of its time in prefill, and
    ``utilization_fraction`` (of the terms, where it is None) of its time busy.

    Raises:
        UsageError: power is to be paid, and the catalog does not say how much a GPU draws.

    """
    if terms.purchase is not None:
        share = terms.utilization_fraction if utilization_fraction is None else utilization_fraction
        return _owned(gpu, terms.purchase, prefill_fraction, share)
    given = dict(terms.gpu_prices_usd).get(gpu.name, terms.usd_per_hour)
    if given is not None:
        return Rent(usd_per_hour=given, usd_per_hour_low=given, usd_per_hour_high=given, source="given (--price)")
    standing = standing_of(gpu.prices)
    if standing is None:
        return None
    price = standing.price
    chosen = ""
    if standing.num_prices > 1:
        ends = f"{standing.low_usd_per_hour:g} to {standing.high_usd_per_hour:g} USD/h"
        chosen = f"the middle one of {standing.num_prices} prices, {ends}"
    return Rent(
        usd_per_hour=middle_usd_per_hour(price),
        usd_per_hour_low=price.usd_per_hour,
        usd_per_hour_high=price.usd_per_hour_high or price.usd_per_hour,
        source=_cited(price),
        date=price.date,
        chosen_from=chosen,
    )


def _owned(gpu: Gpu, purchase: Purchase, prefill_fraction: float, utilization_fraction: float) -> Rent:
    watt = exact(0.0)
    if purchase.usd_per_kwh:
        if gpu.tdp_watt is None:
            raise UsageError(
                f"how much {gpu.name} draws is not known",
                place="--power-price",
                hint="state tdp: 400 W of it in an overlay (--catalog FILE), or leave --power-price out",
            )
        watt = mean_watt(gpu.tdp_watt, prefill_fraction, utilization_fraction)
    hour = owned_usd_per_hour(purchase, watt)
    rest = f", {purchase.residual_fraction:.0%} left" if purchase.residual_fraction else ""
    power = ""
    if purchase.usd_per_kwh:
        power = f", power at {purchase.usd_per_kwh:g} USD/kWh and PUE {purchase.pue:g}, {prefill_fraction:.0%} prefill"
    return Rent(
        usd_per_hour=hour.value,
        usd_per_hour_low=hour.low,
        usd_per_hour_high=hour.high,
        source=f"owned: {purchase.gpu_usd:,.10g} USD over {purchase.life_s / YEAR_S:g} years{rest}{power}",
    )


def price_warnings(gpu: Gpu, rent: Rent | None, terms: Terms) -> tuple[str, ...]:
    """Return what is to be warned of a price: that there is none, or that it is old on the day of the terms."""
    if rent is None:
        return (f"no price of {gpu.name} is known, and nothing is said of cost: give --price {gpu.name}=USD",)
    if rent.date is None or not terms.today:
        return ()
    told = age_warning(gpu.name, rent.date, terms.today)
    return () if told is None else (told,)


def unused_prices(terms: Terms, used: Iterable[str]) -> tuple[str, ...]:
    """Return a warning for each price of a GPU that is not among those ``used``; terms as :func:`settled`."""
    names = set(used)
    return tuple(
        f"--price of {name} is not used: it is not asked for" for name, _ in terms.gpu_prices_usd if name not in names
    )


def rent_inputs(rent: Rent | None, terms: Terms) -> tuple[Input, ...]:
    """Return price and utilisation as inputs of an answer."""
    found = [Input(name="utilization_fraction", value=terms.utilization_fraction, origin="--utilization, 1 by default")]
    if rent is not None:
        value = f"{rent.usd_per_hour:.4g}"
        if rent.usd_per_hour_low != rent.usd_per_hour_high:
            value = f"{rent.usd_per_hour_low:.4g}..{rent.usd_per_hour_high:.4g}"
        found.append(Input(name="usd_per_gpu_hour", value=value, origin=rent_origin(rent)))
    return tuple(found)


def rent_origin(rent: Rent) -> str:
    """Return where a price comes from, and what it was chosen from."""
    return f"{rent.source}; {rent.chosen_from}" if rent.chosen_from else rent.source


def costs_of(
    usd_per_hour: Spread,
    *,
    basis: Basis,
    traffic: Traffic,
    utilization_fraction: float = 1.0,
) -> Costs:
    """Return the cost of a million tokens; ``usd_per_hour`` is of all GPUs that serve the traffic."""
    found = token_costs(usd_per_hour, traffic, utilization_fraction=utilization_fraction)
    return Costs(
        output=figure_of(found.output, basis),
        input=figure_of(found.input, basis),
        cached=None if found.cached is None else figure_of(found.cached, basis),
        blended=figure_of(found.blended, basis),
        total=figure_of(found.total, basis),
    )


def figure_of(spread: Spread, basis: Basis) -> Figure:
    """Return a spread as a figure of an answer."""
    return Figure(value=spread.value, low=spread.low, high=spread.high, basis=basis)


def spread_of(figure: Figure) -> Spread:
    """Return a figure of an answer as a spread."""
    return Spread(value=figure.value, low=figure.low, high=figure.high)


def _cited(price: Price) -> str:
    when = f", {price.date}" if price.date else ""
    source = f" ({price.source})" if price.source else ""
    return f"{price.provider}{when}{source}"
