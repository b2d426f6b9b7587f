"""Why a setup is no plan, and the nearest change that lets it pass: each is held to what the same search then says."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.plan_demand import DemandKind, slo_text
from infcalc.api.plan_odds import hopeful
from infcalc.planning.nouns import Miss, Refusal
from infcalc.planning.replicas import least_kept
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from infcalc.api.plan_rig import Point, Rig
    from infcalc.api.plan_search import Field
    from infcalc.planning.nouns import Setup

_TOO_SLOW = 1e30
_LONG_MS = 10_000.0
_HALVINGS = 10
"""Of the rate that a setup answers within its limits: to a thousandth."""


def unfit(rig: Rig) -> Refusal:
    """Return that memory does not hold one request."""
    gpu, missing = rig.deployment.gpu, rig.missing_bytes
    usable = gpu.cuda_total_bytes
    total = rig.load.total_tokens
    return Refusal(
        setup=rig.setup,
        kind=Miss.MEMORY,
        reason=f"{format_bytes(missing)} per GPU are missing for one request of {total:,} tokens",
        quantity="needed_bytes_per_gpu",
        limit=float(usable),
        value=float(usable + missing),
        change=f"twice the GPUs (TP {rig.setup.ranks.tp * 2}), or narrower weights or KV (--allow fp8)",
    )


def refused(field: Field, rig: Rig, most: int) -> Refusal:
    """Return why no number of replicas up to ``most`` will do: money or GPUs where more would, else what is missed."""
    if field.demand.kind is DemandKind.CAPACITY:
        first = rig.at(1)
        return _dear(field, rig, 1, first) if most < 1 else _slow(field, rig, 1, None)
    useful = field.most_useful()
    needed = least_kept(lambda number: rig.with_replicas(number).meets, max(1, most + 1), useful)
    if needed is not None:
        return _dear(field, rig, needed, rig.with_replicas(needed))
    if most >= 1 and rig.with_replicas(most).stable:
        return _slow(field, rig, rig.share(most), most)
    enough = least_kept(lambda number: rig.with_replicas(number).stable, max(1, most + 1), useful)
    if most < 1 and enough is not None:
        return _dear(field, rig, enough, rig.with_replicas(enough))
    return _flooded(field, rig, max(1, most), enough)


def _dear(field: Field, rig: Rig, needed: int, point: Point) -> Refusal:
    """Return that the replicas which would do are too many GPUs, or too much money; limits they miss are relaxed."""
    setup, change = rig.setup, _paid(field, rig.setup, needed)
    number = needed + field.num_spare
    gpus, rent = number * setup.num_gpus, field.rent(setup)
    noun, keep = ("1 GPU", "keeps") if gpus == 1 else (f"{gpus:,} GPUs", "keep")
    serves = f"{keep} all limits"
    if not point.meets:
        serves = "is the least that answers" if gpus == 1 else "are the least that answer"
        change = f"{change} {_relaxed(field, point)}"
    if field.most_gpus is not None and gpus > field.most_gpus:
        return Refusal(
            setup=setup,
            kind=Miss.GPUS,
            reason=f"{noun} {serves}, {field.most_gpus:,} are allowed",
            quantity="num_gpus",
            limit=float(field.most_gpus),
            value=float(gpus),
            num_replicas=number,
            change=change,
            suffices=True,
        )
    budget = field.most_usd_per_hour or 0.0
    usd = math.nan if rent is None else rent.usd_per_hour * gpus
    return Refusal(
        setup=setup,
        kind=Miss.BUDGET,
        reason=f"{noun} for {usd:,.2f} USD/h {serves}, the budget is {budget:,.2f} USD/h",
        quantity="usd_per_hour",
        limit=budget,
        value=usd,
        num_replicas=number,
        change=change,
        suffices=True,
    )


def _slow(field: Field, rig: Rig, share: float, most: int | None) -> Refusal:
    """Return which limit is missed most by the most replicas, which do answer the load."""
    point, setup = rig.at(share), rig.setup
    worst = max((one for one in point.kept if not one.met), key=lambda one: (one.value_s or _TOO_SLOW) / one.limit_s)
    value = worst.value_s if worst.value_s is not None else math.inf
    text = f"{worst.name} is {format_seconds(value)}{_with(most)}, the limit {format_seconds(worst.limit_s)}"
    optimistic = hopeful(rig, share)
    if optimistic:
        text += "; only at the optimistic end of the band it is kept"
    return Refusal(
        setup=setup,
        kind=Miss.OBJECTIVE,
        reason=text,
        quantity=worst.name,
        limit=worst.limit_s,
        value=value,
        num_replicas=most,
        change=_relaxed(field, point),
        suffices=True,
        optimistic=optimistic,
    )


def _flooded(field: Field, rig: Rig, most: int, enough: int | None) -> Refusal:
    """Return that the most replicas do not answer the load; ``enough`` of them would, beyond some limit of time."""
    point = rig.with_replicas(most)
    answered, wanted = point.requests_per_s.value, rig.share(most)
    if enough is not None:
        change = " ".join((_paid(field, rig.setup, enough), _relaxed(field, rig.with_replicas(enough))))
    else:
        change = _fewer(field, rig, most, answered)
    return Refusal(
        setup=rig.setup,
        kind=Miss.LOAD,
        reason=f"at most {answered:.3g} of {wanted:.3g} requests per s are answered by a replica{_with(most)}",
        quantity="requests_per_s",
        limit=wanted,
        value=answered,
        num_replicas=most,
        change=change,
        suffices=bool(change),
        optimistic=point.requests_per_s.high >= wanted,
    )


def _with(most: int | None) -> str:
    return "" if most is None else f" with {most:,} replica{'' if most == 1 else 's'}"


# The change ----------------------------------------------------------------------------------------------------------


def _paid(field: Field, setup: Setup, needed: int) -> str:
    """Return the limits of GPUs and money that so many replicas take, those that are spare besides."""
    gpus = (needed + field.num_spare) * setup.num_gpus
    words = []
    if field.most_gpus is not None and gpus > field.most_gpus:
        words.append(f"--max-gpus {gpus}")
    rent, budget = field.rent(setup), field.most_usd_per_hour
    if rent is not None and budget is not None and rent.usd_per_hour * gpus > budget:
        cents = math.ceil(rent.usd_per_hour * gpus * 100 - 1e-6)
        words.append(f"--budget {cents / 100:.2f}/h")
    return " ".join(words)


def _relaxed(field: Field, point: Point) -> str:
    """Return the objectives, those that are missed as wide as they must be; the others stay."""
    limits = [
        slo_text((own,)) if one.met else f"{one.name}={_rounded_up(one.value_s or math.inf)}"
        for own, one in zip(field.demand.slo, point.kept, strict=True)
    ]
    return f"--slo {','.join(limits)}"


def _rounded_up(seconds: float) -> str:
    """Return a time to two digits, not below what it is, as --slo takes it."""
    milli = seconds * 1000
    unit = 10 ** max(0, math.floor(math.log10(milli)) - 1) if milli >= 1 else 0.1
    rounded = math.ceil(milli / unit - 1e-9) * unit
    return f"{rounded / 1000:.0f}s" if rounded >= _LONG_MS else f"{rounded:.1f}".removesuffix(".0") + "ms"


def _fewer(field: Field, rig: Rig, most: int, answered: float) -> str:
    """Return the highest rate that so many replicas answer within all limits; none where limits are missed at rest."""
    low, high = 0.0, answered
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if middle > 0 and rig.at(middle).meets else (low, middle)
    rate = low * most / (1 + field.demand.headroom_fraction)
    if rate <= 0:
        return ""
    unit = 10.0 ** (math.floor(math.log10(rate)) - 2)
    rounded = math.floor(rate / unit) * unit
    return f"--rate {rounded:.0f}" if unit >= 1 else f"--rate {rounded:.3g}"


def mended(refusals: Sequence[Refusal], passing: Iterable[Setup]) -> list[Refusal]:
    """Return refusals where what memory is too small for has the least GPUs with which its like passes.

    ``passing`` are the setups that keep all limits. Where none of its like does, the nearest that a change lets pass is
    named with that change; where there is none either, what takes away this obstacle stays, as a first step.
    """
    ways: dict[tuple[object, ...], list[tuple[int, str]]] = {}
    for setup in passing:
        ways.setdefault(_like(setup), []).append((setup.num_gpus, ""))
    known = set(ways)
    for one in refusals:
        if (
            one.suffices
            and one.kind in {Miss.OBJECTIVE, Miss.LOAD, Miss.BUDGET, Miss.GPUS}
            and _like(one.setup) not in known
        ):
            ways.setdefault(_like(one.setup), []).append((one.setup.num_gpus, f" {one.change}"))
    return [_grown(one, ways) if one.kind is Miss.MEMORY else one for one in refusals]


def _grown(one: Refusal, ways: dict[tuple[object, ...], list[tuple[int, str]]]) -> Refusal:
    larger = [way for way in ways.get(_like(one.setup), ()) if way[0] > one.setup.num_gpus]
    if not larger:
        return one
    number, besides = min(larger)
    return replace(one, change=f"--gpus {number}{besides}", suffices=True)


def _like(setup: Setup) -> tuple[object, ...]:
    return setup.gpu, setup.engine, setup.weights, setup.kv, setup.method, setup.num_draft_tokens
