"""Tokens as bytes: whole runs compare with one memory comparison, and a run is a key of a dictionary.

Four bytes per token id. ``array.array("i", ids)`` is the form that packs without a loop.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

TOKEN_BYTES = array("i").itemsize


def packed(tokens: Sequence[int]) -> bytes:
    """Return token ids (0 to 2**31 - 1) as bytes.

    Raises:
        OverflowError: an id does not fit.

    >>> len(packed([1, 2, 3])) // TOKEN_BYTES
    3

    """
    return (tokens if isinstance(tokens, array) and tokens.typecode == "i" else array("i", tokens)).tobytes()


def shared_bytes(one: bytes, other: bytes) -> int:
    """Return how many leading bytes two runs share, by halving: two comparisons' worth of bytes in all.

    >>> shared_bytes(b"abcdef", b"abcxyz"), shared_bytes(b"ab", b"abc"), shared_bytes(b"", b"a")
    (3, 2, 0)
    """
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    # The runs agree up to `low` and differ somewhere before `high`.
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
