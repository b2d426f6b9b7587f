"""How many replicas: the least with which a limit is kept, found by halving, for more of them never hurt."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def least_kept(kept: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the least number from ``low`` to ``high`` with which something is kept; None where it never is.

    Whatever is kept by a number is taken to be kept by greater ones. It is asked for numbers twice as great each time,
    then halfway: few times where the answer is small.

    >>> least_kept(lambda number: number >= 37, 1, 1000), least_kept(lambda number: False, 1, 8)
    (37, None)
    """
    if low > high:
        return None
    below, at = low - 1, low
    while not kept(at):
        if at == high:
            return None
        below, at = at, min(high, 2 * at)
    while below + 1 < at:
        middle = (below + at) // 2
        below, at = (below, middle) if kept(middle) else (middle, at)
    return at


def most_kept(kept: Callable[[int], bool], low: int, high: int) -> int | None:
    """Return the greatest number from ``low`` to ``high`` with which something is kept that smaller ones keep too.

    >>> most_kept(lambda number: number <= 37, 1, 1000), most_kept(lambda number: False, 1, 8)
    (37, None)
    """
    first = least_kept(lambda number: not kept(number), low, high)
    if first is None:
        return high if low <= high else None
    return first - 1 if first > low else None


def shares(num_users: int, num_replicas: int) -> tuple[tuple[int, int], ...]:
    """Return how many replicas have how many users, the fullest first, where a router spreads them evenly.

    >>> shares(100, 3)
    ((1, 34), (2, 33))
    """
    each, over = divmod(num_users, num_replicas)
    found = ((over, each + 1), (num_replicas - over, each))
    return tuple((number, users) for number, users in found if number and users)


def fewest_with_share(num_users: int, share: int) -> int:
    """Return the fewest replicas of which none has more than ``share`` users."""
    return math.ceil(num_users / share)
