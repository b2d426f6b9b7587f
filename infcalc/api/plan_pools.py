"""Mixed fleets and disaggregated prefill as candidates: what they cost for the load, against the best plain plan."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.plan_ask import HOURS_PER_MONTH
from infcalc.api.plan_demand import DemandKind
from infcalc.api.plan_nouns import Alternative
from infcalc.api.plan_odds import judged
from infcalc.api.plan_pool import over_cores
from infcalc.errors import InfcalcError
from infcalc.memory.kv import kv_components, sequence_bytes
from infcalc.planning.pools import Pool, cheapest_split, first_token_s, rate_matched, transfer_s
from infcalc.planning.replicas import most_kept
from infcalc.roofline.curves import NETWORK_BYTES_PER_S, NETWORK_LATENCY_S
from infcalc.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.api.plan_rig import Rig
    from infcalc.api.plan_search import Field, Found
    from infcalc.planning.pools import Split

_MIXED = 12
"""Setups that are paired: those with the least cost per load."""
_SPLIT = 10
"""Setups that are tried as prefill and as decode pool."""
_OF_A_KIND = 3
_STEPS = 24
_CLEAR = 1.2
"""Gain from which on it is more than what most measurements differ from their prediction."""
_UNCLEAR = "; the gain is less than what the band of a figure spans"
_ALIKE = 1e-6
_HELD = 0.999
"""Of a prompt, found in the cache of a decode replica: it was computed elsewhere."""


def alternatives_of(field: Field, found: Sequence[Found], num_workers: int | None) -> tuple[Alternative, ...]:
    """Return the best mixed fleet and the best disaggregated pair for the load; none without a load or a price.

    Judged by the price for the same load: of the best plain plan over theirs.
    """
    if field.demand.kind is DemandKind.CAPACITY:
        return ()
    priced = [one for one in found if one.usd_per_hour is not None]
    if not priced:
        return ()
    plain = min(_usd(one) for one in priced)
    judged = (_mixed(field, priced, plain, num_workers), _disaggregated(field, priced, plain, num_workers))
    return tuple(one for one in judged if one is not None)


def _usd(one: Found) -> float:
    return math.inf if one.usd_per_hour is None else one.usd_per_hour.value


def _foremost(priced: Sequence[Found], number: int) -> list[Found]:
    """Return the setups with the least cost for the load, few of each kind of GPU, so that kinds can meet."""
    taken: dict[str, int] = {}
    found = []
    for one in sorted(priced, key=lambda one: (_usd(one), one.delay_s)):
        taken[one.setup.gpu] = taken.get(one.setup.gpu, 0) + 1
        if taken[one.setup.gpu] <= _OF_A_KIND:
            found.append(one)
    return found[:number]


def _each_usd(one: Found) -> float:
    return _usd(one) / one.num_replicas


def _load(field: Field) -> float:
    demand = field.demand
    return float(demand.planned_users) if demand.kind is DemandKind.USERS else demand.planned_per_s


# Mixed ---------------------------------------------------------------------------------------------------------------


def capacity_of(field: Field, one: Found) -> float:
    """Return the most users, or requests per second, that one replica of a setup serves within all limits."""
    rig = field.rig(one.setup)
    if field.demand.kind is DemandKind.USERS:
        return float(most_kept(lambda users: rig.at(users).meets, 1, field.demand.planned_users) or 0)
    return _most_rate(rig, field.demand.planned_per_s / one.num_needed)


def _most_rate(rig: Rig, kept: float) -> float:
    """Return the greatest rate that keeps all limits, to a part in a million; ``kept`` is one that does."""
    low, high = kept, 2 * kept
    while rig.at(high).meets:
        low, high = high, 2 * high
    for _ in range(_STEPS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if rig.at(middle).meets else (low, middle)
    return low


def _mixed(field: Field, priced: Sequence[Found], plain: float, num_workers: int | None) -> Alternative | None:
    """Return the cheapest fleet of two kinds; each takes the part of the load that it can."""
    load = _load(field)
    first = _foremost(priced, _MIXED)
    capacities = over_cores(field, capacity_of, first, num_workers=num_workers, few=8)
    pools = [
        (one, Pool(usd_per_hour=_each_usd(one), capacity=size)) for one, size in zip(first, capacities, strict=True)
    ]
    best: tuple[Split, tuple[Found, Pool], tuple[Found, Pool]] | None = None
    for number, (one, pool) in enumerate(pools):
        for other, second in pools[number + 1 :]:
            # Of one kind of GPU it is no mixed fleet.
            split = cheapest_split(pool, second, load) if one.setup.gpu != other.setup.gpu else None
            split = None if split is None else _with_spare(split, pool, second, field.num_spare)
            if split is None or (best is not None and split.usd_per_hour >= best[0].usd_per_hour):
                continue
            best = (split, (one, pool), (other, second))
    if best is None:
        return None
    split, (one, pool), (other, second) = best
    usd = split.usd_per_hour
    text = f"{_named(split.num_first, one)} and {_named(split.num_second, other)}"
    gpus = split.num_first * one.setup.num_gpus + split.num_second * other.setup.num_gpus
    # Each replica is as full, of what it can take, as any other.
    spare = field.num_spare
    fullness = load / ((split.num_first - spare) * pool.capacity + (split.num_second - spare) * second.capacity)
    sure = min(_sure(field.rig(item.setup), fullness * size.capacity) for item, size in (best[1], best[2]))
    pays = usd < plain * (1 - _ALIKE)
    why = "replicas alike leave less unused, or are the least there is"
    if pays:
        why = "the remainder of the load fits a cheaper replica"
        why += _UNCLEAR if plain / usd < _CLEAR else ""
    return Alternative(
        kind="mixed",
        text=text,
        total_gpus=gpus,
        usd_per_hour=usd,
        usd_per_month=usd * HOURS_PER_MONTH,
        plain_usd_per_hour=plain,
        gain_factor=plain / usd,
        pays=pays,
        slo_probability_fraction=sure,
        why=why,
    )


def _with_spare(split: Split, first: Pool, second: Pool, num_spare: int) -> Split:
    """Return a split with as many spare replicas in each pool: whichever fails, its own kind takes its place."""
    return replace(
        split,
        num_first=split.num_first + num_spare,
        num_second=split.num_second + num_spare,
        usd_per_hour=split.usd_per_hour + num_spare * (first.usd_per_hour + second.usd_per_hour),
    )


def _sure(rig: Rig, share: float) -> float:
    """Return how likely a replica with a share of the load keeps all limits: with whole clients, and one at least."""
    return judged(rig, share if rig.paced else max(1, math.ceil(share - _ALIKE))).probability_fraction


def _named(number: int, one: Found) -> str:
    ranks = one.setup.ranks
    split = f"TP {ranks.tp}" + (f" x PP {ranks.pp}" if ranks.pp > 1 else "")
    if one.setup.method is not None:
        split += f", {one.setup.method} {one.setup.num_draft_tokens}"
    return f"{number} x {one.setup.num_gpus} x {one.setup.gpu} ({split})"


# Disaggregated -------------------------------------------------------------------------------------------------------


def _disaggregated(field: Field, priced: Sequence[Found], plain: float, num_workers: int | None) -> Alternative | None:
    """Return the cheapest pair of a prefill and a decode pool that keep up with the requests of the load."""
    # Drafting where prefill and decode are apart is priced by nobody here.
    tried = _foremost([one for one in priced if one.setup.method is None], _SPLIT)
    found = over_cores(field, pair_parts, tried, num_workers=num_workers, few=4)
    best: Alternative | None = None
    judges: tuple[Found, Found, tuple[float, float]] | None = None
    for one, first in zip(tried, found, strict=True):
        for other, second in zip(tried, found, strict=True):
            if (
                first is None
                or second is None
                or (one.setup.kv, one.setup.engine) != (other.setup.kv, other.setup.engine)
            ):
                continue
            (prefill_per_s, ttft_s, sent_s), (clients, decode_per_s, tpot_s, rest_s) = first[0], second[1]
            if not prefill_per_s or not decode_per_s:
                continue
            wanted = _wanted_per_s(field, first_token_s(ttft_s, sent_s, 0.0, tpot_s) + rest_s)
            prefill = Pool(usd_per_hour=_each_usd(one), capacity=prefill_per_s)
            decode = Pool(usd_per_hour=_each_usd(other), capacity=decode_per_s)
            split = _with_spare(rate_matched(prefill, decode, wanted), prefill, decode, field.num_spare)
            if best is not None and split.usd_per_hour >= best.usd_per_hour:
                continue
            pays = split.usd_per_hour < plain * (1 - _ALIKE)
            why = f"sending KV is {format_seconds(sent_s)} of the first token"
            if not pays:
                why += "; replicas of both kinds leave more unused than plain ones"
            elif plain / split.usd_per_hour < _CLEAR:
                why += _UNCLEAR
            at_work = split.num_first - field.num_spare, split.num_second - field.num_spare
            shares = (wanted / at_work[0], clients * wanted / (at_work[1] * decode_per_s))
            judges = (one, other, shares)
            best = Alternative(
                kind="disaggregated",
                text=f"prefill {_named(split.num_first, one)}, decode {_named(split.num_second, other)}",
                total_gpus=split.num_first * one.setup.num_gpus + split.num_second * other.setup.num_gpus,
                usd_per_hour=split.usd_per_hour,
                usd_per_month=split.usd_per_hour * HOURS_PER_MONTH,
                plain_usd_per_hour=plain,
                gain_factor=plain / split.usd_per_hour,
                pays=pays,
                ttft_s=first_token_s(ttft_s, sent_s, 0.0, tpot_s),
                tpot_s=tpot_s,
                kv_transfer_s=sent_s,
                why=why,
            )
    if best is None or judges is None:
        return None
    one, other, shares = judges
    parts = pair_rigs(field, one), pair_rigs(field, other)
    if parts[0] is None or parts[1] is None:
        return best
    sure = min(_sure(parts[0][0], shares[0]), _sure(parts[1][1], shares[1]))
    return replace(best, slo_probability_fraction=sure)


def _wanted_per_s(field: Field, through_s: float) -> float:
    """Return the requests per second of the load where each takes so long (Little 1961)."""
    demand = field.demand
    if demand.kind is DemandKind.RATE:
        return demand.planned_per_s
    return demand.planned_users / (through_s + demand.think_time_s)


def pair_parts(field: Field, one: Found) -> tuple[tuple[float, float, float], tuple[float, float, float, float]] | None:
    """Return what a replica does as a prefill and as a decode replica.

    Prefill: requests per second within the limits on first tokens, the time to the first token, and what sending adds.
    Decode: clients, requests per second within the limits on tokens, time per token, and of an answer after its first.
    """
    rigs = pair_rigs(field, one)
    if rigs is None:
        return None
    first, rest, sent_s = rigs
    if first.missing_bytes or rest.missing_bytes:
        return None
    lowest = 1e-3
    if not first.at(lowest).meets or not rest.at(1).meets:
        return None
    per_s = _most_rate(first, lowest)
    reached = first.at(per_s)
    clients = most_kept(lambda number: rest.at(number).meets, 1, max(1, math.floor(rest.at(1).max_batch))) or 1
    full = rest.at(clients)
    ttft_s = 0.0 if reached.ttft_s is None else reached.ttft_s.value
    if full.e2e_s is None or full.tpot_s is None:
        return None
    return (
        (per_s, ttft_s, sent_s),
        (float(clients), full.requests_per_s.value, full.tpot_s.value, full.e2e_s.value),
    )


def pair_rigs(field: Field, one: Found) -> tuple[Rig, Rig, float] | None:
    """Return a setup as a prefill replica and as a decode replica, and what sending adds; None where it cannot be."""
    demand = field.demand
    rig = field.rig(one.setup)
    sent_s = _sent_s(rig)
    prompts = tuple(replace(one, limit=one.limit - sent_s) for one in demand.slo if one.quantity == "ttft_s")
    tokens = tuple(one for one in demand.slo if one.quantity == "tpot_s")
    if any(limit.limit <= 0 for limit in prompts):
        return None
    asked = replace(demand, kind=DemandKind.RATE, think_time_s=0.0, headroom_fraction=0.0, requests_per_s=1.0)
    try:
        first = replace(field, demand=replace(asked, output_tokens="1", slo=prompts)).rig(one.setup)
        rest = replace(
            field,
            demand=replace(
                demand, kind=DemandKind.CAPACITY, prefix_hit_fraction=_HELD, slo=tokens, headroom_fraction=0.0
            ),
        ).rig(one.setup)
    except InfcalcError:
        return None
    return first, rest, sent_s


def _sent_s(rig: Rig) -> float:
    """Return what sending the KV of a mean prompt adds, over the network of each GPU of the replica."""
    deployment, prompt = rig.deployment, max(1, round(rig.prompt_tokens))
    whole = sequence_bytes(kv_components(deployment.model, rig.site.form), prompt)
    efficiency = rig.site.catalog.efficiency(deployment.gpu)
    speed = (efficiency.network_bytes_per_s or NETWORK_BYTES_PER_S) * deployment.parallelism.tp
    last = min(1.0, deployment.max_num_batched_tokens / prompt)
    return transfer_s(
        whole,
        bytes_per_s=speed,
        latency_s=efficiency.network_latency_s or NETWORK_LATENCY_S,
        exposed_fraction=last,
    )
