"""The scheduler of vLLM V1 in aggregate: the rules of :mod:`infcalc.scheduling.vllm`, first come, first served."""

from __future__ import annotations

from infcalc.scheduling.vllm import VllmLimits
from infcalc.simulation.fast.blocks import CountedBlocks
from infcalc.simulation.fast.flight import Flight
from infcalc.simulation.fast.prefixes import PrefixBlocks
from infcalc.simulation.fast.replica import FastReplica, Listener
from infcalc.simulation.timing import AffineTimer


class VllmReplica(FastReplica):
    """One budget of tokens for all; where blocks are short, each who runs is looked at, in order.

    The budget is never short for who decodes: nobody is admitted before those who run have all they want, and nobody
    wants more afterwards. Only the last who runs may get less than he wants.
    """

    __slots__ = ("_budget_tokens", "_limits", "_num_spare_blocks", "_prefilling", "_threshold_tokens")

    grows = True

    def __init__(
        self, blocks: CountedBlocks | PrefixBlocks, timer: AffineTimer, listener: Listener, limits: VllmLimits
    ) -> None:
        super().__init__(blocks, timer, listener, max_num_seqs=limits.max_num_seqs)
        self._limits = limits
        self._budget_tokens = limits.budget_tokens
        self._threshold_tokens = limits.long_prefill_tokens
        self._num_spare_blocks = int(limits.watermark_fraction * blocks.num_blocks)
        self._prefilling: list[Flight] = []
        """Who runs and does not decode, in their order; who has begun to is forgotten before the next step."""

    def _is_steady(self) -> bool:
        num_decodes = self._num_decodes
        if self._prefilling:
            self._prefilling = [
                flight for flight in self._prefilling if flight.lead is None and flight.serial in self.running
            ]
        if self._prefilling or not num_decodes:
            return False
        if self._residues[-self.num_steps % self._block_tokens] > self.blocks.num_free:
            return False
        if not self.waiting or num_decodes >= self._max_num_seqs or num_decodes == self._budget_tokens:
            return True
        return self._blocked and not self.blocks.num_open

    def _decide(self) -> list[tuple[Flight, int]]:
        budget = self._budget_tokens - self._num_decodes
        chunks: list[tuple[Flight, int]] = []
        num_blocks = self._residues[-self.num_steps % self._block_tokens]
        if self._prefilling:
            size = self._block_tokens
            for flight in self._prefilling:
                cached = flight.cached_tokens
                share = self._wanted(flight.num_tokens - cached)
                if share > budget:
                    # It is the last who runs.
                    share = budget
                    if not share:
                        break
                num_blocks += -(-(cached + share) // size) - -(-cached // size)
                chunks.append((flight, share))
                budget -= share
        if num_blocks > self.blocks.num_free:
            return self._walk()
        if num_blocks:
            self.blocks.take(num_blocks)
        if budget and self.waiting:
            self._admit_waiting(budget, chunks)
        return chunks

    def _admit_waiting(self, budget: int, chunks: list[tuple[Flight, int]]) -> None:
        blocks, waiting, size = self.blocks, self.waiting, self._block_tokens
        reserve, num_spare = self._limits.reserve_full_sequence, self._num_spare_blocks
        if self._blocked and not blocks.num_open:
            return
        while waiting and budget and len(self.running) < self._max_num_seqs:
            flight = waiting[0]
            num_tokens = flight.num_tokens
            num_hit = num_free_hit = hit = 0
            if flight.content >= 0 or flight.private is not None or flight.own is not None:
                num_hit, num_free_hit = blocks.match(flight, num_tokens, self.num_steps)
                hit = num_hit * size
            share = self._wanted(num_tokens - hit)
            if share > budget:
                if not self._limits.chunked_prefill:
                    break
                share = budget
            num_held = num_tokens if reserve else hit + share
            needed = -(-num_held // size) - num_hit + num_free_hit + num_spare
            if needed > blocks.num_free:
                self._blocked = reserve
                break
            self._admit(flight, num_hit, -(-(hit + share) // size))
            chunks.append((flight, share))
            if hit + share < num_tokens:
                self._prefilling.append(flight)
            budget -= share

    def _wanted(self, num_tokens: int) -> int:
        threshold = self._threshold_tokens
        if threshold and num_tokens > threshold and len(self.running) + len(self.waiting) > 1:
            return threshold
        return num_tokens

    # Where blocks are short

    def _walk(self) -> list[tuple[Flight, int]]:
        """Serve those who run one by one, in their order."""
        order = list(self.running.values())
        budget, size, blocks = self._budget_tokens, self._block_tokens, self.blocks
        num_before = self.num_preemptions
        chunks: list[tuple[Flight, int]] = []
        index = 0
        while index < len(order) and budget:
            flight = order[index]
            decodes = flight.lead is not None
            cached = self._cached(flight)
            share = min(1 if decodes else self._wanted(flight.num_tokens - cached), budget)
            needed = -(-(cached + share) // size) - -(-cached // size)
            while needed > blocks.num_free:
                victim = order.pop()
                self._preempt(victim)
                if victim is flight:
                    break
            else:
                if needed:
                    blocks.take(needed)
                if not decodes:
                    chunks.append((flight, share))
                budget -= share
                index += 1
        if self.num_preemptions == num_before and budget:
            self._admit_waiting(budget, chunks)
        return chunks

    def _preempt(self, flight: Flight) -> None:
        """Take everything from the last who runs; it waits at the front."""
        if flight.lead is None:
            self._prefilling.remove(flight)
        else:
            flight.last_token_ps = self.now_ps
            self._part(flight, flight.lead)
        self._give_back(flight, again=True)
        flight.cached_tokens = 0
        flight.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.appendleft(flight)
        self._blocked = False
