"""Drafts without a model: tokens that followed the same n-gram before, in the context or in a corpus.

A lookup costs no time on the GPU; what it costs is the verification of its proposals, which a :class:`Replay` counts.
A proposal is a certain one, so that under sampling it is accepted with the target's own probability (a one-hot draft).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from infcalc.errors import UsageError
from infcalc.frozen import frozen

if TYPE_CHECKING:
    from infcalc.speculation.priced import StepTimer


class Drafter(Protocol):
    """Proposes what comes next in one growing stream of tokens."""

    def extend(self, tokens: Iterable[int]) -> None:
        """Take the next tokens of the stream in."""

    def propose(self, num_draft_tokens: int) -> tuple[int, ...]:
        """Return at most ``num_draft_tokens`` tokens that may follow; none where nothing is known."""


class PromptLookup:
    """What followed the first earlier occurrence of the longest suffix of ``max_ngram`` down to ``min_ngram`` tokens.

    Each token is indexed once, so that a proposal does not search the context. Sources: Saxena, "Prompt lookup
    decoding", 2023; vLLM ``NgramProposer`` (``prompt_lookup_max`` and ``prompt_lookup_min``, both 5 where unset).
    """

    def __init__(self, tokens: Iterable[int] = (), *, max_ngram: int = 5, min_ngram: int = 5) -> None:
        _require_orders(max_ngram, min_ngram)
        self._orders = range(max_ngram, min_ngram - 1, -1)
        self._tokens: list[int] = []
        # Where the token after the first occurrence of an n-gram stands.
        self._after: dict[tuple[int, ...], int] = {}
        self.extend(tokens)

    def extend(self, tokens: Iterable[int]) -> None:
        """Take the next tokens of the stream in."""
        for token in tokens:
            end = len(self._tokens)
            for order in self._orders:
                if order <= end:
                    self._after.setdefault(tuple(self._tokens[end - order :]), end)
            self._tokens.append(token)

    def propose(self, num_draft_tokens: int) -> tuple[int, ...]:
        """Return at most ``num_draft_tokens`` tokens that may follow; none where the suffix is new."""
        for order in self._orders:
            if order <= len(self._tokens):
                after = self._after.get(tuple(self._tokens[len(self._tokens) - order :]))
                if after is not None:
                    return tuple(self._tokens[after : after + num_draft_tokens])
        return ()


class CorpusTable:
    """The token that most often followed each n-gram of ``max_ngram`` down to ``min_ngram`` tokens in a corpus.

    The longest known suffix decides, token by token, so that a proposal may go on from its own tokens; of tokens that
    followed equally often, the first seen. Sources: the static n-gram cache of llama.cpp (``lookup``); He et al.,
    "REST: Retrieval-based speculative decoding", 2023 (drafts from a corpus).
    """

    def __init__(self, corpus: Iterable[Sequence[int]], *, max_ngram: int = 4, min_ngram: int = 2) -> None:
        _require_orders(max_ngram, min_ngram)
        self._orders = range(max_ngram, min_ngram - 1, -1)
        counts: dict[tuple[int, ...], Counter[int]] = {}
        for stream in corpus:
            for order in self._orders:
                for start in range(len(stream) - order):
                    gram = tuple(stream[start : start + order])
                    counts.setdefault(gram, Counter())[stream[start + order]] += 1
        self._best = {gram: followers.most_common(1)[0][0] for gram, followers in counts.items()}
        self._suffix: tuple[int, ...] = ()

    @property
    def num_entries(self) -> int:
        """N-grams in the table: what it holds in memory."""
        return len(self._best)

    def extend(self, tokens: Iterable[int]) -> None:
        """Take the next tokens of the stream in: only the longest suffix counts."""
        self._suffix = (*self._suffix, *tokens)[-self._orders[0] :]

    def propose(self, num_draft_tokens: int) -> tuple[int, ...]:
        """Return at most ``num_draft_tokens`` tokens that may follow; none where the suffix is unknown."""
        suffix = self._suffix
        found: list[int] = []
        while len(found) < num_draft_tokens:
            known = (self._best.get(suffix[len(suffix) - order :]) for order in self._orders if order <= len(suffix))
            token = next((one for one in known if one is not None), None)
            if token is None:
                break
            found.append(token)
            suffix = (*suffix, token)[-self._orders[0] :]
        return tuple(found)


class FirstKnown:
    """The proposal of the first of several drafters that has one, such as the context before the corpus."""

    def __init__(self, *drafters: Drafter) -> None:
        self._drafters = drafters

    def extend(self, tokens: Iterable[int]) -> None:
        """Take the next tokens of the stream in, for all drafters."""
        tokens = tuple(tokens)
        for drafter in self._drafters:
            drafter.extend(tokens)

    def propose(self, num_draft_tokens: int) -> tuple[int, ...]:
        """Return at most ``num_draft_tokens`` tokens that may follow, by the first drafter that knows any."""
        return next((found for drafter in self._drafters if (found := drafter.propose(num_draft_tokens))), ())


@frozen
class Replay:
    """What lookups would have done on a stream of tokens, and what they cost.

    ``rounds_by_drafted`` counts the rounds that drafted 0, 1, ... tokens: each verifies its drafts and one token more.
    """

    num_tokens: int
    num_accepted_tokens: int
    rounds_by_drafted: tuple[int, ...]

    @property
    def num_rounds(self) -> int:
        """Steps of the target; without drafts it would take one per token."""
        return sum(self.rounds_by_drafted)

    @property
    def num_drafted_tokens(self) -> int:
        """Tokens that were proposed."""
        return sum(drafted * rounds for drafted, rounds in enumerate(self.rounds_by_drafted))

    @property
    def num_verified_tokens(self) -> int:
        """Tokens that the target computed: the drafts and one per round."""
        return self.num_drafted_tokens + self.num_rounds

    @property
    def tokens_per_round(self) -> float:
        """Tokens that came out of a step of the target on average, those of rounds without a proposal included."""
        return self.num_tokens / self.num_rounds if self.num_rounds else 0.0

    @property
    def accepted_fraction(self) -> float:
        """Accepted over drafted tokens; 0 where nothing was drafted."""
        return self.num_accepted_tokens / self.num_drafted_tokens if self.num_drafted_tokens else 0.0

    @property
    def operations_ratio(self) -> float:
        """Tokens that the target computed over those that came out: 1 without drafts."""
        return self.num_verified_tokens / self.num_tokens if self.num_tokens else 0.0


def replayed(stream: Sequence[int], num_prompt_tokens: int, drafter: Drafter, num_draft_tokens: int) -> Replay:
    """Return what a fresh ``drafter`` does for the tokens of ``stream`` after its prompt.

    The target is one that writes just this stream (greedy decoding): a draft is accepted while it agrees. Drafts beyond
    the end of the stream are not proposed.

    Raises:
        UsageError: the prompt is longer than the stream, or the draft has no length.

    >>> found = replayed([1, 2, 3] * 4, 6, PromptLookup(max_ngram=2, min_ngram=2), 4)
    >>> found.num_rounds, found.tokens_per_round, found.num_verified_tokens
    (2, 3.0, 6)

    """
    if not 0 <= num_prompt_tokens <= len(stream) or num_draft_tokens < 0:
        raise UsageError(
            f"a prompt of {num_prompt_tokens} of {len(stream)} tokens and {num_draft_tokens} draft tokens",
            hint="the prompt is a part of the stream, and a draft has 0 tokens or more",
        )
    drafter.extend(stream[:num_prompt_tokens])
    at, accepted = num_prompt_tokens, 0
    rounds = [0] * (num_draft_tokens + 1)
    while at < len(stream):
        drafts = drafter.propose(min(num_draft_tokens, len(stream) - at - 1))
        rounds[len(drafts)] += 1
        agreed = next(
            (index for index, draft in enumerate(drafts) if draft != stream[at + index]),
            len(drafts),
        )
        accepted += agreed
        drafter.extend(stream[at : at + agreed + 1])
        at += agreed + 1
    return Replay(
        num_tokens=len(stream) - num_prompt_tokens, num_accepted_tokens=accepted, rounds_by_drafted=tuple(rounds)
    )


def replayed_speedup(replay: Replay, target: StepTimer, batch: int, *, lookup_s: float = 0.0) -> float:
    """Return plain decoding time over that of the rounds: each verifies its own number of tokens.

    ``lookup_s`` is what the host needs per round, where it delays the step. The other sequences of the batch are taken
    to verify as many tokens. 1 for an empty stream.
    """
    spent = sum(
        rounds * (target(batch, 1 + drafted) + lookup_s) for drafted, rounds in enumerate(replay.rounds_by_drafted)
    )
    return replay.num_tokens * target(batch, 1) / spent if spent else 1.0


def _require_orders(max_ngram: int, min_ngram: int) -> None:
    if not 1 <= min_ngram <= max_ngram:
        raise UsageError(f"n-grams of {max_ngram} down to {min_ngram} tokens", hint="1 <= shortest <= longest")
