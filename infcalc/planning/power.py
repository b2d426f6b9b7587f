"""The power that GPUs draw, and the energy of a million tokens.

Shares of the board's limit (TDP), measured with GEMMs on an H200 (limit 700 W) and a B200 (1,000 W): from 1,024 rows
on, as in prefill, 690, 940 and 990 W; with 1, 64 and 256 rows, as in decode, 593, 380 and 516 W, and 757 and 779 W (1
and 64 rows); idle 70 to 140 W. Means of the shares stand for the value. No other part was measured: on those, and on
steps that are no single GEMM, this is a model. What the host and the network draw is not in it.
"""

from __future__ import annotations

from infcalc.planning.money import MILLION
from infcalc.planning.spread import Spread, quotient, scaled, total

PREFILL = Spread(value=0.97, low=0.94, high=1.0)
DECODE = Spread(value=0.73, low=0.55, high=0.85)
IDLE = Spread(value=0.14, low=0.10, high=0.20)
JOULE_PER_KWH = 3.6e6


def busy_watt(tdp_watt: float, prefill_fraction: float) -> Spread:
    """Return the mean power of a board that serves all the time, ``prefill_fraction`` of it in prefill.

    >>> round(busy_watt(700.0, 0.0).value)
    511
    """
    return scaled(total(scaled(PREFILL, prefill_fraction), scaled(DECODE, 1 - prefill_fraction)), tdp_watt)


def idle_watt(tdp_watt: float) -> Spread:
    """Return the power of a board that holds a model and computes nothing."""
    return scaled(IDLE, tdp_watt)


def mean_watt(tdp_watt: float, prefill_fraction: float, utilization_fraction: float = 1.0) -> Spread:
    """Return the mean power of a board that serves a share of its time and idles the rest."""
    return total(
        scaled(busy_watt(tdp_watt, prefill_fraction), utilization_fraction),
        scaled(idle_watt(tdp_watt), 1 - utilization_fraction),
    )


def kwh_per_million(watt: Spread, tokens_per_s: Spread, *, utilization_fraction: float = 1.0) -> Spread:
    """Return kWh per million tokens of what draws ``watt`` in the mean; ``tokens_per_s`` is at full use.

    >>> from infcalc.planning.spread import exact
    >>> round(kwh_per_million(exact(3600.0), exact(1000.0)).value, 3)
    1.0
    """
    return scaled(quotient(watt, tokens_per_s), MILLION / JOULE_PER_KWH / utilization_fraction)
