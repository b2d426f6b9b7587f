"""One engine: a real scheduler over a real KV manager, and a timer. It takes requests, and one step after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from infcalc.errors import DoesNotFit
from infcalc.kvcache.invariant import holds
from infcalc.scheduling.scheduler import Scheduler
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.step_plan import StepPlan
from infcalc.simulation.batch_shape import Timer, shape_of
from infcalc.simulation.chance import AcceptanceChance, RoundCounts
from infcalc.simulation.records import Outcome, RequestRecord, StepRecord
from infcalc.simulation.request import STOP_TOKEN, Request


class _Underway:
    """A request that is in the engine."""

    __slots__ = (
        "computed_tokens",
        "first_token_ps",
        "hit_tokens",
        "last_token_ps",
        "num_rounds",
        "request",
        "scheduled_ps",
        "sequence",
    )

    def __init__(self, request: Request, sequence: Sequence) -> None:
        self.request = request
        self.sequence = sequence
        self.scheduled_ps: int | None = None
        self.first_token_ps: int | None = None
        self.last_token_ps: int | None = None
        self.hit_tokens = 0
        self.computed_tokens = 0
        self.num_rounds = 0

    @property
    def expected_tokens(self) -> int:
        """Tokens of its answer: an engine may allow less than it was asked for, where the model takes no more."""
        return min(self.request.output_tokens, self.sequence.max_new_tokens)


class Replica:
    """Requests in, records out. ``begin`` and ``end`` take turns, ``receive`` may come at any time between them.

    The caller holds the clock: it hands in every moment, none before the last. ``waited`` is told the picoseconds
    between two tokens of a request, for each token after the first; tokens of one round come at once and count as one.
    ``chance``: where the scheduler drafts, how many drafts of a round are accepted.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        timer: Timer,
        *,
        waited: Callable[[int], None] | None = None,
        chance: AcceptanceChance | None = None,
    ) -> None:
        if (0 if chance is None else len(chance.rates)) != scheduler.drafts.num_tokens:
            raise ValueError(f"a scheduler of {scheduler.drafts.num_tokens} drafts, and a chance for others")
        self.scheduler = scheduler
        self._chance = chance
        self._num_accepted = 0
        self._num_rounds = 0
        self._waited = waited
        self._timer = timer
        self._underway: dict[int, _Underway] = {}
        self._plan: StepPlan | None = None
        self._now_ps = 0

    def receive(self, index: int, request: Request, now_ps: int) -> RequestRecord | None:
        """Let request ``index`` of the run wait; return its record where the engine rejects it."""
        self._pass_to(now_ps)
        sequence = Sequence(
            index, request.prompt_ids(index), max_new_tokens=request.allowed_tokens, stop_tokens=(STOP_TOKEN,)
        )
        try:
            self.scheduler.add(sequence)
        except DoesNotFit as refused:
            return RequestRecord(
                index=index,
                outcome=Outcome.REJECTED,
                arrival_ps=request.arrival_ps,
                end_ps=now_ps,
                prompt_tokens=request.prompt_tokens,
                reason=refused.message,
            )
        self._underway[index] = _Underway(request, sequence)
        return None

    def begin(self, now_ps: int) -> StepRecord | None:
        """Plan a step that starts now; None where there is nothing to do. It must be ended before the next.

        A plan that only takes blocks back computes nothing, and takes no time.

        Raises:
            TypeError, ValueError: the timer's answer is not a whole number of picoseconds, or below 0.

        """
        self._pass_to(now_ps)
        scheduler = self.scheduler
        if not scheduler.has_work:
            return None
        self._plan = plan = scheduler.plan()
        for chunk in plan.chunks:
            one = self._underway[chunk.sequence_id]
            if one.scheduled_ps is None:
                one.scheduled_ps = now_ps
                one.hit_tokens = one.sequence.hit_tokens
        shape = shape_of(plan)
        return StepRecord(
            start_ps=now_ps,
            duration_ps=_whole(self._timer(shape)) if plan.chunks else 0,
            shape=shape,
            num_live=sum(not sequence.is_complete for sequence in scheduler.running),
            num_waiting=len(scheduler.waiting),
            num_held_blocks=scheduler.num_blocks - scheduler.kv.num_free_blocks,
        )

    def end(self, now_ps: int) -> tuple[RequestRecord, ...]:
        """End the step under way: its tokens are there now. Return the records of the requests that left.

        Raises:
            RuntimeError: no step is under way.
            AssertionError: the scheduler makes no progress, or ends a request early: it is at fault.

        """
        self._pass_to(now_ps)
        plan = self._plan
        if plan is None:
            raise RuntimeError("no step is under way")
        self._plan = None
        produced: dict[int, int] = {}
        accepted: dict[int, int] = {}
        for chunk in plan.chunks:
            one = self._underway[chunk.sequence_id]
            before = one.sequence.generated_tokens
            kept = 0
            if one.sequence.draft_tokens:
                kept = min(self._round(one), chunk.num_draft_tokens)
                accepted[chunk.sequence_id] = kept
            one.computed_tokens += chunk.num_tokens - chunk.num_draft_tokens + kept
            if chunk.produces:
                produced[chunk.sequence_id] = one.request.answer_id(chunk.sequence_id, before + kept)
                if self._waited is not None and one.last_token_ps is not None:
                    self._waited(now_ps - one.last_token_ps)
                one.last_token_ps = now_ps
                if one.first_token_ps is None:
                    one.first_token_ps = now_ps
        left = self.scheduler.update(plan, produced, accepted)
        holds(bool(plan.chunks or plan.released or left), "a step computes something, or somebody leaves")
        if self._chance is not None:
            self._draft(produced)
        return tuple(self._record(sequence, now_ps) for sequence in left)

    @property
    def rounds(self) -> RoundCounts:
        """What was drafted so far."""
        return RoundCounts(num_rounds=self._num_rounds, num_accepted=self._num_accepted)

    def _round(self, one: _Underway) -> int:
        """Draw a round of a sequence that decodes, and return the drafts that stay: the answer may end before."""
        if self._chance is None:
            return 0
        drawn = self._chance.accepted(one.sequence.sequence_id, one.num_rounds)
        one.num_rounds += 1
        self._num_rounds += 1
        self._num_accepted += drawn
        return min(drawn, one.expected_tokens - one.sequence.generated_tokens - 1)

    def _draft(self, produced: Iterable[int]) -> None:
        """Propose what the answer will be to all who go on: what is not accepted of it is never looked at."""
        for key in produced:
            one = self._underway[key]
            if one.sequence.is_decoding and one.sequence.status is Status.RUNNING and not one.sequence.is_complete:
                done = one.sequence.generated_tokens
                ahead = range(done, done + self.scheduler.drafts.num_tokens)
                self.scheduler.propose(key, (one.request.answer_id(key, place) for place in ahead))

    def _record(self, sequence: Sequence, now_ps: int) -> RequestRecord:
        one = self._underway.pop(sequence.sequence_id)
        finished = sequence.status is Status.FINISHED
        if finished:
            holds(
                sequence.generated_tokens == one.expected_tokens,
                f"request {sequence.sequence_id} gets its whole answer",
            )
        return RequestRecord(
            index=sequence.sequence_id,
            outcome=Outcome.FINISHED if finished else Outcome.ABORTED,
            arrival_ps=one.request.arrival_ps,
            end_ps=now_ps,
            prompt_tokens=one.request.prompt_tokens,
            output_tokens=sequence.generated_tokens,
            scheduled_ps=one.scheduled_ps,
            first_token_ps=one.first_token_ps,
            last_token_ps=one.last_token_ps,
            num_preemptions=sequence.num_preemptions,
            hit_tokens=one.hit_tokens,
            computed_tokens=one.computed_tokens,
        )

    def _pass_to(self, now_ps: int) -> None:
        if now_ps < self._now_ps:
            raise ValueError(f"time runs back from {self._now_ps} to {now_ps} ps")
        self._now_ps = now_ps


def _whole(duration_ps: int) -> int:
    # A float would make runs differ in their last bits, which nobody would notice.
    if not isinstance(duration_ps, int):
        raise TypeError(f"the timer says {duration_ps!r}: a step takes a whole number of picoseconds")
    if duration_ps < 0:
        raise ValueError(f"the timer says {duration_ps} ps: no step takes less than nothing")
    return duration_ps
