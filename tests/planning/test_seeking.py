"""The least number that trials confirm: the same as trying all, in few trials."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from infcalc.planning.seeking import Seeking, seeking


def sought(first: int, most: int, least: int, factor: float) -> tuple[Seeking, int]:
    """Return what is known at the end where ``least`` is the least that is confirmed, and how many trials it took."""
    known, trials = seeking(first, most), 0
    while not known.over:
        number = known.next
        assert first <= number <= most
        assert known.num_below < number
        assert known.num_above is None or number < known.num_above
        known = known.confirmed(number) if number >= least else known.missed(number, factor)
        trials += 1
    return known, trials


@given(
    first=st.integers(1, 300),
    more=st.integers(0, 3000),
    beyond=st.integers(0, 3500),
    factor=st.floats(1.0, 50.0),
)
def test_it_is_the_least_in_trials_that_grow_as_a_logarithm(first: int, more: int, beyond: int, factor: float) -> None:
    most, least = first + more, first + beyond
    known, trials = sought(first, most, least, factor)
    assert known.found == (least if least <= most else None)
    # As many doublings as the number has, once out and once back.
    assert trials <= 2 * math.log2(min(least, most)) + 4


def test_what_is_confirmed_at_once_takes_one_trial() -> None:
    known, trials = sought(7, 1000, 7, 1.0)
    assert (known.found, trials) == (7, 1)


def test_a_far_miss_takes_a_far_step() -> None:
    near, far = (seeking(100, 10_000).missed(100, factor).next for factor in (1.01, 1.8))
    assert (near, far) == (101, 180)
    # However far it missed, no more than twice as many.
    assert seeking(100, 10_000).missed(100, 30.0).next == 200


def test_what_no_number_helps_is_over() -> None:
    known = seeking(3, 50).hopeless()
    assert known.over
    assert known.found is None
