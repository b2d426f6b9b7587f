"""Rounds of drafting in aggregate: each who decodes gets a drawn number of tokens in a step, and no step asks who.

The rules are those of :mod:`infcalc.scheduling` with :class:`~infcalc.scheduling.drafts.Drafts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from infcalc.simulation.chance import RoundCounts
from infcalc.simulation.fast.agenda import Agenda
from infcalc.simulation.fast.continuous import ContinuousReplica
from infcalc.simulation.fast.intervals import TIMES_BITS
from infcalc.simulation.fast.replica import SERIAL_BITS, FastReplica
from infcalc.simulation.fast.static import StaticReplica
from infcalc.simulation.fast.vllm import VllmReplica

if TYPE_CHECKING:
    from infcalc.scheduling.drafts import Drafts
    from infcalc.simulation.fast.agenda import Ints
    from infcalc.simulation.fast.drawn import Draws
    from infcalc.simulation.fast.flight import Flight


class Drafting(FastReplica):
    """What changes with drafting, whoever schedules: ``lead`` of who decodes is the step of its first round."""

    # No slots: they would clash with those of the policies that this is combined with.
    _agenda: Agenda
    _draws: Draws
    _drafts: Drafts
    _longest_tokens: int | None
    _num_rounds: int
    _num_accepted: int
    _publishing: dict[int, Flight]

    def drafts(self, drafts: Drafts, draws: Draws, longest_tokens: int | None) -> None:
        """Begin to draft, before anything runs."""
        self._agenda = Agenda()
        self._drafts = drafts
        self._draws = draws
        self._longest_tokens = longest_tokens
        self._num_rounds = self._num_accepted = 0
        self._publishing = {}
        """Who decodes and writes what others may find, by serial."""

    @property
    def rounds(self) -> RoundCounts:
        """What was drafted so far, by those who decode no more."""
        return RoundCounts(num_rounds=self._num_rounds, num_accepted=self._num_accepted)

    def receive(self, flight: Flight, now_ps: int) -> None:
        """Let a flight wait; who reserves, reserves for drafts too."""
        flight.room_tokens += self._drafts.num_slots
        super().receive(flight, now_ps)

    # Steps

    in_runs = False

    def end(self, chunks: list[tuple[Flight, int]], step_ps: int) -> None:
        """Compute a step that was decided: with these chunks, for so long."""
        num_served, num_before = self._num_decodes, self.num_steps
        self.now_ps += step_ps
        self.num_steps = num_before + 1
        if not chunks and not num_served:
            self.num_empty_steps += 1
            self.idle_ps += step_ps
            return
        held = self.blocks.num_blocks - self.blocks.num_free
        self.most_held_blocks = max(self.most_held_blocks, held)
        self.held_block_ps += held * step_ps
        self.running_ps += len(self.running) * step_ps
        if num_served:
            agenda = self._agenda
            self._context_tokens += int(agenda.growth[agenda.place(num_before)])
            self._decoded((step_ps, 0, 1 << TIMES_BITS | num_served))
        if self._publishing:
            # Who waits may find more now.
            self._blocked = False
            chunks = sorted([*chunks, *((one, 0) for one in self._publishing.values())], key=_serial)
        for flight, share in chunks:
            if share:
                self._computed(flight, share, num_before)
            else:
                self._publish(flight)
        self._end_due()

    def _begin_decoding(self, flight: Flight, cached: int) -> None:
        steps = flight.lead = self.num_steps
        rounds = flight.rounds = self._draws.of(flight)
        flight.spared = self._spared(flight, cached)
        self._agenda.add(steps, rounds, flight.num_held_blocks, flight.spared)
        flight.end_step = end = steps + len(rounds)
        self._push_end(end, flight.serial)
        self._num_decodes += 1
        self._context_tokens += cached
        if flight.num_shared_blocks > cached // self._block_tokens:
            self._publishing[flight.serial] = flight

    def _spared(self, flight: Flight, cached: int) -> Ints | None:
        """Return what each round computes less than all its drafts, where the longest sequence ends."""
        longest, rounds = self._longest_tokens, flight.rounds
        if longest is None or rounds is None or not len(rounds):
            return None
        before = cached + rounds.marks_tokens - rounds.kept_tokens
        over = before + 1 + self._drafts.num_tokens - (longest - 1)
        return np.maximum(over, 0) if over[-1] > 0 else None

    def _publish(self, flight: Flight) -> None:
        before, lead = flight.cached_tokens, flight.lead
        if lead is None:
            return
        flight.cached_tokens = self._cached_at(flight, lead)
        self.blocks.commit(flight, before, self.num_steps)
        if flight.num_shared_blocks <= flight.cached_tokens // self._block_tokens:
            del self._publishing[flight.serial]

    def _part(self, flight: Flight, lead: int) -> None:
        done, rounds = self.num_steps - lead, flight.rounds
        if rounds is None:
            raise AssertionError("who decodes has rounds")
        self._publishing.pop(flight.serial, None)
        begun = self._start_tokens(flight)
        cached = begun + rounds.tokens_after(done)
        if self.grows and done:
            flight.num_held_blocks = int(rounds.held_blocks[done - 1])
        self._agenda.strike(self.num_steps, rounds, done, flight.num_held_blocks, flight.spared)
        self._num_rounds += done
        self._num_accepted += rounds.accepted_after(done)
        flight.num_rounds += done
        flight.lead = flight.rounds = flight.spared = None
        flight.cached_tokens = cached
        flight.num_tokens = cached + 1
        self._num_decodes -= 1
        self._context_tokens -= cached

    def _start_tokens(self, flight: Flight) -> int:
        """Return what a flight that decodes had cached when it began to: ``num_tokens`` stand as they were then."""
        return flight.num_tokens - 1

    def _cached_at(self, flight: Flight, lead: int) -> int:
        rounds = flight.rounds
        return self._start_tokens(flight) + (0 if rounds is None else rounds.tokens_after(self.num_steps - lead))

    def _cached(self, flight: Flight) -> int:
        return flight.cached_tokens if flight.lead is None else self._cached_at(flight, flight.lead)

    def _admit(self, flight: Flight, num_hit_blocks: int, num_blocks: int) -> None:
        super()._admit(flight, num_hit_blocks, num_blocks)
        if self.grows:
            flight.num_held_blocks = num_blocks

    def _run_steady(self, limit_ps: int) -> None:
        """Compute rounds and nothing else, up to the first that ends somebody, ``limit_ps``, or the last block."""
        num_decodes, steps, agenda = self._num_decodes, self.num_steps, self._agenda
        most = self._next_end() - steps
        start = agenda.place(steps)
        growth = agenda.growth[start : start + most].tolist()
        needs = agenda.blocks[start : start + most].tolist() if self.grows else None
        blocks, decoded, counts = self.blocks, self._decoded, 1 << TIMES_BITS | num_decodes
        context, now_ps, num_free = self._context_tokens, self.now_ps, blocks.num_free
        held, taken, held_block_ps, count = blocks.num_blocks - num_free, 0, 0, 0
        line = self._lines.get(num_decodes) or self._line(num_decodes, context)
        for more in growth:
            if now_ps >= limit_ps:
                break
            if needs is not None:
                if needs[count] > num_free - taken:
                    break
                taken += needs[count]
            if not line.first_tokens <= context <= line.last_tokens:
                line = self._line(num_decodes, context)
            step_ps = line.base_ps + line.ps_per_token * context
            held_block_ps += (held + taken) * step_ps
            now_ps += step_ps
            context += more
            count += 1
            decoded((step_ps, 0, counts))
        if taken:
            blocks.take(taken)
        self.most_held_blocks = max(self.most_held_blocks, held + taken)
        self.held_block_ps += held_block_ps
        self.running_ps += len(self.running) * (now_ps - self.now_ps)
        self.now_ps = now_ps
        self.num_steps = steps + count
        self._context_tokens = context
        if count == most:
            self._end_due()

    def _next_end(self) -> int:
        """Return the step before which the next who decodes has its answer."""
        key = self._first_end()
        return key >> SERIAL_BITS


def _serial(one: tuple[Flight, int]) -> int:
    return one[0].serial


class DraftingStatic(Drafting, StaticReplica):
    """Static batching whose steps are rounds."""

    def _decide(self) -> list[tuple[Flight, int]]:
        return [] if self.running else super()._decide()

    def _is_steady(self) -> bool:
        return not self._publishing and super()._is_steady()


class DraftingContinuous(Drafting, ContinuousReplica):
    """Continuous batching whose steps are rounds."""

    def _is_steady(self) -> bool:
        return not self._publishing and super()._is_steady()


class DraftingVllm(Drafting, VllmReplica):
    """The scheduler of vLLM with drafts, where the budget is never short for who decodes.

    That is: a whole round for every slot fits into it, and no chunk is limited but by it; then whoever has only a part
    of its prompt is the last who runs.
    """

    def _is_steady(self) -> bool:
        if self._prefilling:
            self._prefilling = [one for one in self._prefilling if one.lead is None and one.serial in self.running]
        if self._prefilling or not self._num_decodes or self._publishing:
            return False
        if self._agenda.blocks[self._agenda.place(self.num_steps)] > self.blocks.num_free:
            return False
        return not self.waiting or self._num_decodes >= self._max_num_seqs or self._blocked

    def _decide(self) -> list[tuple[Flight, int]]:
        place = self._agenda.place(self.num_steps)
        budget = self._budget_tokens - self._num_decodes * (1 + self._drafts.num_tokens)
        num_blocks = 0
        if self._num_decodes:
            budget += int(self._agenda.spared[place])
            num_blocks = int(self._agenda.blocks[place])
        chunks: list[tuple[Flight, int]] = []
        held: list[int] = []
        for flight in self._prefilling:
            share = min(flight.num_tokens - flight.cached_tokens, budget)
            if not share:
                break
            held.append(self._held_with(flight, share))
            num_blocks += held[-1] - flight.num_held_blocks
            chunks.append((flight, share))
            budget -= share
        if num_blocks > self.blocks.num_free:
            return self._walk()
        if num_blocks:
            self.blocks.take(num_blocks)
        for (flight, _), number in zip(chunks, held, strict=True):
            flight.num_held_blocks = number
        if budget and self.waiting:
            self._admit_waiting(budget, chunks)
        return chunks

    def _held_with(self, flight: Flight, share: int) -> int:
        """Return the blocks that a flight holds which computes so much more of its prompt, as one who runs."""
        needed = flight.cached_tokens + share + self._drafts.num_lookahead_tokens
        if self._longest_tokens is not None:
            needed = min(needed, self._longest_tokens)
        return max(flight.num_held_blocks, -(-needed // self._block_tokens))

    def _walk(self) -> list[tuple[Flight, int]]:
        order = list(self.running.values())
        budget, blocks = self._budget_tokens, self.blocks
        num_before = self.num_preemptions
        chunks: list[tuple[Flight, int]] = []
        index = 0
        while index < len(order) and budget:
            flight = order[index]
            share, held, needed = self._asked(flight, budget)
            while needed > blocks.num_free:
                victim = order.pop()
                self._preempt(victim)
                if victim is flight:
                    break
            else:
                if needed:
                    blocks.take(needed)
                if flight.lead is None:
                    flight.num_held_blocks = held
                    chunks.append((flight, share))
                budget -= share
                index += 1
        if self.num_preemptions == num_before and budget:
            self._admit_waiting(budget, chunks)
        return chunks

    def _asked(self, flight: Flight, budget: int) -> tuple[int, int, int]:
        """Return the tokens that one who runs computes in this step, the blocks it then holds, and how many are new."""
        lead, rounds = flight.lead, flight.rounds
        if lead is None or rounds is None:
            share = min(flight.num_tokens - flight.cached_tokens, budget)
            held = self._held_with(flight, share)
            return share, held, held - flight.num_held_blocks
        done = self.num_steps - lead
        held = int(rounds.held_blocks[done])
        before = int(rounds.held_blocks[done - 1]) if done else flight.num_held_blocks
        share = 1 + self._drafts.num_tokens - (0 if flight.spared is None else int(flight.spared[done]))
        return share, held, held - before
