"""What every allocator checks before it admits a sequence."""

from __future__ import annotations

from collections.abc import Container

from infcalc.kvcache.misuse import Misuse
from infcalc.kvcache.surface import PrefixHit


def check_new(sequence_id: int, known: Container[int]) -> None:
    """Refuse a sequence that is there already.

    Raises:
        Misuse: it is among the ``known``.

    """
    if sequence_id in known:
        raise Misuse(f"sequence {sequence_id} is admitted twice")


def admitted_tokens(sequence_id: int, num_tokens: int, hit: PrefixHit, num_new_tokens: int | None) -> int:
    """Return how far a sequence of ``num_tokens`` gets room: its hit and the new tokens after it (None: all of them).

    Raises:
        Misuse: more new tokens are asked for than there are after the hit.

    >>> admitted_tokens(7, 100, PrefixHit(num_tokens=64), None), admitted_tokens(7, 100, PrefixHit(num_tokens=64), 16)
    (100, 80)

    """
    rest = num_tokens - hit.num_tokens
    num_new = rest if num_new_tokens is None else num_new_tokens
    if not 0 <= num_new <= rest:
        raise Misuse(f"{num_new} new tokens of sequence {sequence_id}: {rest} are left after the hit")
    return hit.num_tokens + num_new
