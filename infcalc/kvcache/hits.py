"""How often and how far requests find their prefix cached."""

from __future__ import annotations


class HitCounts:
    """Counts of looked-up requests and tokens, and of those found.

    Source: vLLM ``PrefixCacheStats`` counts each admitted request once, with all tokens of its prompt.

    >>> counts = HitCounts()
    >>> counts.record(100, 80)
    >>> counts.record(100, 0)
    >>> counts.request_fraction, counts.token_fraction
    (0.5, 0.4)
    """

    __slots__ = ("num_hit_requests", "num_hit_tokens", "num_requests", "num_tokens")

    def __init__(self) -> None:
        self.num_requests = 0
        self.num_tokens = 0
        self.num_hit_requests = 0
        self.num_hit_tokens = 0

    def record(self, num_tokens: int, num_hit_tokens: int) -> None:
        """Count one request of ``num_tokens``, of which ``num_hit_tokens`` were cached."""
        self.num_requests += 1
        self.num_tokens += num_tokens
        self.num_hit_requests += num_hit_tokens > 0
        self.num_hit_tokens += num_hit_tokens

    @property
    def request_fraction(self) -> float:
        """Share of requests that found anything; 0 before the first."""
        return self.num_hit_requests / self.num_requests if self.num_requests else 0.0

    @property
    def token_fraction(self) -> float:
        """Share of tokens that need not be computed; 0 before the first."""
        return self.num_hit_tokens / self.num_tokens if self.num_tokens else 0.0
