"""The wait of a queue that few can join: those who wait in it do not come again, so that it never grows without end.

Work of ``v`` seconds before a server shrinks by ``1 - r`` a second, with ``r`` the share of its time that is asked for;
and by ``v / T`` more where whoever waits is missing among those who come once in ``T`` seconds. Kicked about by chance,
and never below nothing, that is an Ornstein-Uhlenbeck process with a reflecting wall (Ward and Glynn, Queueing Systems
43, 2003), whose law is a normal one cut off at 0. As T grows its mean becomes the wait of a server at random (Pollaczek
and Khinchine); where more is asked than can be done, it is what is left over.
"""

from __future__ import annotations

import math
from typing import NamedTuple

_FAR = 20.0
"""From where on the tail of a normal law falls as that of an exponential one."""
_DEEPEST = -6.0
"""Deviations below its mean at which the wall of a normal law is as good as gone."""
_ROUNDS = 3
_MOST_ROUNDS = 30
_CLOSE = 1e-9


class Queue(NamedTuple):
    """A queue that few can join."""

    wait_s: float
    """Mean work before it."""
    slack: float
    """Seconds by which a little work shrinks in a second."""
    more_slack_per_s: float
    """What each second of work adds to that."""

    def drained_s(self, work_s: float) -> float:
        """Return the time until ``work_s``, and what comes meanwhile, is done."""
        least_s = work_s / self.slack
        grown = self.more_slack_per_s * least_s
        return least_s * math.log1p(grown) / grown if grown > _CLOSE else least_s


def reflected(wait_s: float, used: float, turn_s: float) -> Queue:
    """Return the queue of those who come once in ``turn_s`` each, and ask for ``used`` of the server's time.

    ``wait_s``: for a server that as much is asked of by ever more who come ever more seldom.
    """
    spread = wait_s * (1 - used)
    if spread <= 0:
        return Queue(wait_s, max(1 - used, _CLOSE), 0.0)
    found_s, outside_s = wait_s, turn_s
    hazard = excess = 0.0
    for _ in range(_ROUNDS):
        scale_s = math.sqrt(spread * outside_s)
        hazard = (1 - used) * outside_s / scale_s
        excess = _excess(hazard)
        found_s = min(wait_s, scale_s * excess)
        outside_s = max(0.1 * turn_s, turn_s - found_s)
    return Queue(found_s, max(1 - used, _CLOSE), hazard * excess / outside_s)


def _hazard(depth: float) -> float:
    """Return the density of a normal law at ``depth`` deviations over what lies beyond (the inverse of Mills' ratio).

    >>> round(_hazard(0.0), 4), round(_hazard(3.0), 4)
    (0.7979, 3.2831)
    """
    return math.sqrt(2 / math.pi) * math.exp(-0.5 * depth**2) / math.erfc(depth / math.sqrt(2))


def _excess(hazard: float) -> float:
    """Return by how much ``hazard`` exceeds the depth of which it is :func:`_hazard`.

    >>> round(_excess(_hazard(-1.0)), 6) == round(_hazard(-1.0) + 1, 6), round(_excess(50.0), 4)
    (True, 0.02)
    """
    if hazard > _FAR:
        return (1 - (1 / hazard) ** 2) / hazard
    low, high = _DEEPEST, hazard
    if hazard <= _hazard(low):
        return hazard - low
    depth = min(hazard - 0.5, 1.5 * (hazard - 0.8))
    for _ in range(_MOST_ROUNDS):
        depth = depth if low < depth < high else 0.5 * (low + high)
        found = _hazard(depth)
        if abs(found - hazard) <= _CLOSE * hazard:
            break
        low, high = (depth, high) if found < hazard else (low, depth)
        depth -= (found - hazard) / (found * (found - depth))
    return hazard - depth
