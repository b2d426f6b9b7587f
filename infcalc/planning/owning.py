"""What an hour of one's own hardware costs: its price spread over its years, and the power it draws.

Straight-line: no interest, no people, no room. Whoever pays those adds them to the purchase price or the power price.
"""

from __future__ import annotations

from infcalc.frozen import frozen
from infcalc.planning.power import JOULE_PER_KWH
from infcalc.planning.spread import Spread, exact, scaled, total

YEAR_S = 8760 * 3600.0


@frozen
class Purchase:
    """How hardware is bought and fed: ``gpu_usd`` is the price of a GPU with its share of host and network.

    ``residual_fraction`` of it is what it sells for after ``life_s``; ``pue`` is all power of the site over that of the
    machines.
    """

    gpu_usd: float
    life_s: float = 3 * YEAR_S
    residual_fraction: float = 0.0
    usd_per_kwh: float = 0.0
    pue: float = 1.0


def amortised_usd_per_hour(purchase: Purchase) -> float:
    """Return the share of the purchase price in an hour of one GPU: ``price x (1 - residual) / hours``.

    >>> round(amortised_usd_per_hour(Purchase(gpu_usd=26_280.0, life_s=3 * YEAR_S)), 2)
    1.0
    """
    return purchase.gpu_usd * (1 - purchase.residual_fraction) / (purchase.life_s / 3600)


def power_usd_per_hour(purchase: Purchase, watt: Spread) -> Spread:
    """Return the cost of an hour's power: ``watt x pue / 1000 x usd_per_kwh``."""
    return scaled(watt, 3600 / JOULE_PER_KWH * purchase.pue * purchase.usd_per_kwh)


def owned_usd_per_hour(purchase: Purchase, watt: Spread) -> Spread:
    """Return what an hour of one GPU costs that draws ``watt`` in the mean."""
    return total(exact(amortised_usd_per_hour(purchase)), power_usd_per_hour(purchase, watt))
