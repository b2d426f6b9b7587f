"""A stream of prompts of which some begin with one of a few prefixes: what prefix caches are tried on."""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING

from infcalc.frozen import frozen

if TYPE_CHECKING:
    import numpy as np


@frozen
class Prompt:
    """One request: its tokens, and which prefix it begins with (None: none that anyone else has)."""

    tokens: array[int]
    answer: array[int]
    """Tokens of its answer, which engines cache too."""
    prefix: int | None


@frozen
class SharedStream:
    """Requests of which exactly ``num_sharing`` begin with one of ``num_prefixes`` prefixes, dealt out in turn.

    A sharing request has ``prefix_tokens`` and after them its own part; one that does not share is as long, and its own
    all through. No two own parts agree in any token, so that nothing but prefixes is ever found.
    """

    num_sharing: int
    num_prefixes: int
    prefix_tokens: int
    own_tokens: tuple[int, ...]
    """Of each request."""
    answer_tokens: tuple[int, ...]
    """The same of its answer."""

    @property
    def num_requests(self) -> int:
        """All requests."""
        return len(self.own_tokens)

    @property
    def num_repeats(self) -> int:
        """Sharing requests that are not the first of their prefix: no cache finds more."""
        return self.num_sharing - min(self.num_prefixes, self.num_sharing)

    @property
    def prompt_tokens(self) -> int:
        """Of all prompts."""
        return self.num_requests * self.prefix_tokens + sum(self.own_tokens)

    @property
    def longest_tokens(self) -> int:
        """Of the longest prompt with its answer."""
        pairs = zip(self.own_tokens, self.answer_tokens, strict=True)
        return self.prefix_tokens + max((own + answer for own, answer in pairs), default=0)

    @property
    def distinct_tokens(self) -> int:
        """Tokens that a cache without bounds holds in the end: each prefix once, and all that is not shared."""
        return self.prompt_tokens - self.num_repeats * self.prefix_tokens + sum(self.answer_tokens)


def prompts_of(stream: SharedStream, rng: np.random.Generator) -> tuple[Prompt, ...]:
    """Return the requests in a random order.

    >>> import numpy as np
    >>> stream = SharedStream(
    ...     num_sharing=2, num_prefixes=1, prefix_tokens=3, own_tokens=(1, 1, 2), answer_tokens=(1, 1, 1)
    ... )
    >>> [(one.prefix, one.tokens.tolist()) for one in prompts_of(stream, np.random.default_rng(0))]
    [(None, [3, 4, 5, 6]), (0, [0, 1, 2, 8]), (0, [0, 1, 2, 10, 11])]
    """
    prefixes = [
        array("i", range(which * stream.prefix_tokens, (which + 1) * stream.prefix_tokens))
        for which in range(stream.num_prefixes)
    ]
    dealt: list[int | None] = [number % stream.num_prefixes for number in range(stream.num_sharing)]
    dealt += [None] * (stream.num_requests - stream.num_sharing)
    keys = rng.random(stream.num_requests).tolist()
    dealt = [dealt[place] for place in sorted(range(stream.num_requests), key=keys.__getitem__)]
    next_token = stream.num_prefixes * stream.prefix_tokens
    found = []
    for which, own, answer in zip(dealt, stream.own_tokens, stream.answer_tokens, strict=True):
        length = own if which is not None else own + stream.prefix_tokens
        fresh = array("i", range(next_token, next_token + length + answer))
        next_token += len(fresh)
        tokens = fresh[:length] if which is None else prefixes[which] + fresh[:length]
        found.append(Prompt(tokens=tokens, answer=fresh[length:], prefix=which))
    return tuple(found)
