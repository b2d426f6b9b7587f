"""One request as a scheduler sees it: its tokens, how many of them are in the cache, and what state it is in."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Status(StrEnum):
    """Where a sequence is between arrival and end."""

    WAITING = "waiting"
    """Arrived, holds no cache."""
    RUNNING = "running"
    """Holds cache; each step may compute some of its tokens."""
    PREEMPTED = "preempted"
    """Gave its cache back to make room; waits to compute prompt and answer so far anew."""
    FINISHED = "finished"
    ABORTED = "aborted"
    """Ended without its whole answer: it cannot be served with this cache, or the caller withdrew it."""


TRANSITIONS = {
    Status.WAITING: frozenset({Status.RUNNING, Status.ABORTED}),
    Status.RUNNING: frozenset({Status.PREEMPTED, Status.FINISHED, Status.ABORTED}),
    Status.PREEMPTED: frozenset({Status.RUNNING, Status.ABORTED}),
    Status.FINISHED: frozenset[Status](),
    Status.ABORTED: frozenset[Status](),
}
"""Every legal step from one status to the next."""


class IllegalTransition(RuntimeError):
    """A status that cannot follow the present one: a defect of a scheduler, never of a user's input."""


class Sequence:
    """A prompt, the answer so far, and how many of these tokens the cache holds.

    ``max_new_tokens`` counts every produced token, the first included; a token of ``stop_tokens`` ends the answer
    earlier and belongs to it. ``priority``: the lower the sooner, where a policy looks at it.

    >>> sequence = Sequence(7, [3, 1, 4], max_new_tokens=2)
    >>> sequence.become(Status.RUNNING)
    >>> sequence.computed(3)
    >>> sequence.append(1), sequence.num_tokens, sequence.remaining_tokens, sequence.is_complete
    (None, 4, 1, False)
    """

    __slots__ = (
        "_status",
        "arrival",
        "cached_tokens",
        "draft_tokens",
        "hit_tokens",
        "max_new_tokens",
        "num_preemptions",
        "priority",
        "prompt_tokens",
        "sequence_id",
        "stop_tokens",
        "tokens",
    )

    def __init__(
        self,
        sequence_id: int,
        prompt: Iterable[int],
        *,
        max_new_tokens: int,
        stop_tokens: Iterable[int] = (),
        priority: int = 0,
    ) -> None:
        self.sequence_id = sequence_id
        self.tokens = list(prompt)
        self.prompt_tokens = len(self.tokens)
        if not self.tokens or max_new_tokens < 1:
            raise ValueError(
                f"sequence {sequence_id} has {len(self.tokens)} prompt tokens and asks for {max_new_tokens}: "
                "it needs at least one of each"
            )
        self.max_new_tokens = max_new_tokens
        self.stop_tokens = frozenset(stop_tokens)
        self.priority = priority
        self.arrival = 0
        """How many arrived at the same scheduler before."""
        self.cached_tokens = 0
        """Tokens whose keys and values the cache holds, hits included."""
        self.hit_tokens = 0
        """Tokens found in the prefix cache at the last admission."""
        self.draft_tokens: tuple[int, ...] = ()
        """What a drafter proposes behind the last token; none of them is known to be right."""
        self.num_preemptions = 0
        self._status = Status.WAITING

    @property
    def status(self) -> Status:
        """The present status; :meth:`become` changes it."""
        return self._status

    def become(self, status: Status) -> None:
        """Enter ``status``. Whatever gives the cache back starts again from nothing.

        Raises:
            IllegalTransition: it cannot follow the present one.

        """
        if status not in TRANSITIONS[self._status]:
            allowed = ", ".join(sorted(TRANSITIONS[self._status])) or "nothing"
            raise IllegalTransition(
                f"sequence {self.sequence_id} is {self._status} and cannot become {status}; allowed: {allowed}"
            )
        self._status = status
        if status is Status.PREEMPTED:
            self.num_preemptions += 1
            self.cached_tokens = 0
            self.draft_tokens = ()

    @property
    def num_tokens(self) -> int:
        """Prompt and answer so far."""
        return len(self.tokens)

    @property
    def generated_tokens(self) -> int:
        """Answer so far."""
        return len(self.tokens) - self.prompt_tokens

    @property
    def uncached_tokens(self) -> int:
        """Tokens that must be computed before the next one is produced: 1 in decode, more in prefill."""
        return len(self.tokens) - self.cached_tokens

    @property
    def remaining_tokens(self) -> int:
        """Tokens of the answer that are still allowed."""
        return self.max_new_tokens - self.generated_tokens

    @property
    def longest_tokens(self) -> int:
        """Prompt and the longest answer allowed; the last token of it is never computed, but engines reserve for it."""
        return self.prompt_tokens + self.max_new_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether all but the last produced token are in the cache."""
        return self.generated_tokens > 0 and self.uncached_tokens == 1

    @property
    def is_complete(self) -> bool:
        """Whether the answer has its full length or ended with a stop token."""
        return self.remaining_tokens <= 0 or (self.generated_tokens > 0 and self.tokens[-1] in self.stop_tokens)

    def computed(self, num_tokens: int) -> None:
        """Count ``num_tokens`` more as cached.

        Raises:
            ValueError: there are not as many to compute.

        """
        if not 0 < num_tokens <= self.uncached_tokens:
            raise ValueError(
                f"sequence {self.sequence_id}: {num_tokens} tokens computed, {self.uncached_tokens} were left to do"
            )
        self.cached_tokens += num_tokens

    def append(self, token: int) -> None:
        """Add a produced token.

        Raises:
            ValueError: tokens before it have not been computed, or the answer has its full length.

        """
        if self.uncached_tokens or self.is_complete:
            raise ValueError(
                f"sequence {self.sequence_id} cannot take a token: {self.uncached_tokens} tokens are not computed, "
                f"{self.remaining_tokens} are left of its answer"
            )
        self.tokens.append(token)

    def propose(self, tokens: Iterable[int]) -> None:
        """Take drafts in place of those before.

        Raises:
            ValueError: nothing may follow, or tokens before them wait to be computed.

        """
        if not self.is_decoding or self.is_complete:
            raise ValueError(f"sequence {self.sequence_id} takes no drafts: {self!r}")
        self.draft_tokens = tuple(tokens)

    def accept(self, num_tokens: int) -> None:
        """Add the first ``num_tokens`` drafts to the answer; the others are forgotten.

        Raises:
            ValueError: there are not as many, or the answer has no room for them and a token behind.

        """
        if not 0 <= num_tokens <= min(len(self.draft_tokens), self.remaining_tokens - 1):
            raise ValueError(
                f"sequence {self.sequence_id}: {num_tokens} drafts accepted of {len(self.draft_tokens)}, "
                f"{self.remaining_tokens} tokens are left of its answer"
            )
        self.tokens.extend(self.draft_tokens[:num_tokens])
        self.draft_tokens = ()

    def __repr__(self) -> str:
        """Return identity, status and progress."""
        return (
            f"Sequence({self.sequence_id}, {self._status}, {self.cached_tokens}/{self.num_tokens} tokens cached, "
            f"{self.generated_tokens}/{self.max_new_tokens} generated)"
        )
