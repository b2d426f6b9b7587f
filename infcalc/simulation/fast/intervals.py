"""Times between two tokens of a request, as runs of steps."""

from __future__ import annotations

from array import array


class Intervals:
    """Runs of steps: the first interval, what each next one is longer, how many, and how many requests waited each."""

    __slots__ = ("_put", "first_ps", "more_ps", "num_requests", "num_steps")

    def __init__(self) -> None:
        self.first_ps, self.more_ps = array("q"), array("q")
        self.num_steps, self.num_requests = array("q"), array("q")
        self._put = tuple(one.append for one in (self.first_ps, self.more_ps, self.num_steps, self.num_requests))

    def add(self, first_ps: int, more_ps: int, num_steps: int, num_requests: int) -> None:
        """Add a run."""
        first, more, steps, requests = self._put
        first(first_ps)
        more(more_ps)
        steps(num_steps)
        requests(num_requests)
