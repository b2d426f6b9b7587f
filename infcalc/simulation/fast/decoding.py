"""Runs of steps that decode and nothing else, in closed form: how many, how long, and how many blocks they take."""

from __future__ import annotations

from typing import TypeAlias

Stretch: TypeAlias = tuple[int, int, int, int]
"""Steps, picoseconds, blocks taken, and held blocks summed over the picoseconds."""
_SHORT_STEPS = 24
"""Fewer steps are faster one by one."""


def stretch_of(  # noqa: PLR0917 - called for every run of steps
    first_ps: int,
    more_ps: int,
    most_steps: int,
    limit_ps: int,
    residues: list[int] | None,
    num_steps: int,
    num_free: int,
    num_held: int,
) -> Stretch:
    """Return the longest run of at most ``most_steps`` that all begin before ``limit_ps`` and for which blocks last.

    The first takes ``first_ps``, each next ``more_ps`` more. ``residues`` counts those who decode by cached tokens less
    steps, modulo the block size; None where they take no blocks. There is at least one step, for which blocks suffice.

    >>> stretch_of(10, 1, 3, 100, None, 0, 5, 2)
    (3, 33, 0, 66)
    >>> stretch_of(10, 1, 9, 22, [1, 0], 0, 5, 2)
    (3, 33, 2, 111)
    """
    if most_steps > _SHORT_STEPS:
        most_steps = _steps_before(first_ps, more_ps, most_steps, limit_ps)
        if most_steps > _SHORT_STEPS and residues is not None:
            most_steps = _affordable(residues, num_steps, most_steps, num_free)
        if most_steps > _SHORT_STEPS:
            return _closed(first_ps, more_ps, most_steps, residues, num_steps, num_held)
    count = lasted = taken = held_ps = 0
    step_ps = first_ps
    if residues is None:
        while count < most_steps and lasted < limit_ps:
            lasted += step_ps
            step_ps += more_ps
            count += 1
        return count, lasted, 0, num_held * lasted
    size = len(residues)
    place = -num_steps % size
    while count < most_steps and lasted < limit_ps:
        taken += residues[place]
        if taken > num_free:
            taken -= residues[place]
            break
        held_ps += (num_held + taken) * step_ps
        lasted += step_ps
        step_ps += more_ps
        count += 1
        place = place - 1 if place else size - 1
    return count, lasted, taken, held_ps


def _sum_ps(first_ps: int, more_ps: int, count: int) -> int:
    return count * first_ps + more_ps * (count * (count - 1) // 2)


def _steps_before(first_ps: int, more_ps: int, most_steps: int, limit_ps: int) -> int:
    """Return how many steps begin before the limit."""
    if most_steps == 1 or _sum_ps(first_ps, more_ps, most_steps - 1) < limit_ps:
        return most_steps
    # No fewer than if all took the longest, no more than if all took the shortest: mostly that is one number.
    last_ps = first_ps + more_ps * (most_steps - 1)
    short_ps, long_ps = (first_ps, last_ps) if more_ps >= 0 else (last_ps, first_ps)
    low = max(1, -(-limit_ps // long_ps))
    high = min(most_steps - 1, -(-limit_ps // short_ps)) if short_ps > 0 else most_steps - 1
    while low < high:
        middle = (low + high) // 2
        if _sum_ps(first_ps, more_ps, middle) >= limit_ps:
            high = middle
        else:
            low = middle + 1
    return low


def _affordable(residues: list[int], num_steps: int, most_steps: int, num_free: int) -> int:
    """Return for how many steps blocks last."""
    size = len(residues)
    rounds, left = divmod(num_free, sum(residues))
    count = rounds * size
    place = -num_steps % size
    while count < most_steps:
        left -= residues[place]
        if left < 0:
            return count
        count += 1
        place = place - 1 if place else size - 1
    return most_steps


def _closed(  # noqa: PLR0917 - as above
    first_ps: int, more_ps: int, count: int, residues: list[int] | None, num_steps: int, num_held: int
) -> Stretch:
    lasted = _sum_ps(first_ps, more_ps, count)
    if residues is None:
        return count, lasted, 0, num_held * lasted
    size = len(residues)
    taken, held_ps = 0, num_held * lasted
    for residue, number in enumerate(residues):
        if not number:
            continue
        # These take a block at steps first, first + size, ...: held from then to the end of the run.
        first = (-num_steps - residue) % size
        if first >= count:
            continue
        times = (count - 1 - first) // size + 1
        taken += number * times
        # Sum over the times of what lasts from step s on: lasted - sum_ps(s), s = first + size * i.
        firsts = times * first + size * (times * (times - 1) // 2)
        before = firsts * first_ps + more_ps * ((_squares(first, size, times) - firsts) // 2)
        held_ps += number * (times * lasted - before)
    return count, lasted, taken, held_ps


def _squares(first: int, size: int, times: int) -> int:
    """Return the sum of ``(first + size * i) ** 2`` for i from 0 to ``times - 1``."""
    last = times - 1
    ones = last * times // 2
    twos = last * times * (2 * times - 1) // 6
    return times * first * first + 2 * first * size * ones + size * size * twos
