"""The front of cost and latency: more replicas of a setup, or dearer GPUs, where they beat all that is cheaper."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from infcalc.api.plan_demand import DemandKind
from infcalc.api.plan_pool import over_cores
from infcalc.api.plan_search import found_with
from infcalc.planning.frontier import front

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.plan_search import Field, Found

REACH = 4.0
"""Times the least cost, up to which the front is drawn."""


def front_of(field: Field, found: Sequence[Found], num_workers: int | None = None) -> tuple[Found, ...]:
    """Return the plans that no other beats in cost and time of a request, up to four times the least cost.

    Of each setup every number of replicas is on offer. One that is not quicker than a cheaper plan, however little it
    has to do, is left out without a look: with any number it is beaten.
    """
    priced = [one for one in found if one.usd_per_hour is not None and math.isfinite(one.delay_s)]
    if not priced:
        return ()
    most_usd = REACH * min(_usd(one) for one in priced)
    first = front(priced, cost=_usd, delay=_delay)
    if field.demand.kind is DemandKind.CAPACITY:
        return tuple(one for one in first if _usd(one) <= most_usd)
    further = [one for one in priced if _may_enter(one, first, most_usd)]
    jobs = [(one, most_usd, tuple((_usd(point), _delay(point)) for point in first)) for one in further]
    more = [item for items in over_cores(field, _with_more, jobs, num_workers=num_workers, few=8) for item in items]
    return tuple(one for one in front([*priced, *more], cost=_usd, delay=_delay) if _usd(one) <= most_usd)


def _usd(found: Found) -> float:
    return found.usd_per_hour.value if found.usd_per_hour is not None else math.inf


def _delay(found: Found) -> float:
    return found.delay_s


def _may_enter(one: Found, first: Sequence[Found], most_usd: float) -> bool:
    """Tell whether more replicas of a setup can be quicker than all that costs no more."""
    each = _usd(one) / one.num_replicas
    best = min((point.delay_s for point in first if _usd(point) <= _usd(one) + each), default=math.inf)
    return _usd(one) + each <= most_usd and one.least_s < best


def _with_more(field: Field, job: tuple[Found, float, tuple[tuple[float, float], ...]]) -> list[Found]:
    """Return the numbers of replicas of a setup that beat what is known to cost no more."""
    one, most_usd, known = job
    rig = field.rig(one.setup)
    each = _usd(one) / one.num_replicas
    most = min(
        math.floor(most_usd / each + 1e-9) - field.num_spare, field.most_affordable(one.setup), field.most_useful()
    )
    found: list[Found] = []
    last_s = one.delay_s
    for number in range(one.num_needed + 1, most + 1):
        usd = (number + field.num_spare) * each
        best_s = min((delay_s for cost, delay_s in known if cost <= usd), default=math.inf)
        if one.least_s >= min(best_s, last_s):
            break
        more = found_with(field, rig, number)
        if more.delay_s < min(best_s, last_s):
            found.append(more)
            last_s = more.delay_s
    return found
