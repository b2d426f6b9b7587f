"""From how many tokens a month on it is cheaper to serve a model than to buy its tokens.

What is kept running costs the same whether it is used or not, apart from power; an API costs by the token. So the lines
meet once: below, the API is cheaper, above, the GPUs, unless they are full before.
"""

from __future__ import annotations

import math
from enum import StrEnum

from infcalc.frozen import frozen
from infcalc.planning.money import HOUR_S, MILLION
from infcalc.planning.spread import Spread, scaled
from infcalc.units import HOURS_PER_MONTH


class Wins(StrEnum):
    """Whether serving the model oneself can be cheaper at this size."""

    YES = "yes"
    PERHAPS = "perhaps"
    """At the good end of the range only."""
    NO = "no"
    """Even full, the GPUs cost more than the tokens would."""


@frozen
class ApiPrice:
    """USD per million tokens of an API; ``cached_usd`` of prompt tokens in its cache, None: like any other."""

    input_usd: float
    output_usd: float
    cached_usd: float | None = None


@frozen
class Served:
    """What is kept running, and one request of its load. ``requests_per_s`` is what it can serve when full.

    ``idle_usd_per_hour`` and ``full_usd_per_hour`` differ by power that is paid apart.
    """

    idle_usd_per_hour: Spread
    full_usd_per_hour: Spread
    requests_per_s: Spread
    prompt_tokens: float
    cached_tokens: float
    answer_tokens: float


@frozen
class BreakEven:
    """Where both cost the same, per month; None where they never do, or not over the whole range.

    ``utilization_fraction`` is of what is kept running: above 1 it is full before it pays.
    ``api_usd_per_million_output_tokens`` puts all that the API costs on the tokens of answers.
    """

    wins: Wins
    api_request_usd: float
    api_usd_per_million_output_tokens: float
    utilization_fraction: Spread | None
    requests_per_month: Spread | None
    tokens_per_month: Spread | None
    output_tokens_per_month: Spread | None


def request_usd(api: ApiPrice, served: Served) -> float:
    """Return what one request costs at the API."""
    cached = api.input_usd if api.cached_usd is None else api.cached_usd
    fresh = served.prompt_tokens - served.cached_tokens
    return (fresh * api.input_usd + served.cached_tokens * cached + served.answer_tokens * api.output_usd) / MILLION


def break_even(api: ApiPrice, served: Served) -> BreakEven:
    """Return where ``idle + u x (full - idle)`` equals ``u x requests/s x price of a request``, u the utilisation.

    >>> from infcalc.planning.spread import exact
    >>> hour, served = exact(7.2), exact(2.0)
    >>> load = dict(requests_per_s=served, prompt_tokens=500, cached_tokens=0, answer_tokens=500)
    >>> api = ApiPrice(input_usd=1.0, output_usd=3.0)
    >>> found = break_even(api, Served(idle_usd_per_hour=hour, full_usd_per_hour=hour, **load))
    >>> found.utilization_fraction.value, str(found.wins)
    (0.5, 'yes')
    """
    each = request_usd(api, served)
    idle, full, rate = served.idle_usd_per_hour, served.full_usd_per_hour, served.requests_per_s
    low = _meeting(idle.low, full.low, each * rate.high)
    value = _meeting(idle.value, full.value, each * rate.value)
    high = _meeting(idle.high, full.high, each * rate.low)
    wins = Wins.YES if high <= 1 else Wins.PERHAPS if low <= 1 else Wins.NO
    share = Spread(value=value, low=low, high=high) if math.isfinite(high) and math.isfinite(value) else None
    requests = None if share is None else _requests(served, each)
    return BreakEven(
        wins=wins,
        api_request_usd=each,
        api_usd_per_million_output_tokens=each / served.answer_tokens * MILLION,
        utilization_fraction=share,
        requests_per_month=requests,
        tokens_per_month=None if requests is None else scaled(requests, served.prompt_tokens + served.answer_tokens),
        output_tokens_per_month=None if requests is None else scaled(requests, served.answer_tokens),
    )


def _meeting(idle_usd_per_hour: float, full_usd_per_hour: float, api_usd_per_s: float) -> float:
    """Return the utilisation where both cost the same; infinite where power alone costs more than the API."""
    gained = api_usd_per_s * HOUR_S - (full_usd_per_hour - idle_usd_per_hour)
    return idle_usd_per_hour / gained if gained > 0 else math.inf


def _requests(served: Served, each: float) -> Spread:
    """Return the requests of a month where both cost the same."""
    month = HOUR_S * HOURS_PER_MONTH

    def count(idle: float, full: float, rate: float) -> float:
        return _meeting(idle, full, each * rate) * rate * month

    idle, full, rate = served.idle_usd_per_hour, served.full_usd_per_hour, served.requests_per_s
    # Without power, how fast the GPUs are does not move the bill: the ends are then those of the price alone.
    ends = [
        count(getattr(idle, end), getattr(full, end), speed)
        for end in ("low", "high")
        for speed in (rate.low, rate.high)
    ]
    return Spread(value=count(idle.value, full.value, rate.value), low=min(ends), high=max(ends))
