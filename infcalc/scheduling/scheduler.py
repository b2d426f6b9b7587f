"""What all policies share: the queues, admission and growth through a KV manager, and the books after each step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Mapping

from infcalc.errors import DoesNotFit
from infcalc.kvcache.surface import NO_HIT, KvManager, PrefixHit
from infcalc.scheduling.drafts import NO_DRAFTS, Drafts
from infcalc.scheduling.sequence import Sequence, Status
from infcalc.scheduling.step_plan import Chunk, StepPlan


class Scheduler(ABC):
    """Sequences over the blocks of ``kv``, at most ``max_num_seqs`` of them running.

    ``add`` sequences at any time; then ``plan()`` and ``update()`` take turns until ``has_work`` is false. While
    there is work, a plan has chunks, unless it only took blocks back (``released``) or ``update`` returns a sequence
    that had to be aborted.
    """

    def __init__(self, kv: KvManager, *, max_num_seqs: int, drafts: Drafts = NO_DRAFTS) -> None:
        if max_num_seqs < 1:
            raise ValueError(f"{max_num_seqs} running sequences: at least one must be allowed")
        self.kv = kv
        self.max_num_seqs = max_num_seqs
        self.drafts = drafts
        self.num_blocks = kv.num_free_blocks
        """Blocks that sequences can hold in all: those free before any arrives."""
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []
        self.expected: dict[int, Sequence] = {}
        """Those whose prompts were computed elsewhere: they hold blocks until what fills them is there."""
        self.kept: set[int] = set()
        """Those that keep their blocks when they finish, until :meth:`release`: somebody still reads them."""
        self.num_preemptions = 0
        self._lingering: set[int] = set()
        self._num_arrived = 0
        self._shares: dict[int, int] = {}
        self._released: list[int] = []
        self._dropped: list[Sequence] = []
        self._sequences: dict[int, Sequence] = {}
        self._planned: StepPlan | None = None

    # What a caller does

    @property
    def has_work(self) -> bool:
        """Whether any sequence waits or runs."""
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Let a sequence wait behind all others.

        Raises:
            DoesNotFit: it could never run to its end with this cache or these limits.
            ValueError: it is not new, or its id is taken.

        """
        self.check(sequence)
        self._sequences[sequence.sequence_id] = sequence
        sequence.arrival = self._num_arrived
        self._num_arrived += 1
        self.waiting.append(sequence)

    def check(self, sequence: Sequence) -> None:
        """Refuse what :meth:`add` refuses, and change no queue.

        Raises:
            DoesNotFit, ValueError: as there.

        """
        key = sequence.sequence_id
        if sequence.status is not Status.WAITING or key in self._sequences or key in self.expected:
            raise ValueError(f"{sequence} cannot be added: it has been before, or another has its id")
        self._check(sequence)

    def expect(
        self, sequence: Sequence, num_tokens: int, *, num_lookahead_tokens: int = 0, num_spare_tokens: int = 0
    ) -> bool:
        """Take a place, and blocks for ``num_tokens`` of a prompt that are computed elsewhere; False without room.

        ``num_lookahead_tokens`` get blocks behind them; ``num_spare_tokens`` must be left free. Whoever gave its blocks
        back before goes first: nobody is taken in while somebody waits.
        """
        if self.waiting or len(self.running) + len(self.expected) >= self.max_num_seqs:
            return False
        tokens, blocks = sequence.tokens, -(-num_spare_tokens // self.kv.block_tokens)
        if not self.kv.can_allocate(num_tokens + num_lookahead_tokens, num_spare_blocks=blocks):
            return False
        key = sequence.sequence_id
        room = self.kv.allocate(key, tokens, num_tokens, hit=NO_HIT, num_lookahead_tokens=num_lookahead_tokens)
        if room is None:
            return False
        self.expected[key] = sequence
        return True

    def join(self, sequence_id: int, num_tokens: int, *, first: int | None = None) -> None:
        """Let an expected sequence run: ``num_tokens`` of its prompt are in its blocks.

        ``first`` is the first token of its answer, where the whole prompt was computed and it is known.

        Raises:
            KeyError: it is not expected.

        """
        sequence = self.expected.pop(sequence_id)
        if num_tokens:
            self.kv.commit(sequence_id, sequence.tokens[:num_tokens])
        sequence.become(Status.RUNNING)
        if num_tokens:
            sequence.computed(num_tokens)
        if first is not None:
            sequence.append(first)
        sequence.arrival = self._num_arrived
        self._num_arrived += 1
        self._sequences[sequence_id] = sequence
        self.running.append(sequence)

    def plan(self) -> StepPlan:
        """Decide the next step.

        Raises:
            RuntimeError: the plan before has not been answered by ``update``.

        """
        if self._planned is not None:
            raise RuntimeError("a plan is under way: hand its tokens to update() first")
        self._shares = {}
        self._decide()
        chunks = tuple(self._chunk(self._sequences[key], share) for key, share in self._shares.items())
        self._planned = StepPlan(chunks=chunks, copies=tuple(self.kv.take_copies()), released=tuple(self._released))
        self._released = []
        return self._planned

    def propose(self, sequence_id: int, tokens: Iterable[int]) -> None:
        """Take drafts for the next step of a sequence that decodes; no more than ``drafts`` says are looked at.

        Raises:
            RuntimeError: a step is under way.
            ValueError: the sequence does not decode.

        """
        if self._planned is not None:
            raise RuntimeError("a step is under way: propose after update()")
        self._sequences[sequence_id].propose(tuple(tokens)[: self.drafts.num_tokens])

    def update(
        self, plan: StepPlan, produced: Mapping[int, int], accepted: Mapping[int, int] | None = None
    ) -> tuple[Sequence, ...]:
        """Take in that ``plan`` was carried out and ``produced`` these tokens, by sequence; return who ended since.

        ``accepted`` are the drafts of each sequence that stay, none where it is not named: no more than leave room for
        the token that follows them. The slots of the others are written anew.

        Raises:
            ValueError: it is not the plan under way, or the tokens are not those it produces.

        """
        if plan is not self._planned:
            raise ValueError("this is not the plan under way")
        if set(produced) != {chunk.sequence_id for chunk in plan.chunks if chunk.produces}:
            raise ValueError(f"tokens came from {sorted(produced)}, which is not what the plan produces")
        self._planned = None
        for chunk in plan.chunks:
            sequence = self._sequences[chunk.sequence_id]
            num_tokens = chunk.num_tokens
            if chunk.num_draft_tokens:
                num_accepted = (accepted or {}).get(chunk.sequence_id, 0)
                if num_accepted > chunk.num_draft_tokens:
                    raise ValueError(f"{num_accepted} drafts accepted of {chunk.num_draft_tokens} in the plan")
                num_tokens -= chunk.num_draft_tokens - num_accepted
                sequence.accept(num_accepted)
            self.kv.commit(sequence.sequence_id, chunk.tokens[:num_tokens])
            if chunk.num_draft_tokens:
                self.kv.rewind(sequence.sequence_id)
            sequence.computed(num_tokens)
            if chunk.produces:
                sequence.append(produced[sequence.sequence_id])
        ended = self._ended()
        for sequence in ended:
            self._end(sequence, Status.FINISHED)
        dropped, self._dropped = self._dropped, []
        return (*dropped, *ended)

    @property
    def num_lingering(self) -> int:
        """Sequences that have finished and keep their blocks."""
        return len(self._lingering)

    def release(self, sequence_id: int) -> None:
        """State that nobody reads the blocks of a kept sequence any more.

        Raises:
            KeyError: it is not kept.

        """
        self.kept.remove(sequence_id)
        if sequence_id in self._lingering:
            self._lingering.remove(sequence_id)
            self.kv.free(sequence_id)

    def abort(self, sequence_id: int) -> Sequence:
        """Withdraw a sequence between two steps.

        Raises:
            RuntimeError: a step is under way.
            KeyError: there is no such sequence.

        """
        if self._planned is not None:
            raise RuntimeError("a step is under way: abort after update()")
        sequence = self._sequences[sequence_id]
        self._abort(sequence)
        return sequence

    def check_invariants(self) -> None:
        """Raise AssertionError unless queues, statuses and the manager agree."""
        self.kv.check_invariants()
        waits = {Status.WAITING, Status.PREEMPTED}
        assert all(sequence.status in waits for sequence in self.waiting), "who waits, waits"  # noqa: S101 - its purpose
        assert all(one.status is Status.RUNNING for one in self.running), "who runs, runs"  # noqa: S101
        num_placed = len(self.running) + len(self.expected)
        assert num_placed <= self.max_num_seqs, "more run than may"  # noqa: S101
        queued = [sequence.sequence_id for sequence in (*self.waiting, *self.running)]
        assert sorted(queued) == sorted(self._sequences), "each sequence is in one queue"  # noqa: S101
        for sequence in self.running:
            committed = self.kv.num_committed_tokens(sequence.sequence_id)
            assert committed == sequence.cached_tokens, "the manager counts the same tokens"  # noqa: S101

    # What a policy decides

    @abstractmethod
    def _decide(self) -> None:
        """Fill the step: admit, grow, preempt, and give each sequence its share of tokens with ``_take``."""

    def _check(self, sequence: Sequence) -> None:
        """Refuse a sequence that could wait for ever. The last token of an answer is never computed."""
        self._check_blocks(sequence, sequence.longest_tokens - 1 + self.drafts.num_slots)

    def _ended(self) -> tuple[Sequence, ...]:
        """Return who leaves after this step."""
        return tuple(sequence for sequence in self.running if sequence.is_complete)

    # What policies are made of

    def _check_blocks(self, sequence: Sequence, num_tokens: int, num_spare_blocks: int = 0) -> None:
        needed = -(-num_tokens // self.kv.block_tokens) + num_spare_blocks
        if needed > self.num_blocks:
            spare = f" with {num_spare_blocks} to spare" if num_spare_blocks else ""
            raise DoesNotFit(
                f"sequence {sequence.sequence_id} needs {needed} blocks of {self.kv.block_tokens} tokens{spare}, the "
                f"cache has {self.num_blocks}",
                hint="shorten the prompt or the answer, or give the cache more blocks",
            )

    def _check_whole(self, sequence: Sequence, budget_tokens: int) -> None:
        """Refuse a sequence that must be computed in one piece, after a preemption too, and exceeds the budget."""
        if sequence.longest_tokens - 1 > budget_tokens:
            raise DoesNotFit(
                f"sequence {sequence.sequence_id} may have to compute {sequence.longest_tokens - 1} tokens at once, a "
                f"step takes {budget_tokens}",
                hint="turn chunked prefill on, or raise the tokens of a step",
            )

    def _take(self, sequence: Sequence, num_tokens: int) -> None:
        """Give a sequence, which has room for them, its tokens of this step."""
        self._shares[sequence.sequence_id] = num_tokens

    def _hit(self, sequence: Sequence) -> PrefixHit:
        return self.kv.match_prefix(sequence.tokens)

    def _admit(
        self, sequence: Sequence, num_new_tokens: int, *, hit: PrefixHit = NO_HIT, num_lookahead_tokens: int = 0
    ) -> bool:
        """Let a waiting sequence run, with room for tokens after its hit; False, and nothing changed, without room."""
        room = self.kv.allocate(
            sequence.sequence_id,
            sequence.tokens,
            num_new_tokens,
            hit=hit,
            num_lookahead_tokens=num_lookahead_tokens,
            readmitted=sequence.status is Status.PREEMPTED,
        )
        if room is None:
            return False
        self.waiting.remove(sequence)
        sequence.become(Status.RUNNING)
        sequence.cached_tokens = sequence.hit_tokens = hit.num_tokens
        self.running.append(sequence)
        return True

    def _grow(self, sequence: Sequence, num_tokens: int, num_lookahead_tokens: int = 0) -> bool:
        """Make room for more tokens of a running sequence; False, and nothing changed, without room."""
        room = self.kv.append(sequence.sequence_id, num_tokens, num_lookahead_tokens=num_lookahead_tokens)
        return room is not None

    def _num_blocks_missing(self, sequence: Sequence, num_tokens: int) -> int:
        """Return the blocks that a running sequence must still get to hold ``num_tokens`` in all."""
        held = len(self.kv.block_table(sequence.sequence_id))
        return max(0, -(-num_tokens // self.kv.block_tokens) - held)

    def _preempt(self, sequence: Sequence, *, to_front: bool = True) -> None:
        """Take everything from a running sequence; it waits to compute prompt and answer so far anew."""
        self.kv.preempt(sequence.sequence_id)
        self._leave(sequence)
        sequence.become(Status.PREEMPTED)
        self.num_preemptions += 1
        self._shares.pop(sequence.sequence_id, None)
        if to_front:
            self.waiting.appendleft(sequence)
        else:
            self.waiting.append(sequence)

    def _drop(self, sequence: Sequence) -> None:
        """Abort a sequence that cannot be served; ``update`` returns it with those that ended."""
        self._abort(sequence)
        self._dropped.append(sequence)

    def _abort(self, sequence: Sequence) -> None:
        if sequence.status is Status.RUNNING:
            self._end(sequence, Status.ABORTED)
        else:
            self.waiting.remove(sequence)
            sequence.become(Status.ABORTED)
            del self._sequences[sequence.sequence_id]

    def _end(self, sequence: Sequence, status: Status) -> None:
        if status is Status.FINISHED and sequence.sequence_id in self.kept:
            self._lingering.add(sequence.sequence_id)
        else:
            self.kv.free(sequence.sequence_id)
        self._leave(sequence)
        sequence.become(status)
        del self._sequences[sequence.sequence_id]

    def _leave(self, sequence: Sequence) -> None:
        self.running.remove(sequence)
        self._released.append(sequence.sequence_id)

    def _chunk(self, sequence: Sequence, num_tokens: int) -> Chunk:
        start = sequence.cached_tokens
        num_drafts = max(0, num_tokens - sequence.uncached_tokens)
        return Chunk(
            sequence_id=sequence.sequence_id,
            cached_tokens=start,
            tokens=(*sequence.tokens[start : start + num_tokens], *sequence.draft_tokens[:num_drafts]),
            block_table=tuple(self.kv.block_table(sequence.sequence_id)),
            produces=num_tokens >= sequence.uncached_tokens,
            num_draft_tokens=num_drafts,
        )


def add_all(scheduler: Scheduler, sequences: Iterable[Sequence]) -> None:
    """Add sequences in the order of their arrival."""
    for sequence in sequences:
        scheduler.add(sequence)
