"""The plans of which none is both dearer and slower than another."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

T = TypeVar("T")


def front(items: Iterable[T], *, cost: Callable[[T], float], delay: Callable[[T], float]) -> tuple[T, ...]:
    """Return the items that no other beats in cost or delay without losing in the other, the cheapest first.

    Of items alike in both the first is kept.

    >>> front([(1, 9), (2, 5), (3, 6), (4, 1)], cost=lambda item: item[0], delay=lambda item: item[1])
    ((1, 9), (2, 5), (4, 1))
    """
    found: list[T] = []
    least: float | None = None
    for item in sorted(items, key=lambda item: (cost(item), delay(item))):
        if least is None or delay(item) < least:
            found.append(item)
            least = delay(item)
    return tuple(found)
