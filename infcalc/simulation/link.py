"""A link between replicas: caches cross it one after another, and what a cache weighs."""

from __future__ import annotations

from infcalc.frozen import frozen
from infcalc.memory.kv import KvComponent, sequence_bytes
from infcalc.simulation.batch_shape import PS_PER_S


@frozen
class Payload:
    """The cache of one sequence of a whole model, by its parts, as :func:`infcalc.memory.kv.kv_components` has them."""

    parts: tuple[KvComponent, ...]

    def whole_bytes(self, num_tokens: int) -> int:
        """Return all that crosses for a prompt: its tokens, full windows at most, and what is constant."""
        return sequence_bytes(self.parts, num_tokens)

    def early_bytes(self, num_tokens: int) -> int:
        """Return what may cross before a prompt is at its end: windows and recurrent states are final only there."""
        return sum(
            part.bytes_at(num_tokens) for part in self.parts if part.window_tokens is None and not part.constant_bytes
        )


class Link:
    """First come, first served at ``bytes_per_s``; what has left arrives ``latency_ps`` later.

    >>> link = Link(bytes_per_s=100, latency_ps=5)
    >>> link.landed_ps(0, 50) - PS_PER_S // 2, link.landed_ps(0, 100) - 3 * PS_PER_S // 2
    (5, 5)
    """

    __slots__ = ("_bytes_per_s", "_free_ps", "_latency_ps", "busy_ps", "sent_bytes")

    def __init__(self, *, bytes_per_s: int, latency_ps: int = 0) -> None:
        if bytes_per_s < 1 or latency_ps < 0:
            raise ValueError(f"a link of {bytes_per_s} bytes/s and {latency_ps} ps")
        self._bytes_per_s = bytes_per_s
        self._latency_ps = latency_ps
        self._free_ps = 0
        self.busy_ps = 0
        self.sent_bytes = 0

    def landed_ps(self, now_ps: int, num_bytes: int) -> int:
        """Send bytes behind all others and return when the last of them arrives; calls are in the order of time."""
        lasts_ps = -(-num_bytes * PS_PER_S // self._bytes_per_s)
        self._free_ps = max(now_ps, self._free_ps) + lasts_ps
        self.busy_ps += lasts_ps
        self.sent_bytes += num_bytes
        return self._free_ps + self._latency_ps
