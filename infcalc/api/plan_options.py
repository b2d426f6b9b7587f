"""What drafting and the prefix cache are worth for a load: the plan with each of them, and without."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.plan_ask import HOURS_PER_MONTH
from infcalc.api.plan_demand import DemandKind
from infcalc.api.plan_nouns import OptionWorth
from infcalc.api.plan_search import weigh
from infcalc.planning.replicas import most_kept
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.offer import Figure
    from infcalc.api.plan_search import Field, Found
    from infcalc.planning.nouns import Setup

_MOST_CLIENTS = 4096
_ALIKE = 1e-6


def options_of(field: Field, found: Sequence[Found], chosen: Sequence[Found]) -> tuple[OptionWorth, ...]:
    """Return the worth of each option that the load or the question has; ``found`` are all plans, the best first."""
    worths = []
    if field.draft is not None:
        drafted = next((one for one in found if one.setup.method is not None), None)
        plain = next((one for one in found if one.setup.method is None), None)
        if drafted is not None:
            worths.append(_speculation(field, drafted, plain))
    if field.demand.prefix_hit_fraction and chosen:
        worths.append(_prefix_cache(field, chosen[0].setup))
    return tuple(worths)


def _speculation(field: Field, drafted: Found, plain: Found | None) -> OptionWorth:
    pays = plain is None or drafted.order(field.goal) < plain.order(field.goal)
    most = _pays_up_to(field, drafted.setup)
    if not most:
        until = "on that replica it makes no request shorter, however few run"
    else:
        until = f"on that replica it makes requests shorter up to {most:,} at once"
    return _worth("speculation", drafted, plain, pays=pays, num_requests_paying=most, until=until)


def _pays_up_to(field: Field, setup: Setup) -> int:
    """Return how many requests at once on a replica, up to which each ends sooner with drafting."""
    bare = replace(field, demand=replace(field.demand, kind=DemandKind.CAPACITY, think_time_s=0.0))
    drafted = bare.rig(setup)
    plain = bare.rig(replace(setup, method=None, draft_model=None, num_draft_tokens=0))

    def sooner(clients: int) -> bool:
        one, other = drafted.at(clients).e2e_s, plain.at(clients).e2e_s
        return one is not None and other is not None and one.value < other.value

    most = min(_MOST_CLIENTS, int(drafted.at(1).max_batch))
    return most_kept(sooner, 1, max(1, most)) or 0


def _prefix_cache(field: Field, setup: Setup) -> OptionWorth:
    off = replace(field, demand=replace(field.demand, prefix_hit_fraction=0.0))
    on, without = weigh(field, setup).found, weigh(off, setup).found
    hit = f"{field.demand.prefix_hit_fraction:.0%} of each prompt is found"
    pays = without is None or (on is not None and on.order(field.goal) < without.order(field.goal))
    return _worth("prefix-cache", on, without, pays=pays, num_requests_paying=None, until=hit)


def _worth(
    option: str, on: Found | None, off: Found | None, *, pays: bool, num_requests_paying: int | None, until: str
) -> OptionWorth:
    costs = [_usd_per_month(one) for one in (on, off)]
    saved = None if costs[0] is None or not costs[1] else 1 - costs[0] / costs[1]
    if on is None or off is None:
        text = f"{option}: {'with' if on is None else 'without'} it no number of replicas keeps all limits"
    elif saved is not None and abs(saved) > _ALIKE:
        text = f"{option}: {_named(on)} in place of {_named(off)}, {saved:.0%} {'saved' if saved > 0 else 'more'}"
        text = text.replace(", -", ", ")
    else:
        text = f"{option}: {_named(on)} costs what {_named(off)} does"
    if on is not None and off is not None:
        text += f"; TPOT {_seconds(on.point.tpot_s)} with it, {_seconds(off.point.tpot_s)} without"
        text += f", TTFT {_seconds(on.point.ttft_s)} and {_seconds(off.point.ttft_s)}"
    cheaper = saved is None or abs(saved) > _ALIKE
    verdict = "it pays" if pays and cheaper else "it is no cheaper, but quicker" if pays else "it does not pay"
    text += f"; {until}; {verdict}"
    return OptionWorth(
        option=option,
        on="" if on is None else _named(on),
        off="" if off is None else _named(off),
        num_on_replicas=None if on is None else on.num_replicas,
        num_off_replicas=None if off is None else off.num_replicas,
        on_usd_per_month=costs[0],
        off_usd_per_month=costs[1],
        saved_fraction=saved,
        on_ttft_s=_value(None if on is None else on.point.ttft_s),
        off_ttft_s=_value(None if off is None else off.point.ttft_s),
        on_tpot_s=_value(None if on is None else on.point.tpot_s),
        off_tpot_s=_value(None if off is None else off.point.tpot_s),
        pays=pays,
        num_requests_paying=num_requests_paying,
        text=text,
    )


def _usd_per_month(one: Found | None) -> float | None:
    return None if one is None or one.usd_per_hour is None else one.usd_per_hour.value * HOURS_PER_MONTH


def _named(one: Found) -> str:
    setup = one.setup
    many = f"{one.num_replicas} x " if one.num_replicas > 1 else ""
    drafts = f" ({setup.method}, {setup.num_draft_tokens} drafts)" if setup.method is not None else ""
    return f"{many}{setup.num_gpus} x {setup.gpu}{drafts}"


def _value(figure: Figure | None) -> float | None:
    return None if figure is None else figure.value


def _seconds(figure: Figure | None) -> str:
    return "-" if figure is None else format_seconds(figure.value)
