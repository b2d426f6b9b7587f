"""Why a feature pays or does not: what changed in the runs, and in what a step moves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from infcalc.api.what_if_runs import moved
from infcalc.frozen import frozen
from infcalc.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from infcalc.api.simulation_nouns import SimulationResult
    from infcalc.api.speed import Site
    from infcalc.api.what_if_runs import Moved, Seen

_SAME = 0.02
_WAITS_S = 1.0
_ROOM = 0.005


@frozen
class Told:
    """One side as it is told: its run, what was seen in it, and its deployment where a step of it reads other bytes."""

    run: SimulationResult
    seen: Seen
    site: Site | None


def reason(before: Told, after: Told, chosen: str, *, crowds: bool = False) -> str:
    """Return what a feature changed; ``chosen`` says what of it was taken.

    ``crowds`` says that the feature changes how many answers are under way at once.
    """
    off, on = before.run, after.run
    parts = [chosen] if chosen else []
    if before.site is not None and after.site is not None:
        parts += _bytes(moved(before.site, before.seen), moved(after.site, after.seen), after.site)
    if crowds:
        parts.append(f"answers in a step {before.seen.num_decodes:.0f} -> {after.seen.num_decodes:.0f}")
    if off.tpot_s is not None and on.tpot_s is not None:
        parts.append(f"a token takes {format_seconds(off.tpot_s.mean)} -> {format_seconds(on.tpot_s.mean)}")
    room, roomier = off.cache_tokens * off.num_lanes, on.cache_tokens * on.num_lanes
    if room and abs(roomier / room - 1) > _ROOM:
        parts.append(f"room for {_tokens(room)} -> {_tokens(roomier)} tokens of cache")
    if off.kv_usage_fraction is not None and on.kv_usage_fraction is not None:
        parts += _shares("cache in use", off.kv_usage_fraction.mean, on.kv_usage_fraction.mean)
    if off.queue_s is not None and on.queue_s is not None and max(off.queue_s.mean, on.queue_s.mean) > _WAITS_S:
        parts.append(f"queue {format_seconds(off.queue_s.mean)} -> {format_seconds(on.queue_s.mean)}")
    parts += _shares("hits", off.prefix_hit_rate_fraction, on.prefix_hit_rate_fraction)
    if on.tokens_per_round is not None:
        parts.append(f"{on.tokens_per_round:.2f} tokens per round")
    if off.completed != on.completed:
        parts.append(f"answered {off.completed:,} -> {on.completed:,} of {on.requests:,} requests")
    if off.preemptions or on.preemptions:
        parts.append(f"preemptions {off.preemptions} -> {on.preemptions}")
    return "; ".join(parts)


def _shares(name: str, before: float, after: float) -> list[str]:
    first, second = f"{100 * before:.0f}", f"{100 * after:.0f}"
    return [f"{name} {first} -> {second} %"] if first != second else []


def _bytes(first: Moved, second: Moved, site: Site) -> list[str]:
    pairs = (("weights", first.weight_bytes, second.weight_bytes), ("cache", first.kv_bytes, second.kv_bytes))
    told = [
        f"{format_bytes(round(one))} -> {format_bytes(round(other))} of {name}"
        for name, one, other in pairs
        if one and abs(other / one - 1) > _SAME
    ]
    where = " on each GPU" if site.deployment.parallelism.num_gpus > 1 else ""
    return [f"a step reads {' and '.join(told)}{where}"] if told else []


def _tokens(number: int) -> str:
    """Return a number of tokens in three digits.

    >>> _tokens(416_032), _tokens(2_416_032), _tokens(960)
    ('416k', '2.42M', '960')
    """
    if number >= 1_000_000:  # noqa: PLR2004 - where thousands of thousands begin
        return f"{number / 1e6:.3g}M"
    return f"{number / 1e3:.3g}k" if number >= 1_000 else str(number)  # noqa: PLR2004 - where thousands begin
