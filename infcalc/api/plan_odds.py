"""How sure a plan is: each limit against where published runs lie, and at a rate a slower clock carried to the queue.

What came of a prediction is known in three places: one published run in ten is below the low end of its band, half are
below their median, one in ten is above the high end. Through them goes a law of two log-normal halves.

Of requests that come at a rate, a first token is late because the server is slow or because a queue has grown before
it. A server slower by a factor has the times of one that is asked for so much more, drawn out by that factor: so its
queue is computed anew. All figures rest on one clock, so that a plan is as sure as the least of its limits.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from infcalc.api.bands import request_band, typical
from infcalc.api.offer import Figure
from infcalc.frozen import frozen
from infcalc.planning.odds import Z80, Law, normal_below

if TYPE_CHECKING:
    from collections.abc import Callable

    from infcalc.api.plan_rig import Kept, Point, Rig
    from infcalc.api.speed import Run

_HALVINGS = 10
_FARTHEST = 3.0
"""Standard deviations of the clock, beyond which nothing is looked at."""


def judged(rig: Rig, share: float) -> Point:
    """Return one replica with a share of the load, each limit with its band and its odds."""
    point = rig.at(share)
    if not point.stable:
        return point
    if rig.paced:
        return _Carried(rig=rig, share=share, point=point, run=rig.run_at(share)).judged()
    kind = rig.run_at(share).bands.kind
    laws = _laws(point, kind, at_rate=False)
    return replace(point, kept=tuple(_kept(one, laws.get(one.quantity)) for one in point.kept))


def far_s(rig: Rig, share: float) -> tuple[tuple[Kept, float], ...]:
    """Return each limit with its time at the far end of its band; without end where the load is not answered there."""
    point = rig.at(share)
    if not point.stable:
        return tuple((one, math.inf) for one in point.kept)
    if rig.paced:
        carried = _Carried(rig=rig, share=share, point=point, run=rig.run_at(share))
        if not carried.answers(Z80):
            return tuple((one, math.inf) for one in point.kept)
        return tuple((one, carried.value_s(one, Z80)) for one in point.kept)
    return tuple((one, _end_s(one, one.high_s)) for one in point.kept)


def safe(rig: Rig, share: float) -> bool:
    """Tell whether all limits are kept at the far end of the bands too."""
    return rig.at(share).meets and all(value_s <= one.limit_s for one, value_s in far_s(rig, share))


def hopeful(rig: Rig, share: float) -> bool:
    """Tell whether all limits are kept at the good end of the bands."""
    point = rig.at(share)
    if not rig.paced:
        return all(one.met or _end_s(one, one.low_s) <= one.limit_s for one in point.kept)
    carried = _Carried(rig=rig, share=share, point=point, run=rig.run_at(share))
    return carried.answers(-Z80) and all(carried.value_s(one, -Z80) <= one.limit_s for one in point.kept)


def _end_s(one: Kept, value_s: float | None) -> float:
    if value_s is not None:
        return value_s
    return 0.0 if one.met else math.inf


def _laws(point: Point, kind: str, *, at_rate: bool) -> dict[str, Law]:
    """Return where each time lies, over its own value."""
    found = {}
    for quantity in ("ttft_s", "tpot_s"):
        figure: Figure | None = getattr(point, quantity)
        if figure is not None and figure.value > 0:
            found[quantity] = _law(figure, typical(kind, quantity, at_rate=at_rate))
    whole, first = point.e2e_s, point.ttft_s
    if whole is not None and first is not None and whole.value > 0:
        part = first.value / whole.value
        middle = sum(
            share * typical(kind, quantity, at_rate=at_rate)
            for quantity, share in (("ttft_s", part), ("tpot_s", max(0.0, 1 - part)))
        )
        found["e2e_s"] = _law(whole, middle)
    return found


def _law(figure: Figure, middle: float) -> Law:
    low, high = figure.low / figure.value, figure.high / figure.value
    return _law_of(low, middle, high)


def _law_of(low: float, middle: float, high: float) -> Law:
    """Return a law whose median lies within its band."""
    return Law(low_factor=low, middle_factor=min(max(middle, low), high), high_factor=high)


def _kept(one: Kept, law: Law | None) -> Kept:
    if one.value_s is None or law is None:
        return one
    return replace(one, probability_fraction=law.probability_below(one.limit_s / one.value_s))


@frozen
class _Carried:
    """One replica at a rate, and what it would be were the server slower or faster than predicted.

    ``at`` are standard deviations of the clock: ``-Z80`` is the good end of the bands, ``Z80`` the far one.
    """

    rig: Rig
    share: float
    point: Point
    run: Run

    def judged(self) -> Point:
        """Return the point with bands and odds."""
        first = _banded(self.point.ttft_s, self._first_s(-Z80), self._first_s(Z80))
        whole = self.point.e2e_s
        if whole is not None and first is not None:
            pace = self.run.bands.factors("tpot_s", at_rate=True)
            low, high = request_band(whole.value, (first.value, first.low, first.high), pace)
            whole = replace(whole, low=min(max(low, self._floor_s), whole.value), high=high)
        return replace(
            self.point,
            ttft_s=first,
            e2e_s=whole,
            kept=tuple(self._kept(one) for one in self.point.kept),
            load_probability_fraction=self._pace.probability_below(self._most),
        )

    def answers(self, at: float) -> bool:
        """Tell whether so slow a server answers the load."""
        return self._pace.at(at) < self._most

    def value_s(self, one: Kept, at: float) -> float:
        """Return the time that an objective is of, at so many standard deviations."""
        if one.value_s is None:
            return 0.0 if one.met else math.inf
        if one.quantity == "tpot_s":
            middle = one.value_s * typical(self._kind, "tpot_s", at_rate=True)
            return _law_of(one.low_s or one.value_s, middle, one.high_s or one.value_s).at(at)
        return self._stated_s(one, at)

    def _kept(self, one: Kept) -> Kept:
        if one.value_s is None:
            return one
        low, high = self.value_s(one, -Z80), self.value_s(one, Z80)
        return replace(
            one,
            low_s=min(low, one.value_s),
            high_s=max(high, one.value_s) if math.isfinite(high) else None,
            probability_fraction=_odds(lambda at: self.value_s(one, at) <= one.limit_s),
        )

    def _stated_s(self, one: Kept, at: float) -> float:
        """Return the mean or the percentile of the first token or of the whole request."""
        slower = self._pace.at(at)
        if not self.answers(at):
            return math.inf
        there = self.rig.at(self.share * slower)
        found = next((other for other in there.kept if other.name == one.name), None)
        if found is None or found.value_s is None or there.ttft_s is None or there.e2e_s is None:
            return math.inf
        first = self._first_factor(there.ttft_s.value, at)
        if one.quantity == "ttft_s":
            return found.value_s * first
        # The rest of a request is at the pace of its tokens.
        part = min(1.0, there.ttft_s.value / there.e2e_s.value)
        return found.value_s * (part * first + (1 - part) * slower)

    def _first_s(self, at: float) -> float:
        """Return the mean time to the first token."""
        there = self.rig.at(self.share * self._pace.at(at)) if self.answers(at) else None
        if there is None or there.ttft_s is None:
            return math.inf
        return there.ttft_s.value * self._first_factor(there.ttft_s.value, at)

    def _first_factor(self, mean_s: float, at: float) -> float:
        """Return by what a first token comes later than predicted, so that none comes before its floor."""
        return max(self._law("ttft_s").at(at), self.run.floors.ttft_s / mean_s) if mean_s > 0 else 1.0

    @property
    def _kind(self) -> str:
        return self.run.bands.kind

    @property
    def _floor_s(self) -> float:
        return self.run.floors.e2e_s

    @property
    def _most(self) -> float:
        """How many times slower the server may be and still answer the load."""
        most = self.run.most_per_s
        return math.inf if most is None else most / self.share

    @property
    def _pace(self) -> Law:
        """How much slower servers are than predicted: one over what they were measured to answer."""
        law = self._law("output_tokens_per_s")
        return _law_of(1 / law.high_factor, 1 / law.middle_factor, 1 / law.low_factor)

    def _law(self, quantity: str) -> Law:
        low, high = self.run.bands.factors(quantity)
        return _law_of(low, typical(self._kind, quantity), high)


def _banded(figure: Figure | None, low: float, high: float) -> Figure | None:
    """Return a figure with another band; where it has no far end that of published runs at a rate stands."""
    if figure is None:
        return None
    most = high if math.isfinite(high) else max(figure.high, figure.value)
    return replace(figure, low=min(low, figure.value), high=max(most, figure.value))


def _odds(kept: Callable[[float], bool]) -> float:
    """Return how likely a limit is kept, where it is by all clocks up to some standard deviations."""
    if kept(_FARTHEST):
        return 1.0
    if not kept(-_FARTHEST):
        return 0.0
    low, high = -_FARTHEST, _FARTHEST
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if kept(middle) else (low, middle)
    return round(normal_below(low), 4)


__all__ = ["far_s", "hopeful", "judged", "safe"]
