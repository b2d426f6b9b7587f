"""Drives a scheduler without an engine, and checks every plan against a memory that remembers what it was given."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.step_plan import Chunk, StepPlan

MOST_STEPS = 5000
STOP = 999


def token_of(sequence_id: int, position: int) -> int:
    """Return what the model would say: it depends on the sequence and the position only."""
    return (sequence_id * 31 + position * 7) % 97


@dataclass
class Shadow:
    """Blocks as an engine would fill them: each slot holds the tokens up to and including its own."""

    block_tokens: int
    slots: dict[tuple[int, int], tuple[int, ...]] = field(default_factory=dict)
    known: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))

    def carry_out(self, plan: StepPlan) -> None:
        for copy in plan.copies:
            for offset in range(copy.num_tokens):
                self.slots[copy.target_block, offset] = self.slots[copy.source_block, offset]
        written: set[tuple[int, int]] = set()
        for chunk in plan.chunks:
            for position in range(chunk.cached_tokens, chunk.cached_tokens + chunk.num_tokens):
                slot = self._slot(chunk, position)
                assert slot not in written, "two sequences write into one slot"
                written.add(slot)
        for chunk in plan.chunks:
            self._fill(chunk)
        for chunk in plan.chunks:
            self._read(chunk)

    def _fill(self, chunk: Chunk) -> None:
        for index, position in enumerate(range(chunk.cached_tokens, chunk.cached_tokens + chunk.num_tokens)):
            before = self.slots[self._slot(chunk, position - 1)] if position else ()
            assert len(before) == position, "the token before is not where the block table says"
            self.slots[self._slot(chunk, position)] = (*before, chunk.tokens[index])

    def _read(self, chunk: Chunk) -> None:
        """Every token of the sequence must be found through its block table, unspoilt by others."""
        end = chunk.cached_tokens + chunk.num_tokens
        whole = self.slots[self._slot(chunk, end - 1)]
        for position in range(end):
            assert self.slots[self._slot(chunk, position)] == whole[: position + 1]
        self.known[chunk.sequence_id] = list(whole)

    def _slot(self, chunk: Chunk, position: int) -> tuple[int, int]:
        return chunk.block_table[position // self.block_tokens], position % self.block_tokens


@dataclass
class Run:
    """What happened."""

    plans: list[StepPlan] = field(default_factory=list)
    ended: list[Sequence] = field(default_factory=list)
    admitted: list[int] = field(default_factory=list)
    shapes: list[dict[int, int]] = field(default_factory=list)
    """Tokens of each sequence in each step."""


def say(plan: StepPlan, stops: Mapping[int, int] | None = None) -> dict[int, int]:
    """Return the tokens that a plan produces; a sequence in ``stops`` ends after that many."""
    produced = {}
    for chunk in plan.chunks:
        if chunk.produces:
            position = chunk.cached_tokens + chunk.num_tokens
            stop = (stops or {}).get(chunk.sequence_id)
            produced[chunk.sequence_id] = STOP if position == stop else token_of(chunk.sequence_id, position)
    return produced


def drive(
    scheduler: Scheduler,
    arrivals: Iterable[tuple[int, Sequence]],
    *,
    stops: Mapping[int, int] | None = None,
    check: Callable[[Scheduler, StepPlan], None] = lambda _scheduler, _plan: None,
) -> Run:
    """Run to the end, with sequences arriving before the step they name."""
    coming = sorted(arrivals, key=lambda item: item[0])
    run = Run()
    shadow = Shadow(scheduler.kv.block_tokens)
    cached: dict[int, int] = {}
    for step in range(MOST_STEPS):
        while coming and (coming[0][0] <= step or not scheduler.has_work):
            scheduler.add(coming.pop(0)[1])
        if not scheduler.has_work:
            return run
        plan = scheduler.plan()
        for sequence_id in plan.released:
            cached.pop(sequence_id, None)
        shadow.carry_out(plan)
        for chunk in plan.chunks:
            assert chunk.num_tokens > 0
            if chunk.sequence_id in cached:
                assert chunk.cached_tokens == cached[chunk.sequence_id], "each token is computed exactly once"
            else:
                run.admitted.append(chunk.sequence_id)
            cached[chunk.sequence_id] = chunk.cached_tokens + chunk.num_tokens
        check(scheduler, plan)
        ended = scheduler.update(plan, say(plan, stops))
        scheduler.check_invariants()
        assert plan.chunks or ended or plan.released, "a step does something, or somebody leaves"
        for sequence in ended:
            if sequence.status is Status.FINISHED:
                assert shadow.known[sequence.sequence_id] == sequence.tokens[:-1]
        run.plans.append(plan)
        run.shapes.append({chunk.sequence_id: chunk.num_tokens for chunk in plan.chunks})
        run.ended.extend(ended)
    raise AssertionError(f"no end after {MOST_STEPS} steps: {scheduler.waiting} {scheduler.running}")
