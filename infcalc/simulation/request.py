"""What arrives: when, how long prompt and answer are, and which tokens the prompt shares with others.

Tokens have no meaning here, but the caches compare them, so they must differ where texts differ and agree where texts
agree. All tokens of one text have one id, a different one for each text: two prompts agree exactly as far as the spans
that they begin with.
"""

from __future__ import annotations

from infcalc.frozen import frozen

_FIRST_SHARED = 2**30
_LAST_SHARED = 2**31 - 1
STOP_TOKEN = _FIRST_SHARED - 1
"""Ends an answer that is shorter than the engine was told to expect."""
MOST_REQUESTS = STOP_TOKEN // 2
"""Of one run: each has two ids of its own."""


@frozen
class Span:
    """A run of tokens of one text, from its beginning. Spans with the same ``text`` hold the same tokens."""

    text: int
    num_tokens: int


@frozen
class Request:
    """One request. ``arrival_ps`` counts from the start of the run.

    ``spans`` are what the prompt begins with and others may share; the rest of its ``prompt_tokens`` is its own.
    ``output_tokens`` is how many the answer has, the first included; ``max_output_tokens`` what the engine is told to
    allow, which some reserve (None: it is told the truth). Where a later prompt repeats the answer, as the next turn of
    a chat does, it has ``answer`` as the text of that span.

    Raises:
        ValueError: such a request cannot be.

    >>> Request(arrival_ps=0, prompt_tokens=5, output_tokens=2, spans=(Span(text=7, num_tokens=3),)).own_tokens
    2

    """

    arrival_ps: int
    prompt_tokens: int
    output_tokens: int
    max_output_tokens: int | None = None
    spans: tuple[Span, ...] = ()
    answer: int | None = None

    def __post_init__(self) -> None:
        """Check the numbers."""
        if self.arrival_ps < 0 or self.prompt_tokens < 1 or self.output_tokens < 1:
            raise ValueError(
                f"a request at {self.arrival_ps} ps of {self.prompt_tokens} prompt and {self.output_tokens} answer "
                "tokens: it comes at 0 or later, with at least one of each"
            )
        if self.allowed_tokens < self.output_tokens:
            raise ValueError(f"an answer of {self.output_tokens} tokens where {self.max_output_tokens} are allowed")
        if self.own_tokens < 0 or any(span.num_tokens < 1 for span in self.spans):
            raise ValueError(f"spans {self.spans} in a prompt of {self.prompt_tokens} tokens")
        texts = [span.text for span in self.spans] + ([] if self.answer is None else [self.answer])
        if any(not 0 <= text <= _LAST_SHARED - _FIRST_SHARED for text in texts):
            raise ValueError(f"texts {texts}: their numbers are from 0 to {_LAST_SHARED - _FIRST_SHARED}")

    @property
    def own_tokens(self) -> int:
        """Tokens of the prompt that nobody else has."""
        return self.prompt_tokens - sum(span.num_tokens for span in self.spans)

    @property
    def allowed_tokens(self) -> int:
        """The longest answer that the engine must expect."""
        return self.output_tokens if self.max_output_tokens is None else self.max_output_tokens

    def prompt_ids(self, index: int) -> list[int]:
        """Return the token ids of the prompt of request ``index`` of a run."""
        ids = [token for span in self.spans for token in [_FIRST_SHARED + span.text] * span.num_tokens]
        return ids + [2 * index] * self.own_tokens

    def answer_id(self, index: int, num_before: int) -> int:
        """Return the token of the answer of request ``index`` after ``num_before`` of them."""
        if num_before + 1 == self.output_tokens < self.allowed_tokens:
            return STOP_TOKEN
        return 2 * index + 1 if self.answer is None else _FIRST_SHARED + self.answer
