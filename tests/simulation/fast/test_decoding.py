"""Runs of steps in closed form are those of steps one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from infcalc.simulation.fast.decoding import stretch_of


@given(
    first=st.integers(0, 1000),
    more=st.integers(0, 9),
    most=st.integers(1, 300),
    limit=st.integers(1, 40_000),
    residues=st.none() | st.lists(st.integers(0, 3), min_size=1, max_size=20).filter(any),
    num_steps=st.integers(0, 50),
    spare=st.integers(0, 200),
    held=st.integers(0, 50),
)
def test_a_run_is_its_steps(  # noqa: PLR0917 - drawn
    first: int,
    more: int,
    most: int,
    limit: int,
    residues: list[int] | None,
    num_steps: int,
    spare: int,
    held: int,
) -> None:
    free = spare + (residues[-num_steps % len(residues)] if residues else 0)
    count = lasted = taken = held_ps = 0
    while count < most and (not count or lasted < limit):
        needed = residues[-(num_steps + count) % len(residues)] if residues else 0
        if taken + needed > free:
            break
        taken += needed
        step = first + count * more
        held_ps += (held + taken) * step
        lasted += step
        count += 1
    assert stretch_of(first, more, most, limit, residues, num_steps, free, held) == (count, lasted, taken, held_ps)
