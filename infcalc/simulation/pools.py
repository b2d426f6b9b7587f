"""Replicas that only compute prompts, and replicas that only answer them: either end of a hand-over of caches.

Both are real engines. A prefill replica serves each request as one of a single token and keeps its blocks until they
were read; a decode replica takes blocks for the prompt, and lets the request run when they are filled.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from infcalc.errors import DoesNotFit
from infcalc.frozen import frozen
from infcalc.scheduling.sequence import Sequence
from infcalc.simulation.records import RequestRecord, StepRecord
from infcalc.simulation.replica import Replica, _Underway
from infcalc.simulation.request import STOP_TOKEN, Request


@frozen
class Handover:
    """How an engine hands caches over.

    ``room_first``: a prompt is computed only when its room at the other end is taken, and its chunks cross as they are
    computed; else it is fetched as a whole when it is there and there is room. ``reserved_tokens``: what the decode
    replica leaves free for each request that it holds, the new one included. ``to_the_end``: it takes room for the
    longest answer. ``computes_first``: the first token of the answer is that of its first step, in which it computes
    the last token of the prompt again; else the prefill replica's comes along, and is shown when the cache is there.

    Sources: SGLang 0.5 ``srt/disaggregation/decode.py`` (``num_reserved_decode_tokens``) and
    ``prefill.py`` (``send_kv_chunk``); vLLM 0.33 ``v1/core/sched/scheduler.py`` (``WAITING_FOR_REMOTE_KVS``: what has
    come from elsewhere needs one token more).
    """

    room_first: bool = False
    reserved_tokens: int = 0
    to_the_end: bool = False
    computes_first: bool = False


class PrefillReplica(Replica):
    """Computes prompts and their first tokens."""

    reached_tokens: Iterable[tuple[int, int]] = ()
    """Requests of the step that ended last, and how many tokens of each prompt are in the cache."""

    def refusal(self, index: int, request: Request) -> DoesNotFit | None:
        """Return why a request could never be served."""
        try:
            self.scheduler.check(_sequence(index, first_token_of(request)))
        except DoesNotFit as refused:
            return refused
        return None

    def receive(self, index: int, request: Request, now_ps: int) -> RequestRecord | None:
        """Let a request wait for its first token."""
        return super().receive(index, first_token_of(request), now_ps)

    def begin(self, now_ps: int) -> StepRecord | None:
        """Plan a step that starts now; None too where blocks that are kept leave no room for the next prompt."""
        scheduler = self.scheduler
        if scheduler.waiting and not scheduler.running and scheduler.num_lingering:
            # Its first token, and the page that SGLang wants free beside it.
            tokens = scheduler.waiting[0].num_tokens + 1 + scheduler.kv.block_tokens
            if not scheduler.kv.can_allocate(tokens, num_spare_blocks=1):
                return None
        return super().begin(now_ps)

    def end(self, now_ps: int) -> tuple[RequestRecord, ...]:
        """End the step under way."""
        plan = self._plan
        left = super().end(now_ps)
        chunks = () if plan is None else plan.chunks
        self.reached_tokens = [(one.sequence_id, one.cached_tokens + one.num_tokens) for one in chunks]
        return left


class DecodeReplica(Replica):
    """Answers prompts that were computed elsewhere; who is preempted computes prompt and answer so far here."""

    handover = Handover()
    """How room is taken; set once, before the run."""

    def refusal(self, index: int, request: Request) -> DoesNotFit | None:
        """Return why a request could never be served."""
        sequence = _sequence(index, request)
        scheduler = self.scheduler
        room = scheduler.num_blocks * scheduler.kv.block_tokens
        needed = self._filled(sequence) + max(self.handover.reserved_tokens, self._ahead(sequence))
        if needed > room:
            return DoesNotFit(
                f"sequence {index} is let in only with room for {needed} tokens, the cache has {room}",
                hint="shorten the prompt or the answer, or give the cache more room",
            )
        try:
            scheduler.check(sequence)
        except DoesNotFit as refused:
            return refused
        return None

    def expect(self, index: int, request: Request) -> bool:
        """Take room for a prompt; False where there is none yet."""
        sequence = _sequence(index, request)
        scheduler = self.scheduler
        held = len(scheduler.running) + len(scheduler.expected)
        if not scheduler.expect(
            sequence,
            self._filled(sequence),
            num_lookahead_tokens=self._ahead(sequence),
            num_spare_tokens=self.handover.reserved_tokens * (held + 1),
        ):
            return False
        self._underway[index] = _Underway(request, sequence)
        return True

    def join(self, index: int, first: RequestRecord, now_ps: int) -> None:
        """Let a request run whose cache is there; ``first`` is the record of its prompt."""
        one = self._underway[index]
        one.scheduled_ps = first.scheduled_ps
        token = None
        if not self.handover.computes_first:
            one.first_token_ps = one.last_token_ps = now_ps
            token = one.request.answer_id(index, 0)
        self.scheduler.join(index, self._filled(one.sequence), first=token)

    def begin(self, now_ps: int) -> StepRecord | None:
        """Plan a step that starts now; None too where those who wait can only be let in after others have joined."""
        if not self.scheduler.running and self.scheduler.expected:
            return None
        return super().begin(now_ps)

    def _filled(self, sequence: Sequence) -> int:
        return sequence.prompt_tokens - self.handover.computes_first

    def _ahead(self, sequence: Sequence) -> int:
        more = sequence.max_new_tokens if self.handover.to_the_end else 0
        return more + self.handover.computes_first


def first_token_of(request: Request) -> Request:
    """Return a request for the first token alone."""
    return replace(request, output_tokens=1, max_output_tokens=None)


def whole_record(first: RequestRecord, rest: RequestRecord, handover: Handover) -> RequestRecord:
    """Return the record of a request whose prompt was computed in one place, and whose answer in another.

    The last token of a prompt that is computed in both is counted once.
    """
    return replace(
        rest,
        hit_tokens=first.hit_tokens,
        computed_tokens=first.computed_tokens + rest.computed_tokens - handover.computes_first,
        num_preemptions=first.num_preemptions + rest.num_preemptions,
    )


def _sequence(index: int, request: Request) -> Sequence:
    return Sequence(index, request.prompt_ids(index), max_new_tokens=request.allowed_tokens, stop_tokens=(STOP_TOKEN,))
