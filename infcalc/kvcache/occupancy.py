"""The same arrivals and departures under any allocator: what each holds, what of it holds no token, whom it turns away.

Time is counted in steps: a running sequence gains a token in each. A request that finds no room when it arrives is
turned away, so that every allocator sees the same requests at the same time; one that was admitted leaves when its
answer is complete. Where blocks are handed out as tokens come and none is left, the sequence that was admitted last
gives its blocks back (vLLM's rule of preemption). Between two events nothing but the tokens changes, and their sum over
the steps has a closed form: the replay costs by the request and block, not by the token.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Protocol

from infcalc.frozen import frozen
from infcalc.kvcache.contiguous import ContiguousAllocator
from infcalc.kvcache.misuse import Misuse


@frozen
class Stay:
    """A request that holds ``prompt_tokens`` from ``first_step`` on, one more in each step, for ``num_steps`` steps."""

    first_step: int
    num_steps: int
    prompt_tokens: int

    @property
    def final_tokens(self) -> int:
        """Prompt and answer."""
        return self.prompt_tokens + self.num_steps


@frozen
class Occupancy:
    """What an allocator held, as sums over the steps of a window; counts are of the whole replay."""

    capacity_tokens: int
    num_steps: int
    held_token_steps: int
    """Room that running sequences held, tokens times steps."""
    live_token_steps: int
    """Tokens that were there."""
    reserved_token_steps: int
    """Of the rest, room that the same request fills later."""
    free_token_steps: int
    scattered_token_steps: int
    """Of the free room, what is not in its largest run: external fragmentation."""
    sequence_steps: int
    peak_sequences: int
    rejected: int
    """Requests that found no room when they arrived."""
    preempted: int
    """Requests that were admitted and had to give their room back."""
    max_request_waste_tokens: int
    """The most room without a token that one request held, at its admission or when it was given more."""

    @property
    def waste_fraction(self) -> float | None:
        """Share of the held room that held no token; None where none was held."""
        return 1 - self.live_token_steps / self.held_token_steps if self.held_token_steps else None


class Holder(Protocol):
    """An allocator as the replay drives it."""

    capacity_tokens: int
    reserves: bool
    """Whether a request gets the room for tokens to come at once."""

    @property
    def held_tokens(self) -> int:
        """Room that running sequences hold."""

    @property
    def largest_free_tokens(self) -> int:
        """The longest run that one request can still get."""

    def admit(self, name: int, stay: Stay) -> int | None:
        """Give a request room and return how much, in tokens; None where there is none."""

    def grow(self, name: int, num_tokens: int) -> int | None:
        """Give a request of ``num_tokens`` the room for the last of them and return it; None where there is none."""

    def leave(self, name: int) -> None:
        """Take a request's room back."""


