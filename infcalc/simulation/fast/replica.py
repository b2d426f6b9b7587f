"""One engine in aggregate: what decodes is a few numbers, and a step costs the same whatever the batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from heapq import heappop, heappush
from typing import Protocol, TypeAlias

from infcalc.simulation.chance import RoundCounts
from infcalc.simulation.fast.blocks import CountedBlocks
from infcalc.simulation.fast.decoding import Stretch, stretch_of
from infcalc.simulation.fast.flight import NEVER, Flight
from infcalc.simulation.fast.intervals import TIMES_BITS
from infcalc.simulation.fast.prefixes import PrefixBlocks
from infcalc.simulation.timing import AffineTimer, Line

SERIAL_BITS = 40
_SERIAL_MASK = (1 << SERIAL_BITS) - 1


Begun: TypeAlias = tuple[list[tuple[Flight, int]] | None, int, int, int]
"""The chunks of a step (None: it only decodes, as others after it do), how long it takes by itself, how much longer
each next one, and for how many that holds."""


class Listener(Protocol):
    """Who is told what happens."""

    def ended(self, flight: Flight, end_ps: int) -> None:
        """Take in that a flight has its whole answer and gave its place back."""

    def decoded(self, run: tuple[int, int, int], /) -> None:
        """Take in a run of steps: the first takes so long, each next so much longer; packed counts."""

    def waited(self, interval_ps: int) -> None:
        """Take in one longer wait for a token: the request was preempted meanwhile."""


class FastReplica(ABC):
    """Flights in, news out. ``receive`` and ``advance`` may alternate as they like; time never runs back."""

    __slots__ = (
        "_block_tokens",
        "_blocked",
        "_context_tokens",
        "_decoded",
        "_ended",
        "_ends",
        "_lines",
        "_max_num_seqs",
        "_num_decodes",
        "_num_serials",
        "_residues",
        "_timer",
        "_waited",
        "blocks",
        "held_block_ps",
        "idle_ps",
        "most_held_blocks",
        "now_ps",
        "num_empty_steps",
        "num_ended",
        "num_preemptions",
        "num_steps",
        "running",
        "running_ps",
        "waiting",
    )

    def __init__(
        self, blocks: CountedBlocks | PrefixBlocks, timer: AffineTimer, listener: Listener, *, max_num_seqs: int
    ) -> None:
        self.blocks = blocks
        self.now_ps = 0
        self.waiting: deque[Flight] = deque()
        self.running: dict[int, Flight] = {}
        """By serial, in the order of admission."""
        self.num_steps = 0
        """Steps that were planned; those who decode advance by one token in each."""
        self.num_empty_steps = 0
        """Steps that only took blocks back."""
        self.num_preemptions = 0
        self.num_ended = 0
        """Flights that got their answer and gave their place back."""
        self.idle_ps = 0
        self.held_block_ps = 0
        """Held blocks summed over time."""
        self.most_held_blocks = 0
        self.running_ps = 0
        """Running requests summed over time."""
        self._timer = timer
        self._ended, self._decoded, self._waited = listener.ended, listener.decoded, listener.waited
        self._max_num_seqs = max_num_seqs
        self._num_decodes = 0
        self._context_tokens = 0
        self._ends: list[int] = []
        """Heap of last step and serial; entries of flights that were preempted are stale."""
        self._num_serials = 0
        self._block_tokens = blocks.block_tokens
        self._residues = [0] * blocks.block_tokens
        """How many of those who decode have how many cached tokens less steps, modulo the block size."""
        self._lines: dict[int, Line] = {}
        self._blocked = False
        """The head of the queue has no room before somebody gives blocks back."""

    # What a caller does

    @property
    def has_work(self) -> bool:
        """Whether any flight waits or runs."""
        return bool(self.waiting or self.running)

    @property
    def num_free_blocks(self) -> int:
        """Blocks that can be had."""
        return self.blocks.num_free

    @property
    def rounds(self) -> RoundCounts:
        """What was drafted so far, by those who decode no more."""
        return RoundCounts()

    @property
    def busy_ps(self) -> int:
        """Picoseconds in which steps were computed."""
        return self.now_ps - self.idle_ps

    @property
    def num_computing_steps(self) -> int:
        """Steps that computed something."""
        return self.num_steps - self.num_empty_steps

    def receive(self, flight: Flight, now_ps: int) -> None:
        """Let a flight wait, from ``now_ps`` on: call :meth:`advance` up to it before."""
        if not self.running and not self.waiting and now_ps > self.now_ps:
            self.idle_ps += now_ps - self.now_ps
            self.now_ps = now_ps
        self.waiting.append(flight)

    def advance(self, limit_ps: int, *, to_an_end: bool = False) -> None:
        """Compute all steps that begin before ``limit_ps``; ``to_an_end``: no further than to the next end.

        Who decides by ends what comes next, as clients do who wait for their answer, takes one end at a time.
        """
        is_steady, run_steady, step = self._is_steady, self._run_steady, self._step
        num_ended = self.num_ended
        while self.now_ps < limit_ps and (self.running or self.waiting):
            if is_steady():
                run_steady(limit_ps)
            else:
                step()
            if to_an_end and self.num_ended > num_ended:
                return

    # What others who step with it do

    def begin(self, now_ps: int) -> Begun:
        """Begin a step at ``now_ps``, with others: :meth:`end` or :meth:`run` is what comes of it."""
        if now_ps > self.now_ps:
            self.idle_ps += now_ps - self.now_ps
            self.now_ps = now_ps
        if self._is_steady() and self.in_runs:
            first_ps, more_ps, most = self._ahead()
            return None, first_ps, more_ps, most
        chunks = self._decide()
        return chunks, self._priced(chunks, self._num_decodes, self._context_tokens), 0, 1

    in_runs = True
    """Whether steps that only decode come in runs, each so much longer than the one before."""

    # What a policy decides

    @abstractmethod
    def _decide(self) -> list[tuple[Flight, int]]:
        """Admit, grow and preempt; return the chunks of prompts. All who decode take one token."""

    @abstractmethod
    def _is_steady(self) -> bool:
        """Whether the next steps decode and nothing else until somebody ends or comes, or blocks run out."""

    grows = False
    """Whether those who decode take blocks as they go."""

    # Steps

    def _step(self) -> None:
        chunks = self._decide()
        self.end(chunks, self._priced(chunks, self._num_decodes, self._context_tokens))

    def end(self, chunks: list[tuple[Flight, int]], step_ps: int) -> None:
        """Compute a step that was decided: with these chunks, for so long."""
        num_served, num_before = self._num_decodes, self.num_steps
        self.now_ps += step_ps
        self.num_steps = num_before + 1
        if not chunks and not num_served:
            # Blocks were taken back, and nothing else; it only lasts where others compute meanwhile.
            self.num_empty_steps += 1
            self.idle_ps += step_ps
            return
        held = self.blocks.num_blocks - self.blocks.num_free
        if held > self.most_held_blocks:  # noqa: PLR1730 - faster, here and below
            self.most_held_blocks = held
        self.held_block_ps += held * step_ps
        self.running_ps += len(self.running) * step_ps
        self._context_tokens += num_served
        if num_served:
            self._decoded((step_ps, 0, 1 << TIMES_BITS | num_served))
        for flight, share in chunks:
            self._computed(flight, share, num_before)
        self._end_due()

    def _priced(self, chunks: list[tuple[Flight, int]], num_decodes: int, context: int) -> int:
        """Return the time of a step. A single token after others counts as a decode, whatever it is."""
        prompts = []
        for flight, share in chunks:
            cached = flight.cached_tokens
            if flight.scheduled_ps < 0:
                flight.scheduled_ps = self.now_ps
            if share == 1 and cached:
                num_decodes += 1
                context += cached
            else:
                prompts.append((share, cached))
        step_ps = 0
        if num_decodes:
            line = self._lines.get(num_decodes)
            if line is None or not line.first_tokens <= context <= line.last_tokens:
                line = self._line(num_decodes, context)
            step_ps = line.base_ps + line.ps_per_token * context
        if prompts:
            step_ps += self._timer.chunks_ps(num_decodes, prompts)
        return step_ps

    def _computed(self, flight: Flight, share: int, num_steps_before: int) -> None:
        before = flight.cached_tokens
        cached = flight.cached_tokens = before + share
        if flight.num_shared_blocks:
            self.blocks.commit(flight, before, num_steps_before)
            # Who waits may find more now.
            self._blocked = False
        if cached < flight.num_tokens:
            return
        flight.num_tokens = cached + 1
        if flight.first_token_ps == NEVER:
            flight.first_token_ps = self.now_ps
        else:
            self._waited(self.now_ps - flight.last_token_ps)
        self._begin_decoding(flight, cached)

    def _begin_decoding(self, flight: Flight, cached: int) -> None:
        """Take a flight, of which all but the last token is cached, among those who decode from the next step on."""
        steps, serial = self.num_steps, flight.serial
        lead = flight.lead = steps - cached
        flight.end_step = end = steps + flight.output_tokens - (cached + 1 - flight.prompt_tokens)
        self._push_end(end, serial)
        self._num_decodes += 1
        self._context_tokens += cached
        self._residues[-lead % self._block_tokens] += 1
        if flight.num_shared_blocks > cached // self._block_tokens:
            self.blocks.open(flight)

    def _push_end(self, end_step: int, serial: int) -> None:
        heappush(self._ends, end_step << SERIAL_BITS | serial)

    def _part(self, flight: Flight, lead: int) -> None:
        """Take a flight out of those who decode."""
        steps = self.num_steps
        if flight.is_open:
            self.blocks.close(flight, steps)
        flight.lead = None
        flight.cached_tokens = cached = steps - lead
        flight.num_tokens = cached + 1
        self._num_decodes -= 1
        self._context_tokens -= cached
        self._residues[-lead % self._block_tokens] -= 1

    def _end_due(self) -> None:
        """Take those out of who have got their last token, in the order of their admission."""
        ends, running, due = self._ends, self.running, (self.num_steps + 1) << SERIAL_BITS
        while ends and ends[0] < due:
            key = heappop(ends)
            flight = running.get(key & _SERIAL_MASK)
            if flight is not None and flight.end_step == key >> SERIAL_BITS and flight.lead is not None:
                self._part(flight, flight.lead)
                flight.last_token_ps = self.now_ps
                self._complete(flight)

    def _complete(self, flight: Flight) -> None:
        """Take in that a flight has its whole answer."""
        self._give_back(flight, again=False)
        self.num_ended += 1
        self._ended(flight, self.now_ps)

    def _give_back(self, flight: Flight, *, again: bool) -> None:
        del self.running[flight.serial]
        cached = flight.cached_tokens
        flight.computed_tokens += cached - flight.hit_tokens
        num_held = flight.num_held_blocks or -(-cached // self._block_tokens)
        self.blocks.release(flight, cached, num_held, again=again)
        self._blocked = False

    def _admit(self, flight: Flight, num_hit_blocks: int, num_blocks: int) -> None:
        """Let the head of the queue run with so many blocks."""
        self.waiting.popleft()
        self._num_serials = serial = self._num_serials + 1
        flight.serial = serial
        self.running[serial] = flight
        self.blocks.admit(flight, num_hit_blocks, num_blocks)
        flight.cached_tokens = flight.hit_tokens = hit = num_hit_blocks * self._block_tokens
        if flight.scheduled_ps < 0:
            flight.first_hit_tokens = hit

    def _cached(self, flight: Flight) -> int:
        """Return the cached tokens of a flight."""
        return flight.cached_tokens if flight.lead is None else self.num_steps - flight.lead

    # Runs of steps

    def _line(self, num_decodes: int, context: int) -> Line:
        line = self._lines[num_decodes] = self._timer.line(num_decodes, context)
        return line

    def _first_end(self) -> int:
        """Return the first entry of the heap that is not stale; there is one."""
        ends, running = self._ends, self.running
        while True:
            key = ends[0]
            flight = running.get(key & _SERIAL_MASK)
            if flight is not None and flight.end_step == key >> SERIAL_BITS:
                return key
            heappop(ends)

    def _run_steady(self, limit_ps: int) -> None:
        """Compute steps that only decode, up to the first that ends somebody, another line, or ``limit_ps``."""
        first_ps, more_ps, most = self._ahead()
        self.run(first_ps, more_ps, self.stretch(first_ps, more_ps, most, limit_ps))

    def _ahead(self) -> tuple[int, int, int]:
        """Return the time of the next step, how much longer each after it takes, and for how many that holds."""
        num_decodes, context = self._num_decodes, self._context_tokens
        line = self._lines.get(num_decodes)
        if line is None or not line.first_tokens <= context <= line.last_tokens:
            line = self._line(num_decodes, context)
        most = min((line.last_tokens - context) // num_decodes + 1, (self._first_end() >> SERIAL_BITS) - self.num_steps)
        return line.base_ps + line.ps_per_token * context, line.ps_per_token * num_decodes, most

    def stretch(self, first_ps: int, more_ps: int, most_steps: int, limit_ps: int) -> Stretch:
        """Return how many of the next steps, which only decode, begin before ``limit_ps`` with blocks for all."""
        blocks = self.blocks
        return stretch_of(
            first_ps,
            more_ps,
            most_steps,
            limit_ps - self.now_ps,
            self._residues if self.grows else None,
            self.num_steps,
            blocks.num_free,
            blocks.num_blocks - blocks.num_free,
        )

    def run(self, first_ps: int, more_ps: int, stretch: Stretch) -> None:
        """Compute the steps of a stretch."""
        count, lasted_ps, taken, held_block_ps = stretch
        num_decodes, blocks = self._num_decodes, self.blocks
        if taken:
            blocks.take(taken)
            held = blocks.num_blocks - blocks.num_free
            if held > self.most_held_blocks:  # noqa: PLR1730
                self.most_held_blocks = held
        self.held_block_ps += held_block_ps
        self.running_ps += len(self.running) * lasted_ps
        self.now_ps += lasted_ps
        self.num_steps += count
        self._context_tokens += count * num_decodes
        self._decoded((first_ps, more_ps, count << TIMES_BITS | num_decodes))
        self._end_due()
