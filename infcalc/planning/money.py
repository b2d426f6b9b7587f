"""What an hour, a month and a million tokens cost.

All is derived from USD per hour of what is kept running. Hours that are paid but not used raise the price of each token
and not the bill: a price per token without its utilisation means nothing.
"""

from __future__ import annotations

from infcalc.frozen import frozen
from infcalc.planning.spread import Spread, quotient, scaled
from infcalc.units import HOURS_PER_MONTH

HOUR_S = 3600.0
MILLION = 1e6
INPUT_SHARE = 0.75
"""Of blended tokens: three of a prompt to one of an answer."""


@frozen
class Traffic:
    """What is served at full use, and how the device time of a request divides.

    ``prefill_fraction`` of it is prefill. ``cached_token_fraction`` of it is what one more prompt token costs that is
    found in the prefix cache (attention to it); None where that is not known.
    """

    output_tokens_per_s: Spread
    prompt_tokens: float
    answer_tokens: float
    prefill_fraction: float
    cached_token_fraction: float | None = None


@frozen
class TokenCosts:
    """USD per million tokens, each by its denominator.

    ``output``: all cost on the tokens of answers. ``total``: on all tokens alike. ``input``: what of the cost is the
    device time of prefill, on the tokens of prompts. ``cached``: the device time of one more token of a prompt that the
    prefix cache holds. ``blended``: three tokens of a prompt at the price of ``input`` to one of an answer at the price
    of decode's device time.
    """

    output: Spread
    input: Spread
    cached: Spread | None
    blended: Spread
    total: Spread


def usd_per_month(usd_per_hour: Spread) -> Spread:
    """Return the bill of a month in which all hours are paid.

    >>> from infcalc.planning.spread import exact
    >>> usd_per_month(exact(10.0)).value
    7300.0
    """
    return scaled(usd_per_hour, HOURS_PER_MONTH)


def usd_per_million(usd_per_hour: Spread, tokens_per_s: Spread, *, utilization_fraction: float = 1.0) -> Spread:
    """Return USD per million tokens: ``usd_per_hour / (3600 x tokens_per_s x utilization_fraction) x 10^6``.

    ``tokens_per_s`` is at full use; which tokens are counted is the caller's choice, and to be named with the result.

    >>> from infcalc.planning.spread import exact
    >>> round(usd_per_million(exact(2.5), exact(700.0), utilization_fraction=0.1).value, 2)
    9.92
    """
    return scaled(quotient(usd_per_hour, tokens_per_s), MILLION / HOUR_S / utilization_fraction)


def token_costs(usd_per_hour: Spread, traffic: Traffic, *, utilization_fraction: float = 1.0) -> TokenCosts:
    """Return the price of each kind of token; ``usd_per_hour`` is of all that serves the traffic."""
    output = usd_per_million(usd_per_hour, traffic.output_tokens_per_s, utilization_fraction=utilization_fraction)
    prefill, answer = traffic.prefill_fraction, traffic.answer_tokens
    each = prefill * answer / traffic.prompt_tokens
    cached = traffic.cached_token_fraction
    return TokenCosts(
        output=output,
        input=scaled(output, each),
        cached=None if cached is None else scaled(output, cached * answer),
        blended=scaled(output, INPUT_SHARE * each + (1 - INPUT_SHARE) * (1 - prefill)),
        total=scaled(output, answer / (traffic.prompt_tokens + answer)),
    )
