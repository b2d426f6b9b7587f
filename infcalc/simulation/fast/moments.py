"""What is written down of a run whose requests nobody asks for: four moments of each, by its place, and no record."""

from __future__ import annotations

from array import array
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from infcalc.kvcache.invariant import holds
from infcalc.simulation.fast.recorder import SampleRecorder, per_token
from infcalc.simulation.fast.samples import Ints, Samples

if TYPE_CHECKING:
    from infcalc.simulation.fast.columns import Load
    from infcalc.simulation.fast.flight import Flight
    from infcalc.simulation.fast.replica import FastReplica

UNFINISHED = -1
"""Stands for a moment of a request that did not get its answer."""
MOMENTS = ("scheduled_ps", "first_token_ps", "last_token_ps", "end_ps")


class MomentRecorder(SampleRecorder):
    """Keeps four moments of each request of a load, 8 bytes each, at its place: the load has all else."""

    def __init__(self, load: Load) -> None:
        super().__init__()
        nothing = array("q", [UNFINISHED])
        self._load = load
        self._scheduled_ps, self._first_token_ps, self._last_token_ps, self._end_ps = (
            nothing * len(load) for _ in MOMENTS
        )
        self._num_finished = 0
        self.reasons: dict[int, str] = {}
        """The requests that were refused; why, is said of the first."""
        self.hit_tokens = 0
        """Of all requests that got their answer, at their first admission."""

    def ended(self, flight: Flight, end_ps: int) -> None:
        """Take in that a flight has its whole answer and gave its place back."""
        place = flight.index
        self._scheduled_ps[place] = flight.scheduled_ps
        self._first_token_ps[place] = flight.first_token_ps
        self._last_token_ps[place] = flight.last_token_ps
        self._end_ps[place] = end_ps
        self._num_finished += 1
        self.hit_tokens += flight.first_hit_tokens

    def rejected(self, index: int, arrival_ps: int, end_ps: int, prompt_tokens: int, reason: str) -> None:
        """Take in that a request was refused."""
        super().rejected(index, arrival_ps, end_ps, prompt_tokens, reason)
        self.reasons[index] = next(iter(self.reasons.values()), reason)

    @property
    def num_finished(self) -> int:
        """Requests that got their answer."""
        return self._num_finished

    def moments(self) -> dict[str, Ints]:
        """Return a column for each of ``MOMENTS``, in the order of the requests: views, nothing is copied."""
        columns = (self._scheduled_ps, self._first_token_ps, self._last_token_ps, self._end_ps)
        return {name: np.frombuffer(column, dtype=np.int64) for name, column in zip(MOMENTS, columns, strict=True)}

    def samples(self) -> Samples:
        """Return the samples of all requests that got their answer, in the order of the requests."""
        one = self.moments()
        done = one["end_ps"] != UNFINISHED
        arrival = self._load.arrival_ps[done]
        first = one["first_token_ps"][done]
        return Samples(
            ttft_ps=first - arrival,
            queue_ps=one["scheduled_ps"][done] - arrival,
            e2e_ps=one["end_ps"][done] - arrival,
            tpot_ps=per_token(one["last_token_ps"][done] - first, self._load.output_tokens[done] - 1),
        )

    def close(self, num_requests: int, replica: FastReplica) -> None:
        """Check what must hold after a run, of every request.

        Raises:
            AssertionError: a law is broken.

        """
        super().close(num_requests, replica)
        one = self.moments()
        done = one["end_ps"] != UNFINISHED
        holds(int(done.sum()) == self._num_finished, "every request ends once")
        holds(not done[list(self.reasons)].any(), "nobody is refused and served")
        holds(bool(((self._load.arrival_ps <= one["scheduled_ps"]) | ~done).all()), "nobody starts before it comes")
        for before, after in pairwise(MOMENTS):
            holds(bool((one[before] <= one[after]).all()), f"{before} is no later than {after}")
