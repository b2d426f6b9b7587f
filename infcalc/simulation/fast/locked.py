"""Replicas that begin and end their steps together, each as late as the longest: the ranks of a mixture of experts.

As in :class:`infcalc.simulation.fleet.Fleet`, of which every record here is the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from infcalc.simulation.fast.replica import Begun, FastReplica


class LockedReplicas:
    """Several replicas with one clock. Who has no work leaves the steps out that begin meanwhile."""

    __slots__ = ("_end_ps", "_lanes", "num_empty_steps")

    def __init__(self, lanes: Sequence[FastReplica]) -> None:
        self._lanes = lanes
        self._end_ps = 0
        """The last step ends."""
        self.num_empty_steps = 0
        """Steps in which all only took blocks back: they take no time."""

    @property
    def has_work(self) -> bool:
        """Whether anybody waits or runs."""
        return any(lane.running or lane.waiting for lane in self._lanes)

    @property
    def now_ps(self) -> int:
        """The moment at which the next step begins, or the last one ended."""
        return self._begin_ps(self._working())

    def advance(self, limit_ps: int, *, to_an_end: bool = False) -> None:
        """Compute all steps that begin before ``limit_ps``; ``to_an_end``: no further than to the next end."""
        num_ended = self._num_ended()
        while working := self._working():
            begin_ps = self._begin_ps(working)
            if begin_ps >= limit_ps:
                return
            _step(working, begin_ps, limit_ps)
            self._end_ps = working[0].now_ps
            self.num_empty_steps += self._end_ps == begin_ps
            if to_an_end and self._num_ended() > num_ended:
                return

    def _working(self) -> list[FastReplica]:
        return [lane for lane in self._lanes if lane.running or lane.waiting]

    def _begin_ps(self, working: list[FastReplica]) -> int:
        # Those who had nothing to do are where the first request came since; all others are at the last end.
        return max(self._end_ps, min((lane.now_ps for lane in working), default=0))

    def _num_ended(self) -> int:
        return sum(lane.num_ended for lane in self._lanes)


def _step(working: list[FastReplica], begin_ps: int, limit_ps: int) -> None:
    """Compute one step of all; or several, where all only decode, until one ends somebody or has no blocks left."""
    begun = [lane.begin(begin_ps) for lane in working]
    first_ps, more_ps, most = _longest(begun)
    only_decode = [lane for lane, (chunks, _, _, _) in zip(working, begun, strict=True) if chunks is None]
    stretches = [lane.stretch(first_ps, more_ps, most, limit_ps) for lane in only_decode]
    least = min((count for count, _, _, _ in stretches), default=most)
    if least < most:
        stretches = [lane.stretch(first_ps, more_ps, least, limit_ps) for lane in only_decode]
    for lane, stretch in zip(only_decode, stretches, strict=True):
        lane.run(first_ps, more_ps, stretch)
    for lane, (chunks, _, _, _) in zip(working, begun, strict=True):
        if chunks is not None:
            lane.end(chunks, first_ps)


def _longest(begun: list[Begun]) -> tuple[int, int, int]:
    """Return how long the next step of all takes, how much longer each after it, and for how many that holds.

    Each lane has a line over its next steps; the longest is the highest of them, until another crosses it.

    >>> _longest([(None, 10, 1, 9), (None, 8, 2, 7)]), _longest([(None, 10, 1, 9), ([], 8, 0, 1)])
    ((10, 1, 3), (10, 1, 1))
    """
    first_ps, more_ps = max((first, more) for _, first, more, _ in begun)
    most = min(steps for _, _, _, steps in begun)
    for _, first, more, _ in begun:
        if more > more_ps:
            most = min(most, (first_ps - first) // (more - more_ps) + 1)
    return first_ps, more_ps, most