class PagedHolder:
    """Blocks from a pool, taken when the first of their tokens comes.

    What is in them does not matter here, nor which they are: they are counted, as many as
    :class:`~infcalc.kvcache.manager.KvCacheManager` would hand out (a test holds them against it), in a tenth of its
    time.
    """

    reserves = False

    def __init__(self, capacity_tokens: int, block_tokens: int) -> None:
        num_blocks = capacity_tokens // block_tokens
        self.capacity_tokens = num_blocks * block_tokens
        self.block_tokens = block_tokens
        self.num_free = num_blocks
        self._held: dict[int, int] = {}

    @property
    def held_tokens(self) -> int:
        """Room of the blocks that are taken."""
        return self.capacity_tokens - self.largest_free_tokens

    @property
    def largest_free_tokens(self) -> int:
        """All that is free: any block serves."""
        return self.num_free * self.block_tokens

    def admit(self, name: int, stay: Stay) -> int | None:
        """Take the blocks of the prompt."""
        self._held[name] = 0
        room = self.grow(name, stay.prompt_tokens)
        if room is None:
            del self._held[name]
        return room

    def grow(self, name: int, num_tokens: int) -> int | None:
        """Take the blocks that are missing."""
        needed = -(-num_tokens // self.block_tokens)
        free = self.num_free - needed + self._held[name]
        if free < 0:
            return None
        self.num_free, self._held[name] = free, needed
        return needed * self.block_tokens

    def leave(self, name: int) -> None:
        """Give the blocks back."""
        self.num_free += self._held.pop(name)


class RunHolder:
    """One run of tokens per request, reserved at its admission."""

    reserves = True

    def __init__(self, allocator: ContiguousAllocator) -> None:
        self.allocator = allocator
        self.capacity_tokens = allocator.runs.capacity_tokens
        self.held_tokens = 0

    @property
    def largest_free_tokens(self) -> int:
        """The longest free run."""
        return self.allocator.runs.largest_tokens

    def admit(self, name: int, stay: Stay) -> int | None:
        """Reserve a run."""
        if self.allocator.allocate(name, stay.prompt_tokens, stay.final_tokens) is None:
            return None
        _, reserved = self.allocator.run_of(name)
        self.held_tokens += reserved
        return reserved

    def grow(self, name: int, num_tokens: int) -> int | None:
        """Never needed: the run is long enough.

        Raises:
            Misuse: always.

        """
        raise Misuse(f"sequence {name} has {num_tokens} tokens, more than were reserved for it")

    def leave(self, name: int) -> None:
        """Give the run back."""
        _, reserved = self.allocator.run_of(name)
        self.held_tokens -= reserved
        self.allocator.free(name)


class _Replay:
    """Sums over the steps of a window, and who is there."""

    def __init__(self, holder: Holder, window: range) -> None:
        self.holder = holder
        self.window = window
        self.now = 0
        self.live = self.final = 0
        self.running: dict[int, Stay] = {}
        self.held_sum = self.live_sum = self.reserved_sum = self.free_sum = self.scattered_sum = self.sequence_sum = 0
        self.peak = self.rejected = self.preempted = self.most_waste = 0
        # What happens at each step to come, and these steps in order: many things happen at one.
        self.leaving: dict[int, list[int]] = {}
        self.growing: dict[int, list[int]] = {}
        self.steps: list[int] = []

    def advance(self, step: int) -> None:
        """Count the steps up to ``step``, itself not among them: who is there gains a token in each."""
        first, end = max(self.now, self.window.start), min(step, self.window.stop)
        count, number = len(self.running), end - first
        if number > 0:
            free = self.holder.capacity_tokens - self.holder.held_tokens
            tokens = number * (self.live + count * (first - self.now)) + count * number * (number - 1) // 2
            self.live_sum += tokens
            self.held_sum += number * self.holder.held_tokens
            self.reserved_sum += (number * self.final - tokens) if self.holder.reserves else 0
            self.free_sum += number * free
            self.scattered_sum += number * (free - self.holder.largest_free_tokens)
            self.sequence_sum += number * count
        self.live += count * (step - self.now)
        self.now = step

    def run_until(self, step: int) -> None:
        """Count the steps before ``step``, and do what happens up to it, itself included."""
        while self.steps and self.steps[0] <= step:
            when = heappop(self.steps)
            self.advance(when)
            for name in self.leaving.pop(when, ()):
                # Whoever was preempted is gone already.
                if stay := self.running.get(name):
                    self.leave(name, stay)
            for name in sorted(self.growing.pop(when, ())):
                if stay := self.running.get(name):
                    self.grow(name, stay)
        self.advance(step)

    def plan(self, events: dict[int, list[int]], step: int, name: int) -> None:
        """Have something happen to a request at a step."""
        if step not in self.leaving and step not in self.growing:
            heappush(self.steps, step)
        events.setdefault(step, []).append(name)

    def arrive(self, name: int, stay: Stay) -> None:
        room = self.holder.admit(name, stay)
        if room is None:
            self.rejected += 1
            return
        self.running[name] = stay
        self.live += stay.prompt_tokens
        self.final += stay.final_tokens
        self.peak = max(self.peak, len(self.running))
        self.plan(self.leaving, stay.first_step + stay.num_steps, name)
        self.note_room(name, stay, room)

    def note_room(self, name: int, stay: Stay, room: int) -> None:
        self.most_waste = max(self.most_waste, room - stay.prompt_tokens - (self.now - stay.first_step))
        if room < stay.final_tokens - 1:
            # At that step it has one token more than room; the last token of an answer is never computed.
            self.plan(self.growing, stay.first_step + room + 1 - stay.prompt_tokens, name)

    def grow(self, name: int, stay: Stay) -> None:
        tokens = stay.prompt_tokens + self.now - stay.first_step
        while (room := self.holder.grow(name, tokens)) is None:
            last = next(reversed(self.running))
            self.leave(last, self.running[last])
            self.preempted += 1
            if last == name:
                return
        self.note_room(name, stay, room)

    def leave(self, name: int, stay: Stay) -> None:
        self.holder.leave(name)
        del self.running[name]
        self.live -= stay.prompt_tokens + self.now - stay.first_step
        self.final -= stay.final_tokens


def replay(stays: Sequence[Stay], holder: Holder, window: range) -> Occupancy:
    """Return what an allocator holds under ``stays`` (in the order of their arrival), summed over the steps ``window``.

    Of one step, departures come before growth and growth before arrivals.

    >>> stays = [Stay(first_step=0, num_steps=4, prompt_tokens=6)]
    >>> found = replay(stays, PagedHolder(32, 4), range(4))
    >>> found.held_token_steps, found.live_token_steps  # 8 + 8 + 8 + 12 against 6 + 7 + 8 + 9
    (36, 30)
    """
    state = _Replay(holder, window)
    for name, stay in enumerate(stays):
        state.run_until(stay.first_step)
        state.arrive(name, stay)
    while state.steps:
        state.run_until(state.steps[0])
    state.run_until(max(state.now, window.stop))
    return Occupancy(
        capacity_tokens=holder.capacity_tokens,
        num_steps=len(window),
        held_token_steps=state.held_sum,
        live_token_steps=state.live_sum,
        reserved_token_steps=state.reserved_sum,
        free_token_steps=state.free_sum,
        scattered_token_steps=state.scattered_sum,
        sequence_steps=state.sequence_sum,
        peak_sequences=state.peak,
        rejected=state.rejected,
        preempted=state.preempted,
        max_request_waste_tokens=state.most_waste,
    )
