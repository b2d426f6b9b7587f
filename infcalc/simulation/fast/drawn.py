"""Rounds of many requests, drawn at once: what :class:`~infcalc.simulation.chance.AcceptanceChance` says of each."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from infcalc.frozen import frozen
from infcalc.simulation.chance import DRAW_BITS, FIRST_FACTOR, GOLDEN, SECOND_FACTOR, STRIDE

if TYPE_CHECKING:
    from infcalc.simulation.chance import AcceptanceChance
    from infcalc.simulation.fast.columns import Load
    from infcalc.simulation.fast.flight import Flight
    from infcalc.simulation.fast.gate import Gate

Ints: TypeAlias = NDArray[np.int64]
_Bits: TypeAlias = NDArray[np.uint64]
_AT_ONCE = 512
_KEPT_BATCHES = 4


@frozen
class DrawnRounds:
    """The rounds of one flight from the moment it decodes, one entry each.

    ``kept_tokens`` of a round belong to the answer, ``marks_tokens`` up to its end since the first; ``held_blocks`` are
    those of its cache once a round is planned. ``num_drawn_tokens``: of all rounds, had the last not been cut.
    """

    kept_tokens: Ints
    marks_tokens: Ints
    held_blocks: Ints
    num_drawn_tokens: int

    def __len__(self) -> int:
        """Return the number of rounds."""
        return len(self.kept_tokens)

    def tokens_after(self, num_rounds: int) -> int:
        """Return the tokens that so many rounds added to the answer, and to the cache."""
        return int(self.marks_tokens[num_rounds - 1]) if num_rounds else 0

    def accepted_after(self, num_rounds: int) -> int:
        """Return the drafts that were accepted in so many rounds."""
        whole = num_rounds == len(self) and num_rounds > 0
        return (self.num_drawn_tokens if whole else self.tokens_after(num_rounds)) - num_rounds


@frozen
class Slots:
    """Blocks of ``block_tokens`` for the cache of a sequence and ``num_ahead`` tokens behind it, up to the longest."""

    block_tokens: int
    num_ahead: int
    longest_tokens: int | None

    def blocks(self, cached_tokens: Ints) -> Ints:
        """Return the blocks that rounds hold which begin after so many tokens."""
        needed = cached_tokens + self.num_ahead
        if self.longest_tokens is not None:
            needed = np.minimum(needed, self.longest_tokens)
        found: Ints = -(-needed // self.block_tokens)
        return found


def accepted_drafts(chance: AcceptanceChance, requests: Ints, rounds: Ints) -> Ints:
    """Return the accepted drafts of rounds, each of its request."""
    seed = np.uint64(chance.seed * GOLDEN & (1 << 64) - 1)
    state = _mixed(_mixed(np.full(1, seed)) + requests.astype(np.uint64) * np.uint64(STRIDE))
    drawn = _mixed(state + (rounds + 1).astype(np.uint64) * np.uint64(GOLDEN)) >> np.uint64(64 - DRAW_BITS)
    marks = np.array(chance.marks, dtype=np.int64)
    found: Ints = len(marks) - np.searchsorted(marks, drawn.astype(np.int64), side="right")
    return found


def _mixed(state: _Bits) -> _Bits:
    state = (state ^ state >> np.uint64(30)) * np.uint64(FIRST_FACTOR)
    state = (state ^ state >> np.uint64(27)) * np.uint64(SECOND_FACTOR)
    return state ^ state >> np.uint64(31)


class Draws:
    """The rounds of the requests of a load; those of neighbours are drawn together."""

    def __init__(self, chance: AcceptanceChance, load: Load, gate: Gate, slots: Slots) -> None:
        self._chance = chance
        self._load = load
        self._gate = gate
        self._slots = slots
        self._mean_tokens = 1 + sum(chance.rates)
        self._batches: dict[int, list[DrawnRounds | None]] = {}

    def of(self, flight: Flight) -> DrawnRounds:
        """Return the rounds of a flight that begins to decode now."""
        if flight.num_preemptions:
            return self._again(flight)
        number, place = divmod(flight.index, _AT_ONCE)
        batch = self._batches.get(number)
        if batch is None:
            if len(self._batches) >= _KEPT_BATCHES:
                del self._batches[next(iter(self._batches))]
            batch = self._batches[number] = self._batch(number)
        return batch[place] or self._again(flight)

    def _again(self, flight: Flight) -> DrawnRounds:
        cached = flight.cached_tokens
        target = flight.output_tokens - (cached + 1 - flight.prompt_tokens)
        rounds = flight.num_rounds + np.arange(target)
        marks = np.cumsum(1 + accepted_drafts(self._chance, self._number(np.array([flight.index])), rounds))
        count = int(np.searchsorted(marks, target)) + 1 if target else 0
        marks = marks[:count]
        drawn = int(marks[-1]) if count else 0
        if count:
            marks[-1] = target
        held = self._slots.blocks(cached + marks - (kept := np.diff(marks, prepend=0)))
        return DrawnRounds(kept_tokens=kept, marks_tokens=marks, held_blocks=held, num_drawn_tokens=drawn)

    def _number(self, indices: Ints) -> Ints:
        numbers = self._load.numbers
        return indices if numbers is None else numbers[indices]

    def _batch(self, number: int) -> list[DrawnRounds | None]:
        """Return the rounds of all requests of a batch; None where more were needed than were drawn."""
        load = self._load
        indices = np.arange(number * _AT_ONCE, min((number + 1) * _AT_ONCE, len(load)))
        prompt, output = load.prompt_tokens[indices], load.output_tokens[indices]
        told = output if load.allowed_tokens is None else load.allowed_tokens[indices]
        answer, _, _ = self._gate(prompt, output, told)
        target = np.maximum(answer - 1, 0)
        # Far more rounds than that are hardly ever needed.
        likely = np.ceil(target / self._mean_tokens + 4 * np.sqrt(target) + 4).astype(np.int64)
        sizes = np.minimum(target, likely)
        ends = np.cumsum(sizes)
        starts = ends - sizes
        places = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(starts, sizes)
        tokens = 1 + accepted_drafts(self._chance, np.repeat(self._number(indices), sizes), places)
        sums = np.concatenate([[0], np.cumsum(tokens)])
        marks = sums[1:] - np.repeat(sums[starts], sizes)
        short = np.concatenate([[0], np.cumsum(marks < np.repeat(target, sizes))])
        counts = short[ends] - short[starts] + (target > 0)
        lasts = starts + counts - 1
        found: list[DrawnRounds | None] = [None] * len(indices)
        whole = np.flatnonzero((counts <= sizes) & (target > 0))
        drawn = marks[lasts[whole]]
        cut = drawn - target[whole]
        tokens[lasts[whole]] -= cut
        marks[lasts[whole]] -= cut
        held = self._slots.blocks(np.repeat(prompt, sizes) + marks - tokens)
        rows = zip(whole.tolist(), starts[whole].tolist(), (lasts[whole] + 1).tolist(), drawn.tolist(), strict=True)
        for place, start, end, number_drawn in rows:
            found[place] = DrawnRounds(
                kept_tokens=tokens[start:end],
                marks_tokens=marks[start:end],
                held_blocks=held[start:end],
                num_drawn_tokens=number_drawn,
            )
        return found
